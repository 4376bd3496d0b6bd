"""Rights that come with a login, of a token's claim or of an HTTP service: a JSON object with the lists ``publish``,
``subscribe`` and ``both`` of topic filters, in which ``%u`` and ``%c`` stand for the client's own names as in the ACL
file. What no filter allows is denied."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from saps.agents.user import Rights
from saps.frontend.mqtt.access.acl import CACHED_TOPICS, Action, Policy, Rule
from saps.frontend.mqtt.access.patterns import TopicPattern

MOST_FILTERS = 256
"""Filters that one login may bring."""
POLICIES = 4096
"""Different rights that are kept, so that those of many clients which are the same take room once."""


class Grants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON object; each is a text or a list of texts."""

    publish: str | tuple[str, ...] = ()
    subscribe: str | tuple[str, ...] = ()
    both: str | tuple[str, ...] = ()


def granted(value: object) -> Policy:
    """The rules of a decoded JSON object. Raises `ValueError`, saying what is wrong."""
    return policy_of(msgspec.convert(value, Grants))


def policy_of(grants: Grants) -> Policy:
    """The same, of an object that is checked already. Raises `ValueError`."""
    listed = [(each,) if isinstance(each, str) else each for each in (grants.publish, grants.subscribe, grants.both)]
    if sum(map(len, listed)) > MOST_FILTERS:
        raise ValueError(f"rights to more than {MOST_FILTERS} topic filters")
    return _policy(*listed)


NOTHING = Policy(())
"""Allows nothing."""


@lru_cache(POLICIES)
def _policy(publish: tuple[str, ...], subscribe: tuple[str, ...], both: tuple[str, ...]) -> Policy:
    rules = [
        Rule(True, action, tuple(map(TopicPattern, filters)))
        for action, filters in ((Action.PUBLISH, publish), (Action.SUBSCRIBE, subscribe), (Action.BOTH, both))
        if filters
    ]
    return Policy(tuple(rules))


class Narrowed:
    """What two rights both allow: those of the ACL file, and those that came with the login. (A
    `saps.agents.user.Rights`.)"""

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
