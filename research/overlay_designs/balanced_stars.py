"""Our own design of topic diameter 2: one star for each topic, with centres chosen so that degrees stay even.

TD-CD-ODA makes the centre of the first star the centre of all its topics, and so the node of the greatest degree. Here
each topic chooses its own centre, the largest topic first. It takes the node whose star raises the sum of degree **
POWER over all nodes least. Links that other stars made are free. The topics then choose again in turn, knowing all the
other stars, until no centre moves or the work is spent.

A star needs a centre of degree |V_t| - 1. So no design with one star for each topic has a maximum degree below the
largest topic's size less one, the lower bound of `star_bound`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.effort import largest_first, rounds_within
from research.overlay_designs.interest import Interest, Ints
from research.overlay_designs.overlay import Overlay
from saps.overlay.design.compiled import compiled

POWER = 16.0
"""Exponent of the degrees in the minimised sum. With a large one the maximum counts, with 1 the number of edges."""
ROUNDS = 20
"""Most rounds in which all topics choose again. The rounds end earlier if no centre moves."""
WORK = 2e8
"""Most steps of all rounds (`rounds_within`); about 1e8 take a second."""


def balanced_stars(interest: Interest, rng: np.random.Generator, *, power: float = POWER) -> Overlay:
    """Return the overlay of the stars around `centres`."""
    return stars(interest, centres(interest, rng, power=power))


def centres(interest: Interest, rng: np.random.Generator, *, power: float = POWER) -> Ints:
    """Return the centre of each topic's star, or -1 for a topic without nodes.

    Equally large topics choose in the order of `rng`."""
    rounds = rounds_within(interest, WORK, ROUNDS)
    return _choose(interest, largest_first(interest, rng), np.arange(interest.nodes + 1.0) ** power, rounds)


def stars(interest: Interest, centre: Ints) -> Overlay:
    """Return the overlay in which each topic's centre is linked to the topic's other nodes."""
    return Overlay.of(
        interest.nodes, np.stack([np.repeat(centre, np.diff(interest.nodes_at)), interest.nodes_of], axis=1)
    )


def star_bound(interest: Interest) -> int:
    """Return a lower bound on the maximum degree of any design with one star for each topic."""
    return max(int(np.diff(interest.nodes_at).max(initial=1)) - 1, 0)


class Scratch(NamedTuple):
    """The working arrays of one run, by node."""

    inside: NDArray[np.bool_]
    """Whether the node is in the topic that is choosing."""
    linked: NDArray[np.bool_]
    """Whether the node is linked to the candidate; all false between candidates."""
    found: Ints
    """List of the topic's nodes that are linked to the candidate."""
    step: NDArray[np.float64]
    """Increase of the sum by one more link at the node."""


@compiled
def _choose(interest: Interest, order: NDArray[np.int64], raised: NDArray[np.float64], rounds: int) -> Ints:
    """Return each topic's centre. `raised[d]` is the degree d raised to the power."""
    _, _, _, nodes_at, nodes_of = interest
    n = interest.topics_at.size - 1
    centre, degree = np.full(interest.nodes_at.size - 1, -1, np.int32), np.zeros(n, np.int64)
    scratch = Scratch(np.zeros(n, np.bool_), np.zeros(n, np.bool_), np.empty(n, np.int32), np.empty(n))
    for _ in range(rounds + 1):
        moved = False
        for t in order:
            members = nodes_of[nodes_at[t] : nodes_at[t + 1]]
            for v in members:
                scratch.inside[v] = True
            old, centre[t] = centre[t], -1
            if old >= 0:
                _add_star(interest, centre, degree, members, old, -1, scratch)
            centre[t] = _cheapest(interest, centre, degree, members, old, raised, scratch)
            moved |= centre[t] != old
            new, centre[t] = centre[t], -1
            _add_star(interest, centre, degree, members, new, 1, scratch)
            centre[t] = new
            for v in members:
                scratch.inside[v] = False
        if not moved:
            break
    return centre


@compiled
def _cheapest(
    interest: Interest,
    centre: Ints,
    degree: NDArray[np.int64],
    members: Ints,
    old: int,
    raised: NDArray[np.float64],
    scratch: Scratch,
) -> int:
    """Return the node that raises the sum least as the centre of `members`; the old centre if no other is better."""
    total = 0.0
    for v in members:
        scratch.step[v] = raised[degree[v] + 1] - raised[degree[v]]
        total += scratch.step[v]
    best, least = old, np.inf
    for i in range(-1, len(members)):
        c = members[i] if i >= 0 else old
        if c < 0:
            continue
        count = _links_within(interest, centre, c, scratch)
        cost = total - scratch.step[c] + raised[degree[c] + len(members) - 1 - count] - raised[degree[c]]
        for f in range(count):
            cost -= scratch.step[scratch.found[f]]
            scratch.linked[scratch.found[f]] = False
        if cost < least:
            best, least = c, cost
    return best


@compiled
def _add_star(
    interest: Interest,
    centre: Ints,
    degree: NDArray[np.int64],
    members: Ints,
    c: int,
    sign: int,
    scratch: Scratch,
) -> None:
    """Add the links that only this star makes to the degrees, or with `sign` -1 subtract them."""
    count = _links_within(interest, centre, c, scratch)
    for v in members:
        if v != c and not scratch.linked[v]:
            degree[v] += sign
            degree[c] += sign
    for f in range(count):
        scratch.linked[scratch.found[f]] = False


@compiled
def _links_within(interest: Interest, centre: Ints, c: int, scratch: Scratch) -> int:
    """Mark the choosing topic's nodes that other stars link to c, put them into `found`, and return their number."""
    topics_at, topics_of, _, nodes_at, nodes_of = interest
    count = 0
    for i in range(topics_at[c], topics_at[c + 1]):
        t = topics_of[i]
        if centre[t] == c:
            for k in range(nodes_at[t], nodes_at[t + 1]):
                if nodes_of[k] != c:
                    count += _mark(scratch, nodes_of[k], count)
        elif centre[t] >= 0:
            count += _mark(scratch, centre[t], count)
    return count


@compiled
def _mark(scratch: Scratch, v: int, count: int) -> int:
    if scratch.linked[v] or not scratch.inside[v]:
        return 0
    scratch.linked[v] = True
    scratch.found[count] = v
    return 1
