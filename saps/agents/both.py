"""BOTH: the overlay knows which brokers take a topic by ALM and which by OFM (SAPS 2016, 3.2.2). Only a broker that
leaves the tree, or must become its sender, asks OFGate.

S(t$OFM) is `saps.overlay.delivery.ofm_members`. A publisher learns the tree's address and members from two sources: the
aggregated reply of the range call that collects the topic's subscribers, and the members' announcements. The publisher
sends one datagram to the tree for S(t$OFM), and ALM to the rest of S(t). A member that hears the tree joins S(t$OFM)
after a random wait, and keeps its key in S(t). So it falls back to ALM without a change of membership there.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from saps.agents.api import AgentRegistry, Answers
from saps.agents.broker_list import Outgrown
from saps.agents.either import Use
from saps.agents.switchover import Member, Modes
from saps.overlay.delivery.ofm_members import Served, Tree, Trees
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.ring.keys import BrokerRef

LONGEST_WAIT = 0.5
"""Longest wait in seconds before a member that hears a new tree joins it; each member draws a random wait. A longer
wait makes the migration longer; a shorter one gives the overlay more insertions at once."""
TELL_AGAIN = 1.0
"""Delay in seconds until a call that no OFGate has answered is repeated."""


class Joining:
    """Decides which trees this broker joins as a member, and when: each after a random wait."""

    def __init__(self, port: Port, trees: Trees, wants: Callable[[str], bool], rng: random.Random) -> None:
        self._port = port
        self._trees = trees
        self._wants = wants
        self._rng = rng
        self._barred: dict[str, int] = {}
        """Topic -> epoch of the last tree that this broker must not join (again)."""
        self._pending: dict[str, int] = {}
        """Topic -> epoch of the tree that this broker is about to join."""

    def heard(self, topic: str, tree: Tree) -> None:
        """Plan to join a tree that brings a topic with a subscriber here, if it is newer than all known ones."""
        known = self._trees.own(topic)
        if known is not None and known.epoch >= tree.epoch:
            return
        if tree.epoch > max(self.barred(topic), self._pending.get(topic, 0)):
            self._pending[topic] = tree.epoch
            self._port.after(self._rng.uniform(0, LONGEST_WAIT), lambda: self._join(topic, tree))

    def _join(self, topic: str, tree: Tree) -> None:
        if self._pending.get(topic) == tree.epoch:
            del self._pending[topic]
            if tree.epoch > self.barred(topic) and self._wants(topic):
                self._trees.join(topic, tree)

    def barred(self, topic: str) -> int:
        """Return the epoch up to which trees of the topic must not be joined."""
        return self._barred.get(topic, 0)

    def bar(self, topic: str, epoch: int) -> None:
        """Join no tree of the topic up to this epoch."""
        self._barred[topic] = max(epoch, self.barred(topic))

    def admit(self, topic: str, epoch: int) -> None:
        """Permit the tree of this epoch again, if it is the last barred one."""
        if self.barred(topic) == epoch:
            self._barred[topic] = epoch - 1

    @property
    def highest_epoch(self) -> int:
        """The highest epoch of all trees that this broker has joined or barred, 0 for none."""
        own = [tree.epoch for topic in self._trees.topics if (tree := self._trees.own(topic)) is not None]
        return max([*own, *self._barred.values()], default=0)


class Both:
    """The `saps.agents.switchover.Delivery` of BOTH. `use` tells the data path which tree serves which brokers. `wants`
    returns whether a topic has a subscriber here."""

    def __init__(
        self,
        port: Port,
        registry: AgentRegistry,
        me: Member,
        use: Use,
        trees: Trees,
        publishers: PublisherRegistry,
        wants: Callable[[str], bool],
        rng: random.Random,
        modes: Modes,
    ) -> None:
        """`modes` gives the attribute of this broker's OFGates, and the brokers in its domain."""
        self._gate = modes.ofgate(me.ref)
        self._domain = modes.domains
        self._port = port
        self._registry = registry
        self._me = me
        self._use = use
        self._trees = trees
        self._outgrown = Outgrown(port, registry, me, publishers, self._gate, self._near, self._inside)
        self._wants = wants
        self._joining = Joining(port, trees, wants, rng)
        self._told: dict[str, Tree] = {}
        """Topic -> tree that OFGate has announced to this broker as a publisher."""
        self._streams: set[str] = set()
        self._keyed: dict[str, int] = {}
        """Topic -> epoch of the last tree that OFGate has announced: this broker is in that tree, and has its key."""
        self._asked: dict[str, int] = {}
        """Topic -> epoch of the last tree that OFGate was asked to put this broker into as a sender."""

    # --- subscribers --------------------------------------------------------------------------------------------

    def heard(self, topic: str, tree: Tree) -> None:
        self._joining.heard(topic, tree)

    def filter_ready(self, topic_filter: str) -> None:
        pass

    def filter_gone(self, topic_filter: str) -> None:
        for topic in self._trees.topics:
            tree = self._trees.own(topic)
            if tree is not None and not self._wants(topic):
                self._leave(topic, tree)

    def _leave(self, topic: str, tree: Tree) -> None:
        """Leave S(t$OFM), and then have OFGate take this broker out of the tree."""
        self._joining.bar(topic, tree.epoch)
        if topic not in self._streams:  # a publisher that begins later is no longer a sender of the tree: it must ask
            self._keyed.pop(topic, None)
            self._asked.pop(topic, None)
        self._trees.leave(topic, lambda: self._tell_left(topic, tree))

    def _tell_left(self, topic: str, tree: Tree) -> None:
        """Tell OFGate until it answers, or until there is another tree: unless it knows, it cannot admit this broker
        again."""

        def told(answers: Answers) -> None:
            if not answers.of(bool):
                self._port.after(TELL_AGAIN, lambda: self._tell_left(topic, tree))

        if self._trees.own(topic) is None and self._joining.barred(topic) == tree.epoch:
            about = topic, self._me.plain(), tree.epoch, topic in self._streams
            self._registry.discovery_call(self._gate, "left_tree", about, told)

    def admitted(self, topic: str, tree: Tree) -> None:
        self._joining.admit(topic, tree.epoch)

    @property
    def highest_epoch(self) -> int:
        return self._joining.highest_epoch

    # --- publishers ---------------------------------------------------------------------------------------------

    def stream_opened(self, topic: str) -> None:
        self._streams.add(topic)
        self.group_changed(topic)

    def stream_closed(self, topic: str) -> None:
        self._streams.discard(topic)
        self._told.pop(topic, None)
        self._asked.pop(topic, None)
        self._use(topic, None)

    def constructed(self, topic: str, tree: Tree) -> None:
        self._keyed[topic] = max(tree.epoch, self._keyed.get(topic, 0))
        if tree.epoch > self._joining.barred(topic) or self._trees.own(topic) == tree:
            if topic in self._streams:
                self._told[topic] = tree
            if self._wants(topic):  # without a publisher there may be nothing to hear
                self.heard(topic, tree)
        self.group_changed(topic)

    def group_changed(self, topic: str) -> None:
        """Use the newest known tree for the brokers in it, if this broker holds its key."""
        if topic not in self._streams:
            return
        self._outgrown.watch(topic)
        group = self._trees.group(topic, self._near)
        told = self._told.get(topic)
        if told is not None and (group is None or group[0].epoch <= told.epoch):
            brokers = group[1] if group is not None and group[0] == told else frozenset()
            self._use(topic, Served(told, brokers, always=True))
        elif group is not None and group[0].epoch <= self._keyed.get(topic, 0):
            self._use(topic, Served(*group))
        else:
            self._use(topic, None)
            if group is not None and group[0].epoch > self._asked.get(topic, 0):
                self._ask_to_send(topic, group[0].epoch)

    def _ask_to_send(self, topic: str, epoch: int) -> None:
        """Ask OFGate to make this broker a sender of a tree. Without an answer look again whether that is needed."""
        self._asked[topic] = epoch

        def answered(answers: Answers) -> None:
            if self._asked.get(topic) == epoch and not answers.of(bool):
                del self._asked[topic]
                self._port.after(TELL_AGAIN, lambda: self.group_changed(topic))

        self._registry.discovery_call(self._gate, "sends", (topic, self._me.plain()), answered)

    def _near(self, broker: BrokerRef) -> bool:
        return self._domain.of(broker) == self._domain.of(self._me.ref)

    def _inside(self, topic: str) -> frozenset[tuple[str, int]] | None:
        """Return the brokers in S(t$OFM) of a topic that is published here. None if the topic has no tree."""
        group = self._trees.group(topic, self._near) if topic in self._streams else None
        if group is not None:
            return group[1]
        return frozenset() if topic in self._told else None

    def outgrown(self) -> list[str]:
        """Return the topics published here that have a tree and subscribers outside S(t$OFM), who came later."""
        return [topic for topic in self._streams if self._outgrown.outside(topic)]

    def failed(self, topic: str, tree: Tree) -> None:
        """Ask OFGate to make this broker a sender of the tree: it may be missing among the senders."""
        self._registry.discovery_call(self._gate, "sends", (topic, self._me.plain()), lambda answers: None)

    def revoke(self, topic: str, epoch: int) -> bool:
        self._joining.bar(topic, epoch)
        told = self._told.get(topic)
        if told is not None and told.epoch <= epoch:
            del self._told[topic]
            self.group_changed(topic)
        own = self._trees.own(topic)
        if own is not None and own.epoch <= epoch:
            self._trees.leave(topic)
        return self._trees.is_out(topic)
