"""A broker of the mesh that is hostile, frame by frame: what it cannot do to others, and what it can.

docs/security.md says the same in words. Each frame passes the decoder and the look at its claims, as on a link.
"""

from __future__ import annotations

import msgspec
import pytest

from saps.messages import Message, Properties, Reached
from saps.overlay.delivery.order import MEMORY
from saps.overlay.frames import link_ids as shorthand
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import (
    Absent,
    AgentCall,
    Announce,
    Announced,
    Broadcast,
    Claim,
    Collect,
    Gathered,
    Here,
    Keep,
    Locate,
    Record,
    SessionLease,
    SessionLeases,
)
from saps.overlay.frames.delivery import (
    Ack,
    DefineBroker,
    DefineSlice,
    Enlist,
    Handed,
    HighWater,
    Part,
    Publish,
    Settled,
)
from saps.overlay.frames.ring import Check, Heal, Level, Relink, Seek, Unlink
from saps.overlay.frames.sessions import Guard, Mourned, Pull, Snapshot, TakeOver, TakeOverAnswer, Will
from saps.overlay.membership import failure_detector as detector
from saps.overlay.rendezvous.range_calls import Call, Outcome
from saps.overlay.retained.store import HOLDERS, PARTITIONS
from saps.overlay.ring import rejoin as rejoin
from saps.overlay.ring.keys import (
    ALL_BROKERS,
    BrokerRef,
    Key,
    Ref,
    broker_key,
    filter_key,
    one_broker,
    publisher_key,
    subscribers,
)
from saps.overlay.ring.ring_probe import ACQUAINTANCES
from saps.simulator import SimBroker
from tests.batches import frame as publication
from tests.fuzzing.frames import FOE, ORDER
from tests.fuzzing.node import Besieged

TOPIC = "a/b"
GREATEST = (1 << 64) - 1
FAR = 1 << 62


@pytest.fixture
def mesh() -> Besieged:
    """b0, b1 and b2, whose clients want a/#, a/b and calm/topic; and the foe."""
    return Besieged()


def publish(mesh: Besieged, at: SimBroker, topic: str, payload: bytes, qos: int = 1) -> list[Reached]:
    """Publish; what is told of it appears in the list."""
    told: list[Reached] = []
    at.publish(topic, payload, qos, told.append)
    return told


def opened(mesh: Besieged) -> tuple[SimBroker, SimBroker, SimBroker]:
    """The brokers; b0 publishes to `TOPIC`, and knows that b1 wants it."""
    brokers = mesh.brokers["b0"], mesh.brokers["b1"], mesh.brokers["b2"]
    told = publish(mesh, brokers[0], TOPIC, b"first")
    mesh.run_until(lambda: bool(told))
    return brokers


def got(mesh: Besieged, number: int) -> list[bytes]:
    """What the client at a broker has got, with QoS 1."""
    nomad = mesh.nomads[number]
    nomad.hear()
    nomad.answer()
    return nomad.got[1]


def at(broker: SimBroker, body: object) -> Broadcast:
    """A range call as if another broker had handed it on."""
    key = broker_key(broker.name)
    return Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], body, 1)  # type: ignore[arg-type]


# --- what it cannot do --------------------------------------------------------------------------------------------


def test_only_who_was_asked_acknowledges(mesh: Besieged) -> None:
    b0, _, _ = opened(mesh)
    told = publish(mesh, b0, TOPIC, b"x")
    for token in range(3000):
        mesh.attack(b0, Ack(token, [(7, 7)], []))
    assert not told
    mesh.run(1)
    assert [reached.brokers for reached in told] == [1]


def test_only_who_was_asked_answers_a_part_of_a_call(mesh: Besieged) -> None:
    b0, _, _ = opened(mesh)
    outcomes: list[Outcome] = []
    calls: list[Call] = []
    b0.act(lambda: calls.append(b0.node.rendezvous.calls.call(ALL_BROKERS, Absent(["client1"]), outcomes.append)))
    for part in range(b0.node.rendezvous.calls._serial + 2):
        if part != calls[0].part:
            mesh.attack(b0, Gathered(part, [Here(["forged"])], True, 1))
    mesh.run(1)
    (outcome,) = outcomes
    assert [client for result in outcome.results if isinstance(result, Here) for client in result.clients] == [
        "client1"
    ]


