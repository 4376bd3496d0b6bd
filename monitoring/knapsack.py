"""The multidimensional knapsack: items with values, each needing room of several resources; which to take?

Several greedy orders are tried: by value, by value for the share of the room needed, and by value against the
resources' dual prices (subgradient steps on the Lagrangian relaxation; Fisher 1981). The best is bettered by exchanges,
and small cases by branch and bound. All is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

ROUNDS = 15
"""Steps towards the dual prices."""
EXCHANGES = 100
"""Items up to which exchanges are tried: they cost the cube of it."""
EXACT, NODES = 24, 20_000
"""Items up to which the search tree is walked, and how many of its nodes at most."""

Need = tuple[tuple[int, int], ...]
"""Pairs of a resource's number and how much of it is needed."""


class Items(NamedTuple):
    """The items by number."""

    values: Sequence[float]
    """Positive."""
    needs: Sequence[Need]
    room: Sequence[int]
    """What there is of each resource."""


def solve(items: Items) -> list[int]:
    """The items to take, ascending: the best selection found."""
    items = _binding(items)
    if not any(items.needs):
        return list(range(len(items.values)))
    found = max((_greedy(items, order) for order in _orders(items)), key=lambda chosen: worth(items, chosen))
    if len(items.values) <= EXCHANGES:
        found = _exchange(items, found)
    if len(items.values) <= EXACT:
        found = _search(items, found)
    return sorted(found)


def worth(items: Items, chosen: Iterable[int]) -> float:
    """What a selection is worth."""
    return sum(items.values[index] for index in chosen)


def _binding(items: Items) -> Items:
    """The same problem without the resources that suffice for all items."""
    wanted = [0] * len(items.room)
    for need in items.needs:
        for resource, amount in need:
            wanted[resource] += amount
    short = [total > room for total, room in zip(wanted, items.room, strict=True)]
    return items._replace(needs=[tuple([part for part in need if short[part[0]]]) for need in items.needs])


def _orders(items: Items) -> list[list[int]]:
    prices = _prices(items)
    share = [1.0 / max(room, 1) for room in items.room]
    keys: list[list[float]] = [list(items.values), [], [], []]
    for value, need in zip(items.values, items.needs, strict=True):
        price = sum([amount * prices[resource] for resource, amount in need])
        part = sum([amount * share[resource] for resource, amount in need])
        keys[1].append(value / part if part else value * 1e12)
        keys[2].append(value / price if price else value * 1e12)
        keys[3].append(value - price)
    return [sorted(range(len(key)), key=lambda index, key=key: (-key[index], index)) for key in keys]  # type: ignore[misc]


def _greedy(items: Items, order: Iterable[int]) -> list[int]:
    left, chosen = list(items.room), []
    for index in order:
        need = items.needs[index]
        for resource, amount in need:
            if left[resource] < amount:
                break
        else:
            for resource, amount in need:
                left[resource] -= amount
            chosen.append(index)
    return chosen


def _prices(items: Items) -> list[float]:
    """What a unit of each resource is worth: at these prices about as much is wanted as there is."""
    resources = sorted({resource for need in items.needs for resource, _ in need})
    total = sum(items.values)
    prices = [0.0] * len(items.room)
    for step in range(1, ROUNDS + 1):
        wanted = [0] * len(items.room)
        for value, need in zip(items.values, items.needs, strict=True):
            if value > sum([amount * prices[resource] for resource, amount in need]):
                for resource, amount in need:
                    wanted[resource] += amount
        for resource in resources:
            room = max(items.room[resource], 1)
            excess = max(-1.0, min(1.0, wanted[resource] / room - 1.0))
            prices[resource] = max(0.0, prices[resource] + total / len(resources) / step * excess / room)
    return prices


def _exchange(items: Items, chosen: list[int]) -> list[int]:
    """Better a selection: force one in, leave one of those taken out, and fill up by value."""
    order = sorted(range(len(items.values)), key=lambda index: (-items.values[index], index))
    best = worth(items, chosen)
    better = True
    while better:
        better = False
        outside = [index for index in order if index not in chosen]
        for index in outside:
            for out in chosen:
                rest = [i for i in outside if i != index]
                trial = _greedy(items, [index, *[i for i in chosen if i != out], *rest, out])
                if worth(items, trial) > best * (1 + 1e-9):
                    chosen, best, better = trial, worth(items, trial), True
                    break
            if better:
                break
    return chosen


def _search(items: Items, chosen: list[int]) -> list[int]:
    """Branch and bound from the best known selection, within `NODES` nodes."""
    order = sorted(range(len(items.values)), key=lambda index: (-items.values[index], index))
    rest = [0.0] * (len(order) + 1)
    for place in range(len(order) - 1, -1, -1):
        rest[place] = rest[place + 1] + items.values[order[place]]
    best, found, visited = worth(items, chosen), chosen, 0
    stack: list[tuple[int, float, tuple[int, ...], list[int]]] = [(0, 0.0, (), list(items.room))]
    while stack and visited < NODES:
        place, value, picked, left = stack.pop()
        visited += 1
        if value > best * (1 + 1e-12):
            best, found = value, list(picked)
        if place == len(order) or value + rest[place] <= best:
            continue
        index = order[place]
        stack.append((place + 1, value, picked, left))
        if all(left[resource] >= amount for resource, amount in items.needs[index]):
            less = list(left)
            for resource, amount in items.needs[index]:
                less[resource] -= amount
            stack.append((place + 1, value + items.values[index], (*picked, index), less))
    return found
