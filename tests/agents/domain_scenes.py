"""A mesh over several OpenFlow domains, each with switches, a controller and OFGates of its own."""

from __future__ import annotations

import random

from research.simulated_ofm import OfmFaults, OfmNetwork, SimulatedController
from saps.agents.ofgate.ofgate import OFGate
from saps.agents.switchover import Mode, Modes
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.northbound.schema import Status
from saps.overlay.rendezvous.domains import representative
from saps.simulator import Network, SimBroker, Simulation
from tests.overlay.scenes import Recorder

TOPIC = "a/b"
DOMAINS = ("c0", "c1")


class TwoDomains:
    """Brokers of three clusters; two clusters are domains, the third has no OpenFlow. b0 (in c0) publishes."""

    def __init__(self, seed: int, mode: Mode, faults: OfmFaults, brokers: int = 12, largest: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.simulation = Simulation(
            seed, network=Network(latency=(0.001, self.rng.choice([0.002, 0.02]))), check=False
        )
        modes = Modes(mode, (), DOMAINS)
        settings = DatapathSettings(largest=largest or self.rng.choice([1472, 1472, 250]))
        self.ofm = OfmNetwork(self.simulation, modes, faults, settings)
        self.controllers = [SimulatedController(self.ofm, number) for number in range(len(DOMAINS))]
        self.recorder = Recorder(self.simulation)
        self.brokers = self.simulation.build(brokers, 3)
        self.publisher = self.brokers[0]
        self.gates: list[OFGate] = [
            self.ofm.ofgate(self.of(domain)[1], controller, 3.0)
            for domain, controller in zip(DOMAINS, self.controllers, strict=True)
        ]
        self.simulation.run_until(lambda: all(gate.leading for gate in self.gates))

    def of(self, cluster: str) -> list[SimBroker]:
        return [broker for broker in self.brokers if broker.node.port.me.cluster == cluster]

    def subscribers(self, domain: str) -> list[SimBroker]:
        """The brokers of a domain that live and have a subscriber."""
        return [
            broker
            for broker in self.of(domain)
            if broker.alive and any(interval.ended is None for interval in self.recorder.intervals[broker])
        ]

    @property
    def representative(self) -> SimBroker:
        """Who stands for the second domain."""
        there = {broker.node.port.me: broker for broker in self.subscribers(DOMAINS[1])}
        return there[representative(TOPIC, list(there))]

    def subscribe(self) -> None:
        """All but the publisher; then both domains make a tree."""
        for broker in self.brokers[1:]:
            self.recorder.subscribe(broker, "a/#")
        self.simulation.run(2)
        self.publish(3, 0)
        for domain in DOMAINS:
            broker = self.of(domain)[2]
            broker.act(lambda broker=broker: self.ofm.agents[broker.name].construct(TOPIC))  # type: ignore[misc]
        for _ in range(40):
            self.publish(5, 0)
            self.simulation.run(0.1)
        states = [controller.ofms[TOPIC].status for controller in self.controllers]
        assert set(states) == {Status.CONSTRUCTED}

    def publish(self, count: int, qos: int, publisher: SimBroker | None = None) -> None:
        for _ in range(count):
            self.recorder.publish(publisher or self.publisher, TOPIC, qos)
            self.simulation.run(0.01)
