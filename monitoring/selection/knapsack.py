"""Solves the multidimensional knapsack: selects items, which have values and need room of several resources.

Up to `EXACT` items HiGHS solves it by branch and cut, to within `GAP` of the optimum. For more items, or without scipy,
the best of several greedy orders is taken. These orders are by value, by value for the share of the room needed, and by
value against the resources' dual prices (subgradient steps on the Lagrangian relaxation; Fisher 1981). A bound on the
optimum limits the loss in either case: HiGHS's own, that of the linear relaxation, or the Lagrangian one. No clock ends
the search, so the same items give the same selection on a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

ROUNDS = 15
"""Subgradient steps towards the dual prices."""
EXACT = 5000
"""Most items for HiGHS, which takes 1 to 6 s for 5000."""
GAP = 0.0045
"""Relative loss at which HiGHS stops. A smaller gap takes seconds instead of tenths where values are nearly equal."""
NODES = 5000
"""Most nodes of HiGHS's search tree, after which it returns its best solution. The first node nearly always suffices; a
limit of 300 loses up to 7 per mille."""

Need = tuple[tuple[int, int], ...]
"""Pairs of a resource's number and the amount needed of it."""


class Items(NamedTuple):
    """The items of a knapsack, by number."""

    values: Sequence[float]
    """Value of each item, positive."""
    needs: Sequence[Need]
    """Needs of each item."""
    room: Sequence[int]
    """Available amount of each resource."""


class Solution(NamedTuple):
    """A selection and an upper bound of every selection's worth."""

    chosen: list[int]
    """Numbers of the selected items, ascending."""
    bound: float
    """Upper bound of the worth of any selection."""

    def gap(self, items: Items) -> float:
        """Return an upper bound of the share by which the selection's worth falls short of the best one's."""
        return max(0.0, 1.0 - worth(items, self.chosen) / self.bound) if self.bound > 0 else 0.0


def solve(items: Items) -> Solution:
    """Return the best selection found, with an upper bound of all selections."""
    total = sum(items.values)
    items = _binding(items)
    if not any(items.needs):
        return Solution(list(range(len(items.values))), total)
    prices = _prices(items)
    found = Solution(
        max((_greedy(items, order) for order in _orders(items, prices)), key=lambda chosen: worth(items, chosen)),
        min(total, _dual(items, prices)),
    )
    if find_spec("scipy") is not None:
        better = _exact(items) if len(items.values) <= EXACT else Solution([], _relaxed(items))
        best = max(found.chosen, better.chosen, key=lambda chosen: worth(items, chosen))
        found = Solution(best, min(found.bound, better.bound))
    return Solution(sorted(found.chosen), max(found.bound, worth(items, found.chosen)))


def worth(items: Items, chosen: Iterable[int]) -> float:
    """Return the sum of the values of the chosen items."""
    return sum(items.values[index] for index in chosen)


def _binding(items: Items) -> Items:
    """Return the same problem without needs of resources that suffice for all items."""
    wanted = [0] * len(items.room)
    for need in items.needs:
        for resource, amount in need:
            wanted[resource] += amount
    short = [total > room for total, room in zip(wanted, items.room, strict=True)]
    return items._replace(needs=[tuple([part for part in need if short[part[0]]]) for need in items.needs])


def _orders(items: Items, prices: list[float]) -> list[list[int]]:
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
    """Return the dual price of a unit of each resource. At these prices demand about equals the room."""
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


def _dual(items: Items, prices: Sequence[float]) -> float:
    """Return the Lagrangian bound: the room's worth at these prices, plus the items' positive worth beyond them."""
    worth_of_room = sum(price * room for price, room in zip(prices, items.room, strict=True))
    beyond = (
        value - sum([amount * prices[resource] for resource, amount in need])
        for value, need in zip(items.values, items.needs, strict=True)
    )
    return worth_of_room + sum(excess for excess in beyond if excess > 0)


def _exact(items: Items) -> Solution:
    """Solve the problem by HiGHS. The bound is infinite if HiGHS gives none."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    scale, matrix = max(items.values) or 1.0, _matrix(items)
    found = milp(
        -np.array(items.values) / scale,
        integrality=np.ones(len(items.values)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, -np.inf, np.array(items.room, dtype=float)),
        options={"mip_rel_gap": GAP, "node_limit": NODES},
    )
    bound = -found.mip_dual_bound * scale if found.mip_dual_bound is not None else float("inf")
    if found.x is None:
        return Solution([], bound)
    # HiGHS respects the room only to within a tolerance, so a greedy pass leaves out items that do not fit.
    share = sorted(range(len(found.x)), key=lambda index: (-round(found.x[index]), -items.values[index], index))
    return Solution(_greedy(items, share), bound)


def _relaxed(items: Items) -> float:
    """Return the bound of the linear relaxation, in which fractions of items can be taken."""
    import numpy as np
    from scipy.optimize import linprog

    values, room = np.array(items.values), np.array(items.room, dtype=float)
    scale = float(values.max()) or 1.0
    found = linprog(-values / scale, A_ub=_matrix(items), b_ub=room, bounds=(0, 1), method="highs")
    return float(-found.fun * scale) if found.fun is not None else float("inf")


def _matrix(items: Items) -> Any:
    from scipy.sparse import csr_array

    parts = [(r, index, amount) for index, need in enumerate(items.needs) for r, amount in need]
    rows, columns, amounts = zip(*parts, strict=True)
    return csr_array((amounts, (rows, columns)), shape=(len(items.room), len(items.values)), dtype=float)
