"""Shared subscriptions over the mesh, on the simulator: one member anywhere gets each message."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.messages import Message, Reached, Subscription
from saps.overlay.ring.keys import filter_key
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.routing.subscriptions import Takes, Target
from saps.simulator import Network, SimBroker
from tests.drawn import schedules
from tests.overlay.hubs import Hubs

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(3)
GROUPS = ["$share/g/a/b", "$share/h/a/+", "$share/g/#"]


class Worker(SubscriberAgent):
    """A member of a group that acknowledges when it is told to, as the session of an MQTT client does."""

    def __init__(self, hub: Hub, name: str) -> None:
        super().__init__(hub, name)
        self.got: list[bytes] = []
        self.unacknowledged: list[tuple[int, Batch]] = []
        self.away = False

    def takes(self, topic: str) -> Takes:
        return Takes.AWAY if self.away else Takes.NOW

    def deliver(self, batch: Batch, target: Target) -> None:
        self.got += batch.payloads
        if batch.share is not None:
            self.unacknowledged.append((min(batch.qos, target.qos), batch))

    def acknowledge(self) -> None:
        held, self.unacknowledged = self.unacknowledged, []
        for _, single in held:
            assert single.share is not None
            single.share.settled()

    def die(self) -> None:
        """The client's session ends."""
        self.close()
        held, self.unacknowledged = self.unacknowledged, []
        for qos, single in held:
            if qos == 1:
                self.hub.groups.redeliver(single)
            elif single.share is not None:
                single.share.settled()


class Works(Hubs):
    """A simulation with workers."""

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)
        self.workers: list[tuple[SimBroker, Worker]] = []
        self.sent: list[tuple[SimBroker, bytes, int]] = []
        self.told: dict[bytes, int] = {}
        """Payload -> subscribers reached, as the publisher was told."""

    def worker(self, broker: SimBroker, topic_filter: str, qos: int = 2) -> Worker:
        worker = Worker(self.hubs[broker], f"w{len(self.workers)}")
        self.workers.append((broker, worker))
        ready: list[bool] = []
        broker.act(lambda: worker.subscribe(Subscription(topic_filter, qos), lambda: ready.append(True)))
        self.run_until(lambda: bool(ready))
        return worker

    def send(self, broker: SimBroker, qos: int, topic: str = "a/b") -> None:
        payload = b"%d" % len(self.sent)
        self.sent.append((broker, payload, qos))

        def done(reached: Sequence[Reached]) -> None:
            self.told[payload] = reached[0].subscribers

        broker.act(lambda: self.hubs[broker].publish(Batch.of(Message(topic, payload, qos)), done=done))


def mesh(seed: int, brokers: int = 5) -> tuple[random.Random, Works]:
    rng = random.Random(seed)
    works = Works(seed, network=Network(latency=(0.001, rng.choice([0.002, 0.03]))))
    works.build(brokers, 2)
    return rng, works


def test_a_group_has_one_place_whoever_subscribes() -> None:
    _, works = mesh(1, 2)
    one, two = (broker.ref for broker in works.alive())
    for name in GROUPS:
        keys = [filter_key(name, ref, works.nodes.order) for ref in (one, two)]
        assert [key.topic_filter for key in keys] == [name, name]
        assert keys[0].path == keys[1].path
        assert keys[0].rest == keys[1].rest


