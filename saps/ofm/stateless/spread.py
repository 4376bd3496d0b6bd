"""Spreads topics over the planes: which plane a topic begins with.

Topics are spread by a hash. The busiest ones are few, and a hash puts several of them on one plane. So those whose load
is known are spread by it: each in turn, the busiest first, to the plane that carries least. That is Graham's LPT rule
(1969): of loads as they count here, the busiest plane carries at most 4/3 of what it would in the best spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import frexp
from zlib import crc32


def by_hash(topic: str, planes: Sequence[int]) -> int:
    """Return the plane of a topic whose load is not known. `planes` must not be empty."""
    return planes[crc32(topic.encode()) % len(planes)]


def by_load(loads: Mapping[str, float], planes: Sequence[int]) -> dict[str, int]:
    """Return the planes of topics with these loads in bytes a second; nothing without planes.

    A load counts as the next power of two, so that small changes of the loads move no topic."""
    found: dict[str, int] = {}
    if not planes:
        return found
    counted = {topic: 2.0 ** frexp(load)[1] for topic, load in loads.items() if load > 0}
    taken = dict.fromkeys(planes, 0.0)
    for topic in sorted(counted, key=lambda topic: (-counted[topic], topic)):
        found[topic] = plane = min(taken, key=lambda plane: (taken[plane], plane))
        taken[plane] += counted[topic]
    return found


def carried(loads: Mapping[str, float], chosen: Mapping[str, int], planes: Sequence[int]) -> dict[int, float]:
    """Return the bytes a second that each plane carries if topics with these loads use the planes in `chosen`, and
    others those of `by_hash`."""
    found = dict.fromkeys(planes, 0.0)
    for topic, load in loads.items() if planes else ():
        plane = chosen.get(topic, -1)
        found[plane if plane in found else by_hash(topic, planes)] += load
    return found
