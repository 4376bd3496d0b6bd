"""The planner of SDNPS (2016): Algorithm 2 inside Algorithm 1.

Topics are planned in their order. Each tree depends on the bandwidth that the topics before it have left.

- A topic of the first level gets a tree by CMMR (lines 2-29): from every subscriber the widest way to any publisher,
  step by step. Then the pieces are joined by the widest edges.
- A child gets a tree from its father's (lines 31-37): missing nodes are added by widest paths.

By the shape of the topic tree the paper speaks of CMMR (all first level), EMCOTO (a single branch) and MCOTO (mixed).

As printed the algorithm needs mending (docs/decisions/050-tree-planners-for-ofm.md). In every case, paths, not edges,
join the pieces, since neighbouring pieces need not exist; and publishers that no subscriber walks to are joined. There
are two versions:

- `as_printed`: widest paths by "a modified Kruskal's algorithm". All widest-path trees are then one maximum spanning
  tree, independent of the source, and paths in it are long; a child's tree holds all of its father's.
- mended: widest paths by Dijkstra's algorithm, of equally wide ones the one with fewest hops ("the shortest and widest
  path", which the text asks for when a node joins). Branches that lead to no member of the child are pruned completely.
"""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints, Offsets
from saps.ofm.planner.kernels.forest import identity, prune, root, unite
from saps.ofm.planner.kernels.growth import Scratch, scratch
from saps.ofm.planner.kernels.heap import pop, push
from saps.ofm.planner.trees import Trees
from saps.overlay.design.compiled import compiled

_HOPS = 1 << 20
"""Weight of one rank of width in a path's key: more than any number of hops."""


def sdnps(graph: Graph, demands: Demands, *, as_printed: bool = False) -> Trees:
    """Return trees for all topics. A topic with a member that cannot be reached has no edges."""
    return Trees(*_sdnps(graph, demands, as_printed))


@compiled
def _sdnps(graph: Graph, demands: Demands, as_printed: bool) -> tuple[Offsets, Ints]:
    """Run Algorithm 1. Return the trees in compressed rows (offsets, edges)."""
    n, m, topics = len(graph.at) - 1, len(graph.capacity), len(demands.rate)
    residual = graph.capacity.copy()
    work = scratch(n)
    keep, degree = np.zeros(n, np.bool_), np.zeros(n, np.int32)
    at, edges = np.zeros(topics + 1, np.int64), np.empty(4 * len(demands.members) + 16, np.int32)
    tree = np.empty(2 * n + m, np.int32)
    for t in range(topics):
        members = demands.members[demands.at[t] : demands.at[t + 1]]
        order = np.argsort(-residual)
        rank = _ranks(residual, order)
        father = demands.father[t]
        count = 0
        if father >= 0:
            count = at[father + 1] - at[father]
            tree[:count] = edges[at[father] : at[father + 1]]
        elif as_printed:
            count = _walk_kruskal(graph, order, rank, members, demands.senders[t], tree)
        else:
            count = _walk_dijkstra(graph, rank, members, demands.senders[t], tree, work)
        for v in members:
            keep[v] = True
        if as_printed and father >= 0:
            for e in tree[:count]:
                keep[graph.ends[e, 0]] = keep[graph.ends[e, 1]] = True
        if as_printed:
            count = _join_kruskal(graph, order, tree, count)
        else:
            count = _join_dijkstra(graph, rank, members, tree, count, work)
        count = prune(graph, tree, count, keep, degree) if count >= 0 else 0
        keep[:] = False
        if at[t] + count > len(edges):
            larger = np.empty(2 * len(edges) + count, np.int32)
            larger[: at[t]] = edges[: at[t]]
            edges = larger
        edges[at[t] : at[t] + count] = tree[:count]
        at[t + 1] = at[t] + count
        for e in tree[:count]:
            residual[e] -= demands.rate[t]
    return at, edges[: at[topics]].copy()


