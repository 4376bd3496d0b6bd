"""The reports of brokers and their aggregation: the JSON of ``/v1/brokers``, ``/v1/topics``, ``/v1/trace``,
``/v1/addresses`` and ``/v1/live``. Terminal commands decode this JSON as well, so this module contains nothing of the
Web server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from saps.ofm.northbound.schema import WayLink
from saps.routing.subscriptions import FilterNode
from saps.topics import is_wildcard

MODES = ("alm", "constructing", "constructed", "updating", "deleting", "refused")
"""Modes of a topic: ``alm``, or the status of its OpenFlow tree (`saps.ofm.northbound.schema.Status`)."""
MOST_ROWS = 20_000
"""Most topics in one answer."""
SORTS = ("rate", "subscribers", "topic", "latency")


class TopicPart(msgspec.Struct, frozen=True, array_like=True):
    """A topic at one broker. Rates cover the time between the last two reports."""

    topic: str
    published: float
    """Messages a second from the broker's clients."""
    bytes: float
    """Bytes of payload a second from the broker's clients."""
    received: float
    """Messages a second from other brokers."""
    subscribers: int
    """Subscribed clients of the broker."""
    publishes: bool
    """Whether the broker takes part as publisher, so that it knows the members."""
    members: int
    """Other brokers that the broker's publications reach."""
    by_tree: int
    """Members that an OpenFlow tree serves."""
    latency: tuple[float, float] | None
    """Seconds until all members have confirmed a QoS 1 or 2 publication: upper bounds of the median and of the 95th
    percentile. None if not known."""
    priority: int


class LinkTraffic(msgspec.Struct, frozen=True, array_like=True):
    """The traffic that a broker sends to another broker."""

    to: str
    """Name of the other broker."""
    bytes: float
    """Bytes a second."""
    round_trip: float | None
    """Round-trip time in seconds as TCP measures it; None if not known."""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one broker."""

    name: str
    cluster: str
    address: str
    """The broker's address for other brokers."""
    web: list[str]
    """Addresses of the broker's Web port."""
    version: str
    uptime: float
    """Seconds since the start."""
    clients: int
    """Connected clients."""
    sessions: int
    subscriptions: int
    queued_bytes: int
    """Bytes queued for slow clients."""
    published: int
    """Messages from the broker's clients since its start."""
    received: int
    """Messages from other brokers since the start."""
    delivered: int
    """Copies of messages to the broker's clients since the start."""
    dropped: int
    """Messages dropped since the start."""
    published_rate: float
    """Messages a second from the broker's clients."""
    received_rate: float
    """Messages a second from other brokers."""
    delivered_rate: float
    """Copies a second to the broker's clients."""
    held_by: list[str]
    """Causes that hold the broker's publishers back at the moment: links, upstream, storage."""
    links: list[str]
    """Names of the brokers to which the broker has overlay links."""
    ofm: str | None
    """The broker's address in the OpenFlow network; None without OFM."""
    topics: int
    """Topics known to the broker, including those that are not in the report."""
    counts: bool
    """Whether the broker counts messages by topic; otherwise its topics have no rates."""
    missed_messages: int = 0
    """Publications kept for brokers declared dead (`saps.overlay.missed.log`). Brokers of an older version do not
    report this field and those below."""
    missed_bytes: int = 0
    """Bytes of these publications."""
    missed_dropped: int = 0
    """Such publications dropped for lack of room since the start."""
    upstream: str | None = None
    """``connected`` or ``away``; None without an upstream."""
    traffic: list[LinkTraffic] = []
    """Traffic over the links that the broker has made."""
    holders: int = 0
    """Other brokers that have copies of all of the broker's sessions."""
    held: int = 0
    """Other brokers' sessions of which the broker has copies."""
    adopted: int = 0
    """Sessions of dead brokers that the broker has continued since its start."""


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """A broker declared dead. It is kept until it returns, is forgotten by an operator, or a day has passed."""

    name: str
    cluster: str
    address: str
    since: float
    """Time at which the broker was declared dead, in seconds since 1970."""
    incarnation: int
    """The broker's incarnation."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a broker's membership."""

    at: float
    """Time in seconds since 1970."""
    what: str
    """``joined``, ``suspected`` (its link broke), ``detour`` (it is reached through another broker), ``dead``, ``left``
    or ``back``."""
    broker: str
    cluster: str
    incarnation: int
    """The broker's incarnation."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's report of itself."""

    broker: Broker
    filters: list[str]
    """Topic filters with subscriptions at the broker, up to a limit."""
    parts: list[TopicPart]
    """The busiest topics, busiest first, up to the number requested."""
    away: list[Away] = []
    """Brokers that this broker has declared dead. Brokers of an older version do not report `away` and `events`."""
    events: list[Event] = []
    """Broker events that this broker has seen."""


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the whole mesh."""

    topic: str
    mode: str
    """One of `MODES`."""
    rate: float
    """Messages published a second."""
    bytes: float
    """Bytes of payload published a second."""
    subscribers: int
    """Subscribed clients at the brokers that know the topic."""
    publishers: list[str]
    """Names of the brokers that take part as publishers."""
    brokers: list[str]
    """Names of the brokers with subscribers."""
    latency: tuple[float, float] | None
    """`TopicPart.latency` at the broker with the slowest deliveries."""
    priority: int
    address: str | None = None
    """Multicast address of the topic's tree."""
    reason: str | None = None
    """The reason why the topic's tree waits or is refused."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the whole mesh at one time."""

    at: float
    """Time in seconds since 1970."""
    seen_from: str
    """Name of the broker that gathered the state."""
    complete: bool
    """Whether all brokers have answered."""
    topics_total: int
    """Number of topics that brokers know; `topics` contains the busiest."""
    brokers: list[Broker]
    topics: list[TopicRow]
    away: list[Away] = []
    """Brokers declared dead by other brokers."""
    events: list[Event] = []
    """The latest broker events, latest first."""


