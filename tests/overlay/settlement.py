"""Brokers that each have a publisher and a subscriber, and a subscriber that goes round; any of them may die at any
moment, also those to which messages are being published. What must have come is what was acknowledged."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from saps.frontend.mqtt.codec.packets import V5, Ack, Connack, Connect, PacketType, Publish
from saps.simulator import Network, SimBroker
from saps.storage.journal import Table
from tests.frontend.mqtt.bench import Client
from tests.overlay.ordeals import judge
from tests.overlay.replicated import Replicated, Tables
from tests.overlay.roams import Nomad

QOS = (1, 2)
Numbers = dict[int, list[bytes]]
"""Payloads by QoS."""


class Publisher:
    """A connection that publishes to one life of a broker."""

    def __init__(self, mesh: Replicated, broker: SimBroker) -> None:
        self.broker = broker
        self.under_way: dict[int, Publish] = {}
        """By packet identifier: what has not been acknowledged."""
        self._client = Client(mesh.benches[broker], V5)  # type: ignore[arg-type]
        self._let_in = False
        self._packet_id = 0
        broker.act(partial(self._client.send, Connect(f"p{broker.name}", version=V5, clean_start=True)))

    def publish(self, number: int, qos: int) -> None:
        """Publish a number, if the broker has let it in."""
        if self._let_in:
            self._packet_id += 1
            payload = b"%s %d" % (self.broker.name.encode(), number)
            packet = Publish(f"t/{qos}/{number % 2}", payload, qos, packet_id=self._packet_id)
            self.under_way[self._packet_id] = packet
            self.broker.act(partial(self._client.send, packet))

    def acknowledged(self) -> list[Publish]:
        """What has been acknowledged since the last call."""
        found = []
        for packet in self._client.take() if self.broker.alive else ():
            if isinstance(packet, Connack):
                self._let_in = not packet.reason
            elif isinstance(packet, Ack) and packet.type in (PacketType.PUBACK, PacketType.PUBREC):
                found.append(self.under_way.pop(packet.packet_id))
                if packet.type == PacketType.PUBREC:
                    self.broker.act(partial(self._client.send, Ack(PacketType.PUBREL, packet.packet_id)))
        return found


class Settlement:
    """Brokers with disks, and their clients."""

    def __init__(self, seed: int, brokers: int = 3, *, roams: bool = True) -> None:
        """`roams`: whether the subscriber that goes round counts."""
        self.seed = seed
        self.roams = roams
        self.rng = random.Random(seed)
        latency = 0.001, self.rng.choice([0.002, 0.02])
        self.mesh = Replicated(seed, disks=True, network=Network(latency=latency, reset=self.rng.choice([0.0, 0.001])))
        self.mesh.build(brokers)
        self.mesh.run(1)
        self.nomad = Nomad(self.mesh, "nomad")
        self.settlers = {broker.name: Nomad(self.mesh, f"at {broker.name}") for broker in self.mesh.alive()}
        for broker in self.mesh.alive():
            self.settlers[broker.name].arrive(broker)
            self.settlers[broker.name].subscribe("t/#")
        self.nomad.arrive(self.rng.choice(self.mesh.alive()))
        self.nomad.subscribe("t/#")
        self.owed: Numbers = {qos: [] for qos in QOS}
        self._published = 0
        self._successors = 0
        self._publishers: dict[SimBroker, Publisher] = {}

    @property
    def subscribers(self) -> list[Nomad]:
        return [self.nomad, *self.settlers.values()] if self.roams else [*self.settlers.values()]

    @property
    def serving(self) -> list[SimBroker]:
        """The brokers that take clients."""
        return [broker for broker in self.mesh.alive() if not broker.node.leaving.begun]

    def live(self, seconds: float, *, publish: bool = True) -> None:
        """Let all clients act by chance: who has no connection makes one, and the one that goes round another one."""
        end = self.mesh.now + seconds
        while self.mesh.now < end:
            if publish and (there := self.serving) and self.rng.random() < 0.5:
                self._publish(self.rng.choice(there))
            self._hear()
            self.mesh.run(self.rng.choice([0, 0.001, 0.01, 0.05, 0.3]))

    def _publish(self, broker: SimBroker) -> None:
        if broker not in self._publishers:
            self._publishers[broker] = Publisher(self.mesh, broker)
        self._published += 1
        self._publishers[broker].publish(self._published, self.rng.choice(QOS))

    def _hear_publishers(self) -> None:
        for publisher in self._publishers.values():
            for packet in publisher.acknowledged():
                self.owed[packet.qos].append(packet.payload)

    def _hear(self) -> None:
        self._hear_publishers()
        there = self.serving
        for name, settler in self.settlers.items():
            if not settler.alive and self.mesh.brokers[name] in there and self.rng.random() < 0.5:
                settler.connect(self.mesh.brokers[name])
        if self.roams and there and self.rng.random() < (0.05 if self.nomad.alive else 0.3):
            self.nomad.connect(self.rng.choice(there))
        for nomad in self.subscribers:
            nomad.hear()
            nomad.answer(self.rng.randrange(1, 8))

    def crash(self, names: Collection[str]) -> None:
        for name in names:
            self.mesh.crash(name)

    def leave(self, broker: SimBroker) -> None:
        """In order: its clients first."""
        for nomad in self.subscribers:
            if nomad.broker is broker:
                nomad.lose()
        self.mesh.leave(broker)

    def restart(self, name: str) -> None:
        """With its disk, by a broker that is in the mesh; if there is none it begins one."""
        there = [broker.name for broker in self.mesh.alive() if broker.joined]
        self.mesh.restart(name, self.rng.choice(there) if there else None)

    def snapshot(self, name: str) -> Tables:
        """What is on a broker's disk now."""
        assert self.mesh.disks is not None
        return {table: dict(rows) for table, rows in self.mesh.disks[name].items()}

    def repair(self, name: str) -> None:
        """As `saps storage repair` leaves a disk: without the broker's incarnations."""
        assert self.mesh.disks is not None
        self.mesh.missed.pop(name, None)
        held = self.mesh.disks[name].get(Table.HELD, {})
        self.mesh.disks[name][Table.HELD] = {key: row for key, row in held.items() if key[0]}

    def replace(self, name: str) -> None:
        """Another broker is in the place of one that is gone with its disk; its subscriber connects there."""
        assert self.mesh.disks is not None
        self.mesh.lose_disk(name)
        del self.mesh.disks[name]
        self._successors += 1
        there = [broker.name for broker in self.mesh.alive() if broker.joined]
        successor = self.mesh.add(f"n{self._successors}", "c0", self.rng.choice(there))
        self.settlers[successor.name] = self.settlers.pop(name)

    def black_out(self) -> None:
        """All brokers lose power at once, and start again, one of them perhaps later."""
        names = [broker.name for broker in self.mesh.alive()]
        self.crash(names)
        self.rng.shuffle(names)
        for name in names[:-1]:
            self.restart(name)
            self.live(self.rng.choice([0, 0.05, 0.3]))
        self.live(self.rng.choice([0, 0, 0.3, 3, 8]))
        self.restart(names[-1])

    def judge(self) -> None:
        """All come to rest. Each has got what was acknowledged, and perhaps what was not."""
        self.live(8, publish=False)
        for _ in range(20):
            if not (self.nomad.alive and self.nomad.greeted):
                self.nomad.connect(self.rng.choice(self.mesh.alive()))
            for _ in range(40):
                for nomad in self.subscribers:
                    nomad.hear()
                    nomad.answer()
                self.mesh.run(0.2)
            self._hear_publishers()
            if self.nomad.alive and self.nomad.greeted:
                break
        unsure = {p.payload for each in self._publishers.values() for p in each.under_way.values()}
        for nomad in self.subscribers:
            where = f"of {nomad.name} (seed {self.seed})"
            assert nomad.alive, f"no connection {where}"
            assert nomad.greeted, f"not let in {where}"
            for qos in QOS:
                nomad.got[qos] = [payload for payload in nomad.got[qos] if payload not in unsure]
            judge(nomad, self.owed, self.mesh.alive(), where)
            assert len(self.mesh.sessions(nomad.name)) == 1, f"{self.mesh.sessions(nomad.name)} {where}"


