"""Stateless delivery at a broker: which topics leave that way, and whom it reaches (`saps.ofm.stateless`).

What a topic's tree says (EITHER, BOTH) is kept beside it: it holds for topics that are not to go this way, and for all
as long as this broker has no bit or no plane works.
"""

from __future__ import annotations

from collections.abc import Callable
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
"""Stands for all planes in datagrams."""
AGAIN = 1.0
"""Seconds until an OFGate that has not answered is asked again."""

Use = Callable[[str, Served | None, Directory | None], None]


class Choice(NamedTuple):
    """Which topics leave how."""

    delivery: Literal["trees", "stateless", "auto"] = "trees"
    """`auto`: by the topic's tree while it has one."""
    topics: tuple[str, ...] = ("#",)
    """Filters of the topics for which that holds; the others leave by trees."""

    @property
    def for_all(self) -> bool:
        """No topic has a tree, but for lack of planes."""
        return self.delivery == "stateless" and "#" in self.topics

    def covers(self, topic: str) -> bool:
        """May the topic leave without a tree?"""
        return self.delivery != "trees" and any(matches(each, topic) for each in self.topics)


BY_TREES = Choice()
"""As without stateless delivery."""


class Stateless:
    """Between the deliveries by trees and the data path."""

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
        """`gate`: the attribute of the OFGates. `use` tells the data path. `by_tree` begins, or ends, the delivery of a
        topic by trees. `permitted`: may any broker hold the topic's messages? All have the key."""
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
        """Topics published here; True: trees are asked for."""
        self._trees: dict[str, Served] = {}
        """The trees of topics, as the deliveries by trees say."""
        self.directory: Directory | None = None
        """Whom it reaches; None: this broker has no bit, or no plane works."""
        self.epoch = 0
        """Of the directory."""

    @property
    def enrols(self) -> bool:
        """Does this broker take part?"""
        return self._choice.delivery != "trees"

    def start(self) -> None:
        """Have OFGate give this broker a bit. If it is forgotten there, reports tell (`OfmAgent.report`)."""
        if not self.enrols:
            return

        def answered(answers: Answers) -> None:
            if leader_of(answers) is None:
                self._port.after(AGAIN, self.start)

        self._registry.discovery_call(self._gate, "enrol", (self._me.plain(),), answered)

    def stream_changed(self, topic: str, opened: bool) -> None:
        """This broker begins, or ends, to publish to a topic."""
        if opened:
            self._open[topic] = False
            self._settle(topic)
        else:
            if self._open.pop(topic, False):
                self._by_tree(topic, False)
            self._trees.pop(topic, None)
            self._use(topic, None, None)

    def use_tree(self, topic: str, served: Served | None) -> None:
        """A delivery by trees says which tree may be used."""
        if served is None:
            self._trees.pop(topic, None)
        else:
            self._trees[topic] = served
        self._choose(topic)

    def told(self, epoch: int, sets: list[Any], planes: list[Any], label: bytes) -> None:
        """OFGate says who has which bit, which planes work, and with which key to seal. Raises as `directory`."""
        if epoch <= self.epoch:
            return
        self.directory = directory(self._me.ref, sets, planes)
        self.epoch = epoch
        self._keys.use(EVERY_TOPIC, label)
        self.settle()

    def settle(self) -> None:
        """Topics may go another way now: others have bits, or another policy holds."""
        for topic in list(self._open):
            self._settle(topic)

    def _goes(self, topic: str) -> bool:
        """Can the topic leave without a tree now?"""
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
