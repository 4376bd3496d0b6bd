"""Meshes with a designed overlay on the simulator, and what their publications cost."""

from __future__ import annotations

import random
from collections import defaultdict

from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Publish
from saps.overlay.rendezvous.designer import Designer, DesignSettings
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.simulator import Network, SimBroker, Simulation


class Traced(Simulation):
    """A simulation that follows each payload: how many copies, how many hops, over which links."""

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)  # type: ignore[arg-type]
        self.forget()

    def forget(self) -> None:
        """Begin to count anew."""
        self.copies: dict[bytes, int] = defaultdict(int)
        self.hops: dict[bytes, dict[str, int]] = defaultdict(dict)
        """Payload -> broker -> hops from the publisher's."""
        self.links: dict[str, set[str]] = defaultdict(set)
        """Broker -> brokers that it exchanged publications with."""

    def depth(self) -> int:
        """The most hops that any copy took."""
        return max((hops for way in self.hops.values() for hops in way.values()), default=0)

    def degree(self) -> int:
        """The most brokers that one exchanged publications with."""
        return max((len(peers) for peers in self.links.values()), default=0)

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Publish):
            for payload in frame.payloads:
                way = self.hops[payload]
                way[to.name] = way.get(source.name, 0) + 1
                self.copies[payload] += 1
            self.links[source.name].add(to.name)
            self.links[to.name].add(source.name)
        super()._send(source, to, frame)


def mesh(seed: int, count: int, design: DesignSettings | None, order: KeyOrder = KeyOrder.CLUSTER) -> Traced:
    """`count` brokers that have joined."""
    simulation = Traced(seed, network=Network(latency=(0.001, 0.004)), order=order, design=design, check=False)
    simulation.build(count, 4)
    return simulation


def subscribe(simulation: Simulation, topics: int, each: int) -> dict[str, list[str]]:
    """`each` random subscriptions a broker. Returns topic -> names of its subscribers."""
    rng = random.Random(simulation.seed)
    wanting: dict[str, list[str]] = defaultdict(list)
    left = 0

    def one_ready() -> None:
        nonlocal left
        left -= 1

    for broker in list(simulation.brokers.values()):
        for topic in rng.sample([f"t/{number}" for number in range(topics)], each):
            wanting[topic].append(broker.name)
            left += 1
            broker.subscribe(topic, one_ready)
    simulation.run_until(lambda: left == 0)
    return wanting


def publish_all(simulation: Traced, wanting: dict[str, list[str]]) -> dict[bytes, int]:
    """Each subscriber publishes once to each of its topics. Returns payload -> copies it must cost."""
    expected = {}
    for topic, names in wanting.items():
        for name in names:
            payload = f"{topic} {name}".encode()
            expected[payload] = len(names) - 1
            simulation.brokers[name].publish(topic, payload, 1)
    simulation.run(3)
    return expected


def designer_of(simulation: Simulation) -> Designer:
    """Of the broker that designs now."""
    first = min(simulation.alive(), key=lambda broker: broker.name)
    assert first.node.rendezvous.designer is not None
    return first.node.rendezvous.designer


def settled(simulation: Simulation) -> bool:
    """Do all live brokers have the same design?"""
    positions = {
        broker.node.rendezvous.designs.position for broker in simulation.alive() if broker.node.rendezvous.designs
    }
    return len(positions) == 1 and positions.pop().serial > 0
