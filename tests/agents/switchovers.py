"""Random scenes in which topics move between ALM and OFM, for `test_switchover` and to look for seeds that fail."""

from __future__ import annotations

import random
from unittest.mock import patch

from research.simulated_ofm import OfmFaults, OfmNetwork, SimulatedController
from saps.agents.ofgate.ofgate import OFGate
from saps.agents.stateless import BY_TREES, Choice
from saps.agents.switchover import Mode, Modes
from saps.ofm.datapath.settings import DatapathSettings
from saps.overlay.missed import flight, sending
from saps.overlay.missed.returned import Returned
from saps.overlay.ring.keys import BrokerRef
from saps.simulator import Network, SimBroker, Simulation
from tests.overlay.scenes import Recorder

TOPICS = ["a/b", "x/y"]
FILTERS = ["a/b", "a/+", "x/y", "#", "x/#", "z"]
QUIET = 5.0
"""Seconds without events after which everything owed must have arrived."""


class Scene:
    """A mesh with OFM, two OFGates, a controller, and a recorder that knows what is owed."""

    def __init__(
        self,
        seed: int,
        mode: Mode | None,
        faults: OfmFaults,
        *,
        brokers: int = 7,
        lease: float = 10.0,
        settings: DatapathSettings | None = None,
        choice: Choice = BY_TREES,
    ) -> None:
        """`mode` None: one topic uses EITHER, the other BOTH."""
        self.rng = rng = random.Random(seed)
        network = Network(latency=(0.001, rng.choice([0.002, 0.01, 0.04])))
        self.simulation = Simulation(seed, network=network, check=False)
        modes = Modes(mode or Mode.EITHER, () if mode else ("x/y",))
        drawn = DatapathSettings(largest=rng.choice([1472, 1472, 150]))
        self.ofm = OfmNetwork(self.simulation, modes, faults, settings or drawn, choice)
        self.controller = SimulatedController(self.ofm)
        self.recorder = Recorder(self.simulation)
        self.brokers = self.simulation.build(brokers, 3)
        self.gates = [self.ofm.ofgate(broker, self.controller, lease) for broker in self.brokers[:2]]
        self.simulation.run_until(lambda: any(gate.leading for gate in self.gates))
        self.spare: list[SimBroker] = []
        self._dice = random.Random(seed + 1)

    @property
    def gate(self) -> OFGate:
        """The one that leads."""
        return next(gate for gate in self.gates if gate.leading)

    def there(self) -> list[SimBroker]:
        return [b for b in self.simulation.alive() if b.joined and not b.node.leaving.begun]

    def construct(self, topic: str) -> None:
        """A publisher of the topic decides to exploit OFM."""
        broker = self.rng.choice(self.there())
        broker.act(lambda: self.ofm.agents[broker.name].construct(topic))

    def release(self, topic: str) -> None:
        broker = self.rng.choice(self.there())
        broker.act(lambda: self.ofm.agents[broker.name].release(topic))

    def renew(self, topic: str) -> None:
        """The topic's tree gets a new key, if it has one."""
        for gate, broker in zip(self.gates, self.brokers, strict=False):
            broker.act(lambda gate=gate: gate.renew(topic))  # type: ignore[misc]

    def step(self, *, churn: bool = True) -> None:
        """One random act: mostly publications."""
        rng, recorder = self.rng, self.recorder
        if self._dice.random() < 0.01:
            self.renew(self._dice.choice(TOPICS))
        dice = rng.random()
        if dice < 0.85 or not churn:
            publisher = rng.choice([b for b in self.there() if b in self.brokers][:3])
            recorder.publish(publisher, rng.choice(TOPICS), rng.choice((0, 0, 1, 2)))
        elif dice < 0.91:
            recorder.subscribe(rng.choice(self.there()[3:]), rng.choice(FILTERS))
        elif dice < 0.96:
            broker = rng.choice(self.there())
            current = [i.topic_filter for i in recorder.intervals[broker] if i.ended is None]
            if current and broker not in self.brokers[3:5]:
                recorder.unsubscribe(broker, rng.choice(current))
        elif dice < 0.98:
            number = len(self.simulation.brokers)
            self.spare.append(self.simulation.add(f"b{number}", f"c{number % 3}", rng.choice(self.there()).name))
        elif self.spare and self.spare[0].joined:
            recorder.leave(self.spare.pop(0))

    def traffic(self, seconds: float, *, churn: bool = True) -> None:
        end = self.simulation.now + seconds
        while self.simulation.now < end:
            self.step(churn=churn)
            self.simulation.run(self.rng.choice([0, 0.001, 0.005, 0.02]))

    def begin(self) -> None:
        """Stable subscribers on two brokers."""
        for broker in self.brokers[3:5]:
            self.recorder.subscribe(broker, "#")
        self.simulation.run(2)
        self.traffic(0.5)


