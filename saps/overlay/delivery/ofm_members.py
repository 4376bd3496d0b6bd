"""S(t$OFM) in the overlay: the members of a topic that receive it from an OpenFlow tree (SAPS 2016, 3.2.2, BOTH).

1. A member inserts a second key beside the subscribers' keys of its topic.
2. It announces itself to the topic's publishers.
3. A new publisher finds these keys in the range that it collects anyway.

So each publisher knows S(t$OFM) by the same rendezvous as S(t). When `leave` is done, no publisher sends this member
anything by the tree any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from saps.overlay.frames.calls import AnnounceTree, TreeMember
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, filter_key, publishers
from saps.overlay.ring.skip_graph import SkipGraph

GROUP = b"$OFM"
"""Rest of the keys of S(t$OFM), in place of a wildcard filter's rest: these keys sort right after those of S(t)."""

Done = Callable[[], None]


class Tree(NamedTuple):
    """One version of a topic's OpenFlow multicast tree."""

    address: str
    """The OFM address ``IP:port``."""
    epoch: int
    """Grows with each tree that OFGate has had constructed."""


class Served(NamedTuple):
    """The tree that a publisher may use for a topic, and the brokers that it serves."""

    tree: Tree
    brokers: frozenset[tuple[str, int]]
    """Names and incarnations of the brokers that the tree serves; all others get the message by ALM."""
    always: bool = False
    """Whether to send along the tree even while it serves no member: so members learn of the tree (BOTH)."""


def group_key(topic: str, broker: BrokerRef, order: KeyOrder) -> Key:
    """Return the key of a broker in S(t$OFM)."""
    return filter_key(topic, broker, order)._replace(rest=GROUP)


class _Membership:
    """This broker's own membership in S(t$OFM) for one topic."""

    __slots__ = ("busy", "key", "said", "stale", "version", "waiters", "wanted")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.wanted: Tree | None = None
        self.said: Tree | None = None
        """The tree that all publishers know; None if they know of no membership."""
        self.busy = False
        self.stale = False
        self.version = 0
        self.waiters: list[Done] = []


class _Entry(NamedTuple):
    broker: BrokerRef
    version: int
    tree: Tree | None


