"""A controller of many trees: an event costs the trees that it touches, and looking after tables what is allowed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.controller.wire_switches import HOST, WireSwitches, broker, links
from saps.ofm.controller.admission import Rules
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver import service as service_module
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.events import (
    Announce,
    Applied,
    Apply,
    Event,
    GoneOn,
    HostMoved,
    Intended,
    Intent,
    LinkChanged,
    PortChanged,
    Read,
    Settled,
    SwitchUp,
    TablesRead,
    Told,
)
from saps.ofm.controller.saved import Saver, restore
from saps.ofm.flows.budget import Budget
from saps.ofm.flows.plan import Loopback
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import Link, Port
from saps.ofm.northbound.schema import Status
from saps.ofm.openflow.driver.server import OpenFlowServer, ServerSettings
from saps.ofm.openflow.framing import Framer
from saps.ofm.openflow.ofp import ofproto

SWITCHES, TREES = 16, 60
AMPLE = 1_000_000


def machine() -> Controller:
    loopback = Loopback("10.77.255.254", "02:5a:50:53:00:02")
    return Controller(Rules("239.77.0.0/16:5000-5999", loopback, Budget(AMPLE, AMPLE)))


def intents() -> dict[str, Intent]:
    rng = random.Random(1)
    members = {f"t/{number}": rng.sample(range(1, SWITCHES + 1), 4) for number in range(TREES)}
    return {topic: Intent(frozenset(map(broker, at))) for topic, at in members.items()}


class Instant:
    """A machine whose switches do at once what they are told."""

    def __init__(self) -> None:
        self.machine = machine()
        self.planned: Counter[str] = Counter()
        self.told: list[str] = []
        self._todo: deque[Event] = deque()
        choose = self.machine.admission.choose

        def counted(record, *rest):  # type: ignore[no-untyped-def]
            self.planned[record.topic] += 1
            return choose(record, *rest)

        self.machine.admission.choose = counted  # type: ignore[method-assign]
        for dpid in range(1, SWITCHES + 1):
            self.hear(SwitchUp(dpid, dict.fromkeys(range(1, HOST + 1), True)))
        for link in links(SWITCHES):
            self.hear(LinkChanged(link, up=True))
        for dpid in range(1, SWITCHES + 1):
            self.hear(HostMoved(broker(dpid).mac, Port(dpid, HOST)))
        self.hear(Settled(set(range(1, SWITCHES + 1)), set(links(SWITCHES))))
        for topic, intent in intents().items():
            self.hear(Intended(topic, intent))
        assert all(record.state.status is Status.CONSTRUCTED for record in self.machine.records.values())

    def hear(self, event: Event, most: int | None = None, *, answered: bool = True) -> None:
        for effect in self.machine.handle(event, most):
            if isinstance(effect, Told):
                self.told.append(effect.state.topic)
            elif not isinstance(effect, Announce):
                dpid = effect.dpid
                self._todo.append(TablesRead(dpid, Tables()) if isinstance(effect, Read) else Applied(dpid))
        while answered and self._todo:
            self.hear(self._todo.popleft(), most)

    def over(self, link: Link) -> set[str]:
        records = self.machine.records.values()
        return {record.topic for record in records if record.plan is not None and link in record.plan.tree.links}

    def busiest(self) -> Link:
        return max(links(SWITCHES), key=lambda link: len(self.over(link)))

    def forget(self) -> None:
        self.planned.clear()
        self.told.clear()


def test_a_link_that_fails_has_its_own_trees_planned_anew_and_no_other() -> None:
    world = Instant()
    link = world.busiest()
    over = world.over(link)
    assert 0 < len(over) < TREES / 2
    world.forget()
    for end in link:
        world.hear(PortChanged(end, up=False))
    world.hear(LinkChanged(link, up=False))
    assert world.planned.keys() == set(world.told) == over
    assert not world.over(link)
    assert all(record.state.status is Status.CONSTRUCTED for record in world.machine.records.values())


def test_news_of_a_link_that_no_tree_needs_costs_nothing() -> None:
    world = Instant()
    link = world.busiest()
    world.hear(PortChanged(link.a, up=False))
    world.forget()
    world.hear(PortChanged(link.a, up=True))
    assert not world.planned
    assert not world.told


def test_a_join_costs_one_tree_and_comes_before_those_of_a_failed_link() -> None:
    world = Instant()
    link = world.busiest()
    over = world.over(link)
    joining = next(topic for topic in world.machine.records if topic not in over)
    intent = intents()[joining]
    more = next(broker(dpid) for dpid in range(1, SWITCHES + 1) if broker(dpid) not in intent.brokers)
    world.forget()
    world.hear(PortChanged(link.a, up=False), 2, answered=False)
    assert world.machine.behind
    assert len(world.planned) == 2
    world.hear(Intended(joining, Intent(intent.brokers | {more})), 0)
    assert joining in world.told
    assert world.machine.state(joining).status is Status.CONSTRUCTED
    while world.machine.behind:
        world.hear(GoneOn(), 2)
    assert not world.over(link)
    assert world.planned.keys() == over | {joining}


def test_a_restart_tells_what_a_tree_waits_for_and_that_it_is_there_and_nothing_between() -> None:
    before, again = Instant().machine, machine()
    restore(again, Saver(before).save())
    switches = list(range(1, SWITCHES + 1))
    told: Counter[str] = Counter()
    events: list[Event] = [SwitchUp(dpid, dict.fromkeys(range(1, HOST + 1), True)) for dpid in switches]
    events += [TablesRead(dpid, before.network.baseline.with_(before.ledger.desired(dpid))) for dpid in switches]
    for event in events:
        effects = again.handle(event)
        assert not any(isinstance(effect, Apply) for effect in effects)
        told.update(effect.state.topic for effect in effects if isinstance(effect, Told))
    assert told == dict.fromkeys(again.records, 2)
    assert all(record.state.status is Status.CONSTRUCTED for record in again.records.values())


# -- over sockets


@asynccontextmanager
async def served(
    network: WireSwitches, tables: Path, *, anew: bool, held_up: float = 0.0
) -> AsyncIterator[ControllerService]:
    """A controller of these switches, with its state file; what it reads of switch 1 may be held up."""
    controller = machine()
    if not anew:
        restore(controller, await asyncio.to_thread(tables.read_bytes))
    service = ControllerService(controller, grace=0.5, state=tables)
    server = OpenFlowServer("127.0.0.1", 0, service, ServerSettings(probe_interval=0.5, grace=5))
    port = await server.start()
    await service.start(server)
    async with holding_up(port, held_up) as slow:
        ports = {dpid: slow if held_up and dpid == 1 else port for dpid in network.switches}
        attending = [
            asyncio.ensure_future(network.attend(switch, ports[dpid])) for dpid, switch in network.switches.items()
        ]
        try:
            yield service
        finally:
            for task in attending:
                task.cancel()
            await asyncio.gather(*attending, return_exceptions=True)
            await server.close()
            await service.close()


@asynccontextmanager
async def holding_up(port: int, seconds: float) -> AsyncIterator[int]:
    """A way to the controller on which a switch's flow entries, and all that comes behind them, take so long."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        framer = Framer(0xFFFF)
        while data := await reader.read(1 << 16):
            for message in framer.feed(data):
                if slow and message[1] == ofproto.OFPT_MULTIPART_REPLY and message[9] == ofproto.OFPMP_FLOW:
                    await asyncio.sleep(seconds)
                writer.write(message)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(forward(reader, back, slow=True), forward(onward, writer, slow=False))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  # nobody tells when it is so
            await asyncio.sleep(0.05)