@compiled
def _ranks(residual: Floats, order: Offsets) -> Ints:
    """Return the rank of each edge: 0 for the widest, 1 for the next ones, and so on. Equal widths have equal ranks."""
    rank, current = np.zeros(len(order), np.int32), 0
    for i in range(1, len(order)):
        if residual[order[i]] < residual[order[i - 1]] - 1e-9 * abs(residual[order[i - 1]]):
            current += 1
        rank[order[i]] = current
    return rank


@compiled
def _walk_kruskal(graph: Graph, order: Offsets, rank: Ints, members: Ints, senders: int, tree: Ints) -> int:
    """Run lines 2-27 in the maximum spanning tree: from each subscriber towards the publisher with the widest path."""
    n = len(graph.at) - 1
    parent, spanning, size = identity(n), np.empty(n, np.int32), 0
    for e in order:
        if unite(parent, graph.ends[e, 0], graph.ends[e, 1]):
            spanning[size] = e
            size += 1
    # Linked lists of half-edges, 2 i and 2 i + 1 for spanning edge i: `first` is by node, `after` by half-edge.
    first, after = np.full(n, -1, np.int32), np.empty(2 * size, np.int32)
    for i in range(size):
        for side in range(2):
            v = graph.ends[spanning[i], side]
            after[2 * i + side], first[v] = first[v], 2 * i + side
    widest, step = np.full((senders, n), 2**31 - 1, np.int32), np.full((senders, n), -1, np.int32)
    queue = np.empty(n, np.int32)
    for s in range(senders):
        queue[0], head, tail = members[s], 0, 1
        widest[s, members[s]] = 0
        while head < tail:
            v = queue[head]
            head += 1
            h = first[v]
            while h >= 0:
                e = spanning[h >> 1]
                u = graph.ends[e, 1 - (h & 1)]
                if widest[s, u] == 2**31 - 1:
                    widest[s, u], step[s, u] = max(widest[s, v], rank[e]), e
                    queue[tail] = u
                    tail += 1
                h = after[h]
    return _walk(graph, widest, step, members, senders, tree)


