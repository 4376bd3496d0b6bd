"""The scene: a city's wards with their brokers, the devices that publish, and whoever wants to know. Pure.

Topics are ``city/WARD/GROUP/DEVICE/...``; a ward is a cluster of brokers. Subscribers sit at brokers of other
wards than most of what they subscribe to, so that most messages cross the mesh.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from examples.smart_city.readings import Reading, readings

Qos = Literal[0, 1, 2]
Protocol = Literal["3.1.1", "5.0"]

GROUPS = ("air", "traffic", "parking", "alert")
"""The topic groups, in the order they are shown: the third level of every topic."""

AIR_QUANTITIES = ("no2", "pm25", "temperature")
ALERTS = ("fire", "flood", "medical")

AIR_STATIONS = 3
JUNCTIONS = 3
CAR_PARKS = 2
"""Devices of each kind per broker; each ward has one emergency call centre besides."""

GATES = 4
GATE_RATE = 20.0
"""Of the stadium, and publications per second of each."""

LATECOMER_JOINS = 0.4
"""When the latecomers subscribe, as a fraction of the scene's length."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A place in the scene: a broker's name and its cluster path, such as ``tokyo/ward1``."""

    name: str
    cluster: str

    @property
    def ward(self) -> str:
        """The last level of the cluster path."""
        return self.cluster.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Publisher:
    """A device that publishes on its topics in turn."""

    name: str
    broker: Broker
    protocol: Protocol
    qos: Qos
    topics: tuple[str, ...]
    rate: float
    """Publications per second, over all its topics."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A client that subscribes. Its filters must not overlap: a broker may send a message once per filter."""

    name: str
    broker: Broker
    protocol: Protocol
    qos: Qos
    filters: tuple[str, ...]
    joins_at: float = 0.0
    """0 for before the first publication, otherwise the fraction of the scene that has passed."""


def group_of(topic: str) -> str:
    """The topic group: the third level (the whole topic if there is none)."""
    levels = topic.split("/")
    return levels[2] if len(levels) > 2 else topic


def readings_of(topic: str, rng: random.Random) -> Iterator[Reading]:
    """What a device of the city says on this topic."""
    return readings(group_of(topic), rng)


@dataclass(frozen=True, slots=True)
class Scene:
    """Who takes part."""

    brokers: tuple[Broker, ...]
    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]
    group_of: Callable[[str], str] = group_of
    """By which topics are counted together."""
    readings_of: Callable[[str, random.Random], Iterator[Reading]] = readings_of
    """What publishers say."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters, in the order of their brokers."""
        return tuple(dict.fromkeys(broker.cluster for broker in self.brokers))