def blackout(seed: int, brokers: int = 3) -> None:
    """All brokers lose power at once, and start again in any order, each within 3 s of the one before it."""
    place = Settlement(seed, brokers)
    for _ in range(3):
        place.live(4)
        place.live(place.rng.choice([0, 2, 6]), publish=False)
        names = [broker.name for broker in place.mesh.alive()]
        place.crash(names)
        place.rng.shuffle(names)
        for name in names:
            place.restart(name)
            place.live(place.rng.choice([0, 0.1, 1, 3]))
            if place.rng.random() < 0.1:
                place.mesh.run(60)  # longer than a broker logs for others without a reason
        place.live(8)
    place.judge()


def deaths(seed: int) -> None:
    """One broker dies after the other, and comes back with its disk, at once or when it has been adopted."""
    place = Settlement(seed, 4)
    for _ in range(4):
        place.live(4)
        place.live(place.rng.choice([0, 2, 6]), publish=False)
        victim = place.rng.choice(place.mesh.alive()).name
        place.crash([victim])
        place.live(place.rng.choice([0, 0.1, 1, 3, 9]))
        place.restart(victim)
        place.live(12)
    place.judge()


def restarts(seed: int) -> None:
    """One broker after the other leaves in order and comes back with its disk, while others stand still at times."""
    place = Settlement(seed, 4)
    rng = place.rng
    for _ in range(6):
        place.live(2)
        leaving, *others = rng.sample(place.mesh.alive(), 4)
        for other in others:
            if rng.random() < 0.5:
                pause = partial(place.mesh.pause, other.name, rng.uniform(0, 1))
                place.mesh.at(place.mesh.now + rng.uniform(0, 1), pause)
        place.leave(leaving)
        while leaving.alive:
            place.live(0.1)
        place.live(rng.choice([0, 0.1, 1, 3]))
        place.restart(leaving.name)
        place.live(rng.choice([2, 6]))
    place.judge()


