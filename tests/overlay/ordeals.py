"""What befalls the brokers of a client whose session lasts, drawn from a seed, and what must have come of it."""

from __future__ import annotations

import random

from saps.simulator import Network, SimBroker
from tests.overlay.replicated import Replicated
from tests.overlay.roams import Nomad
from tests.overlay.sessions.test_roaming import difference, numbers


def judge(nomad: Nomad, owed: dict[int, list[bytes]], speakers: list[SimBroker], where: str) -> None:
    """Its session was never lost, and all has come to it: QoS 2 once, each publisher's topics in order."""
    assert all(nomad.present[1:]), f"the session was lost {where}: {nomad.present}"
    for qos in (1, 2):
        got = nomad.got[qos] if qos == 2 else list(dict.fromkeys(nomad.got[qos]))
        assert sorted(got) == sorted(owed[qos]), f"QoS {qos} {where}: {difference(got, owed[qos])}"
        for speaker in speakers:
            for parity in (0, 1):
                mine = [n for n in numbers(got, speaker.name) if n % 2 == parity]
                assert mine == sorted(mine), f"disorder {where}: {mine}"


class Ordeal:
    """A client that goes round while two brokers that never die publish to it, and those that have its session die."""

    def __init__(self, seed: int, disks: bool, brokers: int = 5, clusters: int = 1) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        slow = self.rng.choice([0.002, 0.02])
        reset = self.rng.choice([0.0, 0.001])
        self.mesh = Replicated(seed, disks=disks, network=Network(latency=(0.001, slow), reset=reset))
        self.mesh.build(brokers, clusters)
        self.mesh.run(1)
        self.speakers = self.mesh.alive()[:2]
        self.nomad = Nomad(self.mesh, "c")
        self.owed: dict[int, list[bytes]] = {1: [], 2: []}
        self.number = 0
        self.nomad.arrive(self.rng.choice(self.mesh.alive()))
        self.nomad.subscribe("t/#")
        self.moves = 0.2
        """How often the client connects anew."""
        self.apart: set[str] = set()
        """Brokers that it cannot reach."""
        for speaker in self.speakers:  # these publish to all of their topics from now on
            for qos in (1, 1, 2, 2):
                self.tell(speaker, qos)
        self.mesh.run(2)

    def subscribers(self) -> list[Nomad]:
        """Other clients, one at each broker, that stay there."""
        found = []
        for number, broker in enumerate(self.mesh.alive()):
            found.append(other := Nomad(self.mesh, f"x{number}"))
            other.arrive(broker)
            other.subscribe("t/#")
        self.mesh.run(2)
        return found

    def tell(self, speaker: SimBroker | None = None, qos: int = 0) -> None:
        self.number += 1
        speaker, qos = speaker or self.rng.choice(self.speakers), qos or self.rng.choice([1, 2])
        self.owed[qos].append(b"%s %d" % (speaker.name.encode(), self.number))
        self.mesh.tell(speaker, self.number, qos)

    def steps(self, count: int) -> None:
        for _ in range(count):
            if self.rng.random() < 0.6:
                self.tell()
            else:
                self.nomad.wander(self.rng, self.moves, self.apart)
            self.mesh.run(self.rng.choice([0, 0, 0.001, 0.01, 0.05, 0.3]))

    def couple(self) -> list[str]:
        """Two that may die together: with three copies one is left."""
        first = self.rng.choice(self.victims())
        there = [broker.name for broker in self.mesh.alive() if broker not in self.speakers and broker.joined]
        return [first, self.rng.choice([name for name in there if name != first])]

    def victims(self) -> list[str]:
        """Brokers that may die now, each by itself, those with the session as likely as all others."""
        there = [broker.name for broker in self.mesh.alive() if broker not in self.speakers and broker.joined]
        owners = [name for name in self.mesh.sessions("c") if name in there]
        return [self.rng.choice(owners)] if owners and self.rng.random() < 0.7 else there

    def settle(self) -> None:
        """The client comes to rest at a broker, and hears all."""
        for _ in range(20):
            self.nomad.connect(self.rng.choice([broker for broker in self.mesh.alive() if broker.joined]))
            self.listen(8)
            if self.nomad.alive and self.nomad.greeted:
                break
        assert self.nomad.greeted, f"not let in (seed {self.seed}): {self.nomad.refused}"
        self.listen(4)

    def listen(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.2)):
            self.nomad.hear()
            self.nomad.answer()
            self.mesh.run(0.2)
        self.nomad.hear()

    def judge(self) -> None:
        where = f"(seed {self.seed})"
        judge(self.nomad, self.owed, self.speakers, where)
        assert len(self.mesh.sessions("c")) == 1, f"{self.mesh.sessions('c')} {where}"


