"""Controller, software switches and attached brokers on real sockets: found, joined by a tree, and served without links
that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from saps.config import Address
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.events import Intent
from saps.ofm.controller.program import OfcProgram
from saps.ofm.datapath.driver.attached import AttachedEndpoint
from saps.ofm.flows.plan import ours
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import Status
from saps.ofm.switch import bridge as software
from saps.ofm.switch import sockets_io as sockets
from saps.ofm.switch.host import mac_for
from saps.ofm.switch.program import order
from saps.ofm.switch.sockets_io import SoftwareSwitches
from saps.ofm.switch.topologies import parse
from tests.ofm.openflow import messages

TIMEOUT = 120.0
TOPIC = "alert/fire"


class Broker:
    """A broker's endpoint, and what it got."""

    def __init__(self, place: str, attachment: tuple[str, int]) -> None:
        cluster, _, number = place[1:].partition("b")
        ip = f"10.77.{cluster}.{number}"
        self.element = BrokerAddress(ip, mac_for(ip), 7400)
        self.got: list[bytes] = []
        self.endpoint = AttachedEndpoint(str(Address(*attachment)), self.got.extend)


class World:
    """All of it."""

    def __init__(self, controller: OfcProgram, switches: SoftwareSwitches, brokers: list[Broker]) -> None:
        self.controller, self.switches, self.brokers = controller, switches, brokers

    async def tree(self) -> str:
        """Intent for a tree of all brokers; its address, once it is constructed."""
        intent = Intent(frozenset(broker.element for broker in self.brokers))
        async with asyncio.timeout(TIMEOUT):
            state = await self.controller.service.intent(TOPIC, intent, TIMEOUT)
        assert state.status is Status.CONSTRUCTED, state
        assert state.address is not None
        return state.address

    async def reaches_all(self, address: str) -> None:
        """What each sends comes to all others once and returns; packets may be lost while a tree changes."""
        for number, sender in enumerate(self.brokers):
            text = b"from %d" % number

            await until(partial(self._have, text), partial(self._send, sender, address, text))
            assert all(broker.got == [text] for broker in self.brokers)

    def _have(self, text: bytes) -> bool:
        return all(text in broker.got for broker in self.brokers)

    def _send(self, sender: Broker, address: str, text: bytes) -> None:
        for broker in self.brokers:
            broker.got.clear()
        sender.endpoint.send(address, text, 46)


async def until(true: Callable[[], bool], again: Callable[[], object] = lambda: None) -> None:
    """Wait for something, doing something `again` each half second."""
    async with asyncio.timeout(TIMEOUT):
        while not true():
            again()
            for _ in range(50):
                await asyncio.sleep(0.01)
                if true():
                    break


@asynccontextmanager
async def world(topology: str, places: list[str], meter: int = 0) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        local = Address("127.0.0.1", 0)
        controller = OfcProgram(
            ControllerSettings(listen=local, northbound=local, grace=0.5, probe_interval=0.2, meter=meter)
        )
        stack.push_async_callback(controller.stop)
        await controller.start()
        switches = SoftwareSwitches(parse(topology), (controller.listen.host, controller.listen.port))
        stack.push_async_callback(switches.close)
        await switches.start("127.0.0.1", 0)
        brokers = [Broker(place, switches.attachments[place]) for place in places]
        for broker in brokers:
            broker.endpoint.plug_in(broker.element)
            stack.callback(broker.endpoint.close)
        yield World(controller, switches, brokers)


@pytest.mark.timeout(600)
async def test_brokers_are_found_and_a_tree_carries_what_they_send() -> None:
    async with world("tree:3x2", ["c1b1", "c1b2", "c2b1", "c3b2"], meter=1000) as it:
        address = await it.tree()
        await it.reaches_all(address)
        metered = [len(ours(bridge.switch.tables).meters) for bridge in it.switches.network.bridges.values()]
        assert sorted(metered) == [0, 1, 1, 2], "one for each broker's port"
        ports = {(each.dpid[-1], each.port): each for each in await it.controller.service.ports()}
        assert len(ports) == 3 + 3 * 3
        status = order(it.switches, "status")
        assert ports["1", 1].tx_packets <= status["switches"]["core"]["ports"]["core-s1"]["sent"]
        assert status["switches"]["core"]["buckets"] == 3
        assert status["connected"] == 4


@pytest.mark.timeout(600)
async def test_links_that_fail_and_switches_that_restart_are_told_and_gone_around(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On switches that have no meters, though they are wished for: that is said once."""
    monkeypatch.setattr(software, "MOST_METERS", 0)
    async with world("ring:3x1", ["c1b1", "c2b1", "c3b1"], meter=1000) as it:
        address = await it.tree()
        await it.reaches_all(address)
        topology = it.controller.machine.topology
        assert order(it.switches, "down s1 s2") == {"link": ["s1", "s2"], "up": False}
        await until(lambda: len(topology.links) == 2)
        await it.reaches_all(await it.tree())
        assert order(it.switches, "restart s3") == {"restarted": "s3"}
        await it.reaches_all(await it.tree())
        order(it.switches, "up s2 s1")
        await until(lambda: len(topology.links) == 3)
        assert "there is no such link" in order(it.switches, "up s1 core")["error"]
        assert "not an order" in order(it.switches, "explode")["error"]
        said = [record.message for record in caplog.records if "topics are not limited" in record.message]
        assert len(said) == len(set(said)) == 3


async def test_a_controller_that_asks_and_does_not_listen_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sockets, "MOST_UNSENT", 1 << 16)
    caplog.set_level(logging.INFO)
    connections: list[asyncio.StreamWriter] = []

    async def ask(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        if len(connections) > 1:
            return
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(messages.hello(4))
        try:
            for _ in range(1000):  # what the kernel holds of the answers is far less
                writer.write(messages.message(messages.ECHO_REQUEST, bytes(60_000)))
                await writer.drain()
        except ConnectionError:
            pass

    controller = await asyncio.start_server(ask, "127.0.0.1", 0)
    async with controller:
        switches = SoftwareSwitches(parse("line:1x1"), controller.sockets[0].getsockname()[:2])
        try:
            await switches.start("127.0.0.1", 0)
            await until(lambda: len(connections) > 1)  # it comes back
        finally:
            await switches.close()
            for writer in connections:
                writer.transport.abort()
    assert "the connection has ended: the controller does not take what it is sent" in caplog.text


@pytest.mark.network
@pytest.mark.parametrize("stdin", [subprocess.DEVNULL, subprocess.PIPE])
def test_the_command_serves_with_and_without_orders(stdin: int) -> None:
    """Under a service manager standard input is /dev/null, at which an event loop must not wait."""
    argv = [
        str(Path(sys.executable).with_name("saps")),
        "switches",
        "--topology",
        "line:2x1",
        "--controller",
        "[::1]:1",
    ]
    with subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready switches=2 c1b1=127.0.0.1:")
        if process.stdin is not None:
            process.stdin.write("down s1 s2\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"link": ["s1", "s2"], "up": False}
        process.terminate()
        assert process.wait(60) == 0
