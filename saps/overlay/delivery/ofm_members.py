"""S(t$OFM) in the overlay: which members of a topic take it from an OpenFlow tree (SAPS 2016, 3.2.2, BOTH).

A member puts a second key beside its topic's subscribers and then announces itself to the topic's publishers; a
publisher finds these keys in the range it collects anyway. So S(t$OFM) is known at each publisher by the same
rendezvous as S(t), and when `leave` is done no publisher sends this member anything by the tree any more.
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
"""Stands where a wildcard filter has its rest, so the keys of S(t$OFM) come right behind those of S(t)."""

Done = Callable[[], None]


class Tree(NamedTuple):
    """One life of an OpenFlow multicast tree."""

    address: str
    """The OFM address ``IP:port``."""
    epoch: int
    """Grows with each tree OFGate has had constructed."""


class Served(NamedTuple):
    """The tree a publisher may use for a topic, and for whom."""

    tree: Tree
    brokers: frozenset[tuple[str, int]]
    """Name and incarnation of the brokers that it reaches; all others get the message by ALM."""
    always: bool = False
    """Send along the tree even while it serves no member: that is how the members hear of it (BOTH)."""


def group_key(topic: str, broker: BrokerRef, order: KeyOrder) -> Key:
    """The key of a member of S(t$OFM)."""
    return filter_key(topic, broker, order)._replace(rest=GROUP)


class _Membership:
    """This broker's own membership in S(t$OFM) for one topic."""

    __slots__ = ("busy", "key", "said", "stale", "version", "waiters", "wanted")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.wanted: Tree | None = None
        self.said: Tree | None = None
        """What all publishers know."""
        self.busy = False
        self.stale = False
        self.version = 0
        self.waiters: list[Done] = []


class _Entry(NamedTuple):
    broker: BrokerRef
    version: int
    tree: Tree | None


class Trees:
    """Both sides of the rendezvous at one broker: its own memberships, and what its streams know of others'."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls, publishes: Callable[[str], bool]) -> None:
        """`publishes`: does this broker take part at a topic as publisher?"""
        self._port = port
        self._graph = graph
        self._calls = calls
        self._publishes = publishes
        self._versions = 0
        self._own: dict[str, _Membership] = {}
        self._known: dict[str, dict[str, _Entry]] = {}
        """Topic -> name of broker -> what it said last."""
        self.on_change: list[Callable[[str], None]] = []
        """Called with each topic whose S(t$OFM) has changed here, as its publisher sees it."""

    # --- own memberships ------------------------------------------------------------------------------------

    def join(self, topic: str, tree: Tree, done: Done | None = None) -> None:
        """Be a member of S(t$OFM) by way of `tree`."""
        membership = self._own.get(topic)
        if membership is None:
            membership = self._own[topic] = _Membership(group_key(topic, self._port.me, self._port.order))
        self._want(topic, membership, tree, done)

    def leave(self, topic: str, done: Done | None = None) -> None:
        """Be no member any more; `done` runs when all publishers know."""
        membership = self._own.get(topic)
        if membership is not None:
            self._want(topic, membership, None, done)
        elif done is not None:
            done()

    def own(self, topic: str) -> Tree | None:
        """The tree this broker has joined, or is about to."""
        membership = self._own.get(topic)
        return None if membership is None else membership.wanted

    def is_out(self, topic: str) -> bool:
        """No publisher takes this broker for a member."""
        return topic not in self._own

    @property
    def topics(self) -> list[str]:
        """The topics with a membership, or the rest of one."""
        return list(self._own)

    def members(self, keys: list[Key]) -> list[TreeMember]:
        """The memberships at some of this broker's keys (answers `Collect`)."""
        found = []
        for key in keys:
            membership = self._own.get(key.topic_filter) if key.rest == GROUP and key.is_topic else None
            if membership is not None and membership.key == key and membership.wanted is not None:
                tree = membership.wanted
                found.append(TreeMember(key.topic_filter, self._port.me, membership.version, tree.address, tree.epoch))
        return found

    def announce_again(self, key: Key | None = None) -> None:
        """Somebody may have forgotten: announce the membership at a key, or all, once more."""
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
        """A broker has joined or left S(t$OFM) (runs `AnnounceTree`; takes the results of `Collect`)."""
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
        """The newest tree that members, of those `among` whom to look, have announced, and those members; None if there
        is none."""
        known = self._known.get(topic, {}).values()
        entries = [entry for entry in known if entry.tree is not None and among(entry.broker)]
        if not entries:
            return None
        newest = max((entry.tree for entry in entries if entry.tree is not None), key=lambda tree: tree.epoch)
        return newest, frozenset((e.broker.name, e.broker.incarnation) for e in entries if e.tree == newest)

    def closed(self, topic: str) -> None:
        """This broker publishes to the topic no more."""
        if self._known.pop(topic, None) is not None:
            self._changed(topic)

    def forget(self, broker: BrokerRef, *, exactly: bool = False) -> None:
        """A broker died: it is a member of nothing any more. `exactly`: this says nothing of its earlier lives."""
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