def ordeal(seed: int, disks: bool, together: bool = False) -> None:
    """Brokers die, one at a time or two `together`, and come back with their disks or without."""
    trial = Ordeal(seed, disks)
    mesh, rng = trial.mesh, trial.rng
    for _ in range(3):
        trial.steps(15)
        mesh.run(rng.choice([0, 0.3, 2, 8]))
        dead = trial.couple() if together else [rng.choice(trial.victims())]
        for name in dead:
            mesh.crash(name)
        trial.steps(10)
        mesh.run(rng.choice([0, 0.05, 1, 4]))
        for name in dead:
            mesh.restart(name, trial.speakers[0].name, wiped=rng.random() < 0.5)
        trial.steps(10)
        mesh.run(12)  # there are three copies again
    trial.settle()
    trial.judge()


def cut_off(seed: int, disks: bool) -> None:
    """The session's broker is cut off for a moment or half a minute, its client with it, or away. Others adopt it; when
    the cut is over there is one session again, with all that was published meanwhile."""
    trial = Ordeal(seed, disks)
    mesh, rng = trial.mesh, trial.rng
    trial.moves = 0.0
    for _ in range(2):
        trial.steps(10)
        mesh.run(rng.choice([0.3, 2, 8]))
        home = rng.choice([broker for broker in mesh.alive() if broker not in trial.speakers])
        trial.nomad.connect(home)
        trial.listen(4)
        if rng.random() < 0.5:
            trial.nomad.lose()
        mesh.partition([home.name])
        for _ in range(rng.randrange(2, 25)):
            trial.tell()
            mesh.run(rng.choice([0.05, 0.3, 1]))
        mesh.heal()
        trial.steps(6)
        mesh.run(15)
    trial.settle()
    trial.judge()


def beside_a_cut(seed: int, disks: bool) -> None:
    """Two sites are cut off from each other. The client goes round in its own, where a broker dies, too, and is back
    before the cut is over, or after it, or without its disk."""
    trial = Ordeal(seed, disks, 8, clusters=2)
    mesh, rng = trial.mesh, trial.rng
    for _ in range(2):
        trial.steps(10)
        mesh.run(rng.choice([0.3, 2, 8]))
        site = rng.choice(["c0", "c1"])
        inside = [broker.name for broker in mesh.alive() if broker.ref.cluster == site]
        trial.nomad.connect(mesh.brokers[rng.choice(inside)])
        trial.listen(4)
        trial.apart = {broker.name for broker in mesh.alive()} - {*inside}
        mesh.partition(inside)
        trial.steps(rng.choice([2, 20]))
        mesh.run(rng.choice([0.3, 2, 8]))
        dead = rng.choice([name for name in trial.victims() if name in inside] or [None])
        if dead is not None and rng.random() < 0.5:
            mesh.crash(dead)
            trial.steps(rng.choice([2, 20]))
            mesh.run(rng.choice([0.3, 4]))
            if rng.random() < 0.7:
                mesh.restart(dead, rng.choice([n for n in inside if n != dead]), wiped=rng.random() < 0.5)
        trial.steps(15)
        mesh.run(rng.choice([0, 1, 6]))
        mesh.heal()
        trial.apart.clear()
        trial.steps(10)
        mesh.run(15)
        if dead is not None and dead not in [broker.name for broker in mesh.alive()]:
            mesh.restart(dead, trial.speakers[0].name)
            mesh.run(12)
    trial.settle()
    trial.judge()