class Trees:
    """Both sides of the rendezvous at one broker: its own memberships, and the members that it knows as publisher."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls, publishes: Callable[[str], bool]) -> None:
        """`publishes` returns whether this broker is a publisher of a topic."""
        self._port = port
        self._graph = graph
        self._calls = calls
        self._publishes = publishes
        self._versions = 0
        self._own: dict[str, _Membership] = {}
        self._known: dict[str, dict[str, _Entry]] = {}
        """The last announcement of each broker, by topic and broker name."""
        self.on_change: list[Callable[[str], None]] = []
        """Listeners, called with each topic whose S(t$OFM) has changed from the view of this broker as publisher."""

    # --- own memberships ------------------------------------------------------------------------------------

    def join(self, topic: str, tree: Tree, done: Done | None = None) -> None:
        """Join S(t$OFM) with `tree`, or change to that tree. `done` runs when all publishers know."""
        membership = self._own.get(topic)
        if membership is None:
            membership = self._own[topic] = _Membership(group_key(topic, self._port.me, self._port.order))
        self._want(topic, membership, tree, done)

    def leave(self, topic: str, done: Done | None = None) -> None:
        """Leave S(t$OFM). `done` runs when all publishers know, or at once without a membership."""
        membership = self._own.get(topic)
        if membership is not None:
            self._want(topic, membership, None, done)
        elif done is not None:
            done()

    def own(self, topic: str) -> Tree | None:
        """Return the tree that this broker has joined or is joining, or None."""
        membership = self._own.get(topic)
        return None if membership is None else membership.wanted

    def is_out(self, topic: str) -> bool:
        """Return whether no publisher takes this broker for a member."""
        return topic not in self._own

    @property
    def topics(self) -> list[str]:
        """The topics with a membership, including those still being left."""
        return list(self._own)

    def members(self, keys: list[Key]) -> list[TreeMember]:
        """Return the memberships at some of this broker's keys, to answer a `Collect`."""
        found = []
        for key in keys:
            membership = self._own.get(key.topic_filter) if key.rest == GROUP and key.is_topic else None
            if membership is not None and membership.key == key and membership.wanted is not None:
                tree = membership.wanted
                found.append(TreeMember(key.topic_filter, self._port.me, membership.version, tree.address, tree.epoch))
        return found

    def announce_again(self, key: Key | None = None) -> None:
        """Announce the membership at `key` again, or all memberships: some publisher may have forgotten them."""
        for topic, membership in list(self._own.items()):
            if key is None or membership.key == key:
                membership.stale = True
                self._advance(topic, membership)

    def _want(self, topic: str, membership: _Membership, tree: Tree | None, done: Done | None) -> None:
        membership.wanted = tree
        if done is not None:
            membership.waiters.append(done)
        self._advance(topic, membership)

    def _advance(self, topic: str, membership: _Membership) -> None:
        if membership.busy:
            return
        wanted = membership.wanted
        if wanted == membership.said and not membership.stale:
            if wanted is None:
                self._own.pop(topic, None)
            waiters, membership.waiters = membership.waiters, []
            for waiter in waiters:
                waiter()
            return
        membership.busy = True
        if wanted != membership.said:
            self._versions += 1
            membership.version = self._versions
        membership.stale = False
        move = self._graph.remove if wanted is None else self._graph.insert
        move(membership.key, lambda: self._announce(topic, membership, wanted))

    def _announce(self, topic: str, membership: _Membership, tree: Tree | None) -> None:
        address, epoch = tree or ("", 0)

        def announced(outcome: Outcome) -> None:
            membership.busy = False
            membership.said = tree
            self._advance(topic, membership)

        body = AnnounceTree(topic, self._port.me, membership.version, address, epoch)
        self._calls.call(publishers(topic), body, announced)

    # --- the publisher's side ---------------------------------------------------------------------------------

    def note(self, said: AnnounceTree | TreeMember) -> None:
        """Record that a broker has joined or left S(t$OFM), from an `AnnounceTree` or a result of `Collect`. Ignores
        older announcements, lost brokers, and topics that this broker does not publish to."""
        broker, topic = said.broker, said.topic
        if broker.name == self._port.me.name or self._port.lost(broker) or not self._publishes(topic):
            return
        entries = self._known.setdefault(topic, {})
        known = entries.get(broker.name)
        if known is not None and (known.broker.incarnation, known.version) >= (broker.incarnation, said.version):
            return
        entries[broker.name] = _Entry(broker, said.version, Tree(said.address, said.epoch) if said.address else None)
        self._changed(topic)

    def group(
        self, topic: str, among: Callable[[BrokerRef], bool] = lambda broker: True
    ) -> tuple[Tree, frozenset[tuple[str, int]]] | None:
        """Return the newest tree that members have announced, with the names and incarnations of its members; None if
        there is none. Only brokers for which `among` returns True count."""
        known = self._known.get(topic, {}).values()
        entries = [entry for entry in known if entry.tree is not None and among(entry.broker)]
        if not entries:
            return None
        newest = max((entry.tree for entry in entries if entry.tree is not None), key=lambda tree: tree.epoch)
        return newest, frozenset((e.broker.name, e.broker.incarnation) for e in entries if e.tree == newest)

    def closed(self, topic: str) -> None:
        """Forget the members of a topic that this broker no longer publishes to."""
        if self._known.pop(topic, None) is not None:
            self._changed(topic)

    def forget(self, broker: BrokerRef, *, exactly: bool = False) -> None:
        """Forget all memberships of a dead broker, also those of its earlier incarnations. With `exactly`, keep those
        of its other incarnations."""
        for topic, entries in list(self._known.items()):
            entry = entries.get(broker.name)
            if entry is None or (exactly and entry.broker != broker):
                continue
            if entry.broker.incarnation <= broker.incarnation:
                del entries[broker.name]
                self._changed(topic)

    def _changed(self, topic: str) -> None:
        for changed in self.on_change:
            changed(topic)
