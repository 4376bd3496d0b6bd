"""The publishers' side of the rendezvous: a stream for each topic this broker publishes to.

Before its first publication to a topic a broker puts its presence key there and collects the matching filters: the
exact ones at the topic and the wildcard ones at each of its prefixes, at most levels + 2 ranges, a prefix that other
topics have collected already not again. From then on announcements keep it up to date. So it knows at each publication
exactly which brokers have a matching subscriber: the stream's members.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from saps.local.batch import Batch
from saps.local.retained import RetainedStore
from saps.local.subscriptions import FilterNode
from saps.mesh import Done, TopicRoute
from saps.overlay.delivery.ofm_members import Served, Trees
from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.frames.calls import Announce, Baseline, Collect, Interest, TreeMember
from saps.overlay.frames.delivery import Publish
from saps.overlay.missed.absent import Absent
from saps.overlay.port import Port
from saps.overlay.rendezvous.designed import Designs
from saps.overlay.rendezvous.domains import Domains
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, Range, Role, place, publisher_key, subscribers, wildcards
from saps.overlay.ring.skip_graph import SkipGraph
from saps.policy.model import Policy
from saps.topics import ancestors, is_wildcard, literal_prefix, shared

if TYPE_CHECKING:
    from saps.overlay.delivery.outgoing import OutgoingFrame

IDLE = 60.0
"""Seconds without publication after which a broker gives up its presence at a topic. Longer costs memory and keys,
shorter costs a new rendezvous at the next publication."""
TOMBSTONE = 10.0
"""Seconds for which a removed filter is remembered, so that a late answer does not bring it back."""

WAYS = 16_384
"""Ways that are known, so that topics with the same members share one; beyond it that begins anew."""

Publication = tuple[Batch, Done | None]
"""Publications to one topic, and who is to be told whom they have reached."""


class Phase(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class Way:
    """The branches by which publications leave; topics with the same ones share it."""

    __slots__ = ("branches", "frames")

    def __init__(self, branches: list[Branch]) -> None:
        self.branches = branches
        self.frames: dict[int, OutgoingFrame] = {}
        """By QoS and retain flag: what leaves with this turn, and others may join."""


_NOWHERE = Way([])


class Stream(TopicRoute):
    """A topic as its publishing broker sees it."""

    __slots__ = (
        "abroad", "behind", "frame", "groups", "idle_since", "key", "last_seq", "members", "phase", "queue", "recent",
        "served", "tree", "way",
    )  # fmt: skip

    def __init__(self, topic: str, key: Key) -> None:
        super().__init__(topic)
        self.key = key
        self.phase = Phase.CLOSED
        self.queue: list[Publication] = []
        """Publications that wait for the stream to open."""
        self.members: tuple[BrokerRef, ...] | None = None
        """The other brokers with a matching subscriber, by place; None if it must be computed again."""
        self.groups: dict[str, list[BrokerRef]] = {}
        """The shared subscriptions with members at other brokers, and these brokers."""
        self.behind: tuple[BrokerRef, ...] = ()
        """Brokers with a matching subscriber that get it later (`saps.overlay.missed`)."""
        self.abroad = False
        """Some members are in other OpenFlow domains."""
        self.way = _NOWHERE
        """By ALM, to the members that are not in `served`."""
        self.frame = 0
        """The frame of own publications that had the last one to this topic (`OutgoingFrame.serial`)."""
        self.tree: Served | None = None
        """The OpenFlow tree that publications leave by."""
        self.served: tuple[BrokerRef, ...] = ()
        """The members that it serves."""
        self.last_seq = 0
        """Sequence number of the last publication, 0 before the first."""
        self.recent: deque[Publish] | None = None
        """The last publications, if some went to other OpenFlow domains: trees that are not this broker's carry them,
        and lose some."""
        self.idle_since = 0.0


class _Entry:
    """What one broker has announced for one filter."""

    __slots__ = ("baseline", "broker", "present", "since", "version")

    def __init__(self, broker: BrokerRef, version: int, present: bool, baseline: int, since: float) -> None:
        self.broker = broker
        self.version = version
        self.present = present
        self.baseline = baseline
        self.since = since


class _Coverage:
    """A prefix whose wildcard filters are known, and the streams that need it."""

    __slots__ = ("ready", "streams", "waiters")

    def __init__(self) -> None:
        self.ready = False
        self.streams: set[Stream] = set()
        self.waiters: list[Callable[[], None]] = []


class PublisherRegistry:
    """All streams of one broker. `publish` gets what waited for a stream to open."""

    def __init__(
        self,
        port: Port,
        graph: SkipGraph,
        calls: RangeCalls,
        publish: Callable[[Batch, Done | None], None],
        trees: Trees,
    ) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._trees = trees
        self.designs: Designs | None = None
        """The designed overlay, in a mesh that has one."""
        self.on_stream: Callable[[str, bool], None] | None = None
        """Called when this broker begins (True) or ends to publish to a topic."""
        self.catch_up: Absent | None = None
        """Sees to brokers that have missed something, or are lost."""
        self.policy: Policy | None = None
        """What must not be carried or received where, if anything: see `obey`."""
        self._publish = publish
        self._ways: dict[Hashable, Way] = {}
        self.urgent: Callable[[str], bool] | None = None
        """Which topics leave by the express lane, and so in frames of their own; None: none."""
        self.streams: dict[str, Stream] = {}
        self.seq = 0
        """Sequence number of this broker's last publication, over all topics."""
        self.domains = Domains()
        """The OpenFlow domains of the mesh; the same at all brokers."""
        self._coverage: dict[str | None, _Coverage] = {}
        self._filters: dict[str, dict[str, _Entry]] = {}
        """Filter -> name of broker -> entry."""
        self._wild: dict[str | None, set[str]] = {}
        """Literal prefix -> its wildcard filters among `_filters`."""
        self._plain = FilterNode()
        """The wildcard filters among `_filters` that are not shared, with their entries."""
        self._shared = FilterNode()
        """The shared ones by the filter that is shared: at each node by the whole filter."""
        self._topics: RetainedStore[Stream] = RetainedStore(sys.maxsize)
        """The streams, to be found by the filters that match them."""
        self._of_broker: dict[str, set[str]] = {}
        """Name of broker -> its filters among `_filters`."""
        self._tombstones: deque[tuple[float, str, str]] = deque()
        """When which filter was removed by which broker, the oldest first."""

    # --- streams --------------------------------------------------------------------------------------------

    def stream(self, topic: str) -> Stream:
        stream = self.streams.get(topic)
        if stream is None:
            key = publisher_key(topic, self._port.me, self._port.order)
            stream = self.streams[topic] = Stream(topic, key)
            self._topics.put(topic, stream)
        return stream

    def open(self, stream: Stream) -> None:
        """Take part in the overlay at the stream's topic. What waits in its queue is flushed when it is open."""
        if stream.phase is Phase.CLOSED:
            stream.phase = Phase.OPENING
            self._graph.insert(stream.key, lambda: self._collect(stream))

    def close_idle(self) -> None:
        """Give up the streams that nothing was published to for `IDLE` seconds; forget old tombstones."""
        now = self._port.now
        for stream in list(self.streams.values()):
            if stream.used:
                stream.used = False
                stream.idle_since = now
            elif now - stream.idle_since >= IDLE and stream.phase is Phase.OPEN:
                self.close(stream)
            elif now - stream.idle_since >= IDLE and stream.phase is Phase.CLOSED:
                # A frontend may still hold it: `remote` is True, so it will ask for the topic again.
                del self.streams[stream.topic]
                self._topics.remove(stream.topic)
        while self._tombstones and now - self._tombstones[0][0] >= TOMBSTONE:
            since, topic_filter, name = self._tombstones.popleft()
            entry = self._filters.get(topic_filter, {}).get(name)
            if entry is not None and not entry.present and entry.since == since:
                self._drop_entry(topic_filter, name)

    def publishes(self, topic: str) -> bool:
        """Does this broker take part at the topic as publisher, or is about to?"""
        stream = self.streams.get(topic)
        return stream is not None and stream.phase in (Phase.OPENING, Phase.OPEN)

    def use_tree(self, topic: str, tree: Served | None) -> None:
        """From now on publications to an open stream leave by this OpenFlow tree for the members it serves."""
        stream = self.streams.get(topic)
        if stream is not None and stream.phase is Phase.OPEN and stream.tree != tree:
            stream.tree = tree
            stream.members, stream.remote = None, True

    def divide_again(self, topics: Iterable[str]) -> None:
        """The design of these topics has changed."""
        for topic in topics:
            stream = self.streams.get(topic)
            if stream is not None:
                stream.members, stream.remote = None, True

    def obey(self, policy: Policy | None) -> None:
        """From now on publications go to nobody who must not receive them, and so through nobody who must not carry
        them: only members pass a message on."""
        self.policy = policy
        self.divide_again(self.streams)

    def permitted(self, topic: str, brokers: Iterable[BrokerRef]) -> list[BrokerRef]:
        """Those of the brokers that may get a publication to the topic from here."""
        return list(brokers) if self.policy is None else self.policy.verdict(topic).receivers(self._port.me, brokers)

    def unrestricted(self, topic: str) -> bool:
        """May any broker hold messages to the topic?"""
        return self.policy is None or self.policy.free(topic)

    def close(self, stream: Stream, done: Callable[[], None] | None = None) -> None:
        if stream.phase is not Phase.OPEN:
            if done is not None:
                done()
            return
        stream.phase = Phase.CLOSING
        stream.remote = True
        stream.members = None
        stream.tree = None
        self._trees.closed(stream.topic)
        if self.on_stream is not None:
            self.on_stream(stream.topic, False)
        for prefix in (*ancestors(stream.topic), None):
            self._uncover(prefix, stream)
        if stream.topic in self._filters:
            for name in list(self._filters[stream.topic]):
                self._drop_entry(stream.topic, name)

        def closed() -> None:
            stream.phase = Phase.CLOSED
            stream.last_seq = 0
            if stream.queue:
                self.open(stream)
            if done is not None:
                done()

        self._graph.remove(stream.key, closed)

    def route(self, stream: Stream) -> None:
        """Find out how publications to an open stream leave, if that may have changed; sets `remote` and `members`."""
        if stream.members is not None:
            return
        topic = stream.topic
        members, behind = self._match(topic)
        stream.groups = self._match_shared(topic)
        if self.policy is not None:
            members, behind = self.permitted(topic, members), self.permitted(topic, behind)
            groups = {group: self.permitted(topic, refs) for group, refs in stream.groups.items()}
            stream.groups = {group: refs for group, refs in groups.items() if refs}
        stream.members, stream.behind = tuple(members), tuple(behind)
        stream.remote = (
            bool(members)
            or bool(behind)
            or bool(stream.groups)
            or (self.catch_up is not None and self.catch_up.keeping())
        )
        stream.abroad = any(self.domains.foreign(self._port.me, ref) for ref in members) if self.domains else False
        stream.served = ()
        if stream.tree is not None:
            in_tree = stream.tree.brokers
            stream.served = tuple(ref for ref in members if (ref.name, ref.incarnation) in in_tree)
        stream.way = self._way(stream, members)

    def _way(self, stream: Stream, members: list[BrokerRef]) -> Way:
        """The way to the members: the same object for topics that may leave in one frame. One with an OpenFlow tree, or
        with members in other domains, is a topic's own."""
        topic = stream.topic
        if stream.tree is not None or stream.abroad:
            return Way(self.divide(topic, [ref for ref in members if ref not in stream.served]))
        shape = None
        if self.designs is not None:
            branches, shape = self.designs.divide(topic, members), self.designs.trees.get(topic)
        else:
            branches = self.divide(topic, members)
        urgent = self.urgent is not None and self.urgent(topic)
        name = tuple(branches), id(shape), urgent
        way = self._ways.get(name)
        if way is None:
            if len(self._ways) >= WAYS:
                self._ways.clear()
            way = self._ways[name] = Way(branches)
        return way

    def divide(self, topic: str, members: Sequence[BrokerRef]) -> list[Branch]:
        """The branches to some members of a topic, sorted by place."""
        if self.domains:
            return self.domains.divide(self._port.me, topic, members, self._port.order)
        return divide(self._port.me, members, self._port.order)

    def _collect(self, stream: Stream) -> None:
        needed = [*ancestors(stream.topic), None]
        missing = 1 + len(needed)

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                self._opened(stream)

        for prefix in needed:
            self._cover(prefix, stream, one_done)

        def collected(outcome: Outcome) -> None:
            self._learn(outcome)
            one_done()

        self._calls.call(subscribers(stream.topic), self._collecting(), collected)

    def _opened(self, stream: Stream) -> None:
        stream.phase = Phase.OPEN
        stream.used = True
        stream.members = None
        self.route(stream)
        if self.on_stream is not None:
            self.on_stream(stream.topic, True)
        queue, stream.queue = stream.queue, []
        for batch, done in queue:
            self._publish(batch, done)

    # --- what is known of the subscribers --------------------------------------------------------------------

    def _cover(self, prefix: str | None, stream: Stream, done: Callable[[], None]) -> None:
        coverage = self._coverage.get(prefix)
        if coverage is not None:
            coverage.streams.add(stream)
            if coverage.ready:
                done()
            else:
                coverage.waiters.append(done)
            return
        coverage = self._coverage[prefix] = _Coverage()
        coverage.streams.add(stream)
        coverage.waiters.append(done)

        def collected(outcome: Outcome) -> None:
            self._learn(outcome)
            coverage.ready = True
            waiters, coverage.waiters = coverage.waiters, []
            for waiter in waiters:
                waiter()

        self._calls.call(wildcards(prefix), self._collecting(), collected)

    def _uncover(self, prefix: str | None, stream: Stream) -> None:
        coverage = self._coverage.get(prefix)
        if coverage is None:
            return
        coverage.streams.discard(stream)
        if not coverage.streams:
            del self._coverage[prefix]
            for topic_filter in list(self._wild.get(prefix, ())):
                for name in list(self._filters[topic_filter]):
                    self._drop_entry(topic_filter, name)

    def collect_again(self) -> None:
        """Ask for all filters once more: some may have been out of reach."""
        for prefix, coverage in self._coverage.items():
            if coverage.ready:
                self._collect_again(wildcards(prefix))
        for stream in self.streams.values():
            if stream.phase is Phase.OPEN:
                self._collect_again(subscribers(stream.topic))

    def key_again(self, key: Key) -> None:
        """The key was out of the ring for a while, or the ring was two: who subscribes beyond has not been heard."""
        stream = self.streams.get(key.topic_filter) if key.is_topic and key.role is Role.PUBLISHER else None
        if stream is not None and stream.phase is Phase.OPEN and stream.key == key:
            self._collect_again(subscribers(stream.topic))
            for prefix in (*ancestors(stream.topic), None):
                self._collect_again(wildcards(prefix))

    def _collect_again(self, where: Range) -> None:
        self._calls.call(where, self._collecting(), self._learn)

    def _collecting(self) -> Collect:
        me = self._port.me
        return Collect(me.name, me.incarnation, self.seq)

    def _learn(self, outcome: Outcome) -> None:
        for result in outcome.results:
            if isinstance(result, Interest):
                self.note(result.topic_filter, result.broker, result.version)
            elif isinstance(result, TreeMember):
                self._trees.note(result)

    def announced(self, body: Announce) -> list[Baseline]:
        """A broker has, or no longer has, subscribers for filters: from which sequence number on it is served."""
        entries = [self.note(each.topic_filter, body.broker, each.version, None, body.present) for each in body.filters]
        if not body.present or not any(entries):
            return []
        seqs = [None if entry is None else entry.baseline for entry in entries]
        return [Baseline(self._port.me.name, self._port.me.incarnation, seqs)]

    def baselines(self, broker: BrokerRef) -> dict[str, int]:
        """The filters that this life of a broker has announced here; it is owed what has a greater number."""
        entries = ((each, self._filters[each][broker.name]) for each in self._of_broker.get(broker.name, ()))
        return {each: entry.baseline for each, entry in entries if entry.broker == broker and entry.present}

    def caught_up(self, topic: str, seq: int) -> None:
        """A broker has got what it had missed of a topic, up to this last one of QoS 1 or 2: it waits for nothing that
        came after."""
        if (stream := self.streams.get(topic)) is not None:
            stream.members, stream.remote = None, True
            stream.last_seq = min(stream.last_seq, seq)

    def note(
        self, topic_filter: str, broker: BrokerRef, version: int, baseline: int | None = None, present: bool = True
    ) -> _Entry | None:
        """A broker has subscribers for a filter (or none any more, unless `present`), and is owed what has a greater
        number than `baseline`; None: what is published from now on."""
        if broker.name == self._port.me.name or self._port.lost(broker) or not self._concerns(topic_filter):
            return None
        entries = self._filters.get(topic_filter)
        if entries is None:
            entries = self._add_filter(topic_filter)
        known = entries.get(broker.name)
        if known is not None and (known.broker.incarnation, known.version) >= (broker.incarnation, version):
            return known
        if known is not None and known.present and known.broker.incarnation < broker.incarnation:
            if self.catch_up is not None:
                self.catch_up.stale_incarnation(known.broker)
            entries = self._filters.get(topic_filter) or self._add_filter(topic_filter)
        if present and baseline is None and self.catch_up is not None:
            self.catch_up.noted(broker, topic_filter, self.seq)
        baseline = self.seq if baseline is None else baseline
        entry = entries[broker.name] = _Entry(broker, version, present, baseline, self._port.now)
        self._of_broker.setdefault(broker.name, set()).add(topic_filter)
        if not present:
            self._tombstones.append((entry.since, topic_filter, broker.name))
        self._spoil(topic_filter)
        return entry

    def _add_filter(self, topic_filter: str) -> dict[str, _Entry]:
        entries = self._filters[topic_filter] = {}
        if is_wildcard(topic_filter):
            self._wild.setdefault(literal_prefix(topic_filter), set()).add(topic_filter)
            if (parts := shared(topic_filter)) is None:
                self._plain.insert(topic_filter.split("/"), entries)
            else:
                node = self._shared.find(parts.topic_filter.split("/"))
                if node is None or node.value is None:
                    self._shared.insert(parts.topic_filter.split("/"), {topic_filter: entries})
                else:
                    node.value[topic_filter] = entries
        return entries

    def _remove_filter(self, topic_filter: str) -> None:
        del self._filters[topic_filter]
        if is_wildcard(topic_filter):
            prefix = literal_prefix(topic_filter)
            self._wild[prefix].discard(topic_filter)
            if not self._wild[prefix]:
                del self._wild[prefix]
            if (parts := shared(topic_filter)) is None:
                self._plain.prune(topic_filter.split("/"))
            else:
                levels = parts.topic_filter.split("/")
                node = self._shared.find(levels)
                assert node is not None
                del node.value[topic_filter]
                if not node.value:
                    self._shared.prune(levels)

    def _concerns(self, topic_filter: str) -> bool:
        if is_wildcard(topic_filter):
            return literal_prefix(topic_filter) in self._coverage
        return self.publishes(topic_filter)

    def _drop_entry(self, topic_filter: str, name: str) -> None:
        entries = self._filters[topic_filter]
        del entries[name]
        filters = self._of_broker[name]
        filters.discard(topic_filter)
        if not filters:
            del self._of_broker[name]
        if not entries:
            self._remove_filter(topic_filter)
        self._spoil(topic_filter)

    def _spoil(self, topic_filter: str) -> None:
        """Members of the streams that a filter matches must be computed again."""
        if not is_wildcard(topic_filter):
            stream = self.streams.get(topic_filter)
            if stream is not None:
                stream.members, stream.remote = None, True
            return
        parts = shared(topic_filter)
        for stream in self._topics.matching(topic_filter if parts is None else parts.topic_filter):
            stream.members, stream.remote = None, True

    def _match(self, topic: str) -> tuple[list[BrokerRef], list[BrokerRef]]:
        """The brokers with matching filters: those that get it now, and those that get it later."""
        matching = self._plain.match(topic)
        if (exact := self._filters.get(topic)) is not None:
            matching.append(exact)
        found = {name: entry.broker for entries in matching for name, entry in entries.items() if entry.present}
        behind = None if self.catch_up is None else self.catch_up.behind
        later = [] if behind is None else [broker for broker in found.values() if behind(broker, topic)]
        return by_place((broker for broker in found.values() if broker not in later), self._port.order), later

    def _match_shared(self, topic: str) -> dict[str, list[BrokerRef]]:
        """The shared subscriptions that match, each with the other brokers that have members."""
        found = {}
        for filters in self._shared.match(topic):
            for topic_filter, entries in filters.items():
                if brokers := [entry.broker for entry in entries.values() if entry.present]:
                    found[topic_filter] = by_place(brokers, self._port.order)
        return found

    def forget(self, broker: BrokerRef, *, exactly: bool = False) -> None:
        """A broker died: it is a member of nothing any more. `exactly`: this says nothing of its earlier lives."""
        for topic_filter in list(self._of_broker.get(broker.name, ())):
            entry = self._filters[topic_filter][broker.name]
            if entry.broker == broker or (entry.broker.incarnation <= broker.incarnation and not exactly):
                self._drop_entry(topic_filter, broker.name)


def by_place(brokers: object, order: KeyOrder) -> list[BrokerRef]:
    """Brokers in the order of their keys within one topic."""
    return sorted(brokers, key=lambda broker: (place(broker, order), broker.name))  # type: ignore[call-overload, no-any-return]
