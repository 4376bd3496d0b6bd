"""What a hostile broker can have another one keep is bounded, bound by bound (`test_hostile_peer` has the others)."""

from __future__ import annotations

from itertools import count, islice

import pytest

from saps.agents import api
from saps.messages import Message, Properties
from saps.ofm.keys.epochs import EPOCHS, GROUPS, Keyring
from saps.overlay import groups as sharing
from saps.overlay import wills
from saps.overlay.delivery import order
from saps.overlay.delivery.tree import Branch
from saps.overlay.frames import link_ids as shorthand
from saps.overlay.frames.calls import AgentCall, Broadcast, Claim, DesignPart, Keep, Record
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, GroupDelivery, GroupKeys
from saps.overlay.frames.sessions import Arrived, Departed, Guard, Pull, Snapshot, TakeOver, TakeOverAnswer, Will
from saps.overlay.rendezvous import designed
from saps.overlay.retained import store as retained_store
from saps.overlay.ring.keys import BrokerRef, partition_of_key
from saps.overlay.sessions.directory import partition_of
from saps.overlay.sessions.migration import migration as offer
from saps.overlay.sessions.migration import target as transfer
from saps.simulator import SimBroker
from tests.batches import frame as publication
from tests.fuzzing.frames import FOE
from tests.fuzzing.node import Besieged
from tests.overlay.ports import LonePort
from tests.overlay.roams import Nomad

TOPIC = "a/b"


@pytest.fixture
def mesh() -> Besieged:
    """b0, b1 and b2, whose clients want a/#, a/b and calm/topic; and the foe."""
    return Besieged()


def test_wills_of_one_broker(mesh: Besieged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they come one after the other."""
    monkeypatch.setattr(wills, "MOST", 5)
    b0 = mesh.brokers["b0"]
    for number in range(5):
        assert mesh.attack(b0, Guard([Will(f"c{number}", 1, 0.0, Message("a", b""))], [], False))
    assert mesh.attack(b0, Guard([Will("c0", 2, 0.0, Message("a", b""))], [], False))
    assert not mesh.attack(b0, Guard([Will("c5", 1, 0.0, Message("a", b""))], [], False))


def test_bytes_that_wait_for_what_does_not_come(mesh: Besieged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many origins together; who floods has its own gaps given up, and what others wait for stays."""
    monkeypatch.setattr(order, "HELD_BYTES", 10_000)
    b1 = mesh.brokers["b1"]
    strangers = [BrokerRef(f"stranger{number}", 1, f"stranger{number}:1", "c9") for number in range(20)]
    for number, stranger in enumerate(strangers, 1):
        mesh.attack(b1, DefineBroker(number, stranger))
        for seq in range(100, 110):
            mesh.attack(b1, publication(TOPIC, seq, seq - 1, bytes(400), 1, origin=number))
            assert b1.node.delivery.inbox._held_bytes <= 10_000
    held = [len(b1.node.delivery.inbox._sequences[stranger][TOPIC].held) for stranger in strangers]
    assert 400 * sum(held) == b1.node.delivery.inbox._held_bytes
    assert held[0] == 10


def test_slices_on_a_link_and_brokers_in_them(mesh: Besieged, monkeypatch: pytest.MonkeyPatch) -> None:
    b1 = mesh.brokers["b1"]
    monkeypatch.setattr(shorthand, "SLICES", 4)
    mesh.attack(b1, DefineBroker(1, FOE))
    for number in range(1, 9):
        assert mesh.attack(b1, DefineSlice(number, [1]))
    assert mesh.attack(b1, DefineSlice(8, [1]))
    assert not mesh.attack(b1, DefineSlice(9, [1]))
    monkeypatch.setattr(shorthand, "ENTRIES", 10)
    mesh.attack(b1, DefineBroker(1, FOE))
    assert mesh.attack(b1, DefineSlice(1, [1] * 30))
    assert mesh.attack(b1, DefineSlice(1, [1] * 30))
    assert not mesh.attack(b1, DefineSlice(2, [1]))


def test_messages_for_groups_that_are_remembered(mesh: Besieged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "REMEMBERED", 10)
    b0 = mesh.brokers["b0"]
    for serial in range(30):
        assert mesh.attack(b0, GroupDelivery(serial, "$share/g/a", "a", b"", 1, False))
    assert len(b0.node.delivery.sharing._closed) == 10
    assert not b0.node.delivery.sharing._open


def test_calls_of_agents_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "REMEMBERED", 10)
    registry = api.AgentRegistry()
    registry.host("somebody", object())
    for serial in range(30):
        registry.answer(AgentCall("somebody", "report", (), serial, FOE), True)
    assert len(registry._answered) == 10


def test_keys_of_a_topic() -> None:
    """From one that says to be OFGate again and again, and is another one each time."""
    ring, labels = Keyring(FOE), list[int]()
    ring._on_labels = lambda held: labels.append(len(list(held)))
    for number in range(3 * EPOCHS):
        assert ring.take(GroupKeys("t", number.to_bytes(8), 1, [], 1.0, (1, number.to_bytes(32))), 0.0)
    assert max(labels) == EPOCHS
    assert len(ring._topics["t"].chains) == len(ring._topics["t"].roots) == GROUPS


