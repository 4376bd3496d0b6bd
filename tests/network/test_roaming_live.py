"""Clients that go from broker to broker under traffic, on real brokers and sockets."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from benchmarks.durable_clients import DurableClient, Publisher, Subscriber
from examples.smart_city.processes import BrokerProcess, saps_broker
from monitoring.counts.mqtt_io import disconnect
from saps.broker.broker import Broker
from saps.config import LimitSettings
from tests.network.meshes import Client, mesh

pytestmark = pytest.mark.network

ANY = "127.0.0.1:0"
TIMEOUT = 60.0
ENOUGH = 1_000_000
"""Messages a session may hold: as many as a fast machine publishes while its client is on the way."""


class Nomad(Subscriber):
    """Its next connection is to another broker."""

    def __init__(self, brokers: list[Broker]) -> None:
        self._ports = itertools.cycle([broker.server.address[1] for broker in brokers])
        super().__init__(next(self._ports), "nomad")

    def go_on(self) -> None:
        self._port = next(self._ports)
        self.drop()


async def reached(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    end = asyncio.get_running_loop().time() + TIMEOUT
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it does not come true"
        await asyncio.sleep(0.01)


async def test_a_client_that_goes_round_under_traffic_misses_nothing_and_gets_nothing_twice() -> None:
    """QoS 1 and 2 from two publishers at two brokers, while the subscriber goes from broker to broker."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh(3, limits=LimitSettings(maximum_queued=ENOUGH)))
        nomad = Nomad(brokers)
        publishers = [Publisher(broker.server.address[1], f"p{n}", window=8) for n, broker in enumerate(brokers[:2])]
        clients: list[DurableClient] = [nomad, *publishers]
        tasks = [asyncio.create_task(nomad.run())]
        stack.push_async_callback(end, tasks)
        await asyncio.wait_for(nomad.subscribed.wait(), TIMEOUT)
        tasks += [asyncio.create_task(publisher.run()) for publisher in publishers]
        for _ in range(12):
            before, heard = nomad.connections, sum(total(nomad, publisher) for publisher in publishers)
            nomad.go_on()
            await reached(lambda before=before: nomad.connections > before)  # type: ignore[misc]
            await reached(lambda n=heard: sum(total(nomad, publisher) for publisher in publishers) > n + 50)  # type: ignore[misc]
        for publisher in publishers:
            publisher.stop()
        await reached(lambda: all(publisher.finished for publisher in publishers))
        await reached(lambda: all(not missing(nomad, publisher) for publisher in publishers))
        for publisher in publishers:
            twice = [n for n, times in nomad.received[publisher.client_id].items() if times > 1 and n % 2 == 0]
            assert not twice, f"QoS 2 came twice: {twice}"
        assert not [client.sessions_lost for client in clients if client.sessions_lost]
        assert sum(broker.mesh.node.sessions.migrations.target.taken for broker in brokers) == 12
        holders = [broker for broker in brokers if "nomad" in broker.server.frontend.sessions]
        assert len(holders) == 1


def total(nomad: Nomad, publisher: Publisher) -> int:
    return len(nomad.received.get(publisher.client_id, ()))


def missing(nomad: Nomad, publisher: Publisher) -> set[int]:
    return publisher.acknowledged - nomad.received.get(publisher.client_id, Counter()).keys()


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class PahoClient:
    """A subscriber of the Eclipse Paho library that keeps its session."""

    def __init__(self, name: str) -> None:
        self.present: list[bool] = []
        self.ended: list[int] = []
        self.got: list[bytes] = []
        self.granted = 0
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self.client.on_message = lambda client, data, message: self.got.append(bytes(message.payload))
        self.client.on_subscribe = self._subscribed

    def _connected(
        self, client: paho.Client, data: object, flags: paho.ConnectFlags, code: ReasonCode, p: object
    ) -> None:
        if not code.is_failure:
            self.present.append(flags.session_present)

    def _disconnected(self, client: paho.Client, data: object, flags: object, code: ReasonCode, p: object) -> None:
        self.ended.append(code.value)

    def _subscribed(self, *args: object) -> None:
        self.granted += 1

    def connect(self, broker: Broker) -> None:
        """Connect with the session kept for an hour."""
        kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = 3600
        self.client.connect(*broker.server.address, clean_start=False, properties=kept)
        self.client.loop_start()


