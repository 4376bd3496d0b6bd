"""Parses rights that a login brings, from a token's claim or an HTTP service.

They are a JSON object with the lists ``publish``, ``subscribe`` and ``both`` of topic filters. In the filters ``%u``
and ``%c`` stand for the client's own names, as in the ACL file. Topics that no filter allows are denied.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from saps.agents.user import Rights
from saps.frontend.mqtt.access.acl import CACHED_TOPICS, Action, Policy, Rule
from saps.frontend.mqtt.access.patterns import TopicPattern

MOST_FILTERS = 256
"""Most topic filters of one login."""
POLICIES = 4096
"""Most policies in the cache. Clients with the same rights share one policy."""


class Grants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON object. Each member is a topic filter or a list of topic filters."""

    publish: str | tuple[str, ...] = ()
    subscribe: str | tuple[str, ...] = ()
    both: str | tuple[str, ...] = ()


def granted(value: object) -> Policy:
    """Return the policy of a decoded JSON object. Raises `ValueError` with the reason if the object is not valid."""
    return policy_of(msgspec.convert(value, Grants))


def policy_of(grants: Grants) -> Policy:
    """Return the policy of parsed grants. Raises `ValueError` for an invalid filter or more than `MOST_FILTERS`."""
    listed = [(each,) if isinstance(each, str) else each for each in (grants.publish, grants.subscribe, grants.both)]
    if sum(map(len, listed)) > MOST_FILTERS:
        raise ValueError(f"rights to more than {MOST_FILTERS} topic filters")
    return _policy(*listed)


NOTHING = Policy(())
"""The policy that allows nothing."""


@lru_cache(POLICIES)
def _policy(publish: tuple[str, ...], subscribe: tuple[str, ...], both: tuple[str, ...]) -> Policy:
    rules = [
        Rule(True, action, tuple(map(TopicPattern, filters)))
        for action, filters in ((Action.PUBLISH, publish), (Action.SUBSCRIBE, subscribe), (Action.BOTH, both))
        if filters
    ]
    return Policy(tuple(rules))


class Narrowed:
    """The intersection of two rights: those of the ACL file and those of the login. (A `saps.agents.user.Rights`.)"""

    __slots__ = ("_one", "_other", "publishable")

    def __init__(self, one: Rights, other: Rights) -> None:
        self._one, self._other = one, other
        self.publishable: set[str] = set()

    asker = None

    def may_publish(self, topic: str) -> bool:
        if topic in self.publishable:
            return True
        allowed = self._one.may_publish(topic) and self._other.may_publish(topic)
        if allowed:
            if len(self.publishable) >= CACHED_TOPICS:
                self.publishable.clear()
            self.publishable.add(topic)
        return allowed

    def may_read(self, topic: str) -> bool:
        return self._one.may_read(topic) and self._other.may_read(topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        return self._one.may_subscribe(topic_filter) and self._other.may_subscribe(topic_filter)
