"""A deterministic simulator: many `OverlayNode`s on a virtual network with a virtual clock, in one process.

The nodes are the product's own; only the wire and the clock are simulated. Everything random comes from one seed, so a
run can be repeated exactly. Links are like TCP's: frames arrive in order, or the link breaks. Latency, jitter, link
resets, crashes, restarts and partitions can be injected. After every event the invariants are checked
(`Simulation.check`), and as long as no fault was injected also that the level-0 right links form the one true ring.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Protocol

from saps.agents.api import AgentRegistry
from saps.mesh import Done, Local
from saps.messages import Message, Reached
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Publish
from saps.overlay.membership.failure_detector import DetectorSettings
from saps.overlay.node import OverlayNode
from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.overlay.ring.routing import State
from saps.routing.batch import Batch
from saps.simulator.network import Link, Network, Wires
from saps.simulator.ring import Ring

__all__ = ["Counters", "Network", "Ring", "SimBroker", "Simulation"]

GRAIN = 1e-6
"""Seconds between two frames on a link that would otherwise arrive at once."""


@dataclass(frozen=True)
class Nodes:
    """The configuration of each broker's node."""

    order: KeyOrder
    detector: DetectorSettings
    design: DesignSettings | None
    session_copies: int
    """Brokers that hold each stored session."""


class Companion(Protocol):
    """An extension of each broker of a simulation, such as its OFM data path (`research.simulated_ofm`)."""

    def attach(self, broker: SimBroker) -> None:
        """Extend a new broker, whose node has not joined yet."""

    def joined(self, broker: SimBroker) -> None:
        """Take note that a broker has joined the mesh."""


class SimBroker:
    """One broker of a simulation. It also plays the node's local half, and records what is delivered."""

    def __init__(self, simulation: Simulation, ref: BrokerRef) -> None:
        self.ref = ref
        self.simulation = simulation
        self.agents = AgentRegistry()
        self.woken = False
        """Whether the node has announced frames to send. Without that a real driver would wait for the next timer."""
        self.log: list[str] = []
        self.node = OverlayNode(
            ref,
            simulation.local(self),
            lambda: simulation.now,
            self,
            order=simulation.nodes.order,
            detector=simulation.nodes.detector,
            call_agents=self.agents.answer,
            design=simulation.nodes.design,
            tell=lambda line, warning: self.log.append(line),
            copies=simulation.nodes.session_copies,
        )
        self.agents.bind(self.node.agents)
        self.former: Collection[str] = ()
        """The other members that it finds in its file."""
        simulation.attach(self)
        for companion in simulation.companions:
            companion.attach(self)
        self.alive = True
        self.joined = False
        self.ready = False
        """Whether the mesh also knows this broker's sessions."""
        self.delivered: list[tuple[float, Message]] = []
        self.wake_at = float("inf")
        self.stands_until = 0.0
        """Virtual time until which the process is paused."""

    def wanted(self) -> None:
        """Part of `saps.overlay.node_port.Driver`, like `given_up`."""
        self.woken = True

    def given_up(self, broker: BrokerRef) -> None:
        self.simulation.give_up(self, broker)

    def deliver(self, batch: Batch) -> list[int]:
        self.delivered += [(self.simulation.now, message) for message in batch.messages]
        return [self.matching(topic) for topic in batch.topics]

    lagging = False

    def matching(self, topic: str) -> int:
        return self.simulation.subscribers(topic)

    def connected(self, client: str) -> bool:
        return False

    def bequeath(self, will: Message) -> None:
        self.node.mesh.publish(Batch.of(will), None)

    def kept(self, message: Message) -> None:
        pass

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        self.deliver(Batch.of(message))
        settled()
        return True

    @property
    def name(self) -> str:
        return self.ref.name

    def subscribe(self, topic_filter: str, done: Callable[[], None] | None = None) -> None:
        self.act(lambda: self.node.mesh.subscribe(topic_filter, done or (lambda: None)))

    def unsubscribe(self, topic_filter: str) -> None:
        self.act(lambda: self.node.mesh.unsubscribe(topic_filter))

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, done: Callable[[Reached], None] | None = None
    ) -> None:
        told = None if done is None else lambda reached: done(reached[0])
        self.publish_batch(Batch.of(Message(topic, payload, qos)), told)

    def publish_batch(self, batch: Batch, done: Done | None = None) -> None:
        self.act(lambda: self.node.mesh.publish(batch, done))

    def leave(self, left: Callable[[], None] | None = None) -> None:
        def gone() -> None:
            self.alive = False
            if left is not None:
                left()

        self.act(lambda: self.node.leave(gone))

    def act(self, action: Callable[[], object]) -> None:
        """Run an action on the node now, or when its pause ends; do nothing if it is dead."""
        if self.alive and not self.simulation.put_off(self, lambda: self.act(action)):
            action()
            self.simulation.after_event(self)