class Brokers(msgspec.Struct, frozen=True, kw_only=True):
    """All brokers of the mesh."""

    at: float
    """Time in seconds since 1970."""
    seen_from: str
    """Name of the broker that gathered the state."""
    complete: bool
    """Whether all brokers have answered."""
    brokers: list[Broker]
    away: list[Away] = []
    """Brokers declared dead by other brokers."""
    events: list[Event] = []
    """The latest broker events, latest first."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that was away and is no longer shown."""

    forgotten: str
    """Name of the broker."""


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that match a query."""

    at: float
    """Time in seconds since 1970."""
    complete: bool
    """Whether all brokers have answered."""
    total: int
    """Number of matching topics; `topics` contains the first."""
    topics: list[TopicRow]


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """A hop of a message from broker to broker."""

    source: str
    target: str
    by: str
    """``alm``, or ``ofm`` for a datagram along the OpenFlow tree."""
    depth: int
    """Number of hops from the publisher's broker to the target."""
    behind: int
    """Number of brokers that the message reaches through the target, in any number of hops."""
    crosses: bool
    """Whether the hop goes from one cluster to another."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The subscribers at one broker."""

    broker: str
    clients: int
    """Number of clients that would receive the message."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The way of a message from its publisher's broker to the subscribers."""

    topic: str
    source: str
    """The broker at which the message is published."""
    mode: str
    """``alm``, ``ofm``, ``mixed``, or ``local`` without hops."""
    complete: bool
    """Whether all brokers on the way have answered."""
    hops: list[Hop]
    ends: list[End]
    reasons: list[str]
    """Explanations of the way in words."""


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """A bit that is set in an address of stateless delivery."""

    position: int
    """The bit; 0 is the address's last."""
    broker: str | None
    """Name of the broker at this position of the set; None if it is nobody's, or its broker is not in the mesh."""
    address: str | None
    """That broker's address, as in `Broker.ofm`; None: nobody."""
    dpid: str | None
    """The switch at which the plane reaches the broker; None: the plane does not reach it."""
    port: int | None


class AddressTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What an address of stateless delivery means, and the way of a packet to it."""

    address: str
    set: int
    plane: int
    working: bool
    """Whether the plane may be used."""
    source: str | None
    """The broker that sends; None: not said."""
    receivers: list[Receiver]
    """By position."""
    links: list[WayLink]
    """The links that a packet from the source takes, or, without a source, that join the receivers."""


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's tree as the controller reports it (fields as in `TopicRow`)."""

    status: str
    """Value of `saps.ofm.northbound.schema.Status`."""
    address: str | None = None
    reason: str | None = None


SAME = 30.0
"""Longest time in seconds between two brokers' discoveries of the same event."""
MOST_EVENTS = 200
"""Most events in a state."""


def absent(reports: Sequence[Report]) -> list[Away]:
    """Return the brokers that some broker reports as away and that have not reported themselves, by name. Of several
    reports, the latest incarnation and then the earliest time counts."""
    here = {report.broker.name for report in reports}
    found: dict[str, Away] = {}
    for away in [away for report in reports for away in report.away if away.name not in here]:
        known = found.get(away.name)
        if known is None or (away.incarnation, -away.since) > (known.incarnation, -known.since):
            found[away.name] = away
    return [found[name] for name in sorted(found)]


def happened(reports: Iterable[Report]) -> list[Event]:
    """Merge the events of all reports: each event once, at the time of its first discovery, latest first."""
    found: dict[tuple[str, str, int], list[Event]] = {}
    for event in sorted((e for report in reports for e in report.events), key=lambda event: event.at):
        same = found.setdefault((event.what, event.broker, event.incarnation), [])
        if not same or event.at - same[-1].at > SAME:
            same.append(event)
    events = sorted((event for same in found.values() for event in same), key=lambda event: -event.at)
    return events[:MOST_EVENTS]


def add_up(reports: Iterable[Report], trees: dict[str, Tree] | None) -> list[TopicRow]:
    """Aggregate the topics of all reports, busiest first. `trees`: the controller's trees by topic, or None without a
    controller."""
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
