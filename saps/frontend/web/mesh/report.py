"""What a broker reports of itself, and what the reports of all brokers add up to: the JSON of ``/v1/brokers``,
``/v1/topics``, ``/v1/trace`` and ``/v1/live``. Terminal commands decode it, too: nothing here serves the Web."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from saps.local.subscriptions import FilterNode
from saps.topics import is_wildcard

MODES = ("alm", "constructing", "constructed", "updating", "deleting", "refused")
"""How a topic travels: ``alm``, or what becomes of its OpenFlow tree (`saps.ofm.northbound.schema.Status`)."""
MOST_ROWS = 20_000
SORTS = ("rate", "subscribers", "topic", "latency")


class TopicPart(msgspec.Struct, frozen=True, array_like=True):
    """A topic at one broker. Rates are of the time between the last two reports."""

    topic: str
    published: float
    """Messages a second from the clients here."""
    bytes: float
    """Bytes of payload a second from them."""
    received: float
    """Messages a second from other brokers."""
    subscribers: int
    """Clients here."""
    publishes: bool
    """This broker takes part as publisher, so it knows the members."""
    members: int
    """Other brokers that its publications reach."""
    by_tree: int
    """Those of them that an OpenFlow tree serves."""
    latency: tuple[float, float] | None
    """Seconds until all members have confirmed a publication of QoS 1 or 2: upper bounds of the median and of the
    95th percentile."""
    priority: int


class LinkTraffic(msgspec.Struct, frozen=True, array_like=True):
    """What a broker sends to another one."""

    to: str
    bytes: float
    """A second."""
    round_trip: float | None
    """Seconds there and back, as TCP measures it; None: not known."""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """One broker."""

    name: str
    cluster: str
    address: str
    """For other brokers."""
    web: list[str]
    version: str
    uptime: float
    """Seconds."""
    clients: int
    """Connected."""
    sessions: int
    subscriptions: int
    queued_bytes: int
    """Kept for slow clients."""
    published: int
    """Messages from its clients, ever; the next three likewise."""
    received: int
    """From other brokers."""
    delivered: int
    """Copies to its clients."""
    dropped: int
    published_rate: float
    """Messages a second, as the next two."""
    received_rate: float
    delivered_rate: float
    held_by: list[str]
    """What keeps publishers waiting at the moment: links, upstream, storage."""
    links: list[str]
    """Brokers it has overlay links to."""
    ofm: str | None
    """Its address in the OpenFlow network."""
    topics: int
    """Topics known here, those that are not in the report among them."""
    counts: bool
    """Does it count by topic? Else its topics have no rates."""
    missed_messages: int = 0
    """Publications kept for brokers that are taken for dead (`saps.overlay.missed.log`). Brokers of an older
    version do not tell, as the next two."""
    missed_bytes: int = 0
    missed_dropped: int = 0
    """Those given up for want of room, ever."""
    upstream: str | None = None
    """``connected`` or ``away``; None: it has no upstream."""
    traffic: list[LinkTraffic] = []
    """Over the links it has made."""
    holders: int = 0
    """Other brokers that have all of its sessions."""
    held: int = 0
    """Sessions of other brokers that it holds."""
    adopted: int = 0
    """Sessions of dead brokers that have gone on with it, ever."""


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is taken for dead, until it is back, is forgotten by hand, or for a day."""

    name: str
    cluster: str
    address: str
    since: float
    """Seconds since 1970."""
    life: int
    """Its incarnation."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a broker."""

    at: float
    """Seconds since 1970."""
    what: str
    """``joined``, ``suspected`` (its link broke), ``dead``, ``left``, ``back``."""
    broker: str
    cluster: str
    life: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker answers."""

    broker: Broker
    filters: list[str]
    """Subscribed here, as many as fit."""
    parts: list[TopicPart]
    """The busiest first, as many as were asked for."""
    away: list[Away] = []
    """As this broker sees it, as `events`. Brokers of an older version do not tell."""
    events: list[Event] = []


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the whole mesh."""

    topic: str
    mode: str
    """One of `MODES`."""
    rate: float
    """Messages published a second."""
    bytes: float
    """Bytes of payload a second."""
    subscribers: int
    """Clients, at the brokers that know the topic."""
    publishers: list[str]
    """Brokers that take part as publishers."""
    brokers: list[str]
    """Brokers with subscribers."""
    latency: tuple[float, float] | None
    """See `TopicPart.latency`; of the slowest publisher's broker."""
    priority: int
    address: str | None = None
    """Of its tree."""
    reason: str | None = None
    """What its tree waits for, or why it is refused."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The whole mesh at a time."""

    at: float
    """Seconds since 1970."""
    seen_from: str
    """The broker that has asked."""
    complete: bool
    """All brokers have answered."""
    topics_total: int
    """Topics that brokers know, of which `topics` are the busiest."""
    brokers: list[Broker]
    topics: list[TopicRow]
    away: list[Away] = []
    """Brokers that others take for dead."""
    events: list[Event] = []
    """The latest, the latest first."""


