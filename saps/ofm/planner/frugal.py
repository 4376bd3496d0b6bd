"""The cost-first planner: fewest edges (or least length) for each topic, independent of the load.

Up to `EXACT` members the tree is optimal (Dreyfus & Wagner 1971), in O(3^k n + 2^k m log n). For more members, local
search improves trees of cheapest paths. A step adds a node as if it were a member, or removes it, and prunes what then
leads to no member. The best tree found is kept.
"""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Flags, Floats, Graph, Ints
from saps.ofm.planner.kernels.forest import prune
from saps.ofm.planner.kernels.growth import UNREACHABLE, Scratch, grow, scratch
from saps.ofm.planner.kernels.heap import pop, push
from saps.ofm.planner.trees import Trees
from saps.overlay.design.compiled import compiled

EXACT = 7
"""Most members of a topic whose tree is sought exactly. Each further member triples the time."""


def frugal(graph: Graph, demands: Demands, length: Floats | None = None, *, exact: int = EXACT) -> Trees:
    """Return trees of (nearly) least total length. `length` is by edge, greater than 0; None: every edge counts 1.
    `exact` is the most members for the exact method."""
    lengths = np.ones(graph.edges) if length is None else length
    rows = [frugal_tree(graph, demands.nodes_of(topic), lengths, exact=exact) for topic in range(demands.topics)]
    return Trees.of([row.tolist() if row is not None else [] for row in rows])


def frugal_tree(graph: Graph, members: Ints, length: Floats, *, exact: int = EXACT) -> Ints | None:
    """Return the edges of one tree, or None if a member cannot be reached."""
    if len(members) < 2:
        return np.empty(0, np.int32)
    if len(members) <= exact:
        count, edges = _exact(graph, length, members)
    else:
        count, edges = _search(graph, length, members)
    return edges[:count] if count >= 0 else None


@compiled
def _exact(graph: Graph, length: Floats, members: Ints) -> tuple[int, Ints]:
    """Run Dreyfus and Wagner's dynamic programme. Return the number of edges, or `UNREACHABLE`, and the edges.

    ``cost[s, v]`` is the cost of the best tree over node v and the members in the set s (bits; the last member is the
    root and in no set). This tree either splits at v into two trees over parts of s (`part`), or reaches v by an edge
    from the best tree at a neighbour (`via`). Sets are taken in the order of their numbers, so the parts are known. The
    second case is a search from all nodes at once, which starts with the costs of the first case as distances."""
    n, k = len(graph.at) - 1, len(members) - 1
    sets = 1 << k
    cost = np.full((sets, n), np.inf, np.float64)
    part, via = np.zeros((sets, n), np.int32), np.full((sets, n), -1, np.int32)
    heap, place = np.empty(n, np.int32), np.full(n, -1, np.int32)
    for i in range(k):
        cost[1 << i, members[i]] = 0.0
    for s in range(1, sets):
        one = (s - 1) & s  # subsets of s in descending order
        while one > 0:
            other = s ^ one
            if one > other:  # each division once
                for v in range(n):
                    both = cost[one, v] + cost[other, v]
                    if both < cost[s, v]:
                        cost[s, v], part[s, v] = both, one
            one = (one - 1) & s
        key, size = cost[s], 0
        for v in range(n):
            if key[v] < np.inf:
                size = push(heap, place, key, size, v)
        while size > 0:
            v = pop(heap, place, key, size)
            size -= 1
            for i in range(graph.at[v], graph.at[v + 1]):
                far = key[v] + length[graph.edge[i]]
                if far < key[graph.to[i]]:
                    key[graph.to[i]] = far
                    via[s, graph.to[i]] = graph.edge[i]
                    size = push(heap, place, key, size, graph.to[i])
    out, found = np.empty(n, np.int32), 0
    if cost[sets - 1, members[k]] == np.inf:
        return UNREACHABLE, out
    # Read the tree back from the root: each state is either an edge to a neighbour or a split into two parts.
    stack = [(sets - 1, int(members[k]))]
    while len(stack):
        s, v = stack.pop()
        if via[s, v] >= 0:
            e = via[s, v]
            out[found] = e
            found += 1
            stack.append((s, int(graph.ends[e, 0] + graph.ends[e, 1] - v)))
        elif part[s, v] > 0:
            stack.append((int(part[s, v]), v))
            stack.append((int(s ^ part[s, v]), v))
    return found, out


@compiled
def _search(graph: Graph, length: Floats, members: Ints) -> tuple[int, Ints]:
    """Run the local search. Return the number of edges, or `UNREACHABLE`, and the edges.

    Takahashi and Matsuyama's method finds a tree of least cost once the tree's inner nodes of degree 3 and more count
    as members. These nodes are unknown: one node at a time is added or removed while that makes the tree cheaper. The
    factor 1 - 1e-12 prevents cycles by rounding."""
    n = len(graph.at) - 1
    work, closed, keep = scratch(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    degree, chosen = np.zeros(n, np.int32), np.zeros(n, np.bool_)
    for v in members:
        keep[v] = True
    best, edges = np.inf, np.empty(n, np.int32)
    count = UNREACHABLE
    for start in range(len(members)):  # as many trees of cheapest paths as there are places to begin
        found, total = _tree(graph, length, members, start, chosen, keep, closed, degree, work)
        if found >= 0 and total < best:
            best, count = total, found
            edges[:found] = work.out[:found]
    again = count >= 0
    while again:
        again = False
        for v in range(n):
            if keep[v]:
                continue
            chosen[v] = not chosen[v]
            found, total = _tree(graph, length, members, 0, chosen, keep, closed, degree, work)
            if found >= 0 and total < best * (1 - 1e-12):
                best, count, again = total, found, True
                edges[:found] = work.out[:found]
            else:
                chosen[v] = not chosen[v]
    return count, edges


@compiled
def _tree(
    graph: Graph,
    length: Floats,
    members: Ints,
    start: int,
    chosen: Flags,
    keep: Flags,
    closed: Flags,
    degree: Ints,
    work: Scratch,
) -> tuple[int, float]:
    """Grow and prune the tree of cheapest paths over the members and the chosen nodes, starting at member number
    `start`. Return its size, or `UNREACHABLE`, and its length; its edges are in ``work.out``."""
    nodes, k = np.empty(len(chosen), np.int32), len(members)
    for i in range(k):
        nodes[i] = members[(start + i) % k]
    for v in range(len(chosen)):
        if chosen[v] and not keep[v]:
            nodes[k] = v
            k += 1
    count = grow(graph, length, closed, np.arange(k + 1).astype(np.int64), nodes[:k], work)
    if count < 0:
        return UNREACHABLE, np.inf
    count = prune(graph, work.out, count, keep, degree)
    total = 0.0
    for e in work.out[:count]:
        total += length[e]
    return count, total