def test_only_who_was_asked_takes_a_message_for_a_group(mesh: Besieged) -> None:
    b0, _, _ = mesh.alive()
    mesh.nomads[1].subscribe("$share/g/s/t", qos=1)
    told = publish(mesh, b0, "s/t", b"first")
    mesh.run_until(lambda: bool(told))
    told = publish(mesh, b0, "s/t", b"x")
    for serial in range(20):
        mesh.attack(b0, Handed(serial, True))
        mesh.attack(b0, Settled(serial))
    assert not told
    assert b0.node.delivery.sharing.awaited()
    mesh.run(1)
    assert told
    assert b"x" in got(mesh, 1)


def test_only_the_broker_that_has_it_hands_a_session_over(mesh: Besieged) -> None:
    """client1 goes from b1 to b2. The foe says that it had the session, that it is another user's, that it is empty."""
    b2 = mesh.brokers["b2"]
    nomad = mesh.nomads[1]
    nomad.connect(b2)
    while not nomad.greeted:
        for serial in range(6):
            for answer in range(6):
                mesh.attack(b2, TakeOverAnswer(serial, answer))
            mesh.attack(b2, Snapshot(serial, 0, 0, 1, b"\x90"))
        mesh.step()
        nomad.hear()
    assert nomad.present[-1] is True
    assert not nomad.refused


def test_no_frame_has_an_honest_broker_say_what_the_next_one_refuses(mesh: Besieged) -> None:
    """The greatest numbers that are let in, where brokers add to them: `Besieged` looks at all that is sent."""
    b0, b1, b2 = opened(mesh)
    edge = (1 << 63) - 1
    mesh.attack(b1, DefineBroker(1, b0.ref))
    mesh.attack(b1, DefineBroker(2, b2.ref))
    mesh.attack(b1, DefineSlice(1, [2]))
    assert mesh.attack(b1, publication(TOPIC, edge, edge - 1, b"x", 1, origin=1, slice=1, token=5))
    several = Publish(1, 1, edge, 1, False, [Part(TOPIC, 0), Part("a", 0)], [0, 1, 1], [edge, 5, edge], [b"x"] * 3)
    assert mesh.attack(b1, several)
    assert not mesh.attack(b1, msgspec.structs.replace(several, token=edge + 1))
    assert not mesh.attack(b1, msgspec.structs.replace(several, seqs=[edge, 5, edge + 1]))
    assert not mesh.attack(b1, Broadcast(FOE, 1, [(Key(b""), Key(b"x"))], Absent([]), 2000))
    mesh.attack(b1, Ack(1, [(1 << 40, 1 << 40)], []))
    mesh.run(5)


def test_nobody_has_the_clocks_run_out(mesh: Besieged) -> None:
    """Stamps from the end of time, by every way that stamps come: the next own ones are of today."""
    b0, b1, _ = opened(mesh)
    mesh.attack(b1, DefineBroker(1, b0.ref))
    mesh.attack(b1, publication(TOPIC, 9, 0, b"x", 1, origin=1, retain=True, properties=Properties(stamp=GREATEST)))
    forged = SessionLeases(FOE, True, [SessionLease("client9", FOE, GREATEST)])
    for part in range(b1.node.rendezvous.calls._serial + 5):
        mesh.attack(b1, Gathered(part, [forged], True, 1))
    mesh.run(1)
    stamped = b1.node.mesh.stamp(None)
    assert stamped is not None
    assert stamped.stamp is not None
    assert stamped.stamp >> 22 < (mesh.now + 90_000) * 1000


def test_nobody_takes_itself_for_dead_by_what_others_say(mesh: Besieged) -> None:
    """A slice in which its receiver stands, in another life: it would wait for an answer of itself."""
    b0, b1, _ = opened(mesh)
    later = BrokerRef("b1", 1 << 40, "b1:1", "c1")
    mesh.attack(b1, DefineBroker(1, b0.ref))
    mesh.attack(b1, DefineBroker(2, later))
    assert not mesh.attack(b1, DefineSlice(1, [2]))
    mesh.run(5)
    assert not b1.node.port.lost(b1.ref)