def plan_brokers(count: int, least: int = 2) -> tuple[Broker, ...]:
    """`count` brokers b1, b2, ... in clusters of about two, in `least` clusters at least if that can be."""
    clusters = max(min(least, count), count // 2)
    return tuple(Broker(f"b{i + 1}", f"tokyo/ward{i * clusters // count + 1}") for i in range(count))


def smart_city(brokers: Sequence[Broker], rng: random.Random, pace: float = 1.0) -> Scene:
    """The scene on these brokers, with rates times `pace`. `rng` decides which device speaks which protocol version,
    nothing else."""
    publishers = [device for broker in brokers for device in _devices(broker, rng)]
    publishers += [device for broker in _first_of_each_ward(brokers) for device in _call_centre(broker)]
    publishers = [replace(device, rate=device.rate * pace) for device in publishers]
    subscribers = [*_city_services(brokers), *_ward_services(brokers)]
    return Scene(tuple(brokers), tuple(publishers), tuple(subscribers))


@dataclass(frozen=True, slots=True)
class Crowd:
    """What makes the traffic on one topic rise for a while: people stream through a stadium's gates, and signs at every
    other broker of the city show the way."""

    topic: str
    gates: tuple[Publisher, ...]
    """They publish while the crowd is there."""
    signs: tuple[Subscriber, ...]
    """They are there from the beginning."""


def stadium(brokers: Sequence[Broker]) -> Crowd:
    """The crowd at the first broker's stadium."""
    home, topic = brokers[0], f"city/{brokers[0].ward}/traffic/stadium/gates"
    gates = tuple(Publisher(f"gate-{n}", home, "5.0", 1, (topic,), GATE_RATE) for n in range(1, GATES + 1))
    signs = tuple(Subscriber(f"sign-{broker.name}", broker, "5.0", 1, (topic,)) for broker in brokers[1:])
    return Crowd(topic, gates, signs)


def _devices(broker: Broker, rng: random.Random) -> Iterator[Publisher]:
    """The sensors around one broker: each kind has the QoS its readings deserve."""

    def names(kind: str, count: int) -> Iterator[tuple[str, str, Protocol]]:
        for i in range(1, count + 1):
            name = f"{kind}-{broker.name}-{i}"
            yield f"{broker.ward}-{name}", name, rng.choice(("3.1.1", "5.0"))

    for name, station, protocol in names("station", AIR_STATIONS):
        topics = tuple(f"city/{broker.ward}/air/{station}/{quantity}" for quantity in AIR_QUANTITIES)
        yield Publisher(name, broker, protocol, 0, topics, rate=9.0)
    for name, junction, protocol in names("junction", JUNCTIONS):
        topics = (
            f"city/{broker.ward}/traffic/{junction}/light",
            f"city/{broker.ward}/traffic/{junction}/vehicles",
        )
        yield Publisher(name, broker, protocol, 1, topics, rate=6.0)
    for name, park, protocol in names("park", CAR_PARKS):
        yield Publisher(name, broker, protocol, 2, (f"city/{broker.ward}/parking/{park}/free",), rate=3.0)


def _call_centre(broker: Broker) -> Iterator[Publisher]:
    topics = tuple(f"city/{broker.ward}/alert/{kind}" for kind in ALERTS)
    yield Publisher(f"{broker.ward}-call-centre", broker, "5.0", 2, topics, rate=1.5)


def _city_services(brokers: Sequence[Broker]) -> Iterator[Subscriber]:
    """Those that look at the whole city, spread over its brokers."""

    def at(place: int) -> Broker:
        return brokers[place % len(brokers)]

    yield Subscriber("environment-office", at(0), "5.0", 0, ("city/+/air/#",))
    yield Subscriber("traffic-control", at(-1), "3.1.1", 1, ("city/+/traffic/#",))
    yield Subscriber("parking-guide", at(1), "5.0", 2, ("city/+/parking/+/free",))
    yield Subscriber("fire-brigade", at(2), "5.0", 2, ("city/+/alert/fire", "city/+/alert/flood"))
    yield Subscriber("hospital", at(0), "3.1.1", 1, ("city/+/alert/medical",))
    yield Subscriber("city-dashboard", at(-1), "5.0", 0, ("city/#",))
    yield Subscriber("night-shift", at(1), "3.1.1", 1, ("city/+/air/#", "city/+/alert/#"), LATECOMER_JOINS)


def _ward_services(brokers: Sequence[Broker]) -> Iterator[Subscriber]:
    """Those that look at one ward, from the next one."""
    wards = _first_of_each_ward(brokers)
    for i, ward in enumerate(wards):
        home = wards[(i + 1) % len(wards)]
        air = tuple(f"city/{ward.ward}/air/+/{quantity}" for quantity in AIR_QUANTITIES[:2])
        yield Subscriber(f"{ward.ward}-air-display", home, "5.0", 1, (*air, f"city/{ward.ward}/alert/#"))
        yield Subscriber(
            f"{ward.ward}-navigation",
            home,
            "3.1.1",
            1,
            (f"city/{ward.ward}/parking/#", f"city/{ward.ward}/traffic/+/light"),
        )
        nearest = f"city/{ward.ward}/traffic/junction-{ward.name}-1"
        vehicle = (f"{nearest}/light", f"{nearest}/vehicles")
        yield Subscriber(f"{ward.ward}-ambulance", home, "5.0", 2, vehicle, LATECOMER_JOINS)


def _first_of_each_ward(brokers: Sequence[Broker]) -> list[Broker]:
    firsts: dict[str, Broker] = {}
    for broker in brokers:
        firsts.setdefault(broker.cluster, broker)
    return list(firsts.values())
