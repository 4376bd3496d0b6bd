"""A window of one topic: the sums of all brokers' counts, and the places of the topic's brokers.

All sums are of integers, so their order does not matter. Spark sums in no fixed order and gets the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from saps.statistics import REST, Row

SITES = "|"
"""Separator of the sites in `Window.sites`. A colon separates the parts of a site. Names of clusters have neither."""


class Window(NamedTuple):
    """One topic in one window. All fields but `topic` and `sites` are integers."""

    topic: str
    start: int
    """Beginning of the window in ms since 1970."""
    messages: int
    """Messages that clients published at all brokers."""
    bytes: int
    """Payload of those messages in bytes."""
    copies: int
    """Copies that ALM sent from one cluster to another. It is 0 if no other cluster is known to want the messages: a
    copy sent at the end of one window and received in the next is no waste that a tree would save."""
    by_tree: int
    """Publications that left by a tree."""
    up: int
    """Messages that a cluster other than the publisher's wanted."""
    far: int
    """Other clusters with members, summed over the messages: the least number of copies without a tree."""
    reach: int
    """Other brokers reached, summed over the messages."""
    joins: int
    """Brokers that became members."""
    leaves: int
    """Brokers that ceased to be members."""
    senders: int
    """Brokers at which clients publish."""
    members: int
    """Brokers with subscribers."""
    priority: int
    """Highest priority in any row of the topic, 0 to 7."""
    sites: str
    """``cluster:members:senders`` of each cluster, ascending, joined by `SITES`. A sender that is also a member counts
    as a member only."""


class Site(NamedTuple):
    """A topic's brokers in one cluster."""

    cluster: str
    members: int
    senders: int
    """Brokers that send and are not members."""


def sites_of(text: str) -> list[Site]:
    """Parse a text as in `Window.sites`. An empty text has no sites."""
    parts = [part.split(":") for part in text.split(SITES) if part]
    return [Site(cluster, int(members), int(senders)) for cluster, members, senders in parts]


def window_of(row: Row, length: int) -> int:
    """Return the beginning of the window in which a row counts, in ms since 1970.

    A row counts in the window that holds the middle of its interval. `length` is the window's length in ms."""
    middle = row.start + int(row.seconds * 500)
    return middle // length * length


def end_of(row: Row) -> int:
    """Return the end of a row's interval in ms since 1970."""
    return row.start + int(row.seconds * 1000)


class _Cluster:
    """Sums over the brokers of one cluster."""

    __slots__ = ("messages", "publishing", "subscribing")

    def __init__(self) -> None:
        self.messages = 0
        self.subscribing: set[str] = set()
        self.publishing: set[str] = set()


def windows(rows: Iterable[Row], length: int) -> list[Window]:
    """Return the windows of `length` ms with published messages, ascending by (start, topic).

    A row that is given twice counts once. Rows of the topic `REST` are ignored. `sums.windows` does the same with
    columns."""
    once = {(row.broker, row.incarnation, row.start, row.topic): row for row in rows if row.topic != REST}
    groups: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in once.values():
        groups[window_of(row, length), row.topic].append(row)
    found = (_window(topic, start, groups[start, topic]) for start, topic in sorted(groups))
    return [window for window in found if window.messages]


def _window(topic: str, start: int, rows: list[Row]) -> Window:
    clusters: dict[str, _Cluster] = defaultdict(_Cluster)
    for row in rows:
        cluster = clusters[row.cluster]
        cluster.messages += row.messages
        if row.subscribers:
            cluster.subscribing.add(row.broker)
        if row.messages:
            cluster.publishing.add(row.broker)
    with_members = sum(1 for cluster in clusters.values() if cluster.subscribing)
    others = {name: with_members - bool(cluster.subscribing) for name, cluster in clusters.items()}
    sites = [
        f"{name}:{len(cluster.subscribing)}:{len(cluster.publishing - cluster.subscribing)}"
        for name, cluster in clusters.items()
        if cluster.subscribing or cluster.publishing
    ]
    far = sum(cluster.messages * others[name] for name, cluster in clusters.items())
    return Window(
        topic,
        start,
        sum(row.messages for row in rows),
        sum(row.bytes for row in rows),
        sum(row.copies for row in rows) if far else 0,
        sum(row.by_tree for row in rows),
        sum(cluster.messages for name, cluster in clusters.items() if others[name]),
        far,
        sum(row.messages * row.brokers for row in rows),
        sum(row.joins for row in rows),
        sum(row.leaves for row in rows),
        sum(len(cluster.publishing) for cluster in clusters.values()),
        sum(len(cluster.subscribing) for cluster in clusters.values()),
        max(row.priority for row in rows),
        SITES.join(sorted(sites)),
    )
