"""What goes on in a controller's service beside the events of switches, over a server and switches that do nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver import service as driver
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.events import Event, HostMoved, Intended, Intent, LinkChanged, SwitchDown, SwitchUp
from saps.ofm.controller.saved import restore
from saps.ofm.flows.tables import mac
from saps.ofm.network.probe import probe
from saps.ofm.network.topology import Link, Port
from saps.ofm.openflow.driver.server import OpenFlowServer
from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.hosts import HostSeen
from saps.ofm.openflow.values import PortInfo
from tests.ofm.controller.worlds import rules
from tests.ofm.networks import broker_at

LINK = Link.of(Port(1, 1), Port(2, 1))
BROKERS = [broker_at(number, 6000) for number in range(2)]


def two_switches() -> ControllerService:
    """A service that knows two switches with a link, and a broker at each."""
    service = ControllerService(Controller(rules()), grace=0.01)
    for dpid in (1, 2):
        service.handle(SwitchUp(dpid, {1: True, 2: True}))
    service.handle(LinkChanged(LINK, up=True))
    for dpid, broker in enumerate(BROKERS, 1):
        service.handle(HostMoved(broker.mac, Port(dpid, 2)))
    return service


async def test_a_switch_that_may_still_come_back_keeps_its_links_when_the_network_settles() -> None:
    service = two_switches()
    service._switches = {1: cast(Switch, None)}
    service.handle(SwitchDown(2))
    service.server = cast(OpenFlowServer, SimpleNamespace(links={LINK}, away={2}))
    await service._settle()
    assert service.machine.network.settled
    assert service.machine.topology.links == [LINK]


async def test_invented_hosts_take_no_broker_out_of_its_tree_and_no_memory_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("saps.ofm.network.network.MOST_HOSTS", 10)
    service = two_switches()
    service.handle(Intended("a", Intent(frozenset(BROKERS[:1]))))
    for number in range(100):
        service.host_seen(HostSeen(number, Port(1, 2)))
        assert len(service.machine.network.hosts) <= 10
    network = service.machine.network
    assert network.topology.where(BROKERS[0]) == Port(1, 2)
    assert BROKERS[1].mac not in network.hosts
    service.host_seen(HostSeen(mac(BROKERS[1].mac), Port(2, 2)))
    assert network.hosts[BROKERS[1].mac] == Port(2, 2), "the next packet shows it, although it has not moved"


async def test_every_missing_broker_is_probed_for_even_if_many_are_never_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "PROBES", 3)
    monkeypatch.setattr(driver, "PROBE_FIRST", 0.001)
    monkeypatch.setattr(driver, "PROBE_LAST", 0.001)
    service, sent, absent = two_switches(), set[bytes](), {broker_at(number, 6000) for number in range(10, 20)}
    port = PortInfo(3, "", 0, up=True, speed=0)
    switch = SimpleNamespace(dpid=1, ports={3: port}, packet_out=lambda port, frame: sent.add(frame))
    service._switches = {1: cast(Switch, switch)}
    service.handle(Intended("a", Intent(frozenset(absent))))
    seeking = asyncio.ensure_future(service._seek())
    async with asyncio.timeout(30):
        while sent != set(map(probe, absent)):  # noqa: ASYNC110  # nobody tells when it is so
            await asyncio.sleep(0)
    seeking.cancel()


async def test_an_internal_error_does_not_end_what_goes_on_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "TICK", 0.001)
    monkeypatch.setattr(driver, "AGAIN", 0.001)
    service, ticks, over = two_switches(), list[Event](), asyncio.Event()

    def fail(event: Event) -> None:
        ticks.append(event)
        if len(ticks) == 5:
            over.set()
        raise ValueError("as of a defect")

    monkeypatch.setattr(service, "handle", fail)
    await service.start(cast(OpenFlowServer, SimpleNamespace(links=set(), away=set())))
    async with asyncio.timeout(30):
        await over.wait()
    await service.close()
    assert "as of a defect" in caplog.text


async def test_a_state_file_that_could_not_be_written_is_written_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SAVE_DELAY", "SAVE_AGAIN"):
        monkeypatch.setattr(driver, name, 0.001)
    file = tmp_path / "absent" / "state.json"
    service = two_switches()
    keeping = asyncio.ensure_future(service._keep(file))
    written, tries = asyncio.Event(), list[Path]()
    write = driver._write

    def count(path: Path, data: bytes) -> None:
        tries.append(path)
        if len(tries) == 2:
            file.parent.mkdir()
        write(path, data)
        loop.call_soon_threadsafe(written.set)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(driver, "_write", count)
    async with asyncio.timeout(30):
        await written.wait()
    keeping.cancel()
    assert (len(tries), file.exists()) == (2, True)


async def test_a_new_rate_is_in_the_state_that_is_written() -> None:
    service = two_switches()
    for rate in (1e6, 5e8):
        service._unsaved.clear()
        service.handle(Intended("a", Intent(frozenset(BROKERS), rate=rate)))
        await asyncio.sleep(0)
        assert service._unsaved.is_set()
        assert f'"rate":{rate}'.encode() in service.saved()


async def test_a_broker_of_an_earlier_run_is_probed_for_where_it_was_and_then_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "PROBE_FIRST", 0.001)
    former = two_switches()
    former.handle(Intended("a", Intent(frozenset(BROKERS[:1]))))
    service = ControllerService(Controller(rules()), grace=0.01)
    restore(service.machine, former.saved())
    assert service.machine.missing == BROKERS[:1]
    sent = list[Port]()

    def switch(dpid: int) -> Switch:
        ports = {number: PortInfo(number, "", 0, up=True, speed=0) for number in (1, 2, 3)}
        tell = lambda port, frame: sent.append(Port(dpid, port))  # noqa: E731
        return cast(Switch, SimpleNamespace(dpid=dpid, ports=ports, packet_out=tell))

    service._switches = {1: switch(1), 2: switch(2)}
    seeking = asyncio.ensure_future(service._seek())
    async with asyncio.timeout(30):
        while len(sent) < 5:  # noqa: ASYNC110  # nobody tells when it is so
            await asyncio.sleep(0)
    seeking.cancel()
    assert sent[0] == Port(1, 2)
    assert set(sent[1:5]) == {Port(1, 2), Port(1, 3), Port(2, 2), Port(2, 3)}
