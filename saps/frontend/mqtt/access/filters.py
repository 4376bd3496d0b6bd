"""Compares topic filters as sets of topics: membership, inclusion and overlap (MQTT 5.0, section 4.7).

The empty string counts as a topic of one level here, although MQTT has no empty topic.
"""

from __future__ import annotations

Levels = tuple[str, ...]
"""A topic or topic filter, split at its slashes."""


def admits(wanted: Levels, topic: Levels) -> bool:
    """Return whether the filter `wanted` matches the topic."""
    if topic[0][:1] == "$" and wanted[0] in ("+", "#"):
        return False
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i == len(topic) or level not in ("+", topic[i]):
            return False
    return len(wanted) == len(topic)


def covers(outer: Levels, inner: Levels) -> bool:
    """Return whether the filter `outer` matches every topic that the filter `inner` matches."""
    if inner[0][:1] == "$" and outer[0] in ("+", "#"):
        return False
    if inner == ("#",):
        inner = ("+", "#")  # every topic has a first level
    for i, level in enumerate(outer):
        if level == "#":
            return True
        if i == len(inner) or inner[i] == "#" or level not in ("+", inner[i]):
            return False
    return len(outer) == len(inner)


def meet(one: Levels, other: Levels) -> bool:
    """Return whether both filters match a common topic."""
    for first, second in ((one[0], other[0]), (other[0], one[0])):
        if first[:1] == "$" and second in ("+", "#"):
            return False
    for a, b in zip(one, other, strict=False):
        if a == "#" or b == "#":
            return True
        if a != b and a != "+" and b != "+":
            return False
    longer = one if len(one) > len(other) else other
    shorter = min(len(one), len(other))
    return len(one) == len(other) or longer[shorter] == "#"
