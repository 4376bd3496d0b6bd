"""What `benchmarks.chaos` does to real brokers, done to simulated ones: two sites with publishers and subscribers at
each broker, phases of faults that overlap, and the same book of what is owed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator
from functools import partial

from benchmarks.chaos.account import ROAMING, Incident, Recorder, Stream, reach_of
from benchmarks.chaos.schedule import Kind, Step
from saps.frontend.mqtt.codec.packets import Ack, Connack, Connect, PacketType, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.session.durable import DurableSession
from saps.overlay.missed.catchup import LINGER
from saps.overlay.missed.heirs import KEPT
from saps.simulator import SimBroker
from saps.simulator.network import Network
from tests.frontend.mqtt.bench import Client
from tests.overlay.replicated import Replicated
from tests.overlay.roams import Nomad

TICK = 0.1
"""Virtual seconds between two looks of the clients at their connections."""
RATE = 2.0
"""Messages a second of each stream."""
QUIET = 20.0
"""Most virtual seconds from the end of the faults until all flows, and clients are attached."""
GRACE = 10.0
"""Most virtual seconds that a broker takes to leave in order."""
FAULTS = [Kind.KILL, Kind.KILL, Kind.WIPE, Kind.PAUSE, Kind.FREEZE, Kind.PARTITION, Kind.CUT, Kind.LOSS, Kind.BLACKOUT]


class Publisher:
    """The publisher of one stream: it begins a new session whenever its broker is back."""

    def __init__(self, storm: Storm, home: str, qos: int) -> None:
        self.stream = Stream(f"{home}-qos{qos}", home, qos)
        self._storm, self._home = storm, home
        self._client: Client | None = None
        self._bench: object = None
        self._greeted = False
        self._pending: dict[int, int] = {}
        self._due = storm.rng.uniform(0, 1 / RATE)

    def look(self) -> None:
        """Connect, publish or hear answers."""
        storm = self._storm
        broker = storm.mesh.brokers[self._home]
        bench = storm.mesh.benches[broker]
        if bench is not self._bench or self._client is None or self._client.closed:
            self._greeted, self._bench = False, bench
            self._pending.clear()
            if broker.alive and broker.joined:
                self._client = Client(bench)  # type: ignore[arg-type]
                client = self._client
                broker.act(lambda: client.send(Connect(self.stream.name)))
            return
        client = self._client
        for packet in client.take():
            if isinstance(packet, Connack):
                self._greeted = packet.reason == 0
            elif isinstance(packet, Ack):
                self._hear(broker, client, packet)
        if storm.active and self._greeted and broker.alive and storm.now >= self._due:
            self._due = storm.now + 1 / RATE
            number = self.stream.hand(storm.now)
            name = (number - 1) % 1000 + 1
            self._pending[name] = number
            message = Publish(f"chaos/{self.stream.name}", b"%d" % number, self.stream.qos, packet_id=name)
            broker.act(lambda: client.send(message))

    def _hear(self, broker: SimBroker, client: Client, packet: Ack) -> None:
        if packet.type in (PacketType.PUBACK, PacketType.PUBREC) and packet.packet_id in self._pending:
            self.stream.acknowledged(self._pending[packet.packet_id], self._storm.now)
        if packet.type == PacketType.PUBREC:
            release = Ack(PacketType.PUBREL, packet.packet_id)
            broker.act(lambda: client.send(release))
        if packet.type in (PacketType.PUBACK, PacketType.PUBCOMP):
            self._pending.pop(packet.packet_id, None)


class Witness(Nomad):
    """A subscriber to all streams; it stays at its broker, or goes round if that is `ROAMING`."""

    def __init__(self, storm: Storm, name: str, home: str) -> None:
        super().__init__(storm.mesh, name)
        self.home = home
        self._storm = storm
        self._bench: object = None
        self._leaves = math.inf
        self._known = False
        self._asked = 0.0
        self._birth = 0

    def look(self) -> None:
        """Go on, come back, take and answer."""
        storm, rng = self._storm, self._storm.rng
        self.hear()
        self.answer()
        roams = self.home == ROAMING
        if self.alive and self._bench is not storm.mesh.benches.get(self.broker):  # type: ignore[arg-type]
            self.client = None
        if roams and self.alive and self.greeted and storm.now >= self._leaves:
            self.lose()
        if not self.alive or (not self.greeted and storm.now > self._asked + QUIET):
            there = [storm.mesh.brokers[rng.choice(storm.within or storm.names) if roams else self.home]]
            there = [broker for broker in there if broker.alive and broker.joined]
            if there:
                self._bench, self._asked = storm.mesh.benches[there[0]], storm.now
                self._leaves = storm.now + rng.uniform(1, 6)
                self.connect(there[0])
                self.hear()

    def _greet(self, packet: Connack) -> None:
        super()._greet(packet)
        if packet.reason or self.client is None or self.broker is None:
            return
        session = self._storm.mesh.benches[self.broker].frontend.sessions.get(self.name)
        if isinstance(session, DurableSession) and session.birth != self._birth:
            self._birth = session.birth  # on either side of a cut it has a session, and cannot tell one from the other
            self._taken.clear()
        anew = self.misled() or not packet.session_present
        if anew and self._known:
            self._storm.began_anew(self)
        if anew or not self.subscribed:
            self.broker.act(partial(self.client.send, Subscribe(1, [SubscribeEntry("chaos/#", 2)])))
        self._known = True

    def _take(self, packet: Publish) -> None:
        before = len(self.got[2])
        super()._take(packet)
        name = packet.topic.partition("/")[2]
        if len(self.got[2]) > before or (packet.qos == 1 and not (packet.dup and self._had(name, int(packet.payload)))):
            self._storm.recorder.arrived(self.name, name, int(packet.payload), self._storm.now)

    def _had(self, stream: str, number: int) -> bool:
        """Has it got this before? With DUP a QoS 1 message may come again after a connection has broken."""
        flow = self._storm.recorder.flows[self.name, stream]
        return number <= flow.last and number not in flow.missing


class Storm:
    """One trial. `carry_out` raises `AssertionError` with the book's complaints."""

    def __init__(self, seed: int, disks: bool, kinds: Collection[Kind] = FAULTS, phases: int = 3) -> None:
        self.seed, self.disks, self.rng = seed, disks, random.Random(seed)
        self._kinds, self._phases = list(kinds), phases
        reset = self.rng.choice([0.0, 0.0005])
        self.mesh = Replicated(seed, disks=disks, network=Network(latency=(0.0005, 0.003), reset=reset))
        brokers = self.mesh.build(6, clusters=2)
        self.names = [broker.name for broker in brokers]
        self.sites = frozenset(self.names[::2]), frozenset(self.names[1::2])
        self.mesh.add("gate", "c0", self.names[0])
        self.mesh.run(3)
        self.active = True
        self.within: list[str] = []
        """Where the subscriber that goes round has to stay, during a cut: what has sessions on both sides is promised
        nothing. Empty: anywhere."""
        self.lost: list[str] = []
        self.publishers = [Publisher(self, name, qos) for name in self.names for qos in (1, 2)]
        homes = {f"{name}-sub": name for name in self.names} | {"roamer": ROAMING}
        self.witnesses = [Witness(self, name, home) for name, home in homes.items()]
        self.recorder = Recorder([each.stream for each in self.publishers], homes.items())
        if not disks:
            self.recorder.ends |= {Kind.KILL, Kind.RESTART}

    @property
    def now(self) -> float:
        return self.mesh.now

    def began_anew(self, witness: Witness) -> None:
        """A subscriber has got a new session."""
        if not self.recorder.may_begin_anew(witness.name, self.now):
            self.lost.append(f"{witness.name} at {self.now:.2f} s, at {witness.broker and witness.broker.name}")
        self.recorder.began_anew(witness.name, self.now)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            self.mesh.run(min(TICK, end - self.now))
            for publisher in self.publishers:
                publisher.look()
            for witness in self.witnesses:
                witness.look()

    def until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Let time pass until something holds."""
        end = self.now + limit
        while not condition():
            if self.now > end:
                return False
            self.run(TICK)
        return True

    def carry_out(self) -> None:
        """All phases, and the judgement."""
        attached = lambda: all(each.greeted and each.subscribed for each in self.witnesses)  # noqa: E731
        self.active = False
        assert self.until(attached, 30)
        self.run(2)
        self.active = True
        self.run(2)
        for _ in range(self._phases):
            self._endure()
            self.run(self.rng.choice([0, 1, 5]))
        self.active = False
        self.run(2)
        goals = {each.stream.name: each.stream.last for each in self.publishers}
        self.until(lambda: self.recorder.all_come(goals), 40)
        self.run(5)
        counts = self.recorder.judge()
        wrong = {count.qos: (count.lost, count.doubled, count.disordered) for count in counts}
        assert not any(map(any, wrong.values())), f"{wrong} {self.recorder.details}"
        assert not self.lost, f"sessions lost: {self.lost}"
        self.mesh.run(KEPT + LINGER + 10)
        behind = {each.name: [*each.node.delivery.catch_up.lags] for each in self.mesh.alive()}
        assert not any(behind.values()), f"taken for lost, or behind, long after the storm: {behind}"

    # ---- faults

    def _endure(self) -> None:
        """A phase of faults that overlap, until all flows again."""
        incidents: list[Incident] = []
        struck, over = self.now, self.now
        for step in self._drawn():
            at = self.now + step.calm
            for when, action in self._acts(step, at, incidents):
                self.mesh.at(when, action)
                over = max(over, when)
        self.run(over - self.now + 2 * TICK)
        goals = {each.stream.name: each.stream.last + 3 for each in self.publishers}
        self.until(lambda: all(flow.last >= goals[name] for (_, name), flow in self.recorder.flows.items()), QUIET)
        flowing = self.now
        self.run(2)
        goals = {each.stream.name: each.stream.last - 6 for each in self.publishers}
        self.until(lambda: self.recorder.all_come(goals), QUIET)
        self.within = []
        self.recorder.close(incidents, max(flowing, self.recorder.last_gap(goals, struck)), self.now)

    def _drawn(self) -> list[Step]:
        rng, steps = self.rng, list[Step]()
        ends = between = 0
        for kind in rng.sample(self._kinds, min(len(self._kinds), rng.randint(1, 4))):
            if kind is Kind.BLACKOUT:
                if self.disks and not steps:
                    return [Step(kind=kind, calm=1.0)]
                continue
            free = [name for name in self.names if all(step.broker != name for step in steps)]
            spans = kind in (Kind.PARTITION, Kind.CUT)
            takes = kind in (Kind.KILL, Kind.WIPE)
            if (spans and between) or (takes and ends and (kind is Kind.WIPE or not self.disks)):
                continue
            if takes and any(step.kind is Kind.WIPE for step in steps):
                continue
            between, ends = between + spans, ends + takes
            seconds = {
                Kind.KILL: rng.uniform(0, 4),
                Kind.WIPE: rng.uniform(0, 4),
                Kind.PAUSE: rng.uniform(0.2, 0.8),
                Kind.RESTART: 0.3,
                Kind.FREEZE: 5.0,
                Kind.PARTITION: rng.uniform(1, 6),
                Kind.CUT: rng.uniform(20, 45),
                Kind.LOSS: rng.uniform(2, 3),
            }[kind]
            broker = "" if spans or kind is Kind.LOSS else rng.choice(free)
            steps.append(Step(kind=kind, broker=broker, seconds=seconds, calm=rng.uniform(0.1, 2)))
        return steps

    def _acts(self, step: Step, at: float, incidents: list[Incident]) -> Iterator[tuple[float, Callable[[], None]]]:
        """What is done, and when."""
        mesh, rng = self.mesh, self.rng

        def strike(action: Callable[[], None] = lambda: None) -> tuple[float, Callable[[], None]]:
            def run() -> None:
                reach = reach_of(step, self.names, self.sites)
                incidents.append(self.recorder.strike(step, reach, self.now))
                action()

            return at, run

        name = step.broker
        match step.kind:
            case Kind.KILL | Kind.WIPE:
                yield strike(lambda: mesh.crash(name))
                yield at + step.seconds, lambda: self._restart(name, wiped=step.kind is Kind.WIPE)
            case Kind.RESTART:
                yield strike(lambda: self._leave(name, step.seconds))
            case Kind.PAUSE | Kind.FREEZE:
                yield strike(lambda: mesh.pause(name, step.seconds))
                yield at + step.seconds, lambda: None
            case Kind.PARTITION | Kind.CUT:
                yield strike(self._cut)
                yield at + step.seconds, mesh.heal
            case Kind.LOSS:
                yield strike()
                for _ in range(6):
                    one, other = (rng.choice(sorted(site)) for site in self.sites)
                    yield at + rng.uniform(0, step.seconds), partial(mesh.reset_link, one, other)
            case Kind.BLACKOUT:
                yield strike(self._black_out)
                for each in rng.sample(self.names, len(self.names)):
                    yield at + rng.uniform(0, 4), partial(self._restart, each)

    def _cut(self) -> None:
        at = self.witnesses[-1].broker
        self.within = sorted(next(site for site in self.sites if at is None or at.name in site))
        self.mesh.partition([*self.sites[0], "gate"])

    def _black_out(self) -> None:
        for name in self.names:
            self.mesh.crash(name)

    def _leave(self, name: str, seconds: float) -> None:
        """A broker leaves in order, if it can, and is back so much later."""
        broker, limit = self.mesh.brokers[name], self.now + GRACE

        def look() -> None:
            if broker.alive and self.now < limit:
                self.mesh.at(self.now + TICK, look)
            else:
                self.mesh.crash(name)
                self.mesh.at(self.now + seconds, lambda: self._restart(name))

        broker.leave()
        look()

    def _restart(self, name: str, wiped: bool = False) -> None:
        there = [broker.name for broker in self.mesh.alive() if broker.joined and broker.name != "gate"]
        near = [each for each in there if not self.mesh.apart(name, each)]
        broker = self.mesh.restart(name, self.rng.choice(near) if near else "gate", wiped)

        def again() -> None:  # what it began with may have died meanwhile
            if broker.alive and not broker.joined:
                self.mesh.crash(name)
                self._restart(name)

        self.mesh.at(self.now + GRACE, again)
