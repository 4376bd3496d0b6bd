"""Registers topics: "to prevent from topic bursting, topics must be registered before they are put into use" (SDNPS,
3.2).

Quotas limit the topics below a prefix. Below an open prefix, a topic is registered by its first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saps.ofm.topics.coding import WORD_BITS, CodeTooLongError, TopicCode
from saps.ofm.topics.tree import TopicTree, father_of
from saps.topics import topic_fault


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of the topics below a prefix. A limit of None means no limit."""

    prefix: str | None = None
    """The prefix; None: all topics."""
    topics: int | None = None
    """Most topics below the prefix, on all levels."""
    children: int | None = None
    """Most children of the prefix, and of each topic below it."""
    levels: int | None = None
    """Most levels below the prefix."""
    open: bool = False
    """Whether topics below the prefix are registered by their first use."""

    def concerns(self, topic: str) -> bool:
        """Return whether the topic stands below the prefix."""
        return self.prefix is None or topic.startswith(self.prefix + "/")


class TopicRefusedError(Exception):
    """A topic that may not be registered or used; the text says why."""


class Registry:
    """The topics that may be used, in `tree`. A topic is registered together with those above it, or not at all."""

    def __init__(self, quotas: Iterable[Quota] = (), tree: TopicTree | None = None) -> None:
        self.tree = TopicTree() if tree is None else tree
        self.codes: list[TopicCode] = []
        """Codes of the tree in which each topic must have an address."""
        self._quotas = tuple(quotas)
        self._below = {quota.prefix: sum(map(quota.concerns, self.tree)) for quota in self._quotas}

    def admit(self, topic: str) -> None:
        """Admit the use of a topic, and register it if its prefix is open. Raises `TopicRefusedError` if it is not
        registered and no open prefix admits it."""
        if topic in self.tree:
            return
        if not any(quota.open and quota.concerns(topic) for quota in self._quotas):
            raise TopicRefusedError(f"{topic!r} is not registered")
        self.register(topic)

    def register(self, topic: str) -> None:
        """Register a topic and those above it. Raises `TopicRefusedError`; then nothing is registered."""
        if (fault := topic_fault(topic)) is not None:
            raise TopicRefusedError(fault)
        if self.codes and (levels := topic.count("/") + 1) > WORD_BITS:  # each takes a bit, and memory
            raise TopicRefusedError(f"a topic of {levels} levels needs more than {WORD_BITS} code bits")
        new = self._new(topic)
        for quota in self._quotas:
            self._check(quota, [each for each in new if quota.concerns(each)])
        if not new:
            return
        # A code's length depends on the number among siblings, so it is known only after the topic is added.
        self.tree.add(topic)
        try:
            for code in self.codes:
                code.word(topic)
        except CodeTooLongError as error:
            self.tree.remove(new[0])
            raise TopicRefusedError(str(error)) from None
        for quota in self._quotas:
            self._below[quota.prefix] += sum(map(quota.concerns, new))

    def readmit(self, topic: str, numbers: Sequence[int]) -> None:
        """Register a topic that is in use, with these numbers from the first level down. Quotas are not checked, since
        the topic was registered when it got its address. Raises `ValueError` if others have the numbers, or the topic
        has others."""
        new = self._new(topic)
        self.tree.place(topic, numbers)
        for quota in self._quotas:
            self._below[quota.prefix] += sum(map(quota.concerns, new))

    def remove(self, topic: str) -> None:
        """Remove a topic with all topics below it. Raises `KeyError` for an unknown topic."""
        gone = list(self.tree.below(topic))
        self.tree.remove(topic)
        for quota in self._quotas:
            self._below[quota.prefix] -= sum(map(quota.concerns, gone))

    def _new(self, topic: str) -> list[str]:
        """Return the topics to register with this one, itself included, from above."""
        new: list[str] = []
        at: str | None = topic
        while at is not None and at not in self.tree:
            new.append(at)
            at = father_of(at)
        return new[::-1]

    def _check(self, quota: Quota, new: list[str]) -> None:
        if not new:
            return
        where = "in all" if quota.prefix is None else f"below {quota.prefix!r}"
        if quota.topics is not None and self._below[quota.prefix] + len(new) > quota.topics:
            raise TopicRefusedError(f"{new[-1]!r}: {quota.topics} topics are allowed {where}")
        above = 0 if quota.prefix is None else quota.prefix.count("/") + 1
        if quota.levels is not None and new[-1].count("/") + 1 - above > quota.levels:
            raise TopicRefusedError(f"{new[-1]!r}: {quota.levels} levels are allowed {where}")
        father = father_of(new[0])
        if quota.children is not None:
            # Only the first new topic joins siblings; each one below it is an only child.
            siblings = self.tree.count(father) if father is None or father in self.tree else 0
            if siblings + 1 > quota.children:
                raise TopicRefusedError(f"{new[0]!r}: {quota.children} children of a topic are allowed {where}")