@compiled
def _walk_dijkstra(graph: Graph, rank: Ints, members: Ints, senders: int, tree: Ints, work: Scratch) -> int:
    """Run lines 2-27 with a tree of shortest widest paths for each publisher."""
    n = len(graph.at) - 1
    key, via, _, heap, place, _, _ = work
    widest, step = np.full((senders, n), 2**31 - 1, np.int32), np.full((senders, n), -1, np.int32)
    for s in range(senders):
        key[:] = np.inf
        key[members[s]] = 0.0
        size = push(heap, place, key, 0, members[s])
        while size > 0:
            v = pop(heap, place, key, size)
            size -= 1
            widest[s, v] = np.int32(key[v] // _HOPS)
            for i in range(graph.at[v], graph.at[v + 1]):
                far = _farther(key[v], rank[graph.edge[i]])
                if far < key[graph.to[i]]:
                    key[graph.to[i]] = far
                    via[graph.to[i]] = graph.edge[i]
                    step[s, graph.to[i]] = graph.edge[i]
                    size = push(heap, place, key, size, graph.to[i])
    return _walk(graph, widest, step, members, senders, tree)


@compiled
def _farther(key: float, rank: int) -> float:
    """Return the key of a path that is extended by one edge. A key orders by the rank of the narrowest edge, then by
    hops."""
    narrowest = key // _HOPS
    return max(narrowest, float(rank)) * _HOPS + (key - narrowest * _HOPS) + 1.0


@compiled
def _walk(graph: Graph, widest: Ints, step: Ints, members: Ints, senders: int, tree: Ints) -> int:
    """Run lines 9-27, and return the number of edges in `tree`. A node's next step does not depend on where the walk
    began, so a walk ends where another has been. The width to the best publisher never falls on the way, so there are
    no loops."""
    n = len(graph.at) - 1
    been = np.zeros(n, np.bool_)
    for s in range(senders):
        been[members[s]] = True
    count = 0
    for i in range(senders, len(members)):
        v = members[i]
        while not been[v]:
            been[v] = True
            best = 0
            for s in range(1, senders):
                if widest[s, v] < widest[best, v]:
                    best = s
            e = step[best, v] if senders > 0 else -1
            if e < 0:
                break
            tree[count] = e
            count += 1
            v = graph.ends[e, 0] + graph.ends[e, 1] - v
    return count


@compiled
def _join_kruskal(graph: Graph, order: Offsets, tree: Ints, count: int) -> int:
    """Run lines 28-29 and 35-37: add the widest edges first until all is one piece. Pruning then leaves the paths."""
    parent = identity(len(graph.at) - 1)
    for e in tree[:count]:
        unite(parent, graph.ends[e, 0], graph.ends[e, 1])
    for e in order:
        if unite(parent, graph.ends[e, 0], graph.ends[e, 1]):
            tree[count] = e
            count += 1
    return count


@compiled
def _join_dijkstra(graph: Graph, rank: Ints, members: Ints, tree: Ints, count: int, work: Scratch) -> int:
    """Run lines 28-29 and 35-37 by shortest widest paths from one piece to the next. Return the number of edges, or -1
    if there is no path."""
    n = len(graph.at) - 1
    key, via, group, heap, place, _, _ = work
    parent = identity(n)
    for v in members:
        group[v] = 1
    for e in tree[:count]:
        unite(parent, graph.ends[e, 0], graph.ends[e, 1])
        group[graph.ends[e, 0]] = group[graph.ends[e, 1]] = 1
    missing = 0
    for v in range(n):
        if group[v] == 1 and root(parent, v) == v:
            missing += 1
    key[:] = np.inf
    start = graph.ends[tree[0], 0] if count > 0 else (members[0] if len(members) else 0)
    size = _enter(parent, root(parent, start), group, key, heap, place, 0)
    missing -= 1
    while size > 0 and missing > 0:
        v = pop(heap, place, key, size)
        size -= 1
        if group[v] == 1:
            # Another piece is reached: the path back to the tree, and the whole piece, join at distance 0.
            missing -= 1
            piece, w = root(parent, v), v
            while group[w] != 0:
                tree[count] = via[w]
                count += 1
                group[w] = 0
                key[w] = 0.0
                size = push(heap, place, key, size, w)
                w = graph.ends[via[w], 0] + graph.ends[via[w], 1] - w
            size = _enter(parent, piece, group, key, heap, place, size)
            continue
        for i in range(graph.at[v], graph.at[v + 1]):
            u = graph.to[i]
            far = _farther(key[v], rank[graph.edge[i]])
            if far < key[u]:
                key[u] = far
                via[u] = graph.edge[i]
                size = push(heap, place, key, size, u)
    for i in range(size):
        place[heap[i]] = -1
    group[:] = -1
    return count if missing <= 0 else -1


@compiled
def _enter(parent: Ints, piece: int, group: Ints, key: Floats, heap: Ints, place: Ints, size: int) -> int:
    """Put all nodes of a piece into the heap at distance 0. Return the size of the heap."""
    for v in range(len(parent)):
        if group[v] == 1 and root(parent, v) == piece:
            group[v] = 0
            key[v] = 0.0
            size = push(heap, place, key, size, v)
    return size


def widened(graph: Graph, residual: Floats, members: Ints, edges: Ints) -> Ints | None:
    """Return a tree (or its pieces) with shortest widest paths to the members outside it, by the residual bandwidth of
    edges (lines 31-37; 4.3: a node that joins). None if there is no path."""
    tree = np.empty(2 * graph.nodes + graph.edges, np.int32)
    tree[: len(edges)] = edges
    rank = _ranks(residual, np.argsort(-residual))
    count = _join_dijkstra(graph, rank, members.astype(np.int32), tree, len(edges), scratch(graph.nodes))
    return tree[:count].copy() if count >= 0 else None
