"""Stateless delivery at a broker: decides which topics leave without a tree, and which brokers they reach
(`saps.ofm.stateless`).

The trees that EITHER and BOTH report are kept beside it. A topic uses its tree if it is not to leave this way. All
topics do so while this broker has no bit or no plane works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from saps.agents.api import AgentRegistry, Answers
from saps.agents.either import leader_of
from saps.agents.switchover import Member
from saps.ofm.keys.epochs import Keyring
from saps.ofm.stateless.address import EVERY_TOPIC, RANGE
from saps.ofm.stateless.directory import Directory, directory
from saps.overlay.delivery.ofm_members import Served, Tree
from saps.overlay.port import Port
from saps.topics import matches

TREE = Tree(str(RANGE.network_address), 0)
"""The tree that stands for all planes in datagrams."""
AGAIN = 1.0
"""Delay in seconds until an OFGate that has not answered is asked again."""

Use = Callable[[str, Served | None, Directory | None], None]


class Choice(NamedTuple):
    """The topics that leave without a tree."""

    delivery: Literal["trees", "stateless", "auto"] = "trees"
    """How the topics leave. With `auto` a topic leaves by its tree while it has one."""
    topics: tuple[str, ...] = ("#",)
    """Filters of the topics that `delivery` holds for. All other topics leave by trees."""

    @property
    def for_all(self) -> bool:
        """Whether every topic leaves without a tree, unless no plane works."""
        return self.delivery == "stateless" and "#" in self.topics

    def covers(self, topic: str) -> bool:
        """Return whether the topic may leave without a tree."""
        return self.delivery != "trees" and any(matches(each, topic) for each in self.topics)


BY_TREES = Choice()
"""The choice without stateless delivery: all topics leave by trees."""


class Stateless:
    """The switch between the deliveries by trees and the data path."""

    def __init__(
        self,
        port: Port,
        registry: AgentRegistry,
        me: Member,
        gate: str,
        keys: Keyring,
        choice: Choice,
        use: Use,
        by_tree: Callable[[str, bool], None],
        permitted: Callable[[str], bool],
    ) -> None:
        """`gate` is the attribute of the OFGates. `use` tells the data path how a topic leaves. `by_tree` begins (True)
        or ends (False) the delivery of a topic by trees. `permitted` returns whether every broker may hold the topic's
        messages, because all brokers have the key."""
        self._port = port
        self._registry = registry
        self._me = me
        self._gate = gate
        self._keys = keys
        self._choice = choice
        self._use = use
        self._by_tree = by_tree
        self._permitted = permitted
        self._open: dict[str, bool] = {}
        """The topics published here -> whether a tree is asked for."""
        self._trees: dict[str, Served] = {}
        """Topic -> tree, as the deliveries by trees report it."""
        self.directory: Directory | None = None
        """The brokers that stateless delivery reaches. None if this broker has no bit or no plane works."""
        self._spread: dict[str, int] = {}
        """`Directory.spread` of this `directory` and of later ones."""
        self.epoch = 0
        """The epoch of `directory`."""
        self.spread_epoch = 0
        """The epoch of `Directory.spread`."""

    @property
    def enrols(self) -> bool:
        """Whether this broker takes part in stateless delivery."""
        return self._choice.delivery != "trees"

    def start(self) -> None:
        """Ask OFGate for a bit, until it answers. If OFGate forgets this broker later, the reports remind it
        (`OfmAgent.report`)."""
        if not self.enrols:
            return

        def answered(answers: Answers) -> None:
            if leader_of(answers, bool) is None:
                self._port.after(AGAIN, self.start)

        self._registry.discovery_call(self._gate, "enrol", (self._me.plain(),), answered)

    def stream_changed(self, topic: str, opened: bool) -> None:
        """Handle the start (`opened`) or end of this broker's publications to a topic."""
        if opened:
            self._open[topic] = False
            self._settle(topic)
        else:
            if self._open.pop(topic, False):
                self._by_tree(topic, False)
            self._trees.pop(topic, None)
            self._use(topic, None, None)

    def use_tree(self, topic: str, served: Served | None) -> None:
        """Note which tree a topic may use, as its delivery by trees says; None for no tree."""
        if served is None:
            self._trees.pop(topic, None)
        else:
            self._trees[topic] = served
        self._choose(topic)

    def told(self, epoch: int, sets: list[Any], planes: list[Any], label: bytes) -> None:
        """Take over OFGate's notice of all bits, the working planes and the label of the key, if its epoch is new.
        Raises as `directory`."""
        if epoch <= self.epoch:
            return
        self.directory = directory(self._me.ref, sets, planes, self._spread)
        self.epoch = epoch
        self._keys.use(EVERY_TOPIC, label)
        self.settle()

    def spread(self, epoch: int, planes: dict[str, int]) -> None:
        """Take over OFGate's notice of the planes of topics whose loads are known, if its epoch is new."""
        if epoch <= self.spread_epoch:
            return
        self.spread_epoch, self._spread = epoch, planes
        if self.directory is not None:
            self.directory = replace(self.directory, spread=planes)
            self.settle()

    def settle(self) -> None:
        """Choose anew how each topic leaves. To be called when other brokers have got bits or another policy holds."""
        for topic in list(self._open):
            self._settle(topic)

    def _goes(self, topic: str) -> bool:
        """Return whether the topic can leave without a tree now."""
        return self.directory is not None and self._choice.covers(topic) and self._permitted(topic)

    def _settle(self, topic: str) -> None:
        wanted = self._choice.delivery != "stateless" or not self._goes(topic)
        if wanted != self._open[topic]:
            self._open[topic] = wanted
            self._by_tree(topic, wanted)
        self._choose(topic)

    def _choose(self, topic: str) -> None:
        tree, found = self._trees.get(topic), self.directory
        prefers_tree = tree is not None and self._choice.delivery == "auto"
        if topic in self._open and found is not None and self._goes(topic) and not prefers_tree:
            self._use(topic, Served(TREE, frozenset(found.at)), found)
        else:
            self._use(topic, tree, None)
