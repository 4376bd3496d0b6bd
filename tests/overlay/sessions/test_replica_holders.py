"""Which brokers are chosen as holders of copies, and what a broker without any does."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.packets import Ack, PacketType
from saps.overlay.frames.base import Frame
from saps.overlay.frames.copies import Changes
from saps.overlay.frames.ring import Leave
from saps.overlay.frames.sessions import Append, Appended, Replaced
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.changes import Owned
from saps.overlay.sessions.replicas.holders import CONFIRM
from saps.overlay.sessions.replicas.source import EXCHANGE, Source
from saps.storage.journal import Change, Table
from tests import marks
from tests.overlay.ports import LonePort
from tests.overlay.replicated import Replicated
from tests.overlay.roams import Nomad

pytestmark = pytest.mark.simulation


class Port(LonePort):
    """The port of an owner in zone `a` of cluster `c`."""

    def __init__(self) -> None:
        super().__init__()
        self.me = BrokerRef("b1", 1, "", "c", "a")
        self.log: list[tuple[str, Append]] = []
        """Frames of the log that were sent and not answered, with the names of the brokers they go to."""
        self.let_go: set[str] = set()
        """Names of the brokers that need not follow the log any more."""
        self.gone: set[str] = set()
        """Names of the brokers that are taken for dead."""

    def send(self, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Append):
            self.log.append((to.name, frame))
        elif isinstance(frame, Replaced):
            self.let_go.add(to.name)

    def lost(self, broker: BrokerRef) -> bool:
        return broker.name in self.gone


class OneSession:
    """An owner with one session."""

    row = (1, "client", None, 60, None, None, 0, None, 7)

    def owned(self, client: str) -> Owned:
        return Owned(1, [])

    def rows(self) -> Iterable[Iterable[Change]]:
        return [[(Table.SESSIONS, 1, self.row)]]

    def fenced(self) -> None:
        raise AssertionError("nobody adopts this session")


def refs_of(*places: str) -> list[BrokerRef]:
    """Brokers at places given as ``cluster/zone``."""
    return [BrokerRef(f"{place} {number}", 1, "", *place.split("/")) for number, place in enumerate(places)]


def owner(port: Port, candidates: list[BrokerRef], copies: int = 3) -> Source:
    """An owner in cluster c, zone a, that has something to copy."""
    source = Source(port, lambda: candidates, OneSession(), copies, lambda: 0.0)
    source.append({Table.SESSIONS: {1: OneSession.row}}, lambda: None)
    return source


def places(refs: Iterable[BrokerRef]) -> list[str]:
    return sorted(f"{ref.cluster}/{ref.zone}" for ref in refs)


def chosen(*others: str, copies: int = 3) -> set[str]:
    """The places of the holders that it chooses."""
    return set(places(owner(Port(), refs_of(*others), copies).holders))


def test_holders_are_of_the_same_site_and_of_different_zones() -> None:
    assert chosen("c/a", "c/a", "c/b", "c/b", "c/d", "x/e") == {"c/b", "c/d"}
    assert chosen("c/a", "c/b", "c/b", "x/e", "x/f", copies=2) == {"c/b"}
    assert chosen("c/a", "c/b", "x/e", "x/f") == {"c/b", "c/a"}
    assert "c/b" in chosen("c/b", "x/e", "x/f")
    assert chosen("c/b", copies=1) == set()


Present = st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8)


@marks.expect("holder exchanged for a better one")
def test_an_owner_changes_to_better_holders() -> None:
    """One beyond a cut could be all that had followed the log: its broker had started before those of its site, or the
    one that had adopted its sessions does not follow it at once."""
    port, refs = Port(), refs_of("x/e", "x/f")
    source = owner(port, refs)
    answer(port, source)
    assert places(source.in_sync) == ["x/e", "x/f"]
    refs += refs_of("c/a", "c/b")
    source.review()
    assert len(source.in_sync) == 2, "both go on until the new ones have all"
    answer(port, source)
    source.review()
    assert places(source.in_sync) == ["c/a", "c/b"]
    assert port.let_go == {"x/e 0", "x/f 1"}


@marks.expect("log fenced by a broker that never followed it")
def test_a_broker_that_had_adopted_the_log_is_no_holder_of_it_again() -> None:
    """It was cut off from the owner and adopted its sessions, which are back. The owner asked it to follow the log, as
    it is of its site, and forgot the other holders when it refused. These forgot their copies, and then asked it who
    was to adopt: nobody, as the log was over."""
    mesh = Replicated(1, disks=True)
    home, *others = mesh.build(6, clusters=2)
    nomad = Nomad.at(home, mesh)
    mesh.run(14)
    source = home.node.replicas.source
    former = next(ref for ref in source.in_sync if ref.cluster == home.ref.cluster)
    mesh.partition([former.name])
    nomad.attend(8)
    mesh.heal()
    nomad.lose()
    for number in range(5):
        mesh.tell(others[0], number, 1)
    mesh.run_until(lambda: former in source.holders, EXCHANGE)
    assert len(source.in_sync) == 2
    mesh.run_until(lambda: former not in source.holders, 1)
    assert len(source.in_sync) == 2
    mesh.crash(home.name)
    mesh.run(5)
    assert nomad.arrive(others[0])
    nomad.until(lambda: len(nomad.got[1]) == 5)


def test_a_broker_that_had_adopted_the_log_is_a_holder_again_if_there_is_no_other() -> None:
    """It was none for as long as the log lasted: the sessions had one copy, and none when that was lost."""
    mesh = Replicated(1, disks=True)
    home, former, third = mesh.build(3)
    nomad = Nomad.at(home, mesh)
    mesh.run(2)
    mesh.partition([former.name])
    nomad.attend(8)
    mesh.heal()
    nomad.attend(3 * CONFIRM + EXCHANGE)
    assert {*home.node.replicas.source.in_sync} == {former.ref, third.ref}
    mesh.crash(third.name)
    nomad.lose()
    mesh.tell(home, 1, 1)
    mesh.run(5)
    mesh.crash(home.name)
    mesh.run(5)
    assert nomad.arrive(former)


def test_each_holder_knows_all_of_them_though_nothing_happens() -> None:
    """The last one to follow did not know that it is one, until the next commit: two adopted the sessions."""
    mesh = Replicated(1)
    one, *_ = mesh.build(4)
    Nomad.at(one, mesh)
    mesh.run(2)
    source = one.node.replicas.source
    for ref in source.in_sync:
        [copy] = mesh.brokers[ref.name].node.replicas.copies.values()
        assert {*copy.holders} == {*source.in_sync}


def test_a_holder_stays_until_the_one_in_its_place_has_all_that_is_done() -> None:
    """A commit could be done by the old holders alone, on its way to the new ones as these answered their snapshots."""
    port, refs, done = Port(), refs_of("x/e", "x/f"), list[int]()
    source = owner(port, refs)
    answer(port, source)
    refs += refs_of("c/a", "c/b")
    source.review()
    snapshots = {to: Appended(frame.stream, frame.seq) for to, frame in port.log}
    source.append({Table.SESSIONS: {2: (2, *OneSession.row[1:])}}, lambda: done.append(1))
    answer(port, source, all_but="c/")
    assert done
    for ref in source.holders[2:]:
        source.on_appended(ref, snapshots[ref.name])
    source.review()
    assert len(source.in_sync) == 4
    assert not port.let_go
    answer(port, source)
    source.review()
    assert port.let_go == {"x/e 0", "x/f 1"}


@given(Present)
def test_whoever_comes_and_goes_the_holders_are_in_the_end_the_best(present: list[set[int]]) -> None:
    """And two that live have everything at any time, if two had before."""
    all_of_them = refs_of("c/a", "c/b", "c/b", "c/d", "x/a", "x/e", "x/f", "x/f")
    port, refs = Port(), [*all_of_them]
    source = owner(port, refs)
    for now in present:
        refs[:] = [all_of_them[number] for number in sorted(now)]
        port.gone = {ref.name for ref in all_of_them} - {ref.name for ref in refs}
        for _ in range(4):
            source.review()
            synced = len(source.in_sync)
            answer(port, source)
            source.review()
            assert len(source.in_sync) >= min(2, synced)
            port.run(port.now + EXCHANGE)
        assert len(source.holders) <= 2
        assert places(source.in_sync) == places(owner(Port(), refs).holders)


def answer(port: Port, source: Source, all_but: str = "none") -> None:
    """The holders that live have all frames. `all_but`: not those whose names begin so, for now."""
    later = [each for each in port.log if each[0].startswith(all_but)]
    port.log = [each for each in port.log if each not in later]
    while port.log:
        to, frame = port.log.pop(0)
        for ref in source.holders:
            if ref.name == to and to not in port.gone:
                source.on_appended(ref, Appended(frame.stream, frame.seq))
    port.log = later


def test_the_holders_of_a_broker_that_was_killed_are_of_its_site_again() -> None:
    """The one that has adopted its sessions is not asked at once to follow its log. One of the other site stood in for
    it, for good: a cut then left the session on that side alone (a storm of `make chaos`, seed 5306)."""
    mesh = Replicated(1, disks=True)
    brokers = mesh.build(6, clusters=2)
    home = brokers[0]
    nomad = Nomad.at(home, mesh)
    mesh.run(2)
    mesh.crash(home.name)
    mesh.run(3)
    mesh.restart(home.name, brokers[1].name)
    home = mesh.brokers[home.name]
    mesh.run_until(lambda: home.joined, 10)
    nomad.arrive(home)
    mesh.run(2 * CONFIRM + EXCHANGE)
    assert [ref.cluster for ref in home.node.replicas.source.in_sync] == ["c0", "c0"]


def test_sessions_without_traffic_get_holders_as_soon_as_there_are_brokers() -> None:
    """After a cut they had none until something changed."""
    mesh = Replicated(1)
    one, two, three = mesh.build(3)
    Nomad.at(one, mesh)
    mesh.run(2)
    for broker in (two, three):
        mesh.crash(broker.name)
    mesh.run(10)
    assert one.node.replicas.source.in_sync == []
    for name in ("b3", "b4"):
        mesh.add(name, contact=one.name)
    mesh.run(2 * CONFIRM)
    assert {ref.name for ref in one.node.replicas.source.in_sync} == {"b3", "b4"}


@marks.expect("copies declined")
def test_a_broker_without_sessions_holds_no_copies() -> None:
    """OFGate adopted sessions, without storage or the brokers' limits, and dropped messages (`make jepsen`)."""
    mesh = Replicated(1)
    one, *others = mesh.build(4)
    others[1].node.sessions.host = None
    Nomad.at(one, mesh)
    mesh.run(2)
    assert {ref.name for ref in one.node.replicas.source.in_sync} == {"b1", "b3"}
    mesh.crash(one.name)
    mesh.run_until(lambda: mesh.sessions("c") in (["b1"], ["b3"]), 10.0)


