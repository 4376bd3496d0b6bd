"""Access rules: what each client may publish and receive. The grammar of the file is in docs/security.md.

The first rule that fits the client, the action and the topic decides; if none does, the file's default does.
Decisions are kept by topic, so that a busy topic costs one look-up.
"""

from __future__ import annotations

from enum import Flag
from typing import NamedTuple
from weakref import WeakValueDictionary

from saps.frontend.mqtt.access.filters import Levels, admits, covers, meet
from saps.frontend.mqtt.access.patterns import NamePattern, Subject, TopicPattern
from saps.operations.roles import Roles

CACHED_TOPICS = 1024
"""Decisions kept for clients with the same rights, of each kind, about 100 bytes each; beyond it they are made anew."""


class Action(Flag):
    """What a rule is about."""

    PUBLISH = 1
    SUBSCRIBE = 2
    BOTH = 3


class Rule(NamedTuple):
    """One rule. The client must fit `users` (or be anonymous, or either) and `clients`, the topic one of `topics`."""

    allow: bool
    action: Action
    topics: tuple[TopicPattern, ...]
    users: tuple[NamePattern, ...] = ()
    """Empty: every client, anonymous ones too."""
    anonymous: bool = False
    """Only clients without a user."""
    clients: tuple[NamePattern, ...] = ()
    """Client identifiers; empty: any."""

    def concerns(self, subject: Subject) -> bool:
        """True if the rule is for this client."""
        user, client_id = subject
        if self.anonymous and user is not None:
            return False
        if self.users and (user is None or not any(pattern.fits(user, subject) for pattern in self.users)):
            return False
        return not self.clients or any(pattern.fits(client_id or "", subject) for pattern in self.clients)


class Clause(NamedTuple):
    """What is left of a rule for one client and one action."""

    allow: bool
    filters: tuple[Levels, ...]


class Rights:
    """What one client may do; shared by all clients for which the same rules say the same."""

    __slots__ = ("__weakref__", "_default", "_publish", "_publishing", "_read", "_reading", "publishable")

    def __init__(self, publishing: tuple[Clause, ...], reading: tuple[Clause, ...], default: bool) -> None:
        self._publishing = publishing
        self._reading = reading
        self._default = default
        self._publish: dict[str, bool] = {}
        self._read: dict[str, bool] = {}
        self.publishable: set[str] = set()
        """Topics that are known to be permitted to publish to."""

    asker = None

    def may_publish(self, topic: str) -> bool:
        """May the client publish to the topic?"""
        known = self._publish.get(topic)
        if known is None:
            if len(self._publish) >= CACHED_TOPICS:
                self._publish.clear()
                self.publishable.clear()
            known = self._publish[topic] = self._decide(self._publishing, topic)
            if known:
                self.publishable.add(topic)
        return known

    def may_read(self, topic: str) -> bool:
        """May the client receive the messages of the topic?"""
        known = self._read.get(topic)
        if known is None:
            if len(self._read) >= CACHED_TOPICS:
                self._read.clear()
            known = self._read[topic] = self._decide(self._reading, topic)
        return known

    def may_subscribe(self, topic_filter: str) -> bool:
        """May the client subscribe? For a topic this is `may_read`.

        A filter with wildcards is refused if one rule denies all of it before any rule allows some of it. If it is not,
        the client gets those of the topics it may read.
        """
        wanted = tuple(topic_filter.split("/"))
        for clause in self._reading:
            for levels in clause.filters:
                if meet(levels, wanted) if clause.allow else covers(levels, wanted):
                    return clause.allow
        return self._default

    def _decide(self, clauses: tuple[Clause, ...], topic: str) -> bool:
        levels = tuple(topic.split("/"))
        for clause in clauses:
            for wanted in clause.filters:
                if admits(wanted, levels):
                    return clause.allow
        return self._default


class Policy:
    """The rules of one ACL file."""

    def __init__(self, rules: tuple[Rule, ...], default: bool = False, roles: Roles | None = None) -> None:
        """`default`: what holds where no rule does; True: allowed. `roles`: of those who look after the mesh, if the
        file has them."""
        self.roles = roles
        self.rules = rules
        self.default = default
        self.uses_client = any(topic.uses_client for rule in rules for topic in rule.topics)
        """Some rule has ``%c`` in a topic."""
        self.uses_user = any(topic.uses_user for rule in rules for topic in rule.topics)
        self._general: list[int] = []
        """The rules that are not for certain users only."""
        self._by_user: dict[str, list[int]] = {}
        for number, rule in enumerate(rules):
            names = {pattern.exact for pattern in rule.users}
            if not names or None in names:
                self._general.append(number)
            else:
                for name in names:
                    self._by_user.setdefault(name or "", []).append(number)
        self._shared: WeakValueDictionary[tuple[tuple[Clause, ...], tuple[Clause, ...]], Rights] = WeakValueDictionary()

    def rights(self, user: str | None, client_id: str | None) -> Rights:
        """The rights of a client; `user` is None if it is anonymous, `client_id` if it is no MQTT client."""
        subject = Subject(user, client_id)
        numbers = self._general
        if user is not None and (own := self._by_user.get(user)):
            numbers = sorted({*numbers, *own})
        concerned = [self.rules[number] for number in numbers if self.rules[number].concerns(subject)]
        publishing = tuple(_clauses(concerned, Action.PUBLISH, subject))
        reading = tuple(_clauses(concerned, Action.SUBSCRIBE, subject))
        rights = self._shared.get((publishing, reading))
        if rights is None:
            rights = self._shared[publishing, reading] = Rights(publishing, reading, self.default)
        return rights


def _clauses(rules: list[Rule], action: Action, subject: Subject) -> list[Clause]:
    found = []
    for rule in rules:
        if action in rule.action:
            filters = tuple([levels for topic in rule.topics if (levels := topic.levels(subject)) is not None])
            if filters:
                found.append(Clause(rule.allow, filters))
    return found
