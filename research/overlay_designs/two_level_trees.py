"""Our own designs of topic diameter 4 and 3: a shallow tree for each topic, with links shared among topics.

In a tree of two levels below its root no two nodes are more than 4 hops apart; with two linked roots and one level,
they are at most 3 hops apart. Both spread a topic over many inner nodes, where a star loads one.

1. Trees are grown one topic after the other, the largest first.
2. A topic first takes the free links: links of other topics that reach its own nodes within the depth. Its root is the
   node from which these reach most.
3. The other nodes are attached one link at a time, always by the link of the least cost for each node newly reached.
   The cost is the increase of degree ** POWER at both ends.
4. Each tree in turn is then removed and grown again among all the others, in several rounds. Most sharing comes from
   these rounds. The best round counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.effort import largest_first, rounds_within
from research.overlay_designs.interest import Interest, Ints, Offsets
from research.overlay_designs.links import NONE, Links, no_links, release, use
from research.overlay_designs.overlay import Overlay
from saps.overlay.design.compiled import compiled

POWER = 16.0
"""Exponent of the degree in the cost of a link. With a large one the maximum counts, with 1 the number of edges."""
ROUNDS = 30
"""Most rounds in which each tree is grown again. More rounds give fewer links and take proportionally more time."""
WORK = 2.5e7
"""Most steps of all rounds (`rounds_within`); about 3e7 take a second."""
SLIGHT = 1e-3
"""Weight of a link of the candidate against a reached node in the choice of a single root: it decides between equals.
"""


def two_level_trees(interest: Interest, rng: np.random.Generator, *, power: float = POWER) -> Overlay:
    """Return an overlay of topic diameter 4 at most and a small maximum degree."""
    return overlay_of(interest, parents(interest, rng, roots=1, power=power))


def two_centres(interest: Interest, rng: np.random.Generator, *, power: float = POWER) -> Overlay:
    """Return an overlay of topic diameter 3 at most.

    Each topic has two linked centres, and every other node is linked to one of them."""
    return overlay_of(interest, parents(interest, rng, roots=2, power=power))


def parents(
    interest: Interest, rng: np.random.Generator, *, roots: int = 1, power: float = POWER, rounds: int | None = None
) -> Ints:
    """Return the node's parent in the topic's tree for each subscription; a root's parent is itself.

    Of two roots the first is the parent of the second. Equally large topics are in the order of `rng`. `rounds` None:
    as many as `WORK` allows.
    """
    if interest.subscriptions == 0:
        return interest.nodes_of
    if rounds is None:
        rounds = rounds_within(interest, WORK, ROUNDS)
    raised = np.arange(interest.nodes + 2.0) ** power
    return _grow_all(interest, largest_first(interest, rng), raised, rounds, roots)


def overlay_of(interest: Interest, parent: Ints) -> Overlay:
    """Return the overlay in which every node is linked to its parents."""
    return Overlay.of(interest.nodes, np.stack([parent, interest.nodes_of], axis=1))


@compiled
def _grow_all(
    interest: Interest, order: NDArray[np.int64], raised: NDArray[np.float64], rounds: int, roots: int
) -> Ints:
    """Return the parents of the best round. `raised[d]` is the degree d raised to the power."""
    _, _, _, nodes_at, nodes_of = interest
    links = no_links(interest.topics_at.size - 1, len(nodes_of))
    place = np.full(interest.topics_at.size - 1, NONE, np.int32)
    parent = nodes_of.copy()
    best, least_maximum, least_sum = parent, np.int64(interest.topics_at.size), np.int64(0)
    for grown in range(rounds + 1):
        for t in order:
            members, row = nodes_of[nodes_at[t] : nodes_at[t + 1]], parent[nodes_at[t] : nodes_at[t + 1]]
            for i in range(len(members)):
                if grown and row[i] != members[i]:
                    release(links, row[i], members[i])
            _grow(links, members, row, place, raised, roots)
            for i in range(len(members)):
                if row[i] != members[i]:
                    use(links, row[i], members[i])
        maximum, total = np.int64(links.degree.max()), np.int64(links.degree.sum())
        if maximum < least_maximum or (maximum == least_maximum and total < least_sum):
            best, least_maximum, least_sum = parent.copy(), maximum, total
    return best


class Growth(NamedTuple):
    """One topic's tree while it grows. Nodes are numbered by their place in the topic."""

    at: Offsets
    """Starts of the rows of `to`, by node."""
    to: Ints
    """Existing links among the topic's nodes, in compressed rows."""
    uses: Ints
    """Number of topics that use each link of `to`."""
    degree: Ints
    """Degree of each node in the whole overlay, including the links added here."""
    up: Ints
    """Parent of each node; NONE for a node not yet reached, and itself for the root."""
    depth: Ints
    """Level of each reached node below the roots."""
    unreached: Ints
    """Number of each node's neighbours that are not yet reached."""


