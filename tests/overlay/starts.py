"""Simulated brokers that start as real ones do: they listen, probe, and agree who begins
(`saps.overlay.membership.start`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from saps.overlay.frames.ring import StartProbe
from saps.overlay.membership.start import Answer, Fault, Stage, Start
from saps.overlay.node import OverlayNode
from saps.overlay.ring.keys import BrokerRef
from saps.simulator import SimBroker, Simulation

HANDSHAKE = 3.0
"""Seconds after which a probe that nothing answers is given up."""
JOINING = 5.0
"""Seconds after which a contact that does not let a broker in is given up."""


class Process:
    """One life of a broker, from the start of its process. (A `saps.overlay.membership.start.World`.)"""

    def __init__(self, site: Site, ref: BrokerRef, places: Mapping[str, str], loading: float) -> None:
        self.site = site
        self.ref = ref
        self.loading = loading
        """Seconds from its decision until it is in the overlay: it reads its store."""
        self.broker: SimBroker | None = None
        self.alive = True
        self.is_refused = False
        self.start = Start(ref, places, self, site.timeout)
        self.start.begin()

    @property
    def now(self) -> float:
        return self.site.now

    @property
    def joined(self) -> bool:
        return self.start.stage is Stage.MEMBER

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.site.at(self.now + delay, partial(self._do, action))

    def start_probe(self, address: str, question: StartProbe, answer: Answer) -> None:
        site, name = self.site, address.partition(":")[0]
        site.probes += 1

        def arrive() -> None:
            target = site.processes.get(name)
            if site.apart(self.ref.name, name) or (self.ref.name, name) in site.blocked:
                self.after(HANDSHAKE, lambda: answer(Fault("no answer")))
            elif target is None or not target.alive:
                self.after(site.delay(), lambda: answer(Fault("connection refused")))
            else:
                there = target.start.probed(question)
                self.after(site.delay(), lambda: answer(there))

        self.after(site.delay(), arrive)

    def act(self, action: Callable[[OverlayNode], None]) -> None:
        broker = self.broker
        if broker is not None:
            broker.act(lambda: action(broker.node))

    def kill(self) -> None:
        self.alive = False
        self.start.close()
        if self.broker is not None:
            self.site.crash(self.ref.name)

    def _do(self, action: Callable[[], None]) -> None:
        if self.alive:
            action()

    def decided(self, contact: BrokerRef | None) -> None:
        if self.broker is None:
            self.after(self.loading, lambda: self._launch(contact))
        else:
            self.act(lambda node: node.redirect(contact))
            self.after(JOINING, self.start.again)

    def _launch(self, contact: BrokerRef | None) -> None:
        self.broker = self.site.launch(self.ref, contact)
        self.after(JOINING, self.start.again)

    def knows(self, address: str) -> bool:
        return self.broker is not None and self.broker.node.knows(address)

    def found(self, broker: BrokerRef) -> None:
        self.act(lambda node: node.peers.discovered(broker))

    def refused(self) -> None:
        self.is_refused = True


class Site(Simulation):
    """Brokers of one site: processes that are killed and started."""

    def __init__(self, seed: int, timeout: float = 5.0) -> None:
        super().__init__(seed, check=False)
        self.faulty = True
        self.timeout = timeout
        self.processes: dict[str, Process] = {}
        self.probes = 0
        self.blocked: set[tuple[str, str]] = set()
        """Pairs of names: nothing gets from the one to the other while they start."""

    def joined(self, broker: SimBroker) -> None:
        self.processes[broker.name].start.joined()

    def delay(self) -> float:
        return self.rng.uniform(*self.network.latency)

    def process(self, name: str, join: Mapping[str, str], loading: float = 0.0, cluster: str = "c0") -> Process:
        """Start a broker that knows these addresses."""
        process = self.processes[name] = Process(self, self.reference(name, cluster), join, loading)
        return process

    def whole(self) -> bool:
        """All that live are one mesh."""
        running = [process for process in self.processes.values() if process.alive]
        if not all(process.joined for process in running):
            return False
        try:
            self.check_ring()
        except AssertionError:
            return False
        return True
