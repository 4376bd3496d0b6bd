"""Decides by access rules which topics each client may publish and receive.

docs/security.md has the grammar of the ACL file. The first rule that matches the client, the action and the topic
decides; without a match the file's default decides. A cache keeps the decisions by topic, so a busy topic costs one
look-up.
"""

from __future__ import annotations

from enum import Flag
from typing import NamedTuple
from weakref import WeakValueDictionary

from saps.frontend.mqtt.access.filters import Levels, admits, covers, meet
from saps.frontend.mqtt.access.patterns import NamePattern, Subject, TopicPattern
from saps.operations.roles import Roles

CACHED_TOPICS = 1024
"""Most cached decisions for publishing, and for reading, of all clients with the same rights (about 100 bytes each). A
full cache is cleared."""


class Action(Flag):
    """The action that a rule allows or denies."""

    PUBLISH = 1
    SUBSCRIBE = 2
    BOTH = 3


class Rule(NamedTuple):
    """One rule. It applies if the client matches `users`, `anonymous` and `clients`, and the topic one of `topics`."""

    allow: bool
    action: Action
    topics: tuple[TopicPattern, ...]
    users: tuple[NamePattern, ...] = ()
    """Patterns for user names. Empty: the rule is for every client, also for anonymous clients."""
    anonymous: bool = False
    """Whether the rule is only for anonymous clients."""
    clients: tuple[NamePattern, ...] = ()
    """Patterns for client identifiers. Empty: any client identifier."""

    def concerns(self, subject: Subject) -> bool:
        """Return whether the rule is for this client."""
        user, client_id = subject
        if self.anonymous and user is not None:
            return False
        if self.users and (user is None or not any(pattern.fits(user, subject) for pattern in self.users)):
            return False
        return not self.clients or any(pattern.fits(client_id or "", subject) for pattern in self.clients)


class Clause(NamedTuple):
    """A rule reduced to one client and one action, with the client's names filled in."""

    allow: bool
    filters: tuple[Levels, ...]


class Rights:
    """The rights of one client. All clients with the same clauses share one object. (A `saps.agents.user.Rights`.)"""

    __slots__ = ("__weakref__", "_default", "_publish", "_publishing", "_read", "_reading", "publishable")

    def __init__(self, publishing: tuple[Clause, ...], reading: tuple[Clause, ...], default: bool) -> None:
        self._publishing = publishing
        self._reading = reading
        self._default = default
        self._publish: dict[str, bool] = {}
        self._read: dict[str, bool] = {}
        self.publishable: set[str] = set()
        """Topics with a cached decision that allows to publish to them."""

    asker = None

    def may_publish(self, topic: str) -> bool:
        """Return whether the client may publish to the topic."""
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
        """Return whether the client may receive the messages of the topic."""
        known = self._read.get(topic)
        if known is None:
            if len(self._read) >= CACHED_TOPICS:
                self._read.clear()
            known = self._read[topic] = self._decide(self._reading, topic)
        return known

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether the client may subscribe to the filter. For a filter without wildcards this is `may_read`.

        The first rule that allows a part of a filter with wildcards, or denies all of it, decides. The client of an
        allowed filter gets only the messages of topics that it may read.
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
        """Make the policy of a file.

        `rules` are in the order of the file. `default` is the decision where no rule applies; True allows. `roles` are
        the operators' roles, or None if the file has none.
        """
        self.roles = roles
        self.rules = rules
        self.default = default
        self.uses_client = any(topic.uses_client for rule in rules for topic in rule.topics)
        """Whether a rule has ``%c`` in a topic."""
        self.uses_user = any(topic.uses_user for rule in rules for topic in rule.topics)
        """Whether a rule has ``%u`` in a topic."""
        self._general: list[int] = []
        """Numbers of the rules that are not only for users with exact names."""
        self._by_user: dict[str, list[int]] = {}
        """By user: the numbers of the rules for this user's exact name. `rights` need not search all rules."""
        for number, rule in enumerate(rules):
            names = {pattern.exact for pattern in rule.users}
            if not names or None in names:
                self._general.append(number)
            else:
                for name in names:
                    self._by_user.setdefault(name or "", []).append(number)
        self._shared: WeakValueDictionary[tuple[tuple[Clause, ...], tuple[Clause, ...]], Rights] = WeakValueDictionary()

    def rights(self, user: str | None, client_id: str | None) -> Rights:
        """Return the rights of a client.

        `user` is None for an anonymous client. `client_id` is None for an operator, who is no MQTT client. The names
        must have no `name_fault` if topics of the rules contain them (`uses_user`, `uses_client`).
        """
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