def freezes(seed: int) -> None:
    """Brokers stand still for longer than it takes to declare them dead, and another one dies now and then."""
    place = Settlement(seed, 5, roams=False)
    mesh, rng = place.mesh, place.rng
    for _ in range(5):
        place.live(rng.choice([1, 3]))
        mesh.pause(rng.choice(mesh.alive()).name, rng.uniform(3, 7))
        place.live(rng.choice([10, 14]))
        if rng.random() < 0.5:
            victim = rng.choice(mesh.alive()).name
            place.crash([victim])
            place.live(rng.choice([0, 0.5, 2, 4]))
            if rng.random() < 0.5:
                place.replace(victim)
            else:
                place.restart(victim)
            place.live(8)
    place.judge()


def disasters(seed: int) -> None:
    """Between losses of power brokers die: with their disks, without, for good, or with what could be saved of them."""
    place = Settlement(seed, 5, roams=False)
    mesh, rng = place.mesh, place.rng
    assert mesh.disks is not None
    for _ in range(4):
        for _ in range(rng.choice([1, 1, 2])):
            place.live(rng.choice([1, 4]))
            victim = rng.choice(mesh.alive()).name
            before = place.snapshot(victim)
            place.live(rng.choice([0, 0.1, 1, 4]))
            way = rng.choice(["as it was", "wiped", "repaired", "repaired", "gone"])
            place.crash([victim])
            place.live(rng.choice([0, 0.5, 2, 4]))
            if way == "gone":
                place.replace(victim)
            else:
                if way == "repaired":
                    mesh.disks[victim] = rng.choice([before, place.snapshot(victim)])
                    place.repair(victim)
                elif way == "wiped":
                    mesh.lose_disk(victim)
                place.restart(victim)
            place.live(rng.choice([4, 5, 6, 8]))
        place.black_out()
        place.live(12)
    place.judge()


def overload(seed: int) -> None:
    """Too little processor time for minutes: brokers stand still all the time, some frames take a second, one dies.
    When that is over the clients that stay are let in, and get what is published from then on. (The session of one
    that roams may not have been found in time.)"""
    place = Settlement(seed, 4)
    mesh, rng = place.mesh, place.rng
    quiet = mesh.network
    place.live(3)
    mesh.network = replace(quiet, latency=(0.001, rng.choice([0.02, 0.3, 1.0])))
    victim = rng.choice(mesh.alive()).name
    place.crash([victim])
    place.live(rng.choice([0, 1, 3]))
    place.restart(victim)
    end, longest = mesh.now + 30, rng.choice([1, 2, 3])
    while mesh.now < end:
        mesh.pause(rng.choice(mesh.alive()).name, rng.uniform(0, longest))
        place.live(rng.choice([0.1, 0.3, 1]))
    mesh.network = quiet
    place.live(40, publish=False)
    place.roams = False
    for nomad in place.subscribers:
        nomad.got, nomad.present = {qos: [] for qos in QOS}, []
    place.owed = {qos: [] for qos in QOS}
    place.live(5)
    place.judge()
