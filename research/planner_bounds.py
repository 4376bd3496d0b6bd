"""Proven lower bounds for every planner: on the load of the busiest edge, and on the cost of a tree.

The load bound is weak duality of the packing of trees. For edge lengths l >= 0 and any plan, the sum of l(e) load(e) is
at least the sum over the topics of the rate times the least cost of a tree under l. So some edge has a utilisation of
at least that sum divided by the sum of l(e) c(e). Dual ascent (Wong 1984) bounds the least cost of a tree: it makes
disjoint claims on the arcs into node sets that hold a member but not the root.
"""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints
from saps.overlay.design.compiled import compiled

PERTURBED = 0.02
"""Share by which lengths are varied at random, because ties weaken dual ascent."""
LARGEST_SET = 6
"""Most nodes of a cut's smaller side."""
ROOTS = 4
"""Members tried as the root of dual ascent; the best bound counts for each topic."""
TILTS = (0.0, 1.0, 2.0, 4.0)
"""Exponents with which the lengths follow the load of a plan; the best bound counts."""


def load_bound(graph: Graph, demands: Demands, load: Floats, rng: np.random.Generator) -> float:
    """Return a lower bound on the utilisation of any plan's busiest edge.

    `load` is the load of each edge under a good plan, which makes the bound sharp. If all rates and all capacities are
    equal, loads are multiples of the rate, and the bound is rounded up to one."""
    most = max(node_bound(graph, demands), cut_bound(graph, demands))
    used = load / graph.capacity
    for tilt in TILTS:
        length = np.exp(tilt * used / max(used.max(initial=0.0), 1e-300)) * (1 + PERTURBED * rng.random(graph.edges))
        most = max(most, dual_bound(graph, demands, length, roots=ROOTS))
    if np.ptp(demands.rate) == 0 and np.ptp(graph.capacity) == 0:
        step = demands.rate[0] / graph.capacity[0]
        most = float(np.ceil(most / step - 1e-6) * step)
    return most


def node_bound(graph: Graph, demands: Demands) -> float:
    """Return the bound on the busiest edge's utilisation by the cuts around single nodes.

    Each topic with a member at a node of d edges needs one of these edges for its whole rate. So some edge carries at
    least the greatest rate, at least two of the d + 1 greatest rates together, and at least a d-th of the sum. For
    different capacities only their sum and the largest one count."""
    most = 0.0
    at: list[list[float]] = [[] for _ in range(graph.nodes)]
    for topic in range(demands.topics):
        members = demands.nodes_of(topic)
        if len(members) > 1:
            for node in members:
                at[node].append(float(demands.rate[topic]))
    for node, rates in enumerate(at):
        capacities = graph.capacity[graph.edge[graph.at[node] : graph.at[node + 1]]]
        if not rates or not len(capacities):
            continue
        rates.sort(reverse=True)
        degree, widest = len(capacities), float(capacities.max())
        pair = rates[degree - 1] + rates[degree] if len(rates) > degree else 0.0
        most = max(most, sum(rates) / float(capacities.sum()), rates[0] / widest, pair / widest)
    return most


def cut_bound(graph: Graph, demands: Demands) -> float:
    """Return the bound on the busiest edge's utilisation by cuts around sets of up to `LARGEST_SET` nodes.

    A topic with members inside and outside of a set needs one of the edges between. The sets grow from every node, each
    time by the neighbour that leaves the least capacity around the set."""
    topics, n = demands.topics, graph.nodes
    member = np.zeros((n, topics), np.bool_)
    member[demands.members, np.repeat(np.arange(topics), np.diff(demands.at))] = True
    sizes = np.diff(demands.at)
    most = 0.0
    for start in range(n):
        inside, counts, across = {start}, member[start].astype(np.int64), _around(graph, start, set())
        while True:
            crossing = (counts > 0) & (counts < sizes)
            most = max(most, float(demands.rate[crossing].sum()) / max(across, 1e-300))
            near = {int(u) for v in inside for u in graph.to[graph.at[v] : graph.at[v + 1]]} - inside
            if not near or len(inside) == min(LARGEST_SET, n - 1):
                break
            steps = {node: across + _around(graph, node, inside) for node in near}
            best = min(near, key=lambda node: (steps[node], node))
            across = steps[best]
            inside.add(best)
            counts += member[best]
    return most


