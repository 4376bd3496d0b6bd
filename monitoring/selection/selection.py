"""Selects the topics that get a tree: a knapsack with two dimensions, entries and buckets, for each switch.

`knapsack` solves it. This module adds hysteresis and the dwell time. An existing tree counts for more than its worth,
and a new one for less. A tree that was built or dropped lately stays built or dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from monitoring.decisions.audit import Account
from monitoring.selection.knapsack import Items, solve
from monitoring.selection.network import Needs, Network, Room

Spare = dict[str, Room]
"""Room that is left, by switch."""


class Candidate(NamedTuple):
    """A topic that may get a tree."""

    topic: str
    saving: float
    cost: float
    needs: Needs
    sure: float = math.inf
    """Lower bound of the saving with a certainty of 80 %, in bytes a second."""


class Held(NamedTuple):
    """The last decision about a topic."""

    tree: bool
    """Whether the topic has a tree."""
    since: int
    """Epoch of the last change, in ms since 1970."""
    until: int = 0
    """Time in ms since 1970 before which no tree is built, because the last one kept missing its prediction."""
    account: Account = Account()
    """Account of the topic's tree."""


class Calm(NamedTuple):
    """The resistance of decisions to change."""

    hysteresis: float = 0.25
    """Share by which an existing tree's saving counts for more."""
    dwell: int = 900_000
    """Least duration of a decision in ms."""
    review: float = 6.0
    """Hours over which a tree must save what was predicted, equal to the forecast's horizon."""
    bar: int = 14_400_000
    """Time in ms for which a topic gets no tree after one was revoked."""
    least: float = 0.0
    """Bytes a second that a tree must save beyond its cost."""


@dataclass(slots=True)
class Choice:
    """The result of a selection."""

    chosen: set[str]
    """Topics that shall have a tree."""
    locked: set[str]
    """Topics of `chosen` that keep their tree because of the dwell time."""
    barred: set[str]
    """Topics worth a tree that get none because of the dwell time."""
    refused: dict[str, str]
    """Topic worth a tree that got no room -> the first switch without room, or empty if all of them have room left."""
    spare: dict[str, Room]
    """Room that is left on each switch that a candidate needs."""
    gap: float = 0.0
    """Upper bound of the share by which the choice's worth falls short of the best one's."""


def select(
    candidates: Iterable[Candidate],
    network: Network,
    held: Mapping[str, Held],
    now: int,
    calm: Calm = Calm(),  # noqa: B008
) -> Choice:
    """Select the topics that shall have trees at `now` (ms since 1970). The order of the candidates does not matter."""
    known = sorted(candidates, key=lambda candidate: candidate.topic)
    spare = {switch: network.budget(switch) for candidate in known for switch in candidate.needs}
    locked, barred, open_to = set(), set(), []
    for candidate in known:
        before = held.get(candidate.topic)
        fresh = before is not None and now - before.since < calm.dwell
        there = before is not None and before.tree
        value = _value(candidate, there, calm.hysteresis)
        if (value <= 0 or value < calm.least) and not (fresh and there and candidate.saving > 0):
            continue
        if fresh and not there:
            barred.add(candidate.topic)
        elif fresh and _fits(candidate.needs, spare):
            locked.add(candidate.topic)
            _take(candidate.needs, spare)
        else:
            open_to.append((value, candidate))
    items = _items(open_to, spare)
    solution = solve(items)
    chosen = solution.chosen
    for index in chosen:
        _take(open_to[index][1].needs, spare)
    names = {open_to[index][1].topic for index in chosen}
    refused = {c.topic: _full(c.needs, spare) for _, c in open_to if c.topic not in names}
    return Choice(names | locked, locked, barred, refused, spare, solution.gap(items))


def _value(candidate: Candidate, there: bool, hysteresis: float) -> float:
    if there:
        return candidate.saving * (1.0 + hysteresis) - candidate.cost
    return min(candidate.saving / (1.0 + hysteresis), candidate.sure) - candidate.cost


def _items(candidates: Sequence[tuple[float, Candidate]], spare: Spare) -> Items:
    """Return the candidates as items of the knapsack: two resources, entries and buckets, for each switch."""
    numbers = {switch: 2 * number for number, switch in enumerate(sorted(spare))}
    needs = []
    for _, candidate in candidates:
        parts = []
        for switch, room in candidate.needs.items():
            parts += [(numbers[switch], room.entries), (numbers[switch] + 1, room.buckets)]
        needs.append(tuple(parts))
    return Items([value for value, _ in candidates], needs, [left for s in sorted(spare) for left in spare[s]])


def _fits(needs: Needs, spare: Spare) -> bool:
    return all(room.entries <= spare[s].entries and room.buckets <= spare[s].buckets for s, room in needs.items())


def _take(needs: Needs, spare: Spare) -> None:
    for switch, room in needs.items():
        left = spare[switch]
        spare[switch] = Room(left.entries - room.entries, left.buckets - room.buckets)


def _full(needs: Needs, spare: Spare) -> str:
    """Return the first switch without room for these needs, or an empty text."""
    return next(
        (s for s, room in sorted(needs.items()) if room.entries > spare[s].entries or room.buckets > spare[s].buckets),
        "",
    )