@compiled
def _grow(links: Links, members: Ints, parent: Ints, place: Ints, raised: NDArray[np.float64], roots: int) -> None:
    """Put the parent of each of `members` into `parent`; `place` is scratch, all NONE before and after."""
    tree = _start(links, members, place)
    deepest = 3 - roots
    root = _root(tree) if roots == 1 else _centre(tree, raised)
    reached = 1
    tree.up[root] = root
    _became_reached(tree, root)
    reached += _reach(tree, root, deepest)
    if roots == 2 and len(members) > 1:
        second = _centre(tree, raised)
        if tree.up[second] == NONE:
            reached += 1
            _became_reached(tree, second)
            tree.degree[root] += 1
            tree.degree[second] += 1
        tree.up[second], tree.depth[second] = root, 0
        reached += _reach(tree, second, deepest)
    while reached < len(members):
        reached += _attach(tree, root, raised, deepest, roots == 2)
    for i in range(len(members)):
        _prefer_used(tree, i)
        parent[i] = members[tree.up[i]]


@compiled
def _start(links: Links, members: Ints, place: Ints) -> Growth:
    size = len(members)
    for i in range(size):
        place[members[i]] = i
    at = np.zeros(size + 1, np.int64)
    for i in range(size):
        at[i + 1] = at[i]
        h = links.first[members[i]]
        while h != NONE:
            if place[links.to[h]] != NONE:
                at[i + 1] += 1
            h = links.after[h]
    to, uses = np.empty(at[size], np.int32), np.empty(at[size], np.int32)
    unreached, degree = np.empty(size, np.int32), np.empty(size, np.int32)
    for i in range(size):
        k, h = at[i], links.first[members[i]]
        while h != NONE:
            if place[links.to[h]] != NONE:
                to[k], uses[k] = place[links.to[h]], links.uses[h >> 1]
                k += 1
            h = links.after[h]
        unreached[i], degree[i] = at[i + 1] - at[i], links.degree[members[i]]
    for i in range(size):
        place[members[i]] = NONE
    return Growth(at, to, uses, degree, np.full(size, NONE, np.int32), np.zeros(size, np.int32), unreached)


@compiled
def _root(tree: Growth) -> int:
    """Return the node that reaches most nodes in two hops by existing links; of equals, the one of least degree."""
    best, most = 0, -np.inf
    seen = np.full(len(tree.up), NONE, np.int32)
    for r in range(len(tree.up)):
        count, seen[r] = 0, r
        for e in range(tree.at[r], tree.at[r + 1]):
            count += _see(seen, tree.to[e], r)
            for f in range(tree.at[tree.to[e]], tree.at[tree.to[e] + 1]):
                count += _see(seen, tree.to[f], r)
        if count - SLIGHT * tree.degree[r] > most:
            best, most = r, count - SLIGHT * tree.degree[r]
    return best


@compiled
def _see(seen: Ints, j: int, r: int) -> int:
    if seen[j] == r:
        return 0
    seen[j] = r
    return 1