def bursts(seed: int, disks: bool) -> None:
    """The client moves within its site during a cut. When that is over, all brokers publish in bursts while others
    catch up: some messages go directly, others by the log. A subscriber at each broker gets all of them, too."""
    trial = Ordeal(seed, disks, 8, clusters=2)
    mesh, rng = trial.mesh, trial.rng
    trial.speakers = mesh.alive()
    others = trial.subscribers()
    begin = {qos: len(owed) for qos, owed in trial.owed.items()}

    def attend(*clients: Nomad) -> None:
        for each in clients:
            each.hear()
            each.answer()

    def tell(count: int, pauses: list[float]) -> None:
        for _ in range(count):
            trial.tell()
            mesh.run(rng.choice(pauses))
            attend(trial.nomad, *others)

    for _ in range(2):
        site = rng.choice(["c0", "c1"])
        inside = [broker.name for broker in mesh.alive() if broker.ref.cluster == site]
        trial.nomad.connect(mesh.brokers[rng.choice(inside)])
        trial.listen(3)
        mesh.partition(inside)
        tell(30, [0.05])
        trial.nomad.connect(mesh.brokers[rng.choice(inside)])
        tell(40, [0.1])
        mesh.heal()
        tell(150, [0, 0, 0.0005, 0.002, 0.01])
        for _ in range(60):
            trial.listen(0.2)
            attend(*others)
    for other in others:
        judge(other, {qos: trial.owed[qos][begin[qos] :] for qos in (1, 2)}, trial.speakers, f"(seed {seed})")
    trial.settle()
    trial.judge()


def ring(seed: int, disks: bool) -> None:
    """Each broker hears all others but the one that is opposite in a ring. The client goes round among all of them, and
    each has another subscriber, so that whatever is published goes to all that hear."""
    trial = Ordeal(seed, disks, 6, clusters=2)
    mesh, rng = trial.mesh, trial.rng
    for broker in mesh.alive():
        broker.subscribe("t/#")
    trial.moves = 0.1
    for _ in range(3):
        trial.steps(20)
        mesh.run(rng.choice([0.3, 2, 8]))
        names = [broker.name for broker in mesh.alive()]
        rng.shuffle(names)
        mesh.partition(pairs=zip(names[:3], names[3:], strict=True))
        trial.steps(rng.choice([20, 60, 150]))
        mesh.run(rng.choice([0, 1, 4]))
        mesh.heal()
        trial.steps(rng.choice([10, 60]))
        mesh.run(rng.choice([0.3, 3, 15]))
    trial.settle()
    trial.judge()


def standing_still(seed: int, disks: bool, rounds: int, patience: float) -> None:
    """Brokers that have neither the client nor its session stand still while it moves, mostly to a publisher's broker,
    for less time than it takes for all to be settled. Every broker has a subscriber, so they are on the way of what
    goes to the others. `patience`: seconds that a move waits for them."""
    trial = Ordeal(seed, disks, 8, clusters=2)
    mesh, rng, nomad = trial.mesh, trial.rng, trial.nomad
    for broker in mesh.alive():
        broker.node.sessions._waiting.timeouts.seconds = patience
    trial.subscribers()
    for _ in range(rounds):
        trial.moves = 0.2
        trial.steps(8)
        mesh.run(rng.choice([0.3, 2]))
        concerned = {*mesh.sessions("c"), *(speaker.name for speaker in trial.speakers)}
        free = [broker for broker in mesh.alive() if broker.name not in concerned]
        still = rng.sample(free, rng.choice([1, 2, 3]))
        trial.apart = {broker.name for broker in still}
        for broker in still:
            mesh.pause(broker.name, rng.uniform(1, 12))
        for pauses in ([0, 0, 0.001, 0.01], [0, 0, 0.001, 0.01, 0.3]):
            for _ in range(rng.choice([1, 5, 10])):
                trial.tell()
                mesh.run(rng.choice(pauses))
            if 0.3 not in pauses:
                going = [broker for broker in mesh.alive() if broker not in still]
                nomad.connect(rng.choice(trial.speakers if rng.random() < 0.9 else going))
        trial.listen(rng.choice([1, 8]))
        trial.moves = 0.03
        trial.steps(6)
        trial.listen(14)
        trial.apart.clear()
        mesh.run(2)
    trial.settle()
    trial.judge()


