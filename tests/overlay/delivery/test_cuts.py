"""Cuts, short and long: what was acknowledged meanwhile reaches the other side, in order, once."""

from __future__ import annotations

import random

import pytest

from saps.simulator import Network, Simulation
from saps.topics import matches
from tests.drawn import seeds
from tests.overlay.scenes import Recorder

pytestmark = pytest.mark.simulation

TOPICS = ("a", "a/b", "x", "y/1", "y/2")
FILTERS = ("a", "a/#", "x", "+/b", "y/+", "#")
LENGTHS = (300, 1, 12, 3, 40, 60)
"""Seconds. Below `suspect_after`, while a life is in doubt, longer than what was once kept, than an idle topic is known
(`publishers.IDLE`), and than the sequences of an origin that is not heard (`order.SWEEP`)."""


class Cut:
    """Brokers of two sites that subscribe and publish before, during and after a cut between the sites."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        reset = rng.choice([0.0, 0.0, 0.001])
        self.simulation = Simulation(seed, network=Network(latency=(0.001, rng.choice([0.002, 0.02])), reset=reset))
        self.brokers = self.simulation.build(rng.choice([2, 4, 6]), 2)
        self.recorder = Recorder(self.simulation)
        for broker in self.brokers:
            for topic_filter in rng.sample(FILTERS, rng.choice([0, 1, 2])):
                self.recorder.subscribe(broker, topic_filter)
        self.simulation.run(2)
        if rng.random() < 0.7:
            self.publish(1)

    def publish(self, seconds: float, most: int = 30) -> None:
        """Publish now and then, to some topics more than to others, and subscribe sometimes."""
        rng, recorder = self.rng, self.recorder
        for _ in range(most):
            broker = rng.choice(self.brokers)
            if rng.random() < 0.1:
                recorder.subscribe(broker, rng.choice(FILTERS))
            elif rng.random() < 0.2:
                recorder.publish_together(broker, rng.sample(TOPICS, 3), rng.choice([1, 2]))
            else:
                recorder.publish(broker, rng.choice(TOPICS), rng.choice([0, 1, 1, 2]))
            self.simulation.run(seconds / most)

    def part(self) -> None:
        self.simulation.partition([broker.name for broker in self.brokers if broker.ref.cluster == "c0"])

    def judge(self) -> None:
        """Nothing of QoS 1 and 2 that was published after a SUBACK is missing; nothing came twice or too late."""
        for broker, intervals in self.recorder.intervals.items():
            have = {message.payload for _, message in broker.delivered}
            for moment, publisher, topic, qos, payload in self.recorder.published:
                owed = any(matches(i.topic_filter, topic) and i.ready and i.ready < moment for i in intervals)
                if owed and qos and publisher is not broker:
                    assert payload in have, f"{payload!r} to {topic} from {publisher.name} lost at {broker.name}"
        self.recorder.judge(faulty=True)


@seeds(3)
def test_a_cut_loses_nothing_however_long(seed: int) -> None:
    cut = Cut(seed)
    cut.part()
    cut.publish(LENGTHS[seed % len(LENGTHS)])
    cut.simulation.heal()
    cut.publish(cut.rng.choice([1, 6]))
    cut.simulation.run(25)
    cut.judge()


@seeds(2)
def test_cuts_that_follow_each_other_lose_nothing(seed: int) -> None:
    cut = Cut(seed)
    for _ in range(cut.rng.choice([2, 4])):
        cut.part()
        cut.publish(cut.rng.choice(LENGTHS[1:]), 15)
        cut.simulation.heal()
        cut.publish(cut.rng.choice([0.1, 0.5, 1, 3, 6, 15]), 10)
    cut.simulation.run(25)
    cut.judge()


@seeds(1)
def test_a_link_that_comes_and_goes_loses_nothing(seed: int) -> None:
    """3 s there, 3 s gone, for a minute."""
    cut = Cut(seed)
    for _ in range(10):
        cut.part()
        cut.publish(3, 10)
        cut.simulation.heal()
        cut.publish(3, 10)
    cut.simulation.run(25)
    cut.judge()
