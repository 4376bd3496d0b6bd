"""What no planner can go below: proven lower bounds on the load of the busiest edge, and on the cost of a tree.

Weak duality of the packing of trees: for edge lengths l >= 0 and any plan, sum of l(e) load(e) is at least the sum
over the topics of rate times the least cost of a tree under l; so some edge has a utilisation of at least that sum
divided by the sum of l(e) c(e). The least cost of a tree is bounded by dual ascent (Wong 1984): disjoint claims on the
arcs into node sets that hold a member but not the root.
"""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints
from saps.overlay.design.compiled import compiled

PERTURBED = 0.02
"""Lengths are varied by up to this share: ties make dual ascent weak."""
LARGEST_SET = 6
"""Nodes of a cut's smaller side, at most."""
ROOTS = 4
"""Members tried as the root of dual ascent; the best counts for each topic."""
TILTS = (0.0, 1.0, 2.0, 4.0)
"""How strongly the lengths follow the load of a plan; the best bound counts."""


def load_bound(graph: Graph, demands: Demands, load: Floats, rng: np.random.Generator) -> float:
    """No plan has a lower utilisation of its busiest edge. `load`: that of a good plan, which makes the bound sharp.

    If all rates and all capacities are equal, loads are multiples of the rate, and the bound is rounded up."""
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
    """By the cuts around single nodes: of the topics with a member there, each needs one of its d edges, whole. The
    greatest rate needs an edge; so do two of the d + 1 greatest rates together; so does a d-th of their sum.

    Capacities may differ: then only sums and the largest capacity count."""
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
    """By cuts around sets of up to `LARGEST_SET` nodes, grown from every node: a topic with members inside and outside
    needs one of the edges between. The set grows by the neighbour that leaves the least capacity around it."""
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
    """The capacity of a node's edges to the outside of a set, less that of its edges into it."""
    row = slice(int(graph.at[node]), int(graph.at[node + 1]))
    sign = np.array([-1.0 if int(u) in inside else 1.0 for u in graph.to[row]])
    return float(sign @ graph.capacity[graph.edge[row]])


def dual_bound(graph: Graph, demands: Demands, length: Floats, *, roots: int = 1) -> float:
    """By these edge lengths, see above. Better lengths, a better bound: the prices of a balanced plan are good ones."""
    total = _costs(graph, demands, length, roots)
    return float(total / (length @ graph.capacity))


def tree_bound(graph: Graph, members: Ints, length: Floats) -> float:
    """No tree over the members costs less than this."""
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
    """Dual ascent from the first member; always for the member whose set is entered by fewest arcs."""
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
