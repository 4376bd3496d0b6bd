"""Topic names and topic filters (MQTT 5.0, section 4.7; MQTT 3.1.1, section 4.7).

Topics are `str`; levels are separated by ``/``; ``+`` stands for one level, ``#`` for the parent and all that follows.
"""

from __future__ import annotations

from typing import NamedTuple

SHARE = "$share/"
"""Prefix of the filter of a shared subscription."""
MAX_TOPIC_BYTES = 65535
"""Most bytes of a topic name or filter in UTF-8 (MQTT 5.0, 4.7.3)."""


def topic_fault(topic: str) -> str | None:
    """Return why `topic` is not a valid topic name, or None if it is valid."""
    if "+" in topic or "#" in topic:
        return "a topic name must not contain the wildcards + or #"
    return _common_fault(topic)


def filter_fault(topic_filter: str) -> str | None:
    """Return why `topic_filter` is not a valid topic filter, or None if it is valid."""
    fault = _common_fault(topic_filter)
    if fault is not None:
        return fault
    if "#" in topic_filter or "+" in topic_filter:
        levels = topic_filter.split("/")
        for i, level in enumerate(levels):
            if "#" in level and (level != "#" or i != len(levels) - 1):
                return "# must stand alone as the last level"
            if "+" in level and level != "+":
                return "+ must stand alone in its level"
    return None


class Shared(NamedTuple):
    """A shared subscription (MQTT 5.0, 4.8.2). Subscribers with the same group and filter take turns."""

    group: str
    topic_filter: str


def shared(topic_filter: str) -> Shared | None:
    """Return the parts of ``$share/group/filter``, which may be empty, or None for a filter that is not shared."""
    if not topic_filter.startswith(SHARE):
        return None
    group, _, inner = topic_filter[len(SHARE) :].partition("/")
    return Shared(group, inner)


def subscription_fault(topic_filter: str) -> str | None:
    """Return why nobody can subscribe to `topic_filter`, or None if it is a valid topic filter or
    ``$share/group/filter`` (4.8.2)."""
    if topic_filter.partition("/")[0] != SHARE[:-1]:
        return filter_fault(topic_filter)
    parts = shared(topic_filter)
    if parts is None or not parts.group or not parts.topic_filter:
        return "a shared subscription is $share/group/filter"
    if "+" in parts.group or "#" in parts.group:
        return "the name of a group must not contain the wildcards + or #"
    return filter_fault(parts.topic_filter)


def _common_fault(text: str) -> str | None:
    if not text:
        return "a topic must have at least one character"
    if "\0" in text:
        return "a topic must not contain the character U+0000"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "a topic must be valid UTF-8"
    if size > MAX_TOPIC_BYTES:
        return f"a topic must be at most {MAX_TOPIC_BYTES} bytes long"
    return None


def is_wildcard(topic_filter: str) -> bool:
    """Return whether the filter can match more than one topic, or is shared. Then its key is at its literal prefix."""
    return topic_filter.endswith("#") or "+" in topic_filter or topic_filter.startswith(SHARE)


def matches(topic_filter: str, topic: str) -> bool:
    """Return whether the (valid) filter matches the (valid) topic.

    A filter that begins with a wildcard does not match a topic that begins with ``$`` (MQTT 5.0, 4.7.2).
    """
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i == len(levels) or level not in ("+", levels[i]):
            return False
    return len(wanted) == len(levels)


def literal_prefix(topic_filter: str) -> str | None:
    """Return the filter's levels before its first wildcard: ``a/b`` for ``a/b/+/c``, None for ``#`` or ``+/x``.

    A filter without wildcards is returned whole. For a shared subscription the inner filter counts.
    """
    if topic_filter.startswith(SHARE):
        topic_filter = topic_filter[len(SHARE) :].partition("/")[2]
    levels = topic_filter.split("/")
    for i, level in enumerate(levels):
        if level in ("+", "#"):
            return "/".join(levels[:i]) if i else None
    return topic_filter


def ancestors(topic: str) -> list[str]:
    """Return the topic and its proper prefixes, the longest first: ``a/b/c``, ``a/b``, ``a``."""
    levels = topic.split("/")
    return ["/".join(levels[:i]) for i in range(len(levels), 0, -1)]
