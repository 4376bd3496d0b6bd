"""Priority topics in the simulator, with a lane of their own that is faster than the common one, and never in step."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.delivery.express import by_express
from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.simulator import GRAIN, Network, SimBroker, Simulation
from tests.drawn import schedules

pytestmark = pytest.mark.simulation

URGENT, PLAIN = "alert/fire", "air/no2"
SLOW = Network(latency=(0.02, 0.4))


def urgent(topic: str) -> bool:
    return topic == URGENT


class TwoLanes(Simulation):
    """Frames of priority topics arrive in order among themselves, and long before others sent earlier."""

    def __init__(self, seed: int, order: KeyOrder) -> None:
        super().__init__(seed, network=SLOW, order=order)
        self._clear_at: dict[tuple[str, str], float] = defaultdict(float)

    def attach(self, broker: SimBroker) -> None:
        broker.node.rendezvous.ways.prioritise(urgent)

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if not by_express(frame, urgent):
            super()._send(source, to, frame)
            return
        lane, target = (source.name, to.name), self.brokers[to.name]
        if lane not in self._clear_at:
            target.act(lambda: target.node.delivery.multicast.forwarder.express_started(source.ref))
        self._clear_at[lane] = max(self.now + self.rng.uniform(0.0005, 0.002), self._clear_at[lane] + GRAIN)
        self.at(self._clear_at[lane], lambda: target.act(lambda: target.node.receive(source.ref, [frame])))


@schedules(3)
@given(st.integers(0, 1 << 32), st.sampled_from(list(KeyOrder)))
def test_each_publisher_s_order_is_kept_within_each_topic_and_alerts_pass_the_rest(seed: int, order: KeyOrder) -> None:
    """Every broker subscribes to both topics, and all publish to both at once, with all qualities of service."""
    simulation = TwoLanes(seed, order)
    brokers = simulation.build(4, clusters=2)
    ready: list[str] = []
    for broker in brokers:
        for topic in (URGENT, PLAIN):
            broker.subscribe(topic, lambda name=broker.name: ready.append(name))  # type: ignore[misc]
    simulation.run_until(lambda: len(ready) == 2 * len(brokers))
    for broker in brokers:  # opens the streams
        for topic in (URGENT, PLAIN):
            broker.publish(topic, f"{broker.name} 0".encode())
    simulation.run(10.0)
    rng = random.Random(seed)
    sent: dict[tuple[str, str], int] = defaultdict(int)
    for _ in range(40):
        broker, topic = rng.choice(brokers), rng.choice((URGENT, PLAIN))
        sent[broker.name, topic] += 1
        broker.publish(topic, f"{broker.name} {sent[broker.name, topic]}".encode(), rng.choice((0, 1)))
    simulation.run(30.0)
    last: dict[str, float] = defaultdict(float)
    for broker in brokers:
        came: dict[tuple[str, str], list[int]] = defaultdict(list)
        for at, message in broker.delivered:
            publisher, number = message.payload.decode().split()
            came[publisher, message.topic].append(int(number))
            last[message.topic] = max(last[message.topic], at)
        assert came == {
            (other.name, topic): list(range(sent[other.name, topic] + 1))
            for other in brokers
            if other is not broker
            for topic in (URGENT, PLAIN)
        }
    assert last[URGENT] < last[PLAIN]