def flapping(seed: int, disks: bool) -> None:
    """The link to the session's broker comes and goes, as soon as it is taken for dead, or not yet, or for a while."""
    trial = Ordeal(seed, disks)
    mesh, rng = trial.mesh, trial.rng
    home = rng.choice([broker for broker in mesh.alive() if broker not in trial.speakers])
    trial.nomad.connect(home)
    trial.listen(4)
    if rng.random() < 0.5:
        trial.nomad.lose()
    for _ in range(6):
        mesh.partition([home.name])
        for _ in range(rng.randrange(1, 6)):
            trial.tell()
            mesh.run(rng.choice([0.05, 0.5, 1]))
        mesh.heal()
        for _ in range(rng.randrange(1, 6)):
            trial.tell()
            mesh.run(rng.choice([0.05, 0.5, 1]))
    mesh.run(20)
    trial.settle()
    trial.judge()


def each_alone(seed: int, disks: bool) -> None:
    """All brokers of a site lose one another and the other site, for about as long as it takes to be taken for dead:
    the session's broker goes on with the client, and both holders adopt. All of them publish."""
    trial = Ordeal(seed, disks, 6, clusters=2)
    mesh, rng, nomad = trial.mesh, trial.rng, trial.nomad
    trial.speakers, trial.moves = mesh.alive(), 0.0
    for _ in range(2):
        trial.steps(10)
        mesh.run(rng.choice([2, 8]))
        site = rng.choice(["c0", "c1"])
        inside = [broker for broker in mesh.alive() if broker.ref.cluster == site]
        nomad.connect(rng.choice(inside))
        trial.listen(8)
        mesh.partition(*([broker.name] for broker in inside))
        for seconds, moves in ((rng.uniform(1.5, 4), False), (3, True)):
            over = mesh.now + seconds
            while mesh.now < over:
                trial.tell()
                mesh.run(0.05)
                if rng.random() < 0.4:
                    nomad.hear()
                    nomad.answer()
                if moves and not nomad.alive and rng.random() < 0.1:
                    nomad.connect(rng.choice([*inside, *mesh.alive()]))
            mesh.heal()
        mesh.run(15)
        assert len(mesh.sessions("c")) == 1, f"two brokers go on with a session each (seed {seed})"
    trial.settle()
    trial.judge()


def power_loss(seed: int) -> None:
    """All brokers lose power at once, and start again in any order. The one with the session comes back, or without
    its disk, or much later, or without its disk and much later."""
    trial = Ordeal(seed, disks=True)
    mesh, rng = trial.mesh, trial.rng
    for _ in range(2):
        trial.steps(20)
        mesh.run(8)
        names, (owner,) = [broker.name for broker in mesh.alive()], mesh.sessions("c")
        for name in names:
            mesh.crash(name)
        rng.shuffle(names)
        late, wiped = rng.random() < 0.5, rng.random() < 0.5
        if late:
            names.remove(owner)
        for number, name in enumerate(names):
            mesh.restart(name, names[0] if number else None, wiped and name == owner)
            mesh.run(rng.choice([0, 0.1, 1]))
        trial.speakers = [mesh.brokers[name] for name in rng.sample(names, 2)]
        first = rng.choice(mesh.alive())
        if first.node._alone() and not first.node.sessions.copied.restores("c"):
            mesh.run_until(
                lambda: len([broker for broker in mesh.alive() if broker.joined]) > 1, 10.0
            )  # nobody could know
        trial.nomad.connect(first)
        mesh.run(12)
        if late:
            mesh.restart(owner, names[0], wiped)
            mesh.run(12)
    trial.settle()
    trial.judge()