async def constructed(service: ControllerService) -> None:
    def all_are() -> bool:
        states = map(service.machine.state, intents())
        return service.machine.network.settled and all(state.status is Status.CONSTRUCTED for state in states)

    await until(all_are)


async def test_a_restart_changes_no_entry_and_looking_after_tables_reads_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "AUDIT", 0.2)
    monkeypatch.setattr(service_module, "CHECKED", 50.0)
    network = WireSwitches(SWITCHES)
    async with served(network, tmp_path / "state", anew=True) as service:
        for topic, intent in intents().items():
            await service.intent(topic, intent)
        await constructed(service)
        held = {dpid: dict(switch.flows) for dpid, switch in network.switches.items()}
    assert caplog.text.count("the network has cycles (links beyond a tree: 17)") == 1
    before = network.count()
    async with served(network, tmp_path / "state", anew=False) as service:
        await constructed(service)
        await asyncio.sleep(0.5)
        after = network.count()
        assert after["change"] - before["change"] <= 4 * SWITCHES, "the base flows, and no other"
        assert {dpid: switch.flows for dpid, switch in network.switches.items()} == held

        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(1.5)
        passed = asyncio.get_running_loop().time() - begun
        now = network.count()
        looks = now["aggregate"] - after["aggregate"]
        assert SWITCHES <= looks <= SWITCHES * (passed / 0.2 + 1)
        largest = max(map(len, held.values()))
        base = 4 * looks
        assert now["flow entries"] - after["flow entries"] <= base + 50 * (passed + 1) + 2 * largest

        lost = network.switches[1].flows
        lost.pop(next(name for name in lost if name not in (*held[2],)))
        await until(lambda: network.switches[1].flows == held[1])


async def test_a_restart_waits_for_links_whose_probes_come_behind_the_tables_of_a_switch(tmp_path: Path) -> None:
    network = WireSwitches(SWITCHES)
    async with served(network, tmp_path / "state", anew=True) as service:
        for topic, intent in intents().items():
            await service.intent(topic, intent)
        await constructed(service)
    held = {dpid: dict(switch.flows) for dpid, switch in network.switches.items()}
    async with served(network, tmp_path / "state", anew=False, held_up=1.5) as service:
        await until(lambda: len(service.connected()) == SWITCHES)
        seen = service.machine.topology.links
        await constructed(service)
        assert service.machine.topology.links == seen == sorted(links(SWITCHES))
        assert {dpid: switch.flows for dpid, switch in network.switches.items()} == held