def moves(seed: int, mode: Mode | None, times: int = 10) -> Scene:
    """Topics are moved ALM -> OFM -> ALM while brokers subscribe, unsubscribe, join and leave, and keys are renewed.
    Nothing fails."""
    scene = Scene(seed, mode, OfmFaults(latency=(0.0002, random.Random(seed).choice([0.001, 0.02]))))
    scene.begin()
    for _ in range(times):
        for topic in TOPICS:
            scene.construct(topic)
        scene.traffic(scene.rng.choice([0.05, 0.3, 1.5]))
        for topic in TOPICS:
            scene.release(topic)
        scene.traffic(scene.rng.choice([0.05, 0.3, 1.0]))
    scene.simulation.run(QUIET)
    scene.recorder.judge()
    assert scene.ofm.ring_split == 0, f"the tree was changed under its users (seed {seed})"
    assert scene.ofm.unreadable == 0, f"the key was changed under its users (seed {seed})"
    return scene


def losses(seed: int, mode: Mode | None) -> Scene:
    """Datagrams are lost, doubled and overtake each other."""
    rng = random.Random(seed)
    faults = OfmFaults(loss=rng.choice([0.01, 0.1, 0.5]), duplicate=0.05, latency=(0.0002, rng.choice([0.002, 0.03])))
    scene = Scene(seed, mode, faults)
    scene.begin()
    for _ in range(3):
        for topic in TOPICS:
            scene.construct(topic)
        scene.traffic(1.5)
        if scene.rng.random() < 0.5:
            scene.release(scene.rng.choice(TOPICS))
    scene.simulation.run(2 * QUIET)
    scene.recorder.judge(faulty=True)
    return scene


def failures(seed: int, mode: Mode | None) -> Scene:
    """The switches lose trees, the controller crashes and may forget, OFGate's broker crashes, installation is slow."""
    rng = random.Random(seed)
    faults = OfmFaults(loss=rng.choice([0, 0.02]), installation=(0.01, rng.choice([0.1, 2.0])))
    scene = Scene(seed, mode, faults, lease=rng.choice([1.0, 5.0]))
    scene.begin()
    acts = ["construct", "release", "switches", "tables", "controller", "ofgate", "member", "construct"]
    for topic in TOPICS:
        scene.construct(topic)
    for _ in range(8):
        scene.traffic(rng.choice([0.1, 0.5, 1.5]), churn=False)
        act = scene.rng.choice(acts)
        if act == "construct":
            scene.construct(scene.rng.choice(TOPICS))
        elif act == "release":
            scene.release(scene.rng.choice(TOPICS))
        elif act == "switches":
            scene.controller.reset_switches()
        elif act == "tables":  # behind the controller's back
            scene.ofm.trees.clear()
        elif act == "controller":
            scene.controller.crash()
            scene.simulation.at(
                scene.simulation.now + rng.choice([0.1, 2.0, 5.0]), lambda: scene.controller.restart(rng.random() < 0.5)
            )
        elif act == "ofgate" and scene.brokers[0].alive:
            scene.simulation.crash("b0")
        elif act == "member" and scene.brokers[6].alive:
            scene.simulation.crash("b6")
    scene.simulation.run(15)
    scene.recorder.judge(faulty=True)
    return scene


def _judge_sides(scene: Scene, far: set[str], split: int) -> None:
    """What was published with QoS 1 or 2 after the split has reached the stable subscribers on the publisher's side."""
    for broker in scene.brokers[3:5]:
        have = {message.payload for _, message in broker.delivered}
        for moment, publisher, topic, qos, payload in scene.recorder.published:
            if moment > split and qos and publisher is not broker and (publisher.name in far) == (broker.name in far):
                assert payload in have, (
                    f"lost at {broker.name}: {topic} from {publisher.name} (seed {scene.simulation.seed})"
                )


