"""OFGate's knowledge of the brokers: their identity, what they want and the trees they have joined.

OFGate can gather it anew from the brokers' reports (`saps.agents.ofm.OfmAgent.report`) at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from saps.agents.api import Answers
from saps.agents.switchover import Member, Report
from saps.ofm.network.topology import BrokerAddress
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.ring.keys import BrokerRef
from saps.topics import matches


class _Filter(NamedTuple):
    """What a broker has said about a filter."""

    version: int
    there: bool
    """Whether the broker has subscribers for it."""
    missing: bool = False
    """Whether the broker's latest report does not have it."""


class Roster:
    """All brokers that have told OFGate something. A newer incarnation of a broker replaces an older one."""

    def __init__(self, mine: Callable[[BrokerRef], bool] = lambda ref: True) -> None:
        """`mine` returns whether a broker is in OFGate's domain. All other brokers are ignored."""
        self._mine = mine
        self._members: dict[str, Member] = {}
        self._filters: dict[str, dict[str, _Filter]] = {}
        """Name of broker -> filter -> what it has said last, until the filter is missing in two reports in a row."""
        self._joined: dict[str, dict[str, Tree]] = {}
        """Topic -> name of broker -> tree that the broker has joined (BOTH), from the latest reports."""
        self.permitted: Callable[[str, Member], bool] = lambda topic, member: True
        """Returns whether a broker may send or receive the topic. Without permission a broker is in no tree of the
        topic."""
        self.enrolled: dict[str, Member] = {}
        """The brokers that take part in stateless delivery, by name."""
        self.outgrown: set[str] = set()
        """Topics with a tree and subscribers outside it, from the publishers' latest reports (BOTH)."""
        self.highest_epoch = 0
        """The highest epoch of all trees that brokers know of."""

    def clear(self) -> None:
        """Forget everything but the epochs."""
        self._members.clear()
        self.enrolled.clear()
        self._filters.clear()
        self._joined.clear()

    def mine(self, plain: Any) -> bool:
        """Return whether the broker named in a remote call is in OFGate's domain. Raises as `Member.of`."""
        return self._mine(Member.of(plain).ref)

    def know(self, plain: Any) -> Member:
        """Note the broker named in a remote call, and return its newest known incarnation. Raises as `Member.of`."""
        member = Member.of(plain)
        known = self._members.get(member.ref.name)
        if known is not None and known.ref.incarnation > member.ref.incarnation:
            return known
        if known is not None and known.ref.incarnation < member.ref.incarnation:
            self._filters.pop(member.ref.name, None)
        self._members[member.ref.name] = member
        return member

    def register(self, plain: Any, topic_filter: str, version: int, there: bool) -> bool:
        """Note whether a broker has subscribers for a filter (`there`). Returns False if this version is no news.
        Raises as `Member.of`."""
        filters = self._filters.setdefault(self.know(plain).ref.name, {})
        known = filters.get(topic_filter)
        if known is not None and version <= known.version:
            return False
        filters[topic_filter] = _Filter(version, there)
        return True

    def enrol(self, plain: Any) -> None:
        """Note that a broker takes part in stateless delivery. Raises as `Member.of`."""
        member = self.know(plain)
        self.enrolled[member.ref.name] = member

    def wants(self, member: Member, topic: str) -> bool:
        """Return whether the broker has a subscriber for the topic."""
        filters = self._filters.get(member.ref.name, {})
        return any(said.there and matches(topic_filter, topic) for topic_filter, said in filters.items())

    def interested(self, topic: str) -> dict[str, Member]:
        """Return the brokers with a subscriber for a topic, by name."""
        return {name: self._members[name] for name in self._filters if self.wants(self._members[name], topic)}

    def refresh(self, topic: str, members: dict[str, Member]) -> None:
        """Replace earlier incarnations in `members` by the present ones that still want the topic, and remove the
        others."""
        for name, member in list(members.items()):
            latest = self._members.get(name, member)
            if latest.ref != member.ref:
                del members[name]
                if self.wants(latest, topic):
                    members[name] = latest

    def at(self, elements: Iterable[BrokerAddress]) -> list[Member]:
        """Return the brokers with these elements of the broker list."""
        wanted = set(elements)
        return [member for member in self._members.values() if member.element in wanted]

    def epoch_of(self, topic: str) -> int:
        """Return the highest epoch under which a member knows a tree of the topic, 0 if no member does."""
        return max((tree.epoch for tree in self._joined.get(topic, {}).values()), default=0)

    def joined(self, topic: str) -> dict[str, Member]:
        """Return the brokers that have joined a tree of the topic, by name."""
        return {name: self._members[name] for name in self._joined.get(topic, ())}

    @property
    def joined_topics(self) -> list[str]:
        """The topics with a tree that some broker has joined, sorted."""
        return sorted(self._joined)

    def take(self, reports: Answers) -> set[str]:
        """Note all reports, and return the names of the brokers that have reported. Malformed reports and those of
        other domains do not count."""
        self._joined.clear()
        self.outgrown.clear()
        reported: dict[str, set[str]] = {}
        for _, told in reports.of(Report):
            try:
                mine = self.mine(told.member)
            except (ValueError, TypeError):
                continue  # a malformed report counts as none
            self.highest_epoch = max(self.highest_epoch, told.epoch)
            if not mine:
                continue
            name = self.know(told.member).ref.name
            self.outgrown.update(told.outgrown)
            if told.enrolled:
                self.enrol(told.member)
            for topic_filter, version in told.filters:
                self.register(told.member, topic_filter, version, True)
            reported.setdefault(name, set()).update(topic_filter for topic_filter, _ in told.filters)
            for topic, address, of in told.joined:
                self._joined.setdefault(topic, {})[name] = Tree(address, of)
        for name, filters in reported.items():
            self._miss(name, filters)
        return set(reported)

    def _miss(self, name: str, reported: set[str]) -> None:
        """Forget the filters that are missing in two reports of a broker in a row: the notice that the last subscriber
        has gone may be lost. A filter that is missing once may have come after the report was made."""
        filters = self._filters.get(name, {})
        for topic_filter, said in list(filters.items()):
            missing = topic_filter not in reported
            if missing and said.missing:
                del filters[topic_filter]
            elif missing is not said.missing:
                filters[topic_filter] = said._replace(missing=missing)

    def forget_all_but(self, names: set[str]) -> None:
        """Forget what other brokers than these want: they have died."""
        for name in self._filters.keys() - names:
            del self._filters[name]
        for name in self.enrolled.keys() - names:
            del self.enrolled[name]
