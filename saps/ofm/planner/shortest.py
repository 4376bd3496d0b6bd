"""Planners of one topic at a time: the union of shortest paths, Takahashi-Matsuyama, and KMB by Mehlhorn's method."""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints, Offsets
from saps.ofm.planner.kernels.forest import identity, prune, unite
from saps.ofm.planner.kernels.growth import Scratch, grow, scratch
from saps.ofm.planner.kernels.heap import pop, push
from saps.ofm.planner.trees import Trees
from saps.overlay.design.compiled import compiled


def shortest_paths(graph: Graph, demands: Demands, length: Floats | None = None) -> Trees:
    """Return the union of shortest paths from each topic's first member to the others: a tree of least distances to it.
    Multicast routing protocols build this tree (PIM-SM's shared tree); it is the baseline."""
    return Trees(*_each(graph, demands, _lengths(graph, length), 0))


def takahashi_matsuyama(graph: Graph, demands: Demands, length: Floats | None = None) -> Trees:
    """Return trees that join each member by the shortest path to the tree so far. Their cost is at most 2 (1 - 1/k)
    times the least for k members (Takahashi & Matsuyama 1980)."""
    return Trees(*_each(graph, demands, _lengths(graph, length), 1))


def mehlhorn(graph: Graph, demands: Demands, length: Floats | None = None) -> Trees:
    """Return minimum spanning trees of the members' distances, as paths (Kou, Markowsky & Berman 1981). One search from
    all members at once finds them (Mehlhorn 1988). The bound is that of Takahashi-Matsuyama, in O(m log n) for each
    topic. The paths' nodes are then spanned anew and pruned (steps 4 and 5 of KMB)."""
    return Trees(*_each(graph, demands, _lengths(graph, length), 2))


def _lengths(graph: Graph, length: Floats | None) -> Floats:
    return np.ones(graph.edges) if length is None else length


@compiled
def _each(graph: Graph, demands: Demands, length: Floats, method: int) -> tuple[Offsets, Ints]:
    """Return the trees of all topics in compressed rows (offsets, edges). `method` is a number and not a function, as
    numba would compile the loop anew for each function. A topic that cannot be connected gets no edges. The scratch
    memory is shared: each method leaves it as it found it."""
    n, topics = len(graph.at) - 1, len(demands.rate)
    work = scratch(n)
    closed = np.zeros(n, np.bool_)
    ones = np.arange(n + 1).astype(np.int64)
    at = np.zeros(topics + 1, np.int64)
    edges = np.empty(max(topics * 4, 16), np.int32)
    for t in range(topics):
        members = demands.members[demands.at[t] : demands.at[t + 1]]
        if method == 0:
            count = shortest_tree(graph, length, members, work)
        elif method == 1:
            count = grow(graph, length, closed, ones[: len(members) + 1], members, work)
        else:
            count = voronoi_tree(graph, length, members, work)
        if count < 0:
            count = 0
        if at[t] + count > len(edges):
            larger = np.empty(2 * len(edges) + count, np.int32)
            larger[: at[t]] = edges[: at[t]]
            edges = larger
        edges[at[t] : at[t] + count] = work.out[:count]
        at[t + 1] = at[t] + count
    return at, edges[: at[topics]].copy()


@compiled
def shortest_tree(graph: Graph, length: Floats, members: Ints, work: Scratch) -> int:
    """Write the tree of shortest paths from the first member to the others into ``work.out``. Return its size, or -1 if
    a member cannot be reached."""
    key, via, group, heap, place, _, out = work
    key[:] = np.inf
    missing, size, found = len(members), 0, 0
    for v in members:
        group[v] = 1
    if missing:
        key[members[0]] = 0.0
        size = push(heap, place, key, size, members[0])
    while size > 0 and missing > 0:
        v = pop(heap, place, key, size)
        size -= 1
        if group[v] == 1:
            missing -= 1
        for i in range(graph.at[v], graph.at[v + 1]):
            far = key[v] + length[graph.edge[i]]
            if far < key[graph.to[i]]:
                key[graph.to[i]] = far
                via[graph.to[i]] = graph.edge[i]
                size = push(heap, place, key, size, graph.to[i])
    for i in range(size):  # the next topic needs the heap empty; the last member was found with nodes left in it
        place[heap[i]] = -1
    for v in members:
        group[v] = -1
    if missing:
        return -1
    for i in range(1, len(members)):  # back along the paths, each up to where an earlier one has been
        v = members[i]
        while v != members[0] and group[v] != 0:
            group[v] = 0
            out[found] = via[v]
            found += 1
            v = graph.ends[via[v], 0] + graph.ends[via[v], 1] - v
    for i in range(found):
        group[graph.ends[out[i], 0]] = -1
        group[graph.ends[out[i], 1]] = -1
    return found


