"""What OFGate knows of the brokers: who they are, what they want, and which trees they have joined.

It can be gathered anew from the brokers' reports (`saps.agents.ofm.OfmAgent.report`) at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec

from saps.agents.api import Answers
from saps.agents.switchover import Member
from saps.ofm.network.topology import BrokerAddress
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.ring.keys import BrokerRef
from saps.topics import matches

Epoch = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""Of a tree. OFGate gives one more than it hears of: there is to be room for that."""


class Report(msgspec.Struct, array_like=True):
    """What a broker tells of itself (`saps.agents.ofm.OfmAgent.report`)."""

    member: Any
    filters: list[tuple[str, int]]
    """With versions."""
    joined: list[tuple[str, str, Epoch]]
    """Topics, addresses and epochs of trees."""
    epoch: Epoch
    """The highest one that it knows of."""
    outgrown: list[str] = []
    """Topics that it publishes, with subscribers outside their tree (BOTH)."""
    enrolled: bool = False
    """It takes part in stateless delivery."""


class Roster:
    """All brokers that have told something. Newer lives of a broker replace older ones."""

    def __init__(self, mine: Callable[[BrokerRef], bool] = lambda ref: True) -> None:
        """`mine`: is a broker in OFGate's domain? The others are none of its business."""
        self._mine = mine
        self._members: dict[str, Member] = {}
        self._filters: dict[str, dict[str, tuple[int, bool]]] = {}
        """Name of broker -> filter -> (version, there)."""
        self._joined: dict[str, dict[str, Tree]] = {}
        """Topic -> name of broker -> tree that it has joined (BOTH), as reported last."""
        self.permitted: Callable[[str, Member], bool] = lambda topic, member: True
        """May a broker send or receive the topic? Who may not is in no tree of it."""
        self.enrolled: dict[str, Member] = {}
        """The brokers that take part in stateless delivery, by name."""
        self.outgrown: set[str] = set()
        """Topics with a tree and subscribers who are not in it, as publishers reported last (BOTH)."""
        self.highest_epoch = 0
        """Of all trees that brokers know of."""

    def clear(self) -> None:
        """Forget everything but the epochs."""
        self._members.clear()
        self.enrolled.clear()
        self._filters.clear()
        self._joined.clear()

    def mine(self, plain: Any) -> bool:
        """Is the broker that a remote call has named in OFGate's domain? Raises as `Member.of`."""
        return self._mine(Member.of(plain).ref)

    def know(self, plain: Any) -> Member:
        """The broker that a remote call has named, in its newest life. Raises as `Member.of`."""
        member = Member.of(plain)
        known = self._members.get(member.ref.name)
        if known is not None and known.ref.incarnation > member.ref.incarnation:
            return known
        if known is not None and known.ref.incarnation < member.ref.incarnation:
            self._filters.pop(member.ref.name, None)
        self._members[member.ref.name] = member
        return member

    def register(self, plain: Any, topic_filter: str, version: int, there: bool) -> bool:
        """A broker has, or no longer has, subscribers for a filter. False if that is old news."""
        filters = self._filters.setdefault(self.know(plain).ref.name, {})
        if version <= filters.get(topic_filter, (0, False))[0]:
            return False
        filters[topic_filter] = version, there
        return True

    def enrol(self, plain: Any) -> None:
        """A broker takes part in stateless delivery. Raises as `Member.of`."""
        member = self.know(plain)
        self.enrolled[member.ref.name] = member

    def wants(self, member: Member, topic: str) -> bool:
        """Does the broker have a subscriber for the topic?"""
        filters = self._filters.get(member.ref.name, {})
        return any(there and matches(topic_filter, topic) for topic_filter, (_, there) in filters.items())

    def interested(self, topic: str) -> dict[str, Member]:
        """The brokers with a subscriber for a topic, by name."""
        return {name: self._members[name] for name in self._filters if self.wants(self._members[name], topic)}

    def refresh(self, topic: str, members: dict[str, Member]) -> None:
        """Put the present lives of brokers in the place of earlier ones, if they still want the topic."""
        for name, member in list(members.items()):
            latest = self._members.get(name, member)
            if latest.ref != member.ref:
                del members[name]
                if self.wants(latest, topic):
                    members[name] = latest

    def at(self, elements: Iterable[BrokerAddress]) -> list[Member]:
        """The brokers with these elements of the broker list."""
        wanted = set(elements)
        return [member for member in self._members.values() if member.element in wanted]

    def epoch_of(self, topic: str) -> int:
        """The highest epoch under which a member knows a tree of the topic, 0 if none does."""
        return max((tree.epoch for tree in self._joined.get(topic, {}).values()), default=0)

    def joined(self, topic: str) -> dict[str, Member]:
        """The brokers that have joined a tree of the topic, by name."""
        return {name: self._members[name] for name in self._joined.get(topic, ())}

    @property
    def joined_topics(self) -> list[str]:
        """The topics of which somebody has joined a tree."""
        return sorted(self._joined)

    def take(self, reports: Answers) -> set[str]:
        """Note all reports. Returns who has reported, by name."""
        self._joined.clear()
        self.outgrown.clear()
        reporting = set()
        for report in reports:
            if report.error is not None or report.value is None:
                continue
            try:
                told = msgspec.convert(report.value, Report)
                mine = self.mine(told.member)
            except (ValueError, TypeError, LookupError):
                continue  # it makes no sense: as if it had not reported
            self.highest_epoch = max(self.highest_epoch, told.epoch)
            if not mine:
                continue
            name = self.know(told.member).ref.name
            reporting.add(name)
            self.outgrown.update(told.outgrown)
            if told.enrolled:
                self.enrol(told.member)
            for topic_filter, version in told.filters:
                self.register(told.member, topic_filter, version, True)
            for topic, address, of in told.joined:
                self._joined.setdefault(topic, {})[name] = Tree(address, of)
        return reporting

    def forget_all_but(self, names: set[str]) -> None:
        """The other brokers have died: they want nothing any more."""
        for name in self._filters.keys() - names:
            del self._filters[name]
        for name in self.enrolled.keys() - names:
            del self.enrolled[name]