@pytest.mark.parametrize("stage", ["parts", "bytes"])
def test_the_luggage_of_a_session(mesh: Besieged, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """The foe has claimed a client, that comes to b1: b1 asks the foe for the session. Then it is served without."""
    monkeypatch.setattr(transfer, "MOST_BYTES", 1000)
    client, b1, asked = _claimed(mesh), mesh.brokers["b1"], list[TakeOver | Pull]()

    def overheard(_: SimBroker, frame: object) -> None:
        if isinstance(frame, TakeOver | Pull):
            asked.append(frame)

    mesh.overheard = overheard
    ghost = Nomad(mesh, client)
    ghost.connect(b1)
    mesh.run_until(lambda: bool(asked))
    serial = asked[-1].serial
    mesh.attack(b1, TakeOverAnswer(serial, 1))
    mesh.run_until(lambda: isinstance(asked[-1], Pull))
    if stage == "parts":
        assert not mesh.attack(b1, Snapshot(serial, 0, 0, transfer.MOST_PARTS + 1, b"x"))
    else:
        assert mesh.attack(b1, Snapshot(serial, 0, 0, 3, bytes(600)))
        assert not mesh.attack(b1, Snapshot(serial, 0, 1, 3, bytes(600)))
    mesh.gone()
    ghost.until(lambda: ghost.greeted)


def test_hand_overs_that_are_remembered_as_done(mesh: Besieged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The foe takes one session after the other. It is told again that a late one is its own, not so an early one."""
    monkeypatch.setattr(offer, "REMEMBERED", 2)
    b1, said = mesh.brokers["b1"], list[Departed]()

    def overheard(_: SimBroker, frame: object) -> None:
        if isinstance(frame, Departed):
            said.append(frame)

    mesh.overheard = overheard
    for serial in range(5):
        victim = Nomad(mesh, f"victim{serial}")
        victim.arrive(b1)
        victim.subscribe("wanted", qos=1)
        assert mesh.attack(b1, TakeOver(serial, f"victim{serial}", 1 << 63, None, True))
        assert mesh.attack(b1, Arrived(serial))
    assert b1.node.sessions.migrations.source.given == 5
    assert len(b1.node.sessions.migrations.source._done) == 2
    for serial in range(5):
        assert mesh.attack(b1, Arrived(serial))
    mesh.run(0.1)
    assert said[:5] == [Departed(serial, True) for serial in range(5)]
    assert said[5:] == [Departed(serial, serial > 2) for serial in range(5)]


def test_retained_messages_of_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is kept can still be replaced when there is no room for more."""
    monkeypatch.setattr(retained_store, "TOPICS", 5)
    mesh = Besieged()
    holder = next(broker for broker in mesh.alive() if broker.node.retained.store.partitions)
    number = holder.node.retained.store.partitions[0]
    key = next(key for key in holder.node.graph.nodes if partition_of_key(key) == number)
    before = len(holder.node.retained.store)
    topics = [
        *islice((name for name in map("flood/{}".format, count()) if retained_store.partition_of(name) == number), 30)
    ]

    def keep(topic: str, payload: bytes, stamp: int) -> None:
        message = Message(topic, payload, 1, True, Properties(stamp=stamp))
        body = Keep([Record(message, 0, FOE, 1)])
        assert mesh.attack(holder, Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], body, 1))

    for topic in topics:
        keep(topic, b"first", 1)
    assert before < len(holder.node.retained.store) <= before + 5
    keep(topics[0], b"second", 2)
    (held,) = holder.node.retained.store._held[number].records.matching(topics[0])
    assert held.message.payload == b"second"


def test_slices_of_which_it_is_remembered_how_a_design_divides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives ever new numbers to slices of a topic with a tree; it is divided as before all the same."""
    monkeypatch.setattr(designed, "DIVIDED", 10)
    designs = designed.Designs(LonePort(), lambda topics: None)  # type: ignore[arg-type]
    shape = designed.Shape("b1", {"b2": "b1", "b3": "b2"})
    names: dict[str, int] = {}
    tree = designed.pack("t", shape, names)
    designs.accept(DesignPart(FOE.name, 1, 0, 1, list(names), [tree]))
    b2, b3 = (BrokerRef(name, 1, f"{name}:1", "c") for name in ("b2", "b3"))
    for number in range(100):
        assert designs.onward(FOE.name, number, "t", [Branch(b2, ()), Branch(b3, ())]) == [Branch(b2, (b3,))]
        assert len(designs._divided) <= 10


def _claimed(mesh: Besieged) -> str:
    """A client of which the foe has said that it has its session."""
    holder = next(broker for broker in mesh.alive() if broker.node.sessions.directory.partitions)
    number = holder.node.sessions.directory.partitions[0]
    client = next(name for name in map("ghost{}".format, count()) if partition_of(name) == number)
    key = next(key for key in holder.node.graph.nodes if key.path == b"s\0%d" % number)
    claim = Claim(number, FOE, [(client, 1)], [])
    assert mesh.attack(holder, Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], claim, 1))
    return client
