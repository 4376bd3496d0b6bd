"""Counts the queries of Figure 13: those that the running EITHER and BOTH state machines send OFGate in the simulator.

The mesh consists of the product's brokers. Each subscriber has a broker of its own, so that each of its joins and
leaves is a broker's. The topic always has a tree. A subscriber can leave only as often as it joins, so counts are for
equal rates.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from research.engine import Progress, Sweep, untold
from research.saps_paper.queries import PUBLISH_RATE, PUBLISHERS, Counted
from research.saps_paper.records import CLUSTERS, FEW
from research.simulated_ofm import OfmNetwork, SimulatedController
from saps.agents.ofgate.ofgate import OFGate
from saps.agents.switchover import Mode, Modes
from saps.ofm.northbound.schema import Status
from saps.simulator import SimBroker, Simulation

LEASE = 10.0
"""Lease in seconds of an answer to a publisher with EITHER; the product's default."""
SECONDS = 5.0
"""Virtual seconds in which queries are counted."""
COUNTED = (0.0, 0.2, 0.5, 1.0)
"""Joins of each subscriber a second; it leaves as often."""
SETTLE = 8.0
"""Virtual seconds until all subscribers are in the tree."""
TOPIC = "figure/13"


class Case(NamedTuple):
    """A point at which queries are counted."""

    mode: Mode
    rate: float
    """Joins of each subscriber a second; it leaves as often."""
    subscribers: int
    seconds: float


def run(seed: int, sweep: Sweep, done: Progress = untold) -> Counted:
    """Return the queries a second, by method, join rate and leave rate."""
    cases = [Case(mode, rate, FEW, SECONDS) for rate in COUNTED[::-1] for mode in Mode]  # the longest first
    found = sweep(partial(count, seed=seed), cases, done)
    return {(case.mode.name, case.rate, case.rate): queries for case, queries in zip(cases, found, strict=True)}


def count(case: Case, seed: int) -> float:
    """Return the queries to OFGate a second in one case. Raises RuntimeError if the topic gets no tree."""
    scene = _Scene(case, random.Random(f"{seed} {case.mode} {case.rate}"), seed)
    scene.settle()
    before = scene.gate.queries.total()
    scene.simulation.run(case.seconds)
    return (scene.gate.queries.total() - before) / case.seconds


class _Scene:
    """A simulated mesh with publishers and subscribers of one topic, each on a broker of its own."""

    def __init__(self, case: Case, rng: random.Random, seed: int) -> None:
        self._case, self._rng = case, rng
        self.simulation = Simulation(seed, check=False)
        network = OfmNetwork(self.simulation, Modes(case.mode))
        brokers = self.simulation.build(1 + PUBLISHERS + case.subscribers, CLUSTERS)
        self._network, self._publishers = network, brokers[1 : PUBLISHERS + 1]
        self._subscribers = brokers[PUBLISHERS + 1 :]
        self.gate: OFGate = network.ofgate(brokers[0], SimulatedController(network), LEASE)

    def settle(self) -> None:
        """Subscribe, publish and construct the tree; then begin to join and leave.

        Raises RuntimeError if the tree is not constructed."""
        self.simulation.run_until(lambda: self.gate.leading)
        for broker in self._subscribers:
            broker.subscribe(TOPIC)
        for broker in self._publishers:
            self._publish(broker)
        self.simulation.run(SETTLE / 2)
        first = self._publishers[0]
        first.act(lambda: self._network.agents[first.name].construct(TOPIC))
        self.simulation.run(SETTLE / 2)
        if [topic["status"] for topic in self.gate.describe()["topics"]] != [Status.CONSTRUCTED]:
            raise RuntimeError("there is no tree to count the queries about")
        if self._case.rate:
            for broker in self._subscribers:
                self._after(self._wait(), partial(self._leave, broker))

    def _publish(self, broker: SimBroker) -> None:
        broker.publish(TOPIC)
        self._after(1 / PUBLISH_RATE, lambda: self._publish(broker))

    def _leave(self, broker: SimBroker) -> None:
        broker.unsubscribe(TOPIC)
        self._after(self._wait(), lambda: self._join(broker))

    def _join(self, broker: SimBroker) -> None:
        broker.subscribe(TOPIC)
        self._after(self._wait(), lambda: self._leave(broker))

    def _wait(self) -> float:
        """Return the seconds to a subscriber's next join or leave, exponentially distributed (a Poisson process)."""
        return self._rng.expovariate(2 * self._case.rate)

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        self.simulation.at(self.simulation.now + delay, action)