@pytest.mark.parametrize(
    "frame",
    [
        Seek(broker_key("b0"), -5, True, Ref(broker_key("foe"), FOE, 1), 10),
        Seek(broker_key("b0"), 0, True, Ref(broker_key("foe"), FOE, 1), 10),
        Level(broker_key("b0"), 10**9, True, Ref(broker_key("foe"), FOE, 1)),
        Relink(broker_key("b0"), 0, True, broker_key("b1"), None),
        Check(broker_key("b0"), Ref(broker_key("foe"), FOE, 1), float("inf")),
        Check(broker_key("b0"), Ref(broker_key("foe"), FOE, 1), float("nan")),
        Seek(broker_key("b0"), 1, True, Ref(Key(b"t", 300), FOE, 1), 10),
        publication("a/#", 1, 0, b"", 0, origin=1),
        publication("a", 1, 0, b"", 3, origin=1),
        publication("a", 1, 0, b"", 0, origin=1, properties=Properties(message_expiry=1 << 32)),
        publication("a", 1, 0, b"", 0, origin=1, properties=Properties(content_type="\0")),
        publication("a", 1, 0, b"", 0, origin=1, properties=Properties(user=(("x" * 70_000, ""),))),
        publication("a\0", 1, 0, b"", 0, origin=1),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0], [1 << 63], [b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0], [0], [b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 5)], [0], [5], [b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [2, 1], [b"", b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [1], [b"", b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [1, 2], [b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [1, 2], [b"", b""], [Properties(content_type="x")], [1]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0, 0], [1, 2], [b"", b""], [Properties(content_type="x")], [0, 2]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [1], [1], [b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [], [], []),
        Publish(1, 0, 0, 0, False, [], [0], [1], [b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0), Part("b", 0)], [0, 0], [1, 2], [b"", b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0), Part("a", 0)], [0, 1], [1, 2], [b"", b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0), Part("b", 5)], [0, 1], [1, 2], [b"", b""]),
        Publish(1, 0, 0, 0, False, [Part("a", 0)], [0] * 513, [*range(1, 514)], [b""] * 513),
        Guard([Will("c", 1, float("nan"), Message("a", b""))], [], True),
        Guard([Will("c", 1, 0.0, Message("", b""))], [], True),
        Announce([Announced("a", 1)], FOE, True),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_what_no_client_or_list_can_bear_ends_the_link(mesh: Besieged, frame: object) -> None:
    b0 = mesh.brokers["b0"]
    mesh.attack(b0, DefineBroker(1, FOE))
    if isinstance(frame, Announce):
        frame = at(b0, Announce([Announced("a/#/b", 1)], FOE, True))
    assert isinstance(frame, Frame)
    assert not mesh.attack(b0, frame)


