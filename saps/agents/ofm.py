"""The OFM agent of a broker: holds EITHER and BOTH, and answers OFGate's calls.

The agent listens to the events at the broker (filters, streams, S(t$OFM), the data path). It hands each event to the
table of the topic's mode. Every broker that takes part in OFM has one agent, under the name `OFM`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from saps.agents.api import AgentRegistry, remote, repeatable
from saps.agents.both import Both
from saps.agents.broker_list import gather
from saps.agents.either import Either, leader_of
from saps.agents.stateless import BY_TREES, TREE, Choice, Stateless
from saps.agents.switchover import OFM, Delivery, Member, Mode, Modes, Party, Report, TopicStatus
from saps.ofm.datapath.datapath import Datapath
from saps.ofm.keys.epochs import Keyring
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.stateless.directory import Directory
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.node import OverlayNode

Told = Callable[[TopicStatus | None], None]


class OfmAgent:
    """Connects a broker's node and data path with EITHER and BOTH."""

    def __init__(
        self,
        node: OverlayNode,
        registry: AgentRegistry,
        datapath: Datapath,
        keys: Keyring,
        element: BrokerAddress,
        modes: Modes,
        rng: random.Random,
        of_socket: Callable[[], dict[str, int]] = dict,
        choice: Choice = BY_TREES,
    ) -> None:
        """`of_socket` returns the socket's counts, for `describe`. `choice` says which topics leave without a tree."""
        self._registry = registry
        self._datapath = datapath
        self._multicast = node.delivery.multicast
        self._publishers = node.rendezvous.publishers
        self._inbox = node.delivery.inbox
        self._subscriptions = node.rendezvous.subscriptions
        self._modes = modes
        self._gate = modes.ofgate(node.port.me)
        self.me = Member(node.port.me, element)
        domains = node.rendezvous.ways.domains = modes.domains
        datapath.receiver.represents = lambda sender, origin: domains.of(sender) != domains.of(origin)
        self._trees = node.rendezvous.trees
        self._keys = keys
        self._of_socket = of_socket
        node.delivery.broadcaster.take = lambda body: keys.take(body, node.port.now)
        permitted = self._publishers.unrestricted
        self._stateless = Stateless(
            node.port, registry, self.me, self._gate, keys, choice, datapath.use, self._by_tree, permitted
        )
        use = self._stateless.use_tree
        tells = modes.has(Mode.EITHER) and not choice.for_all
        self._either = Either(node.port, registry, self.me, use, keys.use, tells=tells, gate=self._gate)
        self._both = Both(
            node.port,
            registry,
            self.me,
            use,
            self._trees,
            self._publishers,
            self._subscriptions.wants,
            rng,
            modes,
        )
        self._listen(node, datapath)

    def _listen(self, node: OverlayNode, datapath: Datapath) -> None:
        """Subscribe to the events at the broker."""
        node.rendezvous.subscriptions.on_change.append(self._filter_changed)
        node.rendezvous.publishers.on_stream.append(self._stateless.stream_changed)
        node.rendezvous.publishers.on_policy.append(self._stateless.settle)
        node.rendezvous.trees.on_change.append(lambda topic: self._of(topic).group_changed(topic))
        datapath.receiver.on_heard = self._heard
        datapath.on_failed = self._failed

    @property
    def directory(self) -> Directory | None:
        """The brokers that stateless delivery reaches. None if this broker takes no part now."""
        return self._stateless.directory

    def start(self, done: Callable[[], None] | None = None) -> None:
        """Register this agent for OFGate, and ask for a bit. Call this once the broker has joined the mesh."""
        self._registry.register(OFM, self, done=done)
        self._stateless.start()

    def _of(self, topic: str) -> Delivery:
        return self._both if self._modes.of(topic) is Mode.BOTH else self._either

    def _filter_changed(self, topic_filter: str, present: bool) -> None:
        for delivery in (self._either, self._both):
            if present:
                delivery.filter_ready(topic_filter)
            else:
                delivery.filter_gone(topic_filter)

    def _heard(self, topic: str, tree: Tree) -> None:
        if tree != TREE:
            self._of(topic).heard(topic, tree)

    def _failed(self, topic: str, tree: Tree) -> None:
        if tree != TREE:
            self._of(topic).failed(topic, tree)

    def _by_tree(self, topic: str, opened: bool) -> None:
        delivery = self._of(topic)
        if opened:
            delivery.stream_opened(topic)
        else:
            delivery.stream_closed(topic)

    # --- the decision to exploit OFM ------------------------------------------------------------------------------

    def construct(self, topic: str, done: Told | None = None) -> None:
        """Have an OFM constructed for a topic. `done` gets None if no OFGate answers."""
        told = done or (lambda status: None)
        publishers = [self.me.plain()] if self._publishers.publishes(topic) else []
        if self._modes.of(topic) is Mode.EITHER:
            self._request(topic, [], publishers, told)
        else:
            gather(self._registry, topic, lambda members, senders: self._request(topic, members, senders, told))

    def release(self, topic: str, done: Told | None = None) -> None:
        """Tell OFGate that the OFM of a topic is no longer wanted. `done` is as for `construct`."""
        self._order("release", (topic,), done or (lambda status: None))

    def _request(self, topic: str, members: list[Any], senders: list[Any], told: Told) -> None:
        self._order("construct", (topic, members, senders), told)

    def _order(self, method: str, arguments: tuple[Any, ...], told: Told) -> None:
        self._registry.discovery_call(
            self._gate, method, arguments, lambda answers: told(leader_of(answers, TopicStatus))
        )

    # --- called by OFGate and other brokers ---------------------------------------------------------------------------

    @remote
    def revoke(self, topic: str, epoch: int) -> bool:
        """See `Delivery.revoke`."""
        return self._of(topic).revoke(topic, epoch)

    @remote
    def constructed(self, topic: str, address: str, epoch: int, label: bytes = b"") -> bool:
        """See `Delivery.constructed`. All members hold the key of this label."""
        self._keys.use(topic, label)
        self._of(topic).constructed(topic, Tree(address, epoch))
        return True

    @remote
    def admitted(self, topic: str, address: str, epoch: int) -> bool:
        """See `Delivery.admitted`."""
        self._of(topic).admitted(topic, Tree(address, epoch))
        return True

    @remote
    def planes(self, epoch: int, sets: list[Any], planes: list[Any], label: bytes) -> bool:
        """See `Stateless.told`."""
        self._stateless.told(epoch, sets, planes, label)
        return True

    @remote
    def spread(self, epoch: int, planes: dict[str, int]) -> bool:
        """See `Stateless.spread`."""
        self._stateless.spread(epoch, planes)
        return True

    @repeatable
    def party(self, topic: str) -> Party | None:
        """Return this broker's part in a topic, or None if it has none."""
        subscribes, publishes = self._subscriptions.wants(topic), self._publishers.publishes(topic)
        return Party(self.me.plain(), subscribes, publishes) if subscribes or publishes else None

    @repeatable
    def report(self, new_leader: bool) -> Report:
        """Return what an OFGate must know of this broker. With `new_leader` the broker drops the leases of the former
        OFGate."""
        if new_leader:
            self._either.drop_leases()
        joined = [(topic, *tree) for topic in self._trees.topics if (tree := self._trees.own(topic)) is not None]
        filters = list(self._either.filters.items())
        stateless = self._stateless
        highest = max(self._both.highest_epoch, stateless.epoch, stateless.spread_epoch)
        return Report(self.me.plain(), filters, joined, highest, self._both.outgrown(), stateless.enrols)

    @repeatable
    def describe(self) -> Any:
        """Return what became of this broker's publications and datagrams since its start, for status pages."""
        return {
            "broker": self.me.ref.name,
            "publications": self._multicast.forwarder.published,
            "alm_messages": self._multicast.sent,
            "given_up": self._inbox.given_up,
            "disowned": self._inbox.disowned,
            **self._datapath.counts,
            "ceilings": self._datapath.ceilings(),
            "reached": 0 if self.directory is None else len(self.directory.at),
            **self._of_socket(),
        }
