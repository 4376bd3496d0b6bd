"""The shapes of traffic: who publishes to which topics, and who subscribes to which filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

DEVICES = 1000
DISTRICTS = 10
KINDS = ("air", "water", "noise", "traffic")
PAIRS = 500


class Traffic(NamedTuple):
    """All clients of a measurement, each with a connection of its own."""

    topics: tuple[str, ...]
    filters: tuple[str, ...]
    """One subscriber for each."""
    publishers: int
    """The topics are dealt out to them evenly, in their order."""


Shape = Callable[[], Traffic]
"""Made when it is needed."""


def city_topics(count: int) -> tuple[str, ...]:
    """One topic for each device: ``city/district-3/air/0123``."""
    return tuple(f"city/district-{i % DISTRICTS}/{KINDS[i % len(KINDS)]}/{i:04}" for i in range(count))


def telemetry(by_district: bool) -> Traffic:
    """Each device publishes to its topic; one subscriber takes all, or one takes each district."""
    filters = tuple(f"city/district-{n}/+/+" for n in range(DISTRICTS)) if by_district else ("#",)
    return Traffic(city_topics(DEVICES), filters, DEVICES)


def pairs(count: int = PAIRS) -> Traffic:
    """As many subscribers as publishers, each with the other's topic."""
    topics = city_topics(count)
    return Traffic(topics, topics, count)


def gateway() -> Traffic:
    """One connection publishes for all devices, in random order; of the ten subscribers' filters some match the same
    topics."""
    filters = (
        *(f"city/district-{n}/#" for n in range(4)),
        *(f"city/+/{kind}/+" for kind in KINDS),
        "city/district-9/air/+",
        "city/#",
    )
    return Traffic(city_topics(DEVICES), filters, 1)


def display(subscribers: int) -> Traffic:
    """One topic to many."""
    topic = "city/display/platform-1"
    return Traffic((topic,), (topic,) * subscribers, 1)


def commands() -> Traffic:
    """One publisher sends each message to one of many devices."""
    topics = tuple(f"city/devices/{i:04}/command" for i in range(DEVICES))
    return Traffic(topics, topics, 1)


def fan_out(topics: int, subscribers: int) -> Traffic:
    """Publishers with a topic each; every subscriber takes all."""
    return Traffic(tuple(f"bench/{i}" for i in range(topics)), ("bench/#",) * subscribers, topics)


def shared(publishers: int, subscribers: int) -> Traffic:
    """Publishers with a topic each; one group of subscribers shares all of it."""
    return Traffic(tuple(f"bench/{i}" for i in range(publishers)), ("$share/group/bench/#",) * subscribers, publishers)


def nobody() -> Traffic:
    """Connections only."""
    return Traffic((), (), 0)
