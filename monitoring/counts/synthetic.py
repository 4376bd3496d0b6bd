"""Generates a city's traffic from a seed: the counts of its brokers, window by window.

Each topic has a kind: steady sensors; commuters' traffic with two peaks on workdays; evening social topics with high
churn; meters read at night; machines that alternate between silence and bursts; rare but urgent alerts. The topics'
rates follow Zipf's law. Each evening a flash crowd makes some topics forty times as busy, and then every cluster wants
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from monitoring.counts.features import SITES, Window
from monitoring.forecasts.forecast import HOUR
from saps.statistics import LATENCY_BOUNDS, Row

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SENSOR, COMMUTE, EVENING, METER, MACHINE, ALERT = range(6)
KINDS = ("sensor", "commute", "evening", "meter", "machine", "alert")
_SHARES = (0.35, 0.25, 0.15, 0.1, 0.12, 0.03)
_BROADCAST = (1.5, 3.0, 5.0, 1.2, 2.0, 8.0)
"""Mean number of clusters with members, for each kind."""
_CHURN = (0.05, 0.5, 6.0, 0.02, 0.1, 0.05)
"""Brokers that join in an hour, for each kind; as many leave."""
MONDAY = 1_736_726_400_000
"""Beginning of the city's time, in ms since 1970: 13 January 2025, 00:00 UTC."""
FLASH = (19.0, 20.5)
"""Hours of the day at which the flash crowd begins and ends."""


class City(NamedTuple):
    """The constant properties of a city. Arrays have one entry for each topic."""

    seed: int
    length: int
    """Length of a window in ms."""
    clusters: int
    kind: Ints
    base: Floats
    """Messages a second, before the factors of the kind and the hour."""
    size: Ints
    """Payload of a message in bytes."""
    home: Ints
    """Number of the cluster of the publishers' broker."""
    members: Ints
    """Brokers with subscribers, by topic and cluster."""
    flashes: npt.NDArray[np.bool_]
    """Whether a topic has flash crowds."""

    @property
    def topics(self) -> list[str]:
        """The names of the topics."""
        return [f"city/{KINDS[kind]}/{number}" for number, kind in enumerate(self.kind)]


def city(
    topics: int = 2000, clusters: int = 8, brokers: int = 3, seed: int = 1, length: int = 300_000, busiest: float = 40.0
) -> City:
    """Return a random city.

    Each cluster has `brokers` brokers. `length` is that of a window in ms, and `busiest` the base rate of the busiest
    topic in messages a second."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(KINDS), topics, p=_SHARES)
    zipf = busiest * (1.0 + rng.permutation(topics)) ** -0.9
    base: Floats = np.where(kind == ALERT, zipf * 0.02 + 0.005, zipf).astype(np.float64)
    spread = np.array(_BROADCAST)[kind]
    wanted = rng.random((topics, clusters)) < np.minimum(spread / clusters, 1.0)[:, None]
    many = rng.integers(1, brokers + 1, (topics, clusters))
    home = rng.integers(0, clusters, topics)
    return City(
        seed,
        length,
        clusters,
        kind.astype(np.int64),
        base,
        rng.choice(np.array([40, 120, 400, 1200]), topics, p=[0.4, 0.3, 0.2, 0.1]).astype(np.int64),
        home,
        np.where(wanted, many, 0).astype(np.int64),
        (rng.random(topics) < 0.02) & (kind != ALERT),
    )


class Traffic(NamedTuple):
    """One window of all topics. Arrays have one entry for each topic."""

    start: int
    messages: Ints
    members: Ints
    """Brokers with subscribers, by topic and cluster."""
    joins: Ints
    leaves: Ints


def rate(city: City, hours: float) -> Floats:
    """Return the expected messages a second of each topic, `hours` after `MONDAY`."""
    hour, workday = hours % 24, (hours // 24) % 7 < 5
    peaks = np.exp(-((hour - 8) ** 2) / 3) + np.exp(-((hour - 18) ** 2) / 4)
    evening = np.exp(-((hour - 21) ** 2) / 6)
    factors = np.array(
        [
            1.0 + 0.2 * np.sin(2 * np.pi * (hour - 14) / 24),
            0.15 + (2.2 if workday else 0.5) * peaks,
            0.1 + (3.0 if workday else 4.0) * evening,
            4.0 if 1 <= hour < 4 else 0.1,
            1.0,
            1.0,
        ]
    )
    found: Floats = city.base * factors[city.kind]
    return np.where(city.flashes & (FLASH[0] <= hour < FLASH[1]), found * 40.0, found)


def traffic(city: City, number: int) -> Traffic:
    """Return the window with this number, counted from `MONDAY`. Equal arguments give equal windows."""
    rng = np.random.default_rng([city.seed, number])
    hours = number * city.length / HOUR
    mean = rate(city, hours) * rng.gamma(12.0, 1 / 12.0, len(city.base))
    mean = np.where(city.kind == MACHINE, mean * _bursts(city, hours), mean)
    messages = rng.poisson(mean * city.length / 1000)
    here = city.flashes & (FLASH[0] <= hours % 24 < FLASH[1])
    members = np.where(here[:, None], np.maximum(city.members, 1), city.members)
    churn = np.array(_CHURN)[city.kind] * city.length / HOUR
    return Traffic(
        MONDAY + number * city.length,
        messages.astype(np.int64),
        members,
        rng.poisson(churn).astype(np.int64),
        rng.poisson(churn).astype(np.int64),
    )


def _bursts(city: City, hours: float) -> Floats:
    """Return each topic's factor for machines: bouts of one to four hours at ten times the rate, else 0.05."""
    bout = np.floor(hours / (1 + np.arange(len(city.base)) % 4)).astype(np.int64)
    mixed = (bout * 2_654_435_761 + np.arange(len(city.base)) * 40_503 + city.seed * 97) % 1_000_003
    found: Floats = np.where(mixed % 10 == 0, 10.0, 0.05)
    return found