@compiled
def _centre(tree: Growth, raised: NDArray[np.float64]) -> int:
    """Return the node that costs least as one of two centres.

    It is assumed to take half of the unreached nodes that are not its neighbours."""
    left = np.int64(0)
    for i in range(len(tree.up)):
        if tree.up[i] == NONE:
            left += 1
    best, least = NONE, np.inf
    for r in range(len(tree.up)):
        degree = tree.degree[r]
        cost = raised[degree + (left - tree.unreached[r]) // 2] - raised[degree]
        if cost < least and not (tree.up[r] != NONE and tree.depth[r] == 0):
            best, least = r, cost
    return best


@compiled
def _became_reached(tree: Growth, i: int) -> None:
    for e in range(tree.at[i], tree.at[i + 1]):
        tree.unreached[tree.to[e]] -= 1


@compiled
def _reach(tree: Growth, i: int, deepest: int) -> int:
    """Add the nodes that node i, just reached or moved up, reaches by existing links. Returns the number of new nodes.

    The function is not recursive, because numba loads recursive functions wrongly from its cache.
    """
    queue = np.empty(len(tree.up), np.int32)
    queue[0], head, tail, new = i, 0, 1, 0
    while head < tail:
        v = queue[head]
        head += 1
        if tree.depth[v] == deepest:
            continue
        for e in range(tree.at[v], tree.at[v + 1]):
            j = tree.to[e]
            if tree.up[j] == NONE:
                _became_reached(tree, j)
                new += 1
            elif tree.depth[j] <= tree.depth[v] + 1:
                continue
            tree.up[j], tree.depth[j] = v, tree.depth[v] + 1
            queue[tail] = j
            tail += 1
    return new


@compiled
def _step(tree: Growth, raised: NDArray[np.float64], i: int) -> float:
    """Return the cost of one more link at node i."""
    return float(raised[tree.degree[i] + 1] - raised[tree.degree[i]])


@compiled
def _attach(tree: Growth, root: int, raised: NDArray[np.float64], deepest: int, flat: bool) -> int:
    """Add the link of the least cost for each newly reached node. Returns the number of newly reached nodes.

    The link goes from an inner node to a new one. Unless `flat`, it may also go from the root to a node that brings its
    neighbours: a new node, or one on the lowest level.
    """
    inner, least = NONE, np.inf
    for i in range(len(tree.up)):
        is_inner = tree.up[i] != NONE and tree.depth[i] < deepest and (flat or i != root)
        if is_inner and _step(tree, raised, i) < least:
            inner, least = i, _step(tree, raised, i)
    at_root = _step(tree, raised, root)
    chosen, above, value = NONE, NONE, np.inf
    for b in range(len(tree.up)):
        new = tree.up[b] == NONE
        if not new and (flat or tree.unreached[b] == 0 or tree.depth[b] < deepest):
            continue
        if new and inner != NONE and _step(tree, raised, b) + least < value:
            chosen, above, value = b, inner, _step(tree, raised, b) + least
        if not flat:
            each = (_step(tree, raised, b) + at_root) / (tree.unreached[b] + (1 if new else 0))
            if each < value:
                chosen, above, value = b, root, each
    tree.degree[above] += 1
    tree.degree[chosen] += 1
    reached = 0
    if tree.up[chosen] == NONE:
        reached = 1
        _became_reached(tree, chosen)
    tree.up[chosen], tree.depth[chosen] = above, tree.depth[above] + 1
    return reached + _reach(tree, chosen, deepest)


@compiled
def _prefer_used(tree: Growth, i: int) -> None:
    """Change node i's parent to the possible one whose link most topics use, so that other links may go."""
    most = 0
    for e in range(tree.at[i], tree.at[i + 1]):
        j = tree.to[e]
        if tree.depth[i] > 0 and tree.depth[j] == tree.depth[i] - 1 and tree.uses[e] > most:
            tree.up[i], most = j, tree.uses[e]