@compiled
def voronoi_tree(graph: Graph, length: Floats, members: Ints, work: Scratch) -> int:
    """Write Mehlhorn's tree into ``work.out``. Return its size, or -1 if a member cannot be reached.

    One search from all members at once gives each node its nearest member (`group`, its Voronoi cell), the distance
    (`key`) and the edge towards it (`via`). An edge between two cells stands for the path between their members over
    it. A minimum spanning tree of these edges is one of all distances between members (Mehlhorn 1988, theorem 1). So
    the distances themselves, which take k searches, are not needed."""
    key, via, group, heap, place, _, out = work
    n, m = len(graph.at) - 1, len(graph.capacity)
    between, middle = np.empty(m, np.float64), np.empty(m, np.int32)
    key[:] = np.inf
    size, found, joins = 0, 0, 0
    for i in range(len(members)):
        key[members[i]] = 0.0
        group[members[i]] = i
        size = push(heap, place, key, size, members[i])
    while size > 0:
        v = pop(heap, place, key, size)
        size -= 1
        for i in range(graph.at[v], graph.at[v + 1]):
            u = graph.to[i]
            far = key[v] + length[graph.edge[i]]
            if far < key[u]:
                key[u] = far
                via[u] = graph.edge[i]
                group[u] = group[v]
                size = push(heap, place, key, size, u)
    for e in range(m):  # the shortest path over each edge between two cells
        a, b = graph.ends[e, 0], graph.ends[e, 1]
        if group[a] != group[b] and key[a] < np.inf and key[b] < np.inf and length[e] < np.inf:
            between[joins] = key[a] + length[e] + key[b]
            middle[joins] = e
            joins += 1
    parent = identity(len(members))
    taken = 0
    for i in np.argsort(between[:joins]):
        e = middle[i]
        if taken == len(members) - 1:
            break
        if unite(parent, group[graph.ends[e, 0]], group[graph.ends[e, 1]]):
            taken += 1
            out[found] = e
            found += 1
            for side in range(2):
                v = graph.ends[e, side]
                while key[v] > 0.0:  # a node in the tree counts as a member, so no edge is taken twice
                    key[v] = 0.0
                    out[found] = via[v]
                    found += 1
                    v = graph.ends[via[v], 0] + graph.ends[via[v], 1] - v
    for v in range(n):
        group[v] = -1
    return respanned(graph, length, members, out, found) if taken >= len(members) - 1 else -1


@compiled
def respanned(graph: Graph, length: Floats, members: Ints, out: Ints, found: int) -> int:
    """Run steps 4 and 5 of KMB in place, and return the new size. The result is a minimum spanning tree of all edges
    between the tree's nodes, pruned to the members. Of equally long edges, those at members come first, so that other
    nodes become leaves and are pruned."""
    n, m = len(graph.at) - 1, len(graph.capacity)
    inside, keep = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for i in range(found):
        inside[graph.ends[out[i], 0]] = True
        inside[graph.ends[out[i], 1]] = True
    for v in members:
        keep[v] = True
    among, count = np.empty(m, np.int32), 0
    for ends in range(2, -1, -1):
        for e in range(m):
            a, b = graph.ends[e, 0], graph.ends[e, 1]
            if inside[a] and inside[b] and length[e] < np.inf and int(keep[a]) + int(keep[b]) == ends:
                among[count] = e
                count += 1
    parent, size = identity(n), 0
    for i in np.argsort(length[among[:count]], kind="mergesort"):
        if unite(parent, graph.ends[among[i], 0], graph.ends[among[i], 1]):
            out[size] = among[i]
            size += 1
    return prune(graph, out, size, keep, np.zeros(n, np.int32))