def columns(city: City, seen: Traffic) -> dict[str, Any]:
    """Return the windows of the topics with traffic, as columns of `features.Window`. No topic has a tree."""
    lively = np.flatnonzero(seen.messages)
    messages, members = seen.messages[lively], seen.members[lively]
    wanting = (members > 0).sum(1)
    at_home = members[np.arange(len(lively)), city.home[lively]]
    far = wanting - (at_home > 0)
    total = members.sum(1)
    reach = total - (at_home > 0)
    names = city.topics
    return {
        "topic": [names[number] for number in lively],
        "start": np.full(len(lively), seen.start),
        "messages": messages,
        "bytes": messages * city.size[lively],
        "copies": messages * far,
        "by_tree": np.zeros(len(lively), dtype=np.int64),
        "up": np.where(far > 0, messages, 0),
        "far": messages * far,
        "reach": messages * reach,
        "joins": seen.joins[lively],
        "leaves": seen.leaves[lively],
        "senders": np.ones(len(lively), dtype=np.int64),
        "members": total,
        "priority": np.where(city.kind[lively] == ALERT, 5, 0),
        "sites": [_sites(members[place], city.home[number]) for place, number in enumerate(lively)],
    }


def _sites(members: Ints, home: int) -> str:
    parts = [
        f"c{cluster}:{count}:{int(cluster == home and not count)}"
        for cluster, count in enumerate(members.tolist())
        if count or cluster == home
    ]
    return SITES.join(sorted(parts))


def windows(city: City, seen: Traffic) -> list[Window]:
    """Return the windows of `columns` as a list of `Window`."""
    found = {
        name: column.tolist() if isinstance(column, np.ndarray) else column
        for name, column in columns(city, seen).items()
    }
    return [Window(*values) for values in zip(*(found[name] for name in Window._fields), strict=True)]


def rows(city: City, seen: Traffic) -> Iterator[Row]:
    """Yield the rows that each broker counts. `features.windows` turns them into those of `windows`.

    The publishers are at the first broker of the home cluster. If that cluster has members, this broker is one."""
    names, empty = city.topics, [0] * (len(LATENCY_BOUNDS) + 1)
    for number in np.flatnonzero(seen.messages).tolist():
        messages, home = int(seen.messages[number]), int(city.home[number])
        wanting = int((seen.members[number] > 0).sum())
        total = int(seen.members[number].sum())
        for cluster, count in enumerate(seen.members[number].tolist()):
            for broker in range(max(count, int(cluster == home))):
                sends, first = cluster == home and broker == 0, cluster == home and broker == 0
                yield Row(
                    f"c{cluster}-b{broker}",
                    1,
                    f"c{cluster}",
                    seen.start,
                    city.length / 1000,
                    names[number],
                    messages if sends else 0,
                    messages * int(city.size[number]) if sends else 0,
                    0 if sends else messages,
                    0 if sends else messages * int(city.size[number]),
                    int(sends),
                    int(broker < count),
                    total - (count > 0) if sends else 0,
                    5 if city.kind[number] == ALERT else 0,
                    messages * (wanting - (count > 0)) if sends else 0,
                    0,
                    int(seen.joins[number]) if first else 0,
                    int(seen.leaves[number]) if first else 0,
                    0,
                    empty,
                )