def _two_sides(scene: Scene, rng: random.Random, seconds: float) -> list[str]:
    """Traffic by trees for so long. Gives the names of the brokers that are to be cut off from b0, b1 among them."""
    scene.begin()
    for topic in TOPICS:
        scene.construct(topic)
    scene.traffic(seconds, churn=False)
    return ["b1", *rng.sample([broker.name for broker in scene.brokers[2:]], rng.randrange(1, 5))]


def partitions(seed: int, mode: Mode | None) -> Scene:
    """The mesh is split for a while, with an OFGate on each side that leads there; the controller hears both, or only
    one. After healing one leads, no tree is used by anybody who was told of it by the other, and nothing is lost."""
    rng = random.Random(seed)
    scene = Scene(seed, mode, OfmFaults(latency=(0.0002, 0.002)), lease=rng.choice([1.0, 10.0]))
    far = _two_sides(scene, rng, 1.0)
    if rng.random() < 0.5:
        scene.ofm.sides = dict.fromkeys(far, 1)
    scene.simulation.partition(far)
    split = scene.recorder.clock
    for _ in range(rng.choice([1, 4, 10])):
        scene.traffic(0.5, churn=False)
        if rng.random() < 0.5:
            rng.choice([scene.construct, scene.release])(rng.choice(TOPICS))
    scene.simulation.heal()
    scene.ofm.sides.clear()
    scene.traffic(1.0, churn=False)
    scene.simulation.run(15)
    _judge_sides(scene, set(far), split)
    leading = [gate.name for gate in scene.gates if gate.leading]
    assert leading == ["ofgate@b0"], f"{leading} lead (seed {seed})"
    after, ring_split = scene.recorder.clock, scene.ofm.ring_split
    for _ in range(2):
        for topic in TOPICS:
            scene.construct(topic)
        scene.traffic(1.5)
        for topic in TOPICS:
            scene.release(topic)
        scene.traffic(0.5)
    scene.simulation.run(QUIET)
    scene.recorder.forget_before(after)
    scene.recorder.judge()
    assert scene.ofm.ring_split == ring_split, f"the tree was changed under its users (seed {seed})"
    return scene


def rings(seed: int, mode: Mode | None) -> Scene:
    """Twice each broker hears only its neighbours in a ring for some seconds, by links and by trees. Nothing of QoS 1
    and 2 is lost."""
    rng = random.Random(seed)
    scene = Scene(seed, mode, OfmFaults(latency=(0.0002, 0.002), same_wires=True), brokers=6)
    scene.begin()
    for topic in TOPICS:
        scene.construct(topic)
    scene.traffic(1.5, churn=False)
    for _ in range(2):
        names = [broker.name for broker in scene.brokers]
        rng.shuffle(names)
        count = len(names)
        pairs = [(one, names[(at + step) % count]) for at, one in enumerate(names) for step in range(2, count - 1)]
        scene.simulation.partition(pairs=pairs)
        scene.traffic(rng.uniform(2, 6), churn=False)
        scene.simulation.heal()
        scene.traffic(1.5, churn=False)
        scene.simulation.run(8)
    scene.simulation.run(15)
    scene.recorder.judge(faulty=True)
    return scene


def cuts(seed: int, mode: Mode) -> Scene:
    """A cut between brokers and between the parts of their trees. After it what was missed comes bit by bit, beside
    datagrams; half of the brokers do not hear the first question what they want. Nothing of QoS 1 and 2 is lost."""
    rng = random.Random(seed)
    scene = Scene(seed, mode, OfmFaults(latency=(0.0002, 0.002)), lease=rng.choice([1.0, 10.0, 100.0]))
    far = _two_sides(scene, rng, 1.5)
    asked: set[tuple[Returned, BrokerRef]] = set()
    tell = Returned.tell

    def tell_later(returned: Returned, sender: BrokerRef, number: int, start: int | None) -> None:
        first = start is not None and (returned, sender) not in asked
        asked.add((returned, sender))
        if not first or rng.random() < 0.5:
            tell(returned, sender, number, start)

    slow = patch.multiple(sending, PACE=16, TURN=0.02), patch.multiple(flight, LEAST=1, MOST=1)
    with slow[0], slow[1], patch.object(Returned, "tell", tell_later):
        scene.ofm.sides = dict.fromkeys(far, 1)
        scene.simulation.partition(far)
        scene.traffic(rng.choice([3.0, 8.0]), churn=False)
        scene.simulation.heal()
        scene.ofm.sides.clear()
        scene.traffic(2.0, churn=False)
        scene.simulation.run(20)
    scene.recorder.judge(faulty=True)
    return scene
