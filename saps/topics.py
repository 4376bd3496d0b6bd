"""Topic names and topic filters (MQTT 5.0, section 4.7; MQTT 3.1.1, section 4.7).

Topics are `str`; levels are separated by ``/``; ``+`` stands for one level, ``#`` for the parent and all that follows.
"""

from __future__ import annotations

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
    """True if the filter can match more than one topic."""
    return topic_filter.endswith("#") or "+" in topic_filter


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

    For a filter without wildcards this is the whole filter.
    """
    levels = topic_filter.split("/")
    for i, level in enumerate(levels):
        if level in ("+", "#"):
            return "/".join(levels[:i]) if i else None
    return topic_filter


def ancestors(topic: str) -> list[str]:
    """The topic itself and its proper prefixes, longest first: ``a/b/c``, ``a/b``, ``a``."""
    levels = topic.split("/")
    return ["/".join(levels[:i]) for i in range(len(levels), 0, -1)]