def test_what_it_floods_is_bounded(mesh: Besieged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acquaintances, merges of rings, brokers that are given up, numbers on a link, buckets."""
    monkeypatch.setattr(detector, "REMEMBERED", 30)
    monkeypatch.setattr(rejoin, "HEARD", 50)
    monkeypatch.setattr(shorthand, "NUMBERED", 50)
    b0 = mesh.brokers["b0"]
    node = b0.node
    for i in range(90):
        stranger = BrokerRef(f"stranger{i}", 1, f"stranger{i}:1", "c9")
        mesh.attack(b0, Heal(stranger, i))
        mesh.attack(b0, Locate(2, None, stranger, i, *subscribers("x"), Collect()))
        mesh.attack(b0, Enlist(i, i))
        if i % 30 == 29:
            mesh.run(0.1)
    assert len(node.rejoin.ring_probe.acquaintances) <= ACQUAINTANCES
    assert len(node.rejoin._heard) <= 50
    assert len(node.retained.store.partitions) <= PARTITIONS
    mesh.run(6)
    assert len(node.port.detector._watched) + len(node.port.detector._hearsay) < 50
    assert len(node.port.detector._dead) + len(node.port.detector._silent) == len(node.port.detector._to_probe) <= 30
    for number in range(1, 51):
        assert mesh.attack(b0, DefineBroker(number, FOE))
    assert not mesh.attack(b0, DefineBroker(51, FOE))


def test_what_has_come_once_does_not_come_again(mesh: Besieged) -> None:
    """The foe has passed a publication of b0 on, and does so again, as often as it likes."""
    b0, b1, _ = opened(mesh)
    seq = b0.node.rendezvous.publishers.seq
    mesh.attack(b1, DefineBroker(1, b0.ref))
    for _ in range(5):
        mesh.attack(b1, publication(TOPIC, seq, 0, b"first", 1, origin=1))
    mesh.run(1)
    assert got(mesh, 1).count(b"first") == 1


@pytest.mark.parametrize(
    "forged",
    [
        publication(TOPIC, FAR, 0, b"foe", 1, origin=1, token=7),
        publication(TOPIC, FAR, FAR - 1, b"foe", 1, origin=1, token=7),
        Publish(1, 0, 7, 1, False, [Part(TOPIC, 0)], [0] * 3, [FAR, FAR + 1, FAR + 2], [b"foe"] * 3),
        HighWater(TOPIC, FAR),
    ],
    ids=["delivered", "held", "several", "expected"],
)
def test_a_number_that_it_makes_up_mutes_nobody(mesh: Besieged, forged: Frame) -> None:
    """In the name of b0, far ahead of its numbers. All that b0 itself publishes is delivered all the same, once."""
    b0, b1, _ = opened(mesh)
    if isinstance(forged, HighWater):
        forged = HighWater(TOPIC, FAR, b0.ref)
    mesh.attack(b1, DefineBroker(1, b0.ref))
    assert mesh.attack(b1, forged)
    honest = [b"honest%d" % number for number in range(3)]
    for payload in honest:
        told = publish(mesh, b0, TOPIC, payload)
        mesh.run_until(lambda told=told: bool(told), 5)  # type: ignore[misc]
        assert [reached.brokers for reached in told] == [1]
    mesh.run(1)
    assert [payload for payload in got(mesh, 1) if payload in honest] == honest


def test_gaps_of_its_own_hold_up_nobody_elses_publications(mesh: Besieged) -> None:
    b0, b1, _ = opened(mesh)
    mesh.attack(b1, DefineBroker(1, FOE))
    for seq in range(1000, 200_000, 1000):
        seqs = [*range(seq, seq + 5)]
        mesh.attack(b1, Publish(1, 0, 0, 1, False, [Part(TOPIC, seq - 500)], [0] * 5, seqs, [b"foe"] * 5))
    told = publish(mesh, b0, TOPIC, b"honest")
    mesh.run_until(lambda: bool(told), 5)
    assert b"honest" in got(mesh, 1)
    mesh.run(MEMORY + 20)
    assert not b1.node.delivery.inbox._held_bytes


def test_a_key_that_it_takes_out_of_the_ring_comes_back(mesh: Besieged) -> None:
    b0, b1, b2 = opened(mesh)
    for broker in (b0, b1, b2):
        for key in (filter_key(TOPIC, b1.ref, ORDER), publisher_key(TOPIC, b0.ref, ORDER), broker_key("b1")):
            owner = b0 if key.broker == "b0" else b1
            ref = owner.node.graph.nodes[key].ref
            mesh.attack(broker, Unlink(1, None, ref, None, 0.0))
    mesh.run(20)
    mesh.check_ring()
    told = publish(mesh, b0, TOPIC, b"after")
    mesh.run_until(lambda: bool(told))
    mesh.run(1)
    assert b"after" in got(mesh, 1)


def test_wills_are_voided_by_their_guardians_only(mesh: Besieged) -> None:
    b0, b1, _ = opened(mesh)
    ward = next(iter(b0.node.wills._wards.values()))
    wards = {broker: list(ward.wills.values()) for broker, ward in b0.node.wills._wards.items()}
    assert FOE not in ward.guardians
    for broker, wills in wards.items():
        assert wills
        mesh.attack(b0, Mourned(broker, [(will.client, will.serial) for will in wills]))
    assert {broker: list(ward.wills.values()) for broker, ward in b0.node.wills._wards.items()} == wards
    assert b1.ref in wards


def test_a_call_that_makes_no_sense_to_an_agent_is_answered_with_an_error(mesh: Besieged) -> None:
    """OFGate goes on: it has been told of filters that are numbers, and of brokers that are none."""
    b0 = mesh.brokers["b0"]
    for serial, args in enumerate([(5, None, 1), ("a", [], "x"), ("a", [["foe", 9, "x", "c"], "mac"], 1), ()]):
        for method in ("joined", "left", "status", "construct", "sends", "left_tree", "hello"):
            mesh.attack(b0, at(b0, AgentCall("ofgate@b0", method, args, 10 * serial, FOE)))
    mesh.run(30)
    gate = mesh.gate
    assert gate.describe()


# --- what it can --------------------------------------------------------------------------------------------------


def test_it_can_have_a_publisher_take_a_subscription_for_ended(mesh: Besieged) -> None:
    """A limit, not a promise. When the subscriber announces itself again it is served again."""
    b0, b1, _ = opened(mesh)
    key = publisher_key(TOPIC, b0.ref, ORDER)
    for topic_filter in ("a/b",):
        end = Announce([Announced(topic_filter, 1 << 40)], b1.ref, False)
        assert mesh.attack(b0, Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], end, 1))
    told = publish(mesh, b0, TOPIC, b"unheard")
    mesh.run(1)
    assert [reached.brokers for reached in told] == [0]
    assert b"unheard" not in got(mesh, 1)


def test_it_can_take_the_session_of_a_client_if_it_knows_its_user(mesh: Besieged) -> None:
    """A limit, not a promise: a broker of the mesh may say that a client has come to it."""
    b1 = mesh.brokers["b1"]
    sent: list[Frame] = []
    mesh.overheard = lambda to, frame: sent.append(frame)
    mesh.attack(b1, TakeOver(1, "client1", 1 << 63, "somebody else", True))
    mesh.run(0.1)
    assert TakeOverAnswer(1, 5) in sent
    mesh.attack(b1, TakeOver(2, "client1", 1 << 63, None, True))
    mesh.attack(b1, Pull(2, 0, 0))
    mesh.run(0.1)
    assert TakeOverAnswer(2, 1) in sent
    assert any(isinstance(frame, Snapshot) for frame in sent)


def test_it_can_claim_a_client_so_that_nobody_else_has_it(mesh: Besieged) -> None:
    """A limit, not a promise. What the holders keep is what they are told, as much as one call carries."""
    holders = [b for b in mesh.alive() if b.node.sessions.directory.partitions]
    assert holders
    broker = holders[0]
    number = broker.node.sessions.directory.partitions[0]
    key = next(key for key in broker.node.graph.nodes if key.path == b"s\0%d" % number)
    before = len(broker.node.sessions.directory)
    claim = Claim(number, FOE, [(f"ghost{i}", GREATEST) for i in range(1000)], [])
    assert mesh.attack(broker, Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], claim, 1))
    assert len(broker.node.sessions.directory) == before + 1000
    mesh.gone()
    broker.act(lambda: broker.node.sessions.directory.forget(FOE))
    assert len(broker.node.sessions.directory) == before


def test_it_can_keep_a_retained_message_that_nobody_replaces(mesh: Besieged) -> None:
    """A limit, not a promise: the greatest stamp is the last message."""
    keepers = [b for b in mesh.alive() if b.node.retained.store.partitions]
    assert 0 < len(keepers) <= HOLDERS
    forged = Record(Message(TOPIC, b"forged", 1, True, Properties(stamp=GREATEST)), 0, FOE, 1)
    for broker in keepers:
        for key in [key for key in broker.node.graph.nodes if key.path[:1] == b"r"]:
            mesh.attack(broker, Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], Keep([forged]), 1))
    mesh.tell_hub(mesh.brokers["b1"], Message(TOPIC, b"true", 1, True))
    mesh.run(1)
    found = {
        r.message.payload
        for b in keepers
        for partition in b.node.retained.store._held.values()
        for r in partition.records.values()
    }
    assert b"forged" in found
    assert b"true" not in found


def test_it_can_confirm_what_it_has_not_passed_on(mesh: Besieged) -> None:
    """A limit, not a promise: it is the first of its cluster, and of those behind it only its word is heard."""
    b0, _, _ = opened(mesh)
    key = publisher_key(TOPIC, b0.ref, ORDER)

    def confirm(_: SimBroker, frame: Frame) -> None:
        if isinstance(frame, Publish):
            mesh.attack(b0, Ack(frame.token, [(1, 1)], []))

    mesh.overheard = confirm
    join = Announce([Announced("a/+", 1)], FOE, True)
    assert mesh.attack(b0, Broadcast(FOE, 1, [(key, key._replace(role=key.role + 1))], join, 1))
    told = publish(mesh, b0, TOPIC, b"x")
    mesh.run(2)
    assert told
    assert b"x" not in got(mesh, 1)


def test_it_can_answer_a_call_whose_number_it_guesses(mesh: Besieged) -> None:
    """A limit, not a promise: who the first node of a range is, the caller does not know."""
    b0, _, _ = opened(mesh)
    outcomes: list[Outcome] = []
    calls: list[Call] = []
    b0.act(lambda: calls.append(b0.node.rendezvous.calls.call(one_broker("b1"), Absent(["client1"]), outcomes.append)))
    mesh.attack(b0, Gathered(calls[0].part, [Here(["forged"])], True, 1))
    assert [outcome.results for outcome in outcomes] == [[Here(["forged"])]]
