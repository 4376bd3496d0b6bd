"""The publishers' side of the rendezvous: a stream for each topic that this broker publishes to.

Before its first publication to a topic a broker puts its presence key there and collects the matching filters: the
exact ones at the topic and the wildcard ones at each of its prefixes, at most levels + 2 ranges, a prefix that other
topics have collected already not again. From then on announcements keep it up to date. So it knows at each publication
exactly which brokers have a matching subscriber: the stream's members.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from saps.mesh import Done
from saps.overlay.delivery.ofm_members import Served, Trees
from saps.overlay.delivery.tree import by_place
from saps.overlay.frames.calls import Announce, Baseline, Collect, Interest, TreeMember
from saps.overlay.missed.absent import Absent
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.rendezvous.remote_filters import RemoteFilter, RemoteFilters
from saps.overlay.rendezvous.streams import Phase, Stream
from saps.overlay.rendezvous.ways import Ways
from saps.overlay.ring.keys import BrokerRef, Key, Role, publisher_key, subscribers, wildcards
from saps.overlay.ring.skip_graph import SkipGraph
from saps.policy.model import Policy
from saps.routing.batch import Batch
from saps.routing.retained import RetainedStore
from saps.topics import ancestors, is_wildcard, literal_prefix, shared

IDLE = 60.0
"""Seconds without publication after which a broker withdraws its publisher key of a topic. A longer time costs memory
and keys, a shorter one a new rendezvous at the next publication."""

Source = Stream | str | None
"""Where filters are collected: exact ones at the topic of a stream, wildcard ones at a prefix."""


class _Coverage:
    """A prefix whose wildcard filters are known, with the streams that need it."""

    __slots__ = ("ready", "streams", "waiters")

    def __init__(self) -> None:
        self.ready = False
        self.streams: set[Stream] = set()
        self.waiters: list[Callable[[], None]] = []


class PublisherRegistry:
    """All streams of one broker. `publish` is called with the publications that have waited for a stream to open."""

    def __init__(
        self,
        port: Port,
        graph: SkipGraph,
        calls: RangeCalls,
        publish: Callable[[Batch, Done | None], None],
        trees: Trees,
        ways: Ways,
    ) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._trees = trees
        self.ways = ways
        self.on_stream: list[Callable[[str, bool], None]] = []
        """Listeners, called when this broker begins (True) or ceases to publish to a topic."""
        self.catch_up: Absent | None = None
        """Handles brokers that have missed publications or are lost."""
        self.on_policy: list[Callable[[], None]] = []
        """Called when `policy` has changed."""
        self.policy: Policy | None = None
        """The policy in force, if there is one: see `obey`."""
        self._publish = publish
        self.streams: dict[str, Stream] = {}
        self.seq = 0
        """Sequence number of this broker's last publication, over all topics."""
        self._coverage: dict[str | None, _Coverage] = {}
        self.filters = RemoteFilters(port.order)
        self._topics: RetainedStore[Stream] = RetainedStore(sys.maxsize)
        """The streams by topic, for searches by filter."""

    # --- streams --------------------------------------------------------------------------------------------

    def stream(self, topic: str) -> Stream:
        stream = self.streams.get(topic)
        if stream is None:
            key = publisher_key(topic, self._port.me, self._port.order)
            stream = self.streams[topic] = Stream(topic, key)
            self._topics.put(topic, stream)
        return stream

    def open(self, stream: Stream) -> None:
        """Insert the publisher key of a stream's topic and collect its subscribers. Then the stream is open, and its
        queue is flushed."""
        if stream.phase is Phase.CLOSED:
            stream.phase = Phase.OPENING
            self._graph.insert(stream.key, lambda: self._collect(stream))

    def idle(self) -> list[Stream]:
        """Return the streams without a publication for `IDLE` seconds, and forget old tombstones."""
        now, found = self._port.now, list[Stream]()
        for stream in self.streams.values():
            if stream.used:
                stream.used = False
                stream.idle_since = now
            elif now - stream.idle_since >= IDLE:
                found.append(stream)
        self.filters.expire(now)
        return found

    def end_idle(self, stream: Stream) -> None:
        """Close an idle stream, or forget it if it is closed, unless it has been used meanwhile."""
        if stream.used:
            return
        if stream.phase is Phase.OPEN:
            self.close(stream)
        elif stream.phase is Phase.CLOSED and self.streams.get(stream.topic) is stream:
            # A frontend may still hold it: `remote` is True, so it will ask for the topic again.
            del self.streams[stream.topic]
            self._topics.remove(stream.topic)

    def publishes(self, topic: str) -> bool:
        """Return whether this broker has, or is inserting, a publisher key at the topic."""
        stream = self.streams.get(topic)
        return stream is not None and stream.phase in (Phase.OPENING, Phase.OPEN)

    def use_tree(self, topic: str, tree: Served | None) -> None:
        """Send the publications of an open stream along this OpenFlow tree to the members that it serves."""
        stream = self.streams.get(topic)
        if stream is not None and stream.phase is Phase.OPEN and stream.tree != tree:
            stream.tree = tree
            stream.divide_again()

    def divide_again(self, topics: Iterable[str]) -> None:
        """Divide the members of these topics again, as their design has changed."""
        for topic in topics:
            stream = self.streams.get(topic)
            if stream is not None:
                stream.divide_again()

    def obey(self, policy: Policy | None) -> None:
        """Apply a policy: publications go only to brokers that may receive them. Since only members forward a message,
        no other broker carries it either."""
        self.policy = policy
        self.divide_again(self.streams)
        for changed in self.on_policy:
            changed()

    def permitted(self, topic: str, brokers: Iterable[BrokerRef]) -> list[BrokerRef]:
        """Return those brokers that may get a publication to the topic from here."""
        return list(brokers) if self.policy is None else self.policy.verdict(topic).receivers(self._port.me, brokers)

    def unrestricted(self, topic: str) -> bool:
        """Return whether every broker may hold messages to the topic."""
        return self.policy is None or self.policy.free(topic)

    def close(self, stream: Stream, done: Callable[[], None] | None = None) -> None:
        if stream.phase is not Phase.OPEN:
            if done is not None:
                done()
            return
        stream.phase = Phase.CLOSING
        stream.divide_again()
        stream.tree = None
        self._trees.closed(stream.topic)
        for changed in self.on_stream:
            changed(stream.topic, False)
        for prefix in (*ancestors(stream.topic), None):
            self._uncover(prefix, stream)
        self.filters.drop_all(stream.topic)

        def closed() -> None:
            stream.phase = Phase.CLOSED
            stream.last_seq = 0
            if stream.queue:
                self.open(stream)
            if done is not None:
                done()

        self._graph.remove(stream.key, closed)

    def route(self, stream: Stream) -> None:
        """Compute `remote`, `members` and the branches of an open stream, if they may have changed."""
        if stream.members is not None:
            return
        topic = stream.topic
        members, behind = self._match(topic)
        stream.groups = self.filters.match_shared(topic)
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
        stream.served = ()
        if stream.tree is not None:
            in_tree = stream.tree.brokers
            stream.served = tuple(ref for ref in members if (ref.name, ref.incarnation) in in_tree)
        self.ways.find(stream, members)

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
        for changed in self.on_stream:
            changed(stream.topic, True)
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
            for topic_filter in self.filters.with_prefix(prefix):
                self.filters.drop_all(topic_filter)
                self._spoil(topic_filter)

    def sources(self, key: Key | None = None) -> list[Source]:
        """Return where this broker has collected filters; with an own `key` only those for its topic."""
        if key is None:
            return [*self._coverage, *self.streams.values()]
        stream = self.streams.get(key.topic_filter) if key.is_topic and key.role is Role.PUBLISHER else None
        if stream is None or stream.phase is not Phase.OPEN or stream.key != key:
            return []
        return [stream, *ancestors(stream.topic), None]

    def collect_again(self, source: Source) -> None:
        """Collect filters again: some may have been out of reach."""
        if isinstance(source, Stream):
            if source.phase is Phase.OPEN:
                self._calls.call(subscribers(source.topic), self._collecting(), self._learn)
        elif (coverage := self._coverage.get(source)) is not None and coverage.ready:
            self._calls.call(wildcards(source), self._collecting(), self._learn)

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
        """Handle a broker's announcement of filters. Returns the sequence numbers from which on it is served."""
        entries = [self.note(each.topic_filter, body.broker, each.version, None, body.present) for each in body.filters]
        if not body.present or not any(entries):
            return []
        above = self.seq if self.catch_up is None else self.catch_up.owed_above(body.broker, self.seq)
        seqs = [None if entry is None else min(entry.baseline, above) for entry in entries]
        return [Baseline(self._port.me.name, self._port.me.incarnation, seqs)]

    def baselines(self, broker: BrokerRef) -> dict[str, int]:
        """Return the filters that this incarnation of a broker has announced here, each with its baseline: the broker
        is owed publications with greater sequence numbers."""
        return {topic_filter: entry.baseline for topic_filter, entry in self.filters.of_incarnation(broker)}

    def note(
        self, topic_filter: str, broker: BrokerRef, version: int, baseline: int | None = None, present: bool = True
    ) -> RemoteFilter | None:
        """Note that a broker has subscribers for a filter, or no more if not `present`. It is owed publications with
        greater sequence numbers than `baseline`; None: those published from now on."""
        if broker.name == self._port.me.name or not self._concerns(topic_filter) or self._port.lost(broker):
            return None
        known = self.filters.get(topic_filter, broker.name)
        if known is not None and (known.broker.incarnation, known.version) >= (broker.incarnation, version):
            return known
        if self.catch_up is not None:
            if known is not None and known.present and known.broker.incarnation < broker.incarnation:
                self.catch_up.stale_incarnation(known.broker)
            if present and baseline is None:
                self.catch_up.noted(broker, topic_filter, self.seq)
        baseline = self.seq if baseline is None else baseline
        entry = RemoteFilter(broker, version, present, baseline, self._port.now)
        self.filters.put(topic_filter, entry)
        self._spoil(topic_filter)
        return entry

    def _concerns(self, topic_filter: str) -> bool:
        if is_wildcard(topic_filter):
            return literal_prefix(topic_filter) in self._coverage
        return self.publishes(topic_filter)

    def _spoil(self, topic_filter: str) -> None:
        """Have the members of all streams that a filter matches computed again."""
        if not is_wildcard(topic_filter):
            stream = self.streams.get(topic_filter)
            if stream is not None:
                stream.divide_again()
            return
        parts = shared(topic_filter)
        for stream in self._topics.matching(topic_filter if parts is None else parts.topic_filter):
            stream.divide_again()

    def _match(self, topic: str) -> tuple[list[BrokerRef], list[BrokerRef]]:
        """Return the brokers with matching filters: those that get a publication now, and those that get it later."""
        found = self.filters.match(topic)
        behind = None if self.catch_up is None else self.catch_up.behind
        later = [] if behind is None else [broker for broker in found if behind(broker, topic)]
        return by_place((broker for broker in found if broker not in later), self._port.order), later

    def forget(self, broker: BrokerRef, *, exactly: bool = False) -> None:
        """Forget the filters of a broker that has died; with `exactly` only those of this incarnation."""
        for topic_filter in list(self.filters.of_broker.get(broker.name, ())):
            entry = self.filters.of[topic_filter][broker.name]
            if entry.broker == broker or (entry.broker.incarnation <= broker.incarnation and not exactly):
                self.filters.drop(topic_filter, broker.name)
                self._spoil(topic_filter)

    def take_place(self) -> int:
        """Return the next sequence number, for a publication that nobody elsewhere wants: it needs a place in the
        order, too."""
        self.seq += 1
        return self.seq
