"""The status agent: each broker reports its own state, and one call over the overlay gathers the reports of all
brokers.

Without requests nothing is sent. A broker makes at most one report in `FRESH` seconds, however many requests come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Protocol

import msgspec

from saps.agents.api import remote
from saps.frontend.web.mesh.report import Away, Broker, Event, Report, TopicPart
from saps.statistics import LATENCY_BOUNDS, Statistics

STATUS = "status"
"""Name of the agent at each broker. Calls reach it by the broker's name, so that it needs no key in the overlay."""
FRESH = 1.0
"""Seconds for which a report is cached."""
MOST_TOPICS = 10_000
"""Most topics in one report."""
MOST_FILTERS = 1000
"""Most topic filters in one report."""
MOST_AWAY = 1000
"""Most brokers that are away in one report."""


class Watched(Protocol):
    """The broker that the agent reports on (`saps.broker.status.Watch`). `divide` returns the same as
    `StatusAgent.divide`; the `rates` are messages published, received and delivered a second."""

    def broker(self, rates: tuple[float, float, float]) -> Broker: ...

    def totals(self) -> tuple[int, int, int]:
        """Return the messages published, received from other brokers, and delivered since the start."""

    def topics(self) -> dict[str, tuple[bool, int, int, int]]:
        """Return for each topic: whether this broker takes part as publisher, members, members served by a tree, and
        priority."""

    def filters(self) -> list[str]: ...

    def counter(self) -> Callable[[str], int | None]:
        """Return a function for one report that returns how many clients here would receive a message to a topic; None
        if it has looked up too many."""

    def divide(self, topic: str, members: list[str] | None) -> Any: ...

    def away(self) -> list[Away]: ...

    def events(self) -> list[Event]: ...

    def forget(self, name: str) -> bool:
        """Forget a broker that is away. Returns False if it is not away."""


class _Seen:
    """The counters of a topic at the last report."""

    __slots__ = ("bytes", "latency", "published", "received")

    def __init__(self, published: int, bytes_: int, received: int, latency: list[int] | None) -> None:
        self.published = published
        self.bytes = bytes_
        self.received = received
        self.latency = list(latency) if latency is not None else None


class StatusAgent:
    """The agent ``!status`` of one broker."""

    def __init__(
        self, name: str, watched: Watched, clock: Callable[[], float], statistics: Callable[[], Statistics | None]
    ) -> None:
        """`name`: the broker's name. `clock` returns seconds of a monotonic clock. `statistics` returns the counts by
        topic, or None if the broker does not count."""
        self._name = name
        self._watched = watched
        self._clock = clock
        self._statistics = statistics
        self._at = clock()
        self._totals = watched.totals()
        self._seen: dict[str, _Seen] = {}
        self._report: Report | None = None

    @remote
    def report(self, most: int) -> Any:
        """Return a `Report` as plain values, with the `most` busiest topics."""
        found = self.now()
        parts = found.parts[: max(0, min(most, MOST_TOPICS))]
        return msgspec.to_builtins(msgspec.structs.replace(found, parts=parts))

    @remote
    def divide(self, topic: str, members: list[str] | None) -> Any:
        """Return how this broker would pass on a publication to the topic: ``[how, [[next broker, brokers behind it],
        ...], brokers served by an OpenFlow tree]``. `members`: brokers to reach, each as its name and cluster; None for
        the members that this broker knows as publisher."""
        return self._watched.divide(topic, members)

    @remote
    def matching(self, topic: str) -> Any:
        """Return ``[name of this broker, number of clients here that would receive a message to the topic]``."""
        return [self._name, self._watched.counter()(topic)]

    @remote
    def forget(self, name: str) -> Any:
        """Forget a broker that is away. Returns whether it was away."""
        self._report = None
        return self._watched.forget(name)

    def now(self) -> Report:
        """Return the report with all topics, at most `FRESH` seconds old."""
        now = self._clock()
        elapsed = now - self._at
        if self._report is None or elapsed >= FRESH:
            self._report = self._make(max(elapsed, 1e-3))
            self._at = now
        return self._report

    def _make(self, elapsed: float) -> Report:
        totals = self._watched.totals()
        rates = tuple(round(max(0, n - o) / elapsed, 3) for n, o in zip(totals, self._totals, strict=True))
        self._totals = totals
        parts = self._parts(elapsed)
        broker = self._watched.broker((rates[0], rates[1], rates[2]))
        broker = msgspec.structs.replace(broker, topics=len(parts), counts=self._statistics() is not None)
        return Report(
            broker=broker,
            filters=self._watched.filters()[:MOST_FILTERS],
            parts=parts,
            away=self._watched.away()[:MOST_AWAY],
            events=self._watched.events(),
        )

    def _parts(self, elapsed: float) -> list[TopicPart]:
        statistics = self._statistics()
        counts = {} if statistics is None else statistics.topics
        known, counter = self._watched.topics(), self._watched.counter()
        seen, parts = dict[str, _Seen](), list[TopicPart]()
        for topic in known.keys() | counts.keys():
            publishes, members, by_tree, priority = known.get(topic, (False, 0, 0, 0))
            count = counts.get(topic)
            published = bytes_ = received = 0.0
            latency, subscribers = None, counter(topic)
            if count is not None:
                old = self._seen.get(topic) or _Seen(0, 0, 0, None)
                published = _grown(count.messages, old.published) / elapsed
                bytes_ = _grown(count.bytes, old.bytes) / elapsed
                received = _grown(count.received, old.received) / elapsed
                latency = _latency(count.latency, old.latency)
                seen[topic] = _Seen(count.messages, count.bytes, count.received, count.latency)
                subscribers = max(count.subscribers, 0) if subscribers is None else subscribers
            rates = round(published, 3), round(bytes_, 1), round(received, 3)
            parts.append(TopicPart(topic, *rates, subscribers or 0, publishes, members, by_tree, latency, priority))
        self._seen = seen
        parts.sort(key=lambda part: (-part.published - part.received, -part.subscribers, part.topic))
        return parts


def _grown(now: int, before: int) -> int:
    """Return by how much a counter has grown. A smaller value means that the counter was reset meanwhile."""
    return now - before if now >= before else now


def _latency(now: list[int] | None, before: list[int] | None) -> tuple[float, float] | None:
    """Return the median and the 95th percentile of the values that a histogram has gained, as upper bounds of their
    buckets. None if it has gained none."""
    if now is None:
        return None
    gained = [_grown(n, b) for n, b in zip(now, before or [0] * len(now), strict=True)]
    total = sum(gained)
    if not total:
        return None
    bounds = (*LATENCY_BOUNDS, 2 * LATENCY_BOUNDS[-1])
    found = []
    for share in (0.5, 0.95):
        reached = list(accumulate(gained))
        found.append(bounds[bisect_left(reached, share * total)])
    return found[0], found[1]
