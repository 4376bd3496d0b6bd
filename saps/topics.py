"""Topic names and topic filters (MQTT 5.0, section 4.7; MQTT 3.1.1, section 4.7).

Topics are `str`; levels are separated by ``/``; ``+`` stands for one level, ``#`` for the parent and all that follows.
"""

from __future__ import annotations

from typing import NamedTuple

SHARE = "$share/"
"""What the filter of a shared subscription begins with."""
MAX_TOPIC_BYTES = 65535
"""Longest topic name or filter in UTF-8 bytes (MQTT 5.0, 4.7.3)."""


def topic_fault(topic: str) -> str | None:
    """Why `topic` is not a valid topic name, or None if it is one."""
    if "+" in topic or "#" in topic:
        return "a topic name must not contain the wildcards + or #"
    return _common_fault(topic)


def filter_fault(topic_filter: str) -> str | None:
    """Why `topic_filter` is not a valid topic filter, or None if it is one."""
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
    """A shared subscription (MQTT 5.0, 4.8.2): who subscribes to the same name and filter takes turns."""

    group: str
    topic_filter: str


def shared(topic_filter: str) -> Shared | None:
    """The parts of ``$share/group/filter``; None for a filter that is not shared."""
    if not topic_filter.startswith(SHARE):
        return None
    group, _, inner = topic_filter[len(SHARE) :].partition("/")
    return Shared(group, inner)


def subscription_fault(topic_filter: str) -> str | None:
    """Why nobody can subscribe to `topic_filter`, or None: a topic filter, or ``$share/group/filter`` (4.8.2)."""
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
    """True if the filter can match more than one topic, or is shared: it does not stand at the topic of its name."""
    return topic_filter.endswith("#") or "+" in topic_filter or topic_filter.startswith(SHARE)


def matches(topic_filter: str, topic: str) -> bool:
    """True if the (valid) filter matches the (valid) topic.

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
    """The filter's longest leading run of levels without wildcard: ``a/b`` for ``a/b/+/c``, None for ``#`` or ``+/x``.

    For a filter without wildcards this is the whole filter, for a shared one that of the filter that is shared.
    """
    if topic_filter.startswith(SHARE):
        topic_filter = topic_filter[len(SHARE) :].partition("/")[2]
    levels = topic_filter.split("/")
    for i, level in enumerate(levels):
        if level in ("+", "#"):
            return "/".join(levels[:i]) if i else None
    return topic_filter


def ancestors(topic: str) -> list[str]:
    """The topic itself and its proper prefixes, longest first: ``a/b/c``, ``a/b``, ``a``."""
    levels = topic.split("/")
    return ["/".join(levels[:i]) for i in range(len(levels), 0, -1)]
