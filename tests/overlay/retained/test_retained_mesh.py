"""Retained messages of the whole mesh, on the simulator, with random schedules."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.broker.options import LOOK, watch_retained
from saps.messages import Message, Properties
from saps.overlay.frames.calls import Record
from saps.overlay.retained import publisher as retained
from saps.overlay.retained import store
from saps.overlay.retained.store import HOLDERS, PART, PARTITIONS, partition_of
from saps.routing.batch import Batch
from saps.simulator import Network
from tests.drawn import kept, schedules
from tests.overlay.hubs import TOPICS, Hubs, Weighed, random_act

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(1)


def scene(seed: int, steps: int, churn: bool, brokers: int = 5) -> tuple[random.Random, Hubs]:
    rng = random.Random(seed)
    mesh = Hubs(seed, network=Network(latency=(0.001, rng.choice([0.002, 0.02, 0.08]))))
    mesh.build(brokers, 3)
    for _ in range(steps):
        random_act(rng, mesh, churn)
        mesh.run(rng.choice([0, 0, 0, 0.001, 0.01, 0.05]))
    return rng, mesh


@SCHEDULES
@given(SEEDS)
def test_retained_then_live_without_loss_or_double(seed: int) -> None:
    """Publications and subscriptions at the same moments, all over the mesh; brokers that come and go."""
    _, mesh = scene(seed, 80, churn=True)
    mesh.run(6)
    mesh.judge_clients()
    mesh.judge_newcomers()


def test_a_filter_that_is_subscribed_again_is_promised_nothing_for_its_former_subscription() -> None:
    """What a publisher had not sent meanwhile was left out of the retained messages, as if it were still to come."""
    _, mesh = scene(268, 120, churn=False)
    mesh.run(6)
    mesh.judge_clients()


@SCHEDULES
@given(SEEDS)
def test_what_was_acknowledged_survives_crashes(seed: int) -> None:
    """Two brokers at once, and a third later, of six: each message has three holders."""
    rng, mesh = scene(seed, 40, churn=False, brokers=6)
    for victims in (2, 1):
        for broker in rng.sample(mesh.there(), victims):
            mesh.crash(broker.name)
        mesh.run(rng.choice([4, 8]))
        for _ in range(10):
            random_act(rng, mesh, churn=False)
            mesh.run(0.01)
    mesh.run(8)
    mesh.judge_newcomers(acknowledged=True)


@SCHEDULES
@given(SEEDS)
def test_after_a_partition_all_agree(seed: int) -> None:
    """Both sides write the same topics; when they are one again, the last writer has won everywhere."""
    rng, mesh = scene(seed, 30, churn=False)
    mesh.run(2)
    names = [broker.name for broker in mesh.alive()]
    rng.shuffle(names)
    mesh.partition(names[: rng.randrange(1, len(names))])
    for _ in range(20):
        random_act(rng, mesh, churn=False)
        mesh.run(rng.choice([0.05, 0.2]))
    mesh.run(4)
    mesh.heal()
    mesh.run(15)
    mesh.judge_newcomers(acknowledged=True)


@pytest.mark.parametrize("seed", kept(8, 3, quick=1))
def test_after_crashes_each_bucket_has_enough_holders_again(seed: int) -> None:
    """Whoever notices: the holder that is to act need not be a neighbour of the one that died."""
    mesh = Hubs(seed, check=False)
    brokers = mesh.build(16, 4)
    for number in range(60):
        mesh.publish(brokers[number % 16], f"many/{number}", 1)
    mesh.run(3)
    assert len(mesh.acknowledged) == 60
    for broker in mesh.rng.sample(brokers, 2):
        mesh.crash(broker.name)
    mesh.run(12)
    holders = Counter(number for broker in mesh.alive() for number in broker.node.retained.store.partitions)
    assert holders.keys() == {partition_of(f"many/{number}") for number in range(60)}
    assert min(holders.values()) >= HOLDERS


@pytest.mark.parametrize("limit", [(retained, "AT_ONCE", 3), (store, "PART", 3)], ids=["messages", "bytes"])
def test_many_retained_messages_are_asked_for_bucket_by_bucket(
    monkeypatch: pytest.MonkeyPatch, limit: tuple[ModuleType, str, int]
) -> None:
    monkeypatch.setattr(*limit)
    mesh = Hubs(5)
    one, *_, last = mesh.build(4, 2)
    for number in range(30):
        mesh.publish(one, f"many/{number}", 1)
    mesh.run(3)
    before = mesh.counters.by_kind["Gathered"]
    client = mesh.client(last, "many/+")
    mesh.run_until(lambda: client.ready)
    assert sorted(got.topic for got in client.got) == sorted(f"many/{number}" for number in range(30))
    assert mesh.counters.by_kind["Gathered"] - before > PARTITIONS


def test_the_large_messages_of_a_bucket_are_kept_collected_and_recalled_in_parts() -> None:
    mesh = Weighed(5)
    one, *_ = mesh.build(5, 2)
    topics = [topic for topic in (f"large/{number}" for number in range(9_999)) if partition_of(topic) == 7][:80]
    for number, topic in enumerate(topics):
        mesh.publish(one, topic, 1, b"%d" % number + bytes(60_000))
    mesh.run(3)
    holder = next(
        broker for broker in mesh.alive() if broker is not one and broker.node.retained.store.holds(topics[0])
    )
    mesh.crash(holder.name)
    mesh.run(10)
    clients = [mesh.client(broker, "large/+") for broker in mesh.alive()]
    mesh.run(5)
    assert all(sorted(got.topic for got in client.got) == sorted(topics) for client in clients)
    holders = [broker for broker in mesh.alive() if broker.node.retained.store.holds(topics[0])]
    assert [len(broker.node.retained.store) for broker in holders] == [len(topics)] * HOLDERS
    assert mesh.most < (HOLDERS + 1) * PART + HOLDERS * 60_000


@pytest.mark.parametrize("brokers", [1, 4])
def test_stored_messages_are_restored_in_parts_and_before_anybody_here_asks_for_them(brokers: int) -> None:
    mesh = Weighed(5, check=False)
    one, *_ = mesh.build(brokers, 1)
    records = [
        Record(Message(f"large/{number}", bytes(60_000), 1, True, Properties(stamp=number + 1)), 0, one.ref, 0)
        for number in range(300)
    ]
    given: list[str] = []
    told = [partial(given.append, record.message.topic) for record in records]
    one.act(lambda: one.node.retained.restore(iter(zip(records, told, strict=True))))
    client = mesh.client(one, "large/+")
    mesh.run(10)
    topics = sorted(record.message.topic for record in records)
    assert sorted(given) == topics
    assert sorted(got.topic for got in client.got) == topics
    assert mesh.most < 2 * retained.RESTORED_AT_ONCE


def test_a_restored_message_does_not_replace_a_later_one_that_waits_for_the_holders() -> None:
    mesh = Hubs(5)
    one, *_, last = mesh.build(4, 2)
    mesh.publish(one, "t", 1, b"before")
    mesh.run(3)
    mesh.publish(one, "t", 1, b"first")
    mesh.publish(one, "t", 1, b"later")
    old = Record(Message("t", b"old", 1, True, Properties(stamp=1)), 0, one.ref, 0)
    one.act(lambda: one.node.retained.restore(iter([(old, lambda: None)])))
    mesh.run(5)
    client = mesh.client(last, "t")
    mesh.run(2)
    assert [got.payload for got in client.got] == [b"later"]


def test_what_is_left_out_for_lack_of_room_is_counted_and_logged_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "TOPICS", 4)
    mesh = Hubs(5)
    one, *_, last = mesh.build(4, 2)
    hub, held = mesh.hubs[last], last.node.retained.store
    hub.retained._store.capacity = 6
    watch_retained(hub, last.node)
    done: list[None] = []
    last.act(lambda: held.join(7, lambda: done.append(None)))
    mesh.run_until(lambda: bool(done))
    mesh.client(last, "many/+")
    mesh.run(1)
    topics = [topic for topic in (f"many/{number}" for number in range(999)) if partition_of(topic) == 7][:9]
    for topic in topics:
        mesh.publish(one, topic, 1)
    mesh.run(3)
    assert (hub.retained.refused, held.refused) == (3, 5)
    mesh.run(10 * LOOK)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "saps.broker.options"]
    assert "3 left out" in said


def test_a_retained_message_lives_as_long_as_it_says() -> None:
    """MQTT 5.0, 3.3.2.3.3: also where it is kept, and what is left of it is told."""
    mesh = Hubs(6)
    one, *_, last = mesh.build(4, 2)
    hub = mesh.hubs[one]
    one.act(lambda: hub.publish(Batch.of(Message("a", b"x", 1, True, Properties(message_expiry=10)))))
    mesh.run(6)
    early = mesh.client(last, "a")
    mesh.run(1)
    assert [got.payload for got in early.got] == [b"x"]
    (kept,) = mesh.hubs[last].retained_for("a")
    assert kept.deadline is not None
    assert 9 < kept.deadline < 12
    mesh.run(5)
    late = mesh.client(mesh.alive()[1], "a")
    mesh.run(1)
    assert late.ready
    assert late.got == []


@pytest.mark.parametrize("room", [store.EXPIRED, 0])
def test_an_older_message_does_not_come_back_after_a_later_one_has_expired(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A holder was cut off meanwhile. What has expired is remembered for an hour, while there is room."""
    monkeypatch.setattr(store, "EXPIRED", room)
    mesh = Hubs(5, check=False)
    brokers = mesh.build(6, 2)
    mesh.publish(brokers[0], "a", 1, b"old")
    mesh.run(3)
    cut, *_ = holders = [broker for broker in brokers if broker.node.retained.store.holds("a")]
    mesh.partition([cut.name])
    mesh.run(5)
    other = next(broker for broker in brokers if broker not in holders)
    later = Message("a", b"later", 1, True, Properties(message_expiry=20))
    other.act(lambda: mesh.hubs[other].publish(Batch.of(later)))
    mesh.run(70)
    mesh.heal()
    mesh.run(40)
    clients = [mesh.client(broker, "a") for broker in brokers]
    mesh.run(3)
    assert [got.payload for client in clients for got in client.got] == ([] if room else [b"old"] * len(brokers))
    mesh.run(store.DELETED)
    assert sum(len(broker.node.retained.store) for broker in brokers) == (0 if room else HOLDERS)


@pytest.mark.parametrize("seed", range(4))
def test_of_what_both_sides_of_a_cut_have_retained_the_later_one_stays_everywhere(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Hubs(seed, check=False)
    brokers = mesh.build(rng.choice([2, 4, 6]), 2)
    mesh.run(2)
    for topic in TOPICS:
        mesh.publish(rng.choice(brokers), topic, 1)
    mesh.run(3)
    names = [broker.name for broker in brokers]
    rng.shuffle(names)
    mesh.partition(names[: len(names) // 2])
    mesh.run(5)
    for _ in range(40):
        mesh.publish(rng.choice(brokers), rng.choice(TOPICS), rng.choice([1, 2]))
        mesh.run(rng.choice([0.1, 2]))
    mesh.heal()
    mesh.run(25)
    mesh.judge_newcomers(acknowledged=True)