@dataclass
class Counters:
    """Counts what the network has carried."""

    frames: int = 0
    data: int = 0
    by_kind: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    trace: blake2b | None = None
    """Running hash of all sent frames, or None if nobody needs it."""

    @property
    def digest(self) -> str:
        """The hash of all frames sent so far, equal for equal runs; empty without `trace`."""
        return "" if self.trace is None else self.trace.hexdigest()


class Simulation:
    """Brokers, links and the clock. All times are virtual seconds."""

    def __init__(
        self,
        seed: int,
        *,
        network: Network | None = None,
        order: KeyOrder = KeyOrder.CLUSTER,
        detector: DetectorSettings | None = None,
        check: bool = True,
        trace: bool = False,
        design: DesignSettings | None = None,
        session_copies: int = 1,
    ) -> None:
        """`session_copies`: brokers that hold each stored session. `check`: check the invariants after each event.
        `trace`: keep the hash of all sent frames for `Counters.digest`, which takes time."""
        self.seed = seed
        self.rng = random.Random(seed)
        self.network = network or Network()
        self.nodes = Nodes(order, detector or DetectorSettings(), design, session_copies)
        self.check = check
        self.now = 0.0
        self.brokers: dict[str, SimBroker] = {}
        self.counters = Counters(trace=blake2b(digest_size=16) if trace else None)
        self.faulty = False
        """Whether a fault was injected, so that the ring may be broken until it is repaired."""
        self.ring = Ring()
        self.companions: list[Companion] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._wires = Wires()
        self._incarnations = 0

    # --- what each broker has besides its node: for subclasses ---------------------------------------------------

    def local(self, broker: SimBroker) -> Local:
        """Return the local half of a new broker: by default the broker itself, which records what is delivered."""
        return broker

    def subscribers(self, topic: str) -> int:
        """Return the number of subscribers that each member reports for a topic."""
        return 1

    def attach(self, broker: SimBroker) -> None:
        """Extend a new broker, whose node has not joined yet."""

    def joined(self, broker: SimBroker) -> None:
        """Take note that a broker has joined the mesh."""

    # --- brokers ---------------------------------------------------------------------------------------------

    def add(self, name: str, cluster: str = "c0", contact: str | None = None) -> SimBroker:
        """Start a broker that joins through the broker named `contact`, or begins a mesh of its own."""
        return self.launch(self.reference(name, cluster), None if contact is None else self.brokers[contact].ref)

    def reference(self, name: str, cluster: str) -> BrokerRef:
        """Return a broker's reference with a new incarnation."""
        self._incarnations += 1
        return BrokerRef(name, self._incarnations, f"{name}:1", cluster)

    def launch(self, ref: BrokerRef, contact: BrokerRef | None) -> SimBroker:
        """Start this incarnation of a broker; as `add`."""
        broker = self.brokers[ref.name] = SimBroker(self, ref)

        def joined() -> None:
            broker.joined = True
            self.joined(broker)
            for companion in self.companions:
                companion.joined(broker)

        def ready() -> None:
            broker.ready = True

        broker.act(lambda: broker.node.start(contact, joined, ready, broker.former))
        return broker

    def build(self, count: int, clusters: int = 1, limit: float = 600.0) -> list[SimBroker]:
        """Start `count` brokers b0, b1, ... spread over the clusters and run until all have joined."""
        first = self.add("b0", "c0")
        brokers = [first]
        for i in range(1, count):
            contact = brokers[self.rng.randrange(len(brokers))].name
            broker = self.add(f"b{i}", f"c{i % clusters}", contact)
            self.run_until(lambda broker=broker: broker.joined, limit)  # type: ignore[misc]
            brokers.append(broker)
        return brokers

    def crash(self, name: str) -> None:
        """Kill the broker's process: its links break and its state is lost."""
        self.faulty = True
        self.brokers[name].alive = False
        for source, target in self._wires.of(name):
            self._wires.links[source, target].session += 1
            if target == name and self.brokers[source].alive:
                self._break(source, target)

    def give_up(self, broker: SimBroker, dead: BrokerRef) -> None:
        """Drop the frames under way from a broker to one that it has declared dead."""
        if dead.name in self.brokers and self.brokers[dead.name].ref == dead:
            self._wires.link(broker.name, dead.name).session += 1

    def reset_link(self, source: str, target: str) -> None:
        """Break a connection; frames under way are lost."""
        self.faulty = True
        self._wires.link(source, target).session += 1
        self._break(source, target)

    def pause(self, name: str, seconds: float) -> None:
        """Pause the broker's process for so many seconds; then it reads what has arrived meanwhile. Has no effect on a
        broker that is paused already."""
        self.faulty = True
        broker = self.brokers[name]
        if broker.stands_until <= self.now:
            broker.stands_until = self.now + seconds

    def put_off(self, broker: SimBroker, action: Callable[[], None]) -> bool:
        """If the broker is paused, schedule the action for the end of its pause, in the order of the calls, and return
        True."""
        if broker.stands_until <= self.now:
            return False
        self.at(broker.stands_until, action)
        return True

    def apart(self, one: str, other: str) -> bool:
        """Return whether a partition separates the two brokers."""
        return self._wires.apart(one, other)

    def partition(self, *groups: Iterable[str], pairs: Iterable[tuple[str, str]] = ()) -> None:
        """Partition the network into groups; brokers in none of them form one more group. `pairs` do not hear each
        other either. Links that have lost frames in an earlier partition, and are whole again, break."""
        self.faulty = True
        self._wires.divide(groups, pairs)
        for (source, target), link in self._wires.links.items():
            if link.swallowed and not self.apart(source, target):
                link.swallowed = False
                link.session += 1
                if self.brokers[source].alive:
                    self._break(source, target)

    def heal(self) -> None:
        """End the partition."""
        self.partition()

    # --- time ------------------------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._serial += 1
        heappush(self._events, (time, self._serial, action))

    def step(self) -> bool:
        """Run the next event. Returns False if there is none."""
        if not self._events:
            return False
        self.now, _, action = heappop(self._events)
        action()
        return True

    def run(self, seconds: float) -> None:
        """Run all events of the next `seconds`."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float = 60.0) -> None:
        """Run until `condition` holds. Raises `AssertionError` if it does not within `limit` seconds."""
        end = self.now + limit
        while not condition():
            assert self._events, f"nothing happens any more (seed {self.seed})"
            assert self._events[0][0] <= end, f"not reached in {limit} s (seed {self.seed})"
            self.step()

    # --- the wire ----------------------------------------------------------------------------------------------

    def after_event(self, broker: SimBroker) -> None:
        """Send the broker's frames, schedule its next timer, and check the invariants."""
        node = broker.node
        while broker.woken:
            broker.woken = False
            for to, frame in node.take():
                self._send(broker, to, frame)
        waiting = [*node.port.own, *node.port.outbox]
        assert not waiting, f"{broker.name} waits with {waiting[0]} for its next timer (seed {self.seed})"
        if node.port.timers.deadline < broker.wake_at:
            broker.wake_at = when = max(node.port.timers.deadline, self.now)
            self.at(when, lambda: self._wake(broker, when))
        touched = node.graph.touched
        if self.check:
            if not self.faulty:
                for key, right in touched:
                    own = node.graph.nodes.get(key)
                    if key in self.ring or (own is not None and own.state is not State.LEAVING):
                        self.ring.check(key, right)  # else it is out already, and will be told so
            node.validate()
        if touched:
            touched.clear()

    def _wake(self, broker: SimBroker, when: float) -> None:
        if broker.wake_at != when:
            return  # it was woken earlier, and has another appointment
        if self.put_off(broker, lambda: self._wake(broker, when)):
            return
        broker.wake_at = float("inf")
        if broker.alive:
            broker.node.wake()
            broker.woken = True
            self.after_event(broker)

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        to, frame = source.node.peers.detours.way(to, frame)
        self.counters.frames += 1
        kind = type(frame).__name__
        self.counters.by_kind[kind] += 1
        if isinstance(frame, Publish):
            self.counters.data += len(frame.which)
        if self.counters.trace is not None:
            self.counters.trace.update(f"{self.now!r} {source.name} {to.name} {kind}".encode())
        link = self._wires.link(source.name, to.name)
        target = self.brokers.get(to.name)
        if self.apart(source.name, to.name):
            link.swallowed = True
            return
        if link.broken:
            return
        delay = self.rng.uniform(*self.network.latency)
        if target is not None and target.ref.cluster != source.ref.cluster:
            delay += self.network.between_clusters
        if target is None or not target.alive:
            self._break(source.name, to.name, delay)
            return
        if (found := target.ref) != to:
            self.at(self.now + delay, lambda: self._meet(source, found, to))
            return
        if self.network.reset and self.rng.random() < self.network.reset:
            self.reset_link(source.name, to.name)
            return
        link.clear_at = max(self.now + delay, link.clear_at + GRAIN)
        session = link.session
        self.at(link.clear_at, lambda: self._arrive(source, target, link, session, frame))

    def _arrive(self, source: SimBroker, target: SimBroker, link: Link, session: int, frame: Frame) -> None:
        if link.arrived and link.arrived[0][0] == session:
            link.arrived.append((session, frame))
        else:
            link.arrived = [(session, frame)]
            self._read(source, target, link, link.arrived)

    def _read(self, source: SimBroker, target: SimBroker, link: Link, arrived: list[tuple[int, Frame]]) -> None:
        """Hand in at once what has arrived on a link: one frame, or all that came in a pause."""
        if self.put_off(target, lambda: self._read(source, target, link, arrived)):
            return
        if link.arrived is arrived:
            link.arrived = []
        session = arrived[0][0]
        if session != link.session or not target.alive or self.brokers[target.name] is not target:
            return
        if link.started != session:
            link.started = session
            target.node.session_started(source.ref)
        target.node.receive(source.ref, [frame for _, frame in arrived])
        self.after_event(target)

    def _meet(self, source: SimBroker, found: BrokerRef, meant: BrokerRef) -> None:
        """Drop a frame for another incarnation of a broker; the sender learns from the link which one is there."""
        if source.alive:
            source.node.peers.met(found)
            source.node.link_down(meant)
            self.after_event(source)

    def _break(self, source: str, target: str, delay: float = 0.0) -> None:
        broker = self.brokers[source]
        peer = self.brokers[target].ref

        link = self._wires.link(source, target)
        link.broken = True

        def down() -> None:
            if broker.alive and self.put_off(broker, down):
                return
            link.broken = False
            if broker.alive:
                broker.node.link_down(peer)
                self.after_event(broker)

        self.at(self.now + delay, down)

    # --- the whole ---------------------------------------------------------------------------------------------

    def alive(self) -> list[SimBroker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def check_ring(self) -> None:
        """Raise `AssertionError` unless the linked nodes of all live brokers form one sorted ring."""
        nodes = {key: node for broker in self.alive() for key, node in broker.node.graph.nodes.items()}
        ring = sorted(key for key, node in nodes.items() if node.state is not State.JOINING)
        for i, key in enumerate(ring):
            right, successor = nodes[key].right[0], ring[(i + 1) % len(ring)]
            assert right is not None, f"{key} points nowhere"
            assert right.key == successor, f"{key} -> {right}, should be {successor}"
            left = nodes[successor].left[0]
            assert left is not None, f"{successor} has nothing to its left"
            assert left.key == key, f"{successor} <- {left}, should be {key}"