def _around(graph: Graph, node: int, inside: set[int]) -> float:
    """Return the capacity of a node's edges to the outside of a set less that of its edges into the set."""
    row = slice(int(graph.at[node]), int(graph.at[node + 1]))
    sign = np.array([-1.0 if int(u) in inside else 1.0 for u in graph.to[row]])
    return float(sign @ graph.capacity[graph.edge[row]])


def dual_bound(graph: Graph, demands: Demands, length: Floats, *, roots: int = 1) -> float:
    """Return the bound on the busiest edge's utilisation by edge lengths (see the module).

    Better lengths give a better bound; the prices of a balanced plan are good lengths."""
    total = _costs(graph, demands, length, roots)
    return float(total / (length @ graph.capacity))


def tree_bound(graph: Graph, members: Ints, length: Floats) -> float:
    """Return a lower bound on the cost of any tree over the members, by edge lengths."""
    return float(_ascent(graph, members, length))


@compiled
def _costs(graph: Graph, demands: Demands, length: Floats, roots: int) -> float:
    total = 0.0
    for t in range(len(demands.rate)):
        members, most = demands.members[demands.at[t] : demands.at[t + 1]].copy(), 0.0
        for i in range(min(roots, len(members))):
            members[0], members[i] = members[i], members[0]
            most = max(most, _ascent(graph, members, length))
        total += demands.rate[t] * most
    return total


@compiled
def _ascent(graph: Graph, members: Ints, length: Floats) -> float:
    """Return the bound by dual ascent with the first member as root; infinite if the members are not connected.

    Each step raises the claim of the member whose set has the fewest entering arcs."""
    n, m = len(graph.at) - 1, len(graph.capacity)
    left = np.empty(2 * m, np.float64)  # of arc 2e + side, into ends[e, side]
    for e in range(m):
        left[2 * e] = left[2 * e + 1] = length[e]
    slack = 1e-9 * length.max() if m else 0.0
    active = members[1:].copy()
    arcs = np.zeros(len(active), np.int64)
    count, claimed = len(active), 0.0
    inside, queue = np.full(n, -1, np.int32), np.empty(n, np.int32)
    mark = 0
    while count > 0:
        k = 0
        for i in range(1, count):
            if arcs[i] < arcs[k]:
                k = i
        queue[0], tail, head = active[k], 1, 0
        inside[active[k]] = mark
        found = False
        while head < tail:
            v = queue[head]
            head += 1
            for i in range(graph.at[v], graph.at[v + 1]):
                e, u = graph.edge[i], graph.to[i]
                side = 0 if graph.ends[e, 0] == v else 1
                if left[2 * e + side] <= slack and inside[u] != mark:
                    inside[u] = mark
                    queue[tail] = u
                    tail += 1
                    found = found or u == members[0]
        if found:
            count -= 1
            active[k], arcs[k] = active[count], arcs[count]
            mark += 1
            continue
        least, entering = np.inf, 0
        for j in range(tail):
            v = queue[j]
            for i in range(graph.at[v], graph.at[v + 1]):
                if inside[graph.to[i]] != mark:
                    e = graph.edge[i]
                    least = min(least, left[2 * e + (0 if graph.ends[e, 0] == v else 1)])
                    entering += 1
        if entering == 0 or least == np.inf:
            return np.inf
        for j in range(tail):
            v = queue[j]
            for i in range(graph.at[v], graph.at[v + 1]):
                if inside[graph.to[i]] != mark:
                    e = graph.edge[i]
                    left[2 * e + (0 if graph.ends[e, 0] == v else 1)] -= least
        claimed += least
        arcs[k] = entering
        mark += 1
    return claimed