@pytest.mark.parametrize("refuse", [False, True], ids=["serve", "refuse"])
def test_a_broker_cut_off_serves_or_acknowledges_nothing(refuse: bool) -> None:
    """A client beside the subscriber publishes with QoS 1 while their broker is cut off."""
    mesh = Replicated(1)
    one, *_ = mesh.build(3)
    for broker in mesh.alive():
        broker.node.replicas.source.refuse = refuse
    nomad, writer = Nomad(mesh, "c"), Nomad(mesh, "w", expiry=0)
    nomad.arrive(one)
    nomad.subscribe("t/#")
    writer.arrive(one)
    mesh.partition([one.name])
    mesh.run(10)
    client = writer.client
    assert client is not None
    one.act(partial(client.publish, "t/1/0", b"in the cut", 1, 7))
    mesh.run(5)

    def acknowledged() -> bool:
        return any(isinstance(packet, Ack) and packet.type == PacketType.PUBACK for packet in client.packets)

    assert acknowledged() is not refuse
    mesh.heal()
    mesh.run_until(acknowledged, 20.0)
    nomad.until(lambda: nomad.got[1] == [b"in the cut"])
    mesh.run_until(lambda: len(mesh.sessions("c")) == 1, 20.0)


def test_a_holder_ignores_frames_behind_the_leave_of_their_owner() -> None:
    """A link hands in at once what has come at once; the owner's log may go on behind its `Leave`."""
    mesh = Replicated(1)
    one, *holders = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    mesh.run(2)
    nomad.lose()
    mesh.crash(one.name)
    for holder in holders:
        [(log, copy)] = holder.node.replicas.copies.items()
        behind = Append(log[1], copy.stream, copy.seq + 1, copy.commit + 1, True, copy.holders, Changes(), 0.0)
        holder.act(partial(holder.node.receive, one.ref, [Leave(), behind]))
    mesh.run_until(lambda: len(mesh.sessions("c")) == 1, 1.5)
    assert nomad.arrive(holders[0])


@pytest.mark.parametrize("expiry", [3600, 0], ids=["stored", "not stored"])
def test_a_message_costs_two_frames_for_each_holder_at_most(expiry: int) -> None:
    """One there and one back, fewer where several go together; none where no session is stored."""
    mesh = Replicated(1)
    one, *others = mesh.build(3)
    nomad = Nomad(mesh, "c", expiry=expiry)
    nomad.arrive(one)
    nomad.subscribe("t/#")
    mesh.run(2)
    before = {**mesh.counters.by_kind}
    for number in range(200):
        mesh.tell(others[number % 2], number, 1)
        mesh.run(0.0 if number % 4 else 0.02)
    nomad.until(lambda: len(nomad.got[1]) == 200)
    mesh.run(2)
    frames = sum(mesh.counters.by_kind[kind] - before.get(kind, 0) for kind in ("Append", "Appended"))
    print(f"{frames / 200 / 2:.2f} frames for a message and holder")
    assert frames == 0 if not expiry else 0 < frames <= 2 * 2 * 200