def paused(seed: int, disks: bool) -> None:
    """The session's broker stands still, until it is taken for dead or not. Its client stays, is away, or goes to
    others."""
    trial = Ordeal(seed, disks)
    mesh, rng = trial.mesh, trial.rng
    for _ in range(2):
        trial.steps(10)
        mesh.run(rng.choice([0.3, 2, 8]))
        home = rng.choice([broker for broker in mesh.alive() if broker not in trial.speakers])
        trial.nomad.connect(home)
        trial.listen(4)
        way = rng.choice(["stays", "away", "goes"])
        if way == "away":
            trial.nomad.lose()
        seconds = rng.uniform(2, 9)
        over = mesh.now + seconds
        mesh.pause(home.name, seconds)
        leaves = mesh.now + rng.uniform(0, seconds)
        while mesh.now < over + rng.choice([0, 1, 5]):
            trial.tell()
            if way == "goes" and mesh.now > leaves:
                way = "gone"
                trial.nomad.connect(rng.choice([broker for broker in mesh.alive() if broker is not home]))
            if way == "gone" or mesh.now > over:
                trial.nomad.hear()
                trial.nomad.answer(rng.randrange(4))
                if not trial.nomad.alive and rng.random() < 0.3:
                    trial.nomad.connect(rng.choice(mesh.alive()))
            mesh.run(rng.choice([0.05, 0.3, 1]))
        trial.steps(6)
        mesh.run(15)
    trial.settle()
    trial.judge()


class Storm:
    """Faults that overlap: of the two publishers' brokers nothing is taken, and of the others two at most."""

    def __init__(self, trial: Ordeal) -> None:
        self.trial, self.mesh, self.rng = trial, trial.mesh, trial.rng
        self._down: list[str] = []
        self._successors = 0

    def strike(self, kind: str) -> None:
        if not (victims := self.trial.victims()):
            return
        name = self.rng.choice(victims)
        match kind:
            case "crash" if len(self._down) < 2:
                self.mesh.crash(name)
                self._down.append(name)
            case "pause":
                self.mesh.pause(name, self.rng.uniform(0.5, 8))
            case "cut":
                self._cut(name)
            case "flapping":
                for _ in range(3):
                    self._cut(name)
                    self._flow()
                    self.mesh.heal()
                    self._flow()

    def _cut(self, name: str) -> None:
        """From its client, too: one that is served on both sides may get something twice."""
        self.trial.nomad.cut(self.mesh.brokers[name])
        self.trial.apart.add(name)
        self.mesh.partition([name])

    def _flow(self) -> None:
        self.trial.tell()
        self.mesh.run(self.rng.choice([0.05, 0.5, 1]))

    def repair(self) -> None:
        """Cuts end; who crashed comes back with its disk, or without, or never, and a new broker instead."""
        self.mesh.heal()
        contact = self.trial.speakers[0].name
        for name in self._down:
            way = self.rng.choice(["as it was", "wiped", "never"])
            if way == "never":
                self._successors += 1
                self.mesh.add(f"n{self._successors}", "c0", contact)
            else:
                self.mesh.restart(name, contact, wiped=way == "wiped")
        self._down.clear()


def several(seed: int, disks: bool) -> None:
    """Several faults at once, while the client goes round."""
    trial = Ordeal(seed, disks, 6)
    mesh, rng, storm = trial.mesh, trial.rng, Storm(trial)
    for _ in range(4):
        trial.steps(12)
        for kind in rng.sample(["crash", "crash", "pause", "cut", "flapping"], rng.choice([1, 1, 2, 3])):
            storm.strike(kind)
            trial.steps(rng.randrange(8))
        mesh.run(rng.choice([0, 0.3, 2, 8]))
        trial.steps(8)
        storm.repair()
        trial.steps(10)
        mesh.run(15)
        trial.apart.clear()
    trial.settle()
    trial.judge()
