"""Random scenes on the simulator, and the recorder that judges them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from saps.messages import Message, Reached
from saps.routing.batch import Batch
from saps.simulator import SimBroker, Simulation
from saps.topics import matches
from tests.batches import batch_of

FILTERS = ["a", "a/b", "a/b/c", "a/+", "+/b", "a/#", "#", "+", "x/y", "x/+/z", "x/#", "/", "a/+/c", "$SYS/#", "/+"]
TOPICS = ["a", "a/b", "a/b/c", "x/y", "x/q/z", "/", "a/x/c", "$SYS/a", "x", "z"]


@dataclass
class _Interval:
    """A subscription: owed from `ready` (SUBACK) until `ended`; may already be served from `asked`."""

    topic_filter: str
    asked: int
    ready: int | None = None
    ended: int | None = None


class Recorder:
    """Who subscribed when, what was published when, what must therefore arrive. Moments are event numbers."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.clock = 0
        self.intervals: dict[SimBroker, list[_Interval]] = defaultdict(list)
        self.published: list[tuple[int, SimBroker, str, int, bytes]] = []
        self.confirmed: dict[bytes, Reached] = {}
        self._serial = 0

    def moment(self) -> int:
        self.clock += 1
        return self.clock

    def subscribe(self, broker: SimBroker, topic_filter: str) -> None:
        for interval in self.intervals[broker]:
            if interval.topic_filter == topic_filter and interval.ended is None:
                return
        interval = _Interval(topic_filter, self.moment())
        self.intervals[broker].append(interval)

        def ready() -> None:
            if interval.ended is None:
                interval.ready = self.moment()

        broker.subscribe(topic_filter, ready)

    def unsubscribe(self, broker: SimBroker, topic_filter: str) -> None:
        for interval in self.intervals[broker]:
            if interval.topic_filter == topic_filter and interval.ended is None:
                interval.ended = self.moment()
                broker.unsubscribe(topic_filter)

    def leave(self, broker: SimBroker) -> None:
        for interval in self.intervals[broker]:
            if interval.ended is None:
                interval.ended = self.moment()
        broker.leave()

    def publish(self, broker: SimBroker, topic: str, qos: int) -> None:
        self._serial += 1
        payload = b"%d" % self._serial
        self.published.append((self.moment(), broker, topic, qos, payload))
        broker.publish(topic, payload, qos, lambda reached: self.confirmed.__setitem__(payload, reached))

    def publish_together(self, broker: SimBroker, topics: Sequence[str], qos: int = 1) -> None:
        """Publish a batch, a message to each of these topics, as one read of a client's socket brings them."""
        broker.act(self.together(broker, topics, qos))

    def together(self, broker: SimBroker, topics: Sequence[str], qos: int = 1) -> Callable[[], None]:
        """The same, as something that the broker is to do now."""
        payloads = [b"%d" % number for number in range(self._serial + 1, self._serial + len(topics) + 1)]
        self._serial += len(topics)
        self.published += [
            (self.moment(), broker, topic, qos, each) for topic, each in zip(topics, payloads, strict=True)
        ]
        batch = batch_of([Message(topic, payload, qos) for topic, payload in zip(topics, payloads, strict=True)])
        return lambda: broker.node.mesh.publish(batch, partial(self.confirm, batch))

    def confirm(self, batch: Batch, reached: Sequence[Reached]) -> None:
        """The mesh has the batch: each publication once."""
        for payload, number in zip(batch.payloads, batch.which, strict=True):
            assert payload not in self.confirmed
            self.confirmed[payload] = reached[number]

    def forget_before(self, moment: int) -> None:
        """Judge only what was published after `moment`."""
        self.published = [entry for entry in self.published if entry[0] > moment]
        kept = {payload for *_, payload in self.published}
        for broker in self.simulation.brokers.values():
            broker.delivered = [(time, message) for time, message in broker.delivered if message.payload in kept]

    def judge(self, *, faulty: bool = False) -> None:
        """Raise AssertionError on a loss, a duplicate, or disorder. After faults only QoS 1 is owed, only between
        brokers that are still there, and only for subscriptions that were never withdrawn."""
        for broker, intervals in self.intervals.items():
            got = [message.payload for _, message in broker.delivered]
            assert len(got) == len(set(got)), f"duplicate at {broker.name} (seed {self.simulation.seed})"
            have = set(got)
            for moment, publisher, topic, qos, payload in self.published:
                if publisher is broker:
                    continue
                # A subscription that was withdrawn is owed nothing that may still have been on its way.
                owed = any(
                    matches(i.topic_filter, topic) and i.ready is not None and i.ready < moment and i.ended is None
                    for i in intervals
                )
                if faulty:
                    owed = owed and qos > 0 and publisher.alive and broker.alive
                if owed:
                    assert payload in have, (
                        f"lost at {broker.name}: {topic} qos {qos} from {publisher.name} (seed {self.simulation.seed})"
                    )
            self._judge_order(broker, got)
        self.judge_confirmed()

    def judge_confirmed(self) -> None:
        """Raise AssertionError if a publisher that is still there waits for an acknowledgement: all members have
        answered by now, or are dead to it."""
        for _, publisher, _, qos, payload in self.published:
            if publisher.alive and qos:
                assert payload in self.confirmed, f"not confirmed: {payload!r} (seed {self.simulation.seed})"

    def _judge_order(self, broker: SimBroker, got: list[bytes]) -> None:
        source = {payload: (publisher.name, topic) for _, publisher, topic, _, payload in self.published}
        last: dict[tuple[str, str], int] = {}
        for payload in got:
            stream = source[payload]
            assert last.get(stream, 0) < int(payload), (
                f"disorder at {broker.name} on {stream} (seed {self.simulation.seed})"
            )
            last[stream] = int(payload)


def random_step(rng: random.Random, recorder: Recorder, churn: bool) -> None:
    """One random act of a random broker: mostly publications, some subscriptions, now and then a join or a leave."""
    simulation = recorder.simulation
    there = [broker for broker in simulation.alive() if broker.joined and not broker.node.leaving.begun]
    broker = rng.choice(there)
    dice = rng.random()
    if dice < 0.55:
        recorder.publish(broker, rng.choice(TOPICS), rng.choice((0, 0, 1, 2)))
    elif dice < 0.75:
        recorder.subscribe(broker, rng.choice(FILTERS))
    elif dice < 0.88:
        current = [i.topic_filter for i in recorder.intervals[broker] if i.ended is None]
        if current:
            recorder.unsubscribe(broker, rng.choice(current))
    elif churn and dice < 0.94:
        number = len(simulation.brokers)
        simulation.add(f"b{number}", f"c{number % 3}", broker.name)
    elif churn and len(there) > 2:
        recorder.leave(broker)


def split_and_heal(rng: random.Random, recorder: Recorder) -> None:
    """Split the mesh for a while: afterwards it is one ring again, and everything published then arrives."""
    simulation = recorder.simulation
    simulation.run(2)
    names = [broker.name for broker in simulation.alive()]
    rng.shuffle(names)
    simulation.partition(names[: rng.randrange(1, len(names))])
    simulation.run(rng.choice([0.3, 1, 2, 6]))
    simulation.heal()
    simulation.run(12)
    simulation.check_ring()
    recorder.judge_confirmed()
    after = recorder.clock
    for _ in range(60):
        random_step(rng, recorder, False)
        simulation.run(0.01)
    simulation.run(8)
    recorder.forget_before(after)
    recorder.judge()