@SCHEDULES
@given(SEEDS)
def test_each_message_goes_to_one_member_of_each_group(seed: int) -> None:
    """Members all over the mesh, some of them away; publishers everywhere; a plain subscriber is not disturbed."""
    rng, works = mesh(seed)
    groups = {
        name: [works.worker(rng.choice(works.alive()), name) for _ in range(rng.randrange(1, 5))] for name in GROUPS
    }
    for workers in groups.values():
        for worker in rng.sample(workers, len(workers) - 1):
            worker.away = rng.random() < 0.5
    plain = works.client(rng.choice(works.alive()), "a/#")
    works.run(1)
    for _ in range(40):
        works.send(rng.choice(works.alive()), rng.choice((0, 1, 2)))
        works.run(rng.choice([0, 0.001, 0.02]))
    works.run(3)
    for name, workers in groups.items():
        got = Counter(payload for worker in workers for payload in worker.got)
        assert got == {payload: 1 for _, payload, _ in works.sent}, f"{name} (seed {seed})"
        assert not any(worker.got for worker in workers if worker.away), f"one that is away (seed {seed})"
    assert sorted(int(got.payload) for got in plain.got) == list(range(40))
    assert works.told == {payload: works.told[payload] for _, payload, _ in works.sent}
    for _, payload, qos in works.sent:
        assert works.told[payload] == 4 or not qos, (payload, works.told[payload], seed)


def test_members_near_the_publisher_come_first_and_equals_share_alike() -> None:
    _, works = mesh(3, 6)
    here = works.alive()[0]
    near = [broker for broker in works.alive() if broker is not here and broker.ref.cluster == here.ref.cluster]
    far = [works.worker(broker, "$share/g/a/b") for broker in works.alive() if broker.ref.cluster != here.ref.cluster]
    for _ in range(30):
        works.send(here, 1)
        works.run(0.05)
    assert [len(worker.got) for worker in far] == [10, 10, 10]
    close = [works.worker(broker, "$share/g/a/b") for broker in near]
    for _ in range(30):
        works.send(here, 1)
        works.run(0.05)
    assert [len(worker.got) for worker in far] == [10, 10, 10]
    assert [len(worker.got) for worker in close] == [15, 15]
    own = works.worker(here, "$share/g/a/b")
    for _ in range(10):
        works.send(here, 1)
        works.run(0.05)
    assert len(own.got) == 10
    assert works.counters.by_kind["GroupDelivery"] == 60


@SCHEDULES
@given(SEEDS)
def test_what_a_lost_member_did_not_acknowledge_goes_to_another(seed: int) -> None:
    """Clients end, brokers crash, links break: QoS 1 from a broker that lives is acknowledged by somebody; nothing
    comes twice that was acknowledged by a member that was not lost."""
    rng, works = mesh(seed)
    publishers = works.alive()[:2]
    workers = [works.worker(broker, "$share/g/a/b") for broker in works.alive() for _ in range(2)]
    acknowledged: Counter[bytes] = Counter()

    def acknowledge(worker: Worker) -> None:
        acknowledged.update(publication.message.payload for _, publication in worker.unacknowledged)
        worker.acknowledge()

    works.run(1)
    for _ in range(60):
        works.send(rng.choice(publishers), 1)
        works.run(rng.choice([0, 0.001, 0.02]))
        broker, worker = rng.choice(works.workers)
        dice = rng.random()
        if broker.alive and dice < 0.4:
            broker.act(lambda worker=worker: acknowledge(worker))  # type: ignore[misc]
        elif broker.alive and dice < 0.45 and sum(bool(w.subscriptions) for _, w in works.workers) > 3:
            broker.act(worker.die)
        elif dice < 0.5:
            works.reset_link(*(b.name for b in rng.sample(works.alive(), 2)))
        elif dice < 0.52 and len(works.alive()) > 3:
            works.crash(rng.choice([b for b in works.alive() if b not in publishers]).name)
    for _ in range(10):
        works.run(2)
        for broker, worker in works.workers:
            if broker.alive and worker.subscriptions:
                broker.act(lambda worker=worker: acknowledge(worker))  # type: ignore[misc]
    missing = [payload for _, payload, _ in works.sent if not acknowledged[payload]]
    assert not missing, f"lost {missing} (seed {seed})"
    assert len(works.told) == len(works.sent), f"not confirmed (seed {seed})"
    for broker in works.alive():
        assert broker.node.delivery.sharing.settled, f"{broker.name} still waits (seed {seed})"
    assert workers