async def test_one_client_identifier_is_connected_once_in_the_mesh() -> None:
    """Two Paho clients of one name, at two brokers: the first is told 0x8E, the second has its session."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh(3))
        publisher = await stack.enter_async_context(Client(brokers[2].server.address))
        first, second = PahoClient("same"), PahoClient("same")
        for each in (first, second):
            stack.callback(disconnect, each.client)
        await asyncio.to_thread(first.connect, brokers[0])
        await reached(lambda: bool(first.present))
        first.client.subscribe("news/+", qos=1)
        await reached(lambda: bool(first.granted))
        first.client.reconnect_delay_set(600, 600)
        await asyncio.to_thread(second.connect, brokers[1])
        await reached(lambda: bool(first.ended) and bool(second.present))
        assert first.ended == [0x8E]
        assert (first.present, second.present) == ([False], [True])
        await publisher.publish("news/a", b"1", 1)
        await reached(lambda: second.got == [b"1"])
        assert not first.got


async def test_stored_sessions_move_from_file_to_file(tmp_path: Path) -> None:
    """What has moved outlives `kill -9` at its new broker, there and elsewhere."""
    async with AsyncExitStack() as stack:
        processes: list[BrokerProcess] = []

        async def start(number: int, mqtt: str, overlay: str) -> BrokerProcess:
            join = [told(process, "overlay") for n, process in enumerate(processes) if n != number]
            stored = {"storage.file": str(tmp_path / f"b{number}.db"), "storage.sync": "off"}
            stored["limits.maximum_queued"] = str(ENOUGH)
            process = saps_broker(f"b{number}", "c0", mqtt, overlay, join, stored)
            stack.push_async_callback(process.stop, 0)
            await process.start()
            return process

        async def restart(number: int) -> None:
            dead = processes[number]
            processes[number] = await start(number, told(dead, "mqtt"), told(dead, "overlay"))

        for number in range(3):  # each joins those before
            process = await start(number, ANY, ANY)
            processes.append(process)
        ports = [int(told(process, "mqtt").rsplit(":", 1)[1]) for process in processes]
        nomad = Roamer(ports[0])
        tasks = [asyncio.create_task(nomad.run())]
        stack.push_async_callback(end, tasks)
        await asyncio.wait_for(nomad.subscribed.wait(), TIMEOUT)
        publisher = Publisher(ports[2], "p", window=8)
        tasks.append(asyncio.create_task(publisher.run()))
        await reached(lambda: len(publisher.acknowledged) > 20)
        await nomad.go(ports[1])
        processes[1].signal(signal.SIGKILL)
        await restart(1)
        await nomad.go(ports[0])
        assert not nomad.sessions_lost
        await reached(lambda: len(publisher.acknowledged) > 100)
        publisher.stop()
        await reached(lambda: publisher.finished)
        twice = [n for n, times in nomad.received["p"].items() if times > 1 and n % 2 == 0]
        assert not twice, f"QoS 2 came twice: {twice}"
        nomad.subscribed.clear()
        processes[0].signal(signal.SIGKILL)
        await nomad.go(ports[1])
        assert not nomad.sessions_lost, "another broker has adopted its session"
        await restart(0)
        await nomad.go(ports[0])
        await nomad.go(ports[1])
        assert not nomad.sessions_lost


class Roamer(Subscriber):
    """Goes where it is told."""

    def __init__(self, port: int) -> None:
        super().__init__(port, "nomad")
        self._dialled = self.at = 0

    async def _live(self) -> None:
        self._dialled = self._port
        await super()._live()

    def connected(self) -> None:
        self.at = self._dialled
        super().connected()

    async def go(self, port: int) -> None:
        """Returns when it is connected there."""
        before, self._port, self.at = self.connections, port, 0
        self.drop()

        def there() -> bool:
            if self.at not in (0, port):  # it was still on its way to another one
                self.at = 0
                self.drop()
            return self.connections > before and self.at == port

        await reached(there)


def told(process: BrokerProcess, field: str) -> str:
    """A field of the ready line."""
    return dict(part.split("=", 1) for part in process.ready_line.split()[1:])[field]