class Brokers(msgspec.Struct, frozen=True, kw_only=True):
    """All brokers."""

    at: float
    """Seconds since 1970."""
    seen_from: str
    complete: bool
    """All brokers have answered."""
    brokers: list[Broker]
    away: list[Away] = []
    """Brokers that others take for dead."""
    events: list[Event] = []
    """Broker events: the latest, the latest first."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is away, and not shown any more."""

    forgotten: str


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    """Topics, as asked for."""

    at: float
    complete: bool
    total: int
    """That fit the question, of which `topics` are the first."""
    topics: list[TopicRow]


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One message from broker to broker."""

    source: str
    target: str
    by: str
    """``alm``, or ``ofm``: a datagram along the OpenFlow tree."""
    depth: int
    """Messages before this one, and itself."""
    behind: int
    """Brokers that the target passes it on to, whatever the number of steps."""
    crosses: bool
    """From one cluster to another."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Subscribers at one broker."""

    broker: str
    clients: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The way of a message."""

    topic: str
    source: str
    """The broker it is published at."""
    mode: str
    complete: bool
    """All brokers on the way have answered."""
    hops: list[Hop]
    ends: list[End]
    reasons: list[str]
    """Why it goes so, in words."""


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller says of a topic's tree."""

    status: str
    address: str | None = None
    reason: str | None = None


SAME = 30.0
"""Seconds by which brokers' discoveries of the same event lie apart at most."""
MOST_EVENTS = 200


def absent(reports: Sequence[Report]) -> list[Away]:
    """The brokers that some report as away, and that have not reported themselves: by name, since the first said so."""
    here = {report.broker.name for report in reports}
    found: dict[str, Away] = {}
    for away in [away for report in reports for away in report.away if away.name not in here]:
        known = found.get(away.name)
        if known is None or (away.life, -away.since) > (known.life, -known.since):
            found[away.name] = away
    return [found[name] for name in sorted(found)]


def happened(reports: Iterable[Report]) -> list[Event]:
    """What all have seen, each event once as the first saw it, the latest first."""
    found: dict[tuple[str, str, int], list[Event]] = {}
    for event in sorted((e for report in reports for e in report.events), key=lambda event: event.at):
        same = found.setdefault((event.what, event.broker, event.life), [])
        if not same or event.at - same[-1].at > SAME:
            same.append(event)
    events = sorted((event for same in found.values() for event in same), key=lambda event: -event.at)
    return events[:MOST_EVENTS]


def add_up(reports: Iterable[Report], trees: dict[str, Tree] | None) -> list[TopicRow]:
    """The topics of all reports, the busiest first. `trees`: by topic; None if there is no controller to ask."""
    parts: dict[str, list[tuple[str, TopicPart]]] = {}
    wildcards = FilterNode()
    exact: dict[str, set[str]] = {}
    patterns: dict[str, set[str]] = {}
    for report in reports:
        name = report.broker.name
        for part in report.parts:
            parts.setdefault(part.topic, []).append((name, part))
        for topic_filter in report.filters:
            known = patterns if is_wildcard(topic_filter) else exact
            known.setdefault(topic_filter, set()).add(name)
    for topic_filter, names in patterns.items():
        wildcards.insert(topic_filter.split("/"), names)
    for topic in trees or {}:
        parts.setdefault(topic, [])
    rows = [_row(topic, found, exact.get(topic, set()), wildcards, trees) for topic, found in parts.items()]
    rows.sort(key=lambda row: (-row.rate, row.topic))
    return rows


def _row(
    topic: str,
    parts: list[tuple[str, TopicPart]],
    subscribed: set[str],
    wildcards: FilterNode,
    trees: dict[str, Tree] | None,
) -> TopicRow:
    brokers = subscribed.union([name for name, part in parts if part.subscribers], *wildcards.match(topic))
    latencies = [part.latency for _, part in parts if part.latency is not None]
    tree = trees.get(topic) if trees is not None else None
    mode = tree.status if tree is not None else "constructed" if any(part.by_tree for _, part in parts) else "alm"
    return TopicRow(
        topic=topic,
        mode="alm" if mode == "none" else mode,
        rate=round(sum(part.published for _, part in parts), 3),
        bytes=round(sum(part.bytes for _, part in parts), 1),
        subscribers=sum(part.subscribers for _, part in parts),
        publishers=sorted(name for name, part in parts if part.publishes or part.published),
        brokers=sorted(brokers),
        latency=max(latencies, key=lambda pair: pair[1], default=None),
        priority=max((part.priority for _, part in parts), default=0),
        address=tree.address if tree is not None else None,
        reason=tree.reason if tree is not None else None,
    )
