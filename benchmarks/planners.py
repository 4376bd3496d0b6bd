"""How long the planning of trees takes, and how that grows.

The command is ``python -m benchmarks.planners``; ``--help`` says what it can do.

One process on one core. Times are processor times, so that other programs on the machine count little; compilation is
not counted (it happens once on a machine: the machine code is kept).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import networkx as nx
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from research.planner_instances import random_network
from saps.ofm.planner.balanced import balanced
from saps.ofm.planner.graph import Demands, Graph
from saps.ofm.planner.registry import Design
from saps.ofm.planner.sdnps import sdnps
from saps.ofm.planner.shortest import mehlhorn, shortest_paths, takahashi_matsuyama
from saps.ofm.planner.trees import figures
from saps.overlay.design.compiled import COMPILED

PAGE = Path(__file__).parent.parent / "docs" / "reproduction" / "planner-speed.md"
PLOT = "planner-speed.svg"
LINKS_A_NODE = 3
NODES, TOPICS, MEMBERS = 1_000, 10_000, 30
"""The setting that limits are for."""
PLANNERS: dict[str, Design] = {
    "shortest paths": shortest_paths,
    "Takahashi-Matsuyama": takahashi_matsuyama,
    "Mehlhorn": mehlhorn,
    "SDNPS, mended": sdnps,
    "balanced, no pass": partial(balanced, passes=0),
    "balanced, 2 passes": balanced,
}
UP_TO = {"SDNPS, mended": 1_000}
"""Topics beyond which a planner is not measured: it takes too long."""
LIMITS = {"balanced, no pass": 10.0, "balanced, 2 passes": 25.0}
"""Seconds at the setting above."""
GROWTH = {
    "nodes": [(nodes, 1_000, 30) for nodes in (100, 300, 1_000, 3_000)],
    "topics": [(1_000, topics, 30) for topics in (100, 1_000, 3_000, 10_000)],
    "members": [(1_000, 1_000, members) for members in (3, 10, 30, 100)],
}
SAMPLE = 50
"""Topics that other libraries plan; their times are scaled up."""


class Point(NamedTuple):
    """One planner at one size."""

    nodes: int
    topics: int
    members: int
    planner: str
    seconds: float
    busiest: float
    """Topics on the busiest link."""
    tree_cost: float
    """Links of a tree, mean."""


def instance(nodes: int, topics: int, members: int, seed: int) -> tuple[Graph, Demands]:
    """A random network with equal links, and equal demands."""
    rng = np.random.default_rng([seed, nodes, topics, members])
    graph = random_network(nodes, LINKS_A_NODE * nodes, rng)
    return graph, Demands.uniform(nodes, topics, members, rng)


def measure(size: tuple[int, int, int], planner: str, seed: int) -> Point:
    """Plan once."""
    graph, demands = instance(*size, seed)
    start = time.process_time()
    trees = PLANNERS[planner](graph, demands)
    seconds = time.process_time() - start
    result = figures(graph, demands, trees)
    return Point(*size, planner, seconds, result.busiest, result.tree_cost)


def others(seed: int) -> list[Point]:
    """networkx and rustworkx in the setting of the limits, from a sample of topics, one process."""
    graph, demands = instance(NODES, TOPICS, MEMBERS, seed)
    links = graph.ends.tolist()
    net: nx.Graph[int] = nx.Graph()
    net.add_weighted_edges_from((a, b, 1.0) for a, b in links)
    found = [_other("networkx, Mehlhorn", lambda nodes: _networkx(net, nodes), demands)]
    try:
        import rustworkx as rx
    except ModuleNotFoundError:
        return found
    fast = rx.PyGraph()
    fast.add_nodes_from(range(NODES))
    fast.add_edges_from([(a, b, 1.0) for a, b in links])
    return [*found, _other("rustworkx", lambda nodes: rx.steiner_tree(fast, nodes, float).num_edges(), demands)]


def _networkx(net: nx.Graph[int], nodes: list[int]) -> int:
    return int(nx.algorithms.approximation.steiner_tree(net, nodes, method="mehlhorn").number_of_edges())


def _other(name: str, plan: Callable[[list[int]], int], demands: Demands) -> Point:
    start = time.process_time()
    edges = [plan(demands.nodes_of(topic).tolist()) for topic in range(SAMPLE)]
    seconds = (time.process_time() - start) * TOPICS / SAMPLE
    return Point(NODES, TOPICS, MEMBERS, name, seconds, float("nan"), float(np.mean(edges)))


HEADERS = ("nodes x topics x members", "planner", "seconds", "limit", "topics on the busiest link", "links of a tree")


def cells(point: Point) -> tuple[str, ...]:
    """A row of the tables."""
    at_limit = (point.nodes, point.topics, point.members) == (NODES, TOPICS, MEMBERS)
    limit = LIMITS.get(point.planner) if at_limit else None
    return (
        f"{point.nodes:,} x {point.topics:,} x {point.members}",
        point.planner,
        f"{point.seconds:.3g}",
        "" if limit is None else f"{limit:g}",
        "" if np.isnan(point.busiest) else f"{point.busiest:.0f}",
        f"{point.tree_cost:.1f}",
    )


SHOWN = {(100, 1000, 30), (NODES, 1000, 30), (NODES, TOPICS, MEMBERS), (NODES, 1000, 100)}
"""Nodes, topics and members of the page's columns; its plot has all."""


def markdown(points: Sequence[Point], seed: int) -> str:
    """The page docs/reproduction/planner-speed.md."""
    limits = "; ".join(f"{name} {seconds:g} s" for name, seconds in LIMITS.items())
    lines = [
        "# Speed of the tree planners",
        "",
        f"Measured by `python -m benchmarks.planners --markdown` (seed {seed}). Columns are nodes x topics x members: "
        "random",
        f"networks with {LINKS_A_NODE} links a node, members at random, equal rates. networkx and rustworkx plan "
        f"{SAMPLE} of the topics, scaled up;",
        "they know no load.",
        "",
        f"![Seconds against nodes, topics and members]({PLOT})",
        "",
        "## Processor seconds on one core, without compilation",
        "",
        f"Limits for {NODES:,}x{TOPICS:,}x{MEMBERS}: {limits}.",
        "",
        *_table(points, lambda point: f"{point.seconds:.3g}"),
        "",
        "## Topics on the busiest link",
        "",
        *_table(points, lambda point: "" if np.isnan(point.busiest) else f"{point.busiest:.0f}"),
        "",
        "## Links of a tree",
        "",
        *_table(points, lambda point: f"{point.tree_cost:.1f}"),
        "",
    ]
    return "\n".join(lines)


def _table(points: Sequence[Point], cell: Callable[[Point], str]) -> Iterator[str]:
    """A row for each planner that has a cell, a column for each size of `SHOWN`."""
    at = {((p.nodes, p.topics, p.members), p.planner): cell(p) for p in points}
    sizes = [size for size in dict.fromkeys(size for size, _ in at) if size in SHOWN]
    yield "| planner | " + " | ".join(f"{n:,}x{t:,}x{m}" for n, t, m in sizes) + " |"
    yield "|:---|" + "---:|" * len(sizes)
    for name in dict.fromkeys(p.planner for p in points):
        row = [at.get((size, name), "") for size in sizes]
        if any(row):
            yield f"| {name} | " + " | ".join(row) + " |"


def plot(points: Sequence[Point], path: Path) -> None:
    """Seconds against nodes, topics and members, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "planners"  # the same points give the same file
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(GROWTH), figsize=(13, 4.2), layout="constrained", sharey=True)
    at = {(p.nodes, p.topics, p.members, p.planner): p for p in points}
    for place, (axis, (what, sizes)) in enumerate(zip(panels, GROWTH.items(), strict=True)):
        for name in PLANNERS:
            own = [(size[["nodes", "topics", "members"].index(what)], at.get((*size, name))) for size in sizes]
            xs = [x for x, point in own if point is not None]
            axis.plot(xs, [p.seconds for _, p in own if p is not None], "o-", markersize=3, label=name)
        axis.set(xscale="log", yscale="log", xlabel=what)
        axis.grid(alpha=0.3)
        if place == 0:
            axis.set_ylabel("seconds")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    """The command. Status 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planners",
        description="Time of the tree planners, for growing numbers of nodes, topics and members.",
    )
    parser.add_argument("--quick", action="store_true", help="only the setting that the limits are for")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--markdown", action="store_true", help="write the page and its plot in docs/")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    if not COMPILED:
        console.print("numba is not installed: these times need it (extra 'research')")
        return 2
    top = (NODES, TOPICS, MEMBERS)
    sizes = list(dict.fromkeys([*(size for row in GROWTH.values() for size in row if not chosen.quick), top]))
    points: list[Point] = []
    with Progress(console=console, refresh_per_second=2) as progress:
        task = progress.add_task("planners", total=len(sizes) * len(PLANNERS) + 1)
        for name in PLANNERS:
            measure((50, 10, 5), name, chosen.seed)  # compiles
        for size in sizes:
            for name in [name for name in PLANNERS if size[1] <= UP_TO.get(name, size[1])]:
                progress.update(task, description=f"{size[0]:,} nodes, {size[1]:,} topics: {name}")
                points.append(measure(size, name, chosen.seed))
                progress.advance(task)
        progress.update(task, description="networkx, rustworkx")
        points += others(chosen.seed)
        progress.advance(task)
    table = Table(*HEADERS)
    for point in points:
        table.add_row(*cells(point))
    Console().print(table)
    if chosen.json:
        rows = {"points": [p._asdict() for p in points]}
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    if chosen.markdown:
        plot(points, PAGE.parent / PLOT)
        PAGE.write_text(markdown(points, chosen.seed))
    late = [p for p in points if (p.nodes, p.topics, p.members) == top and p.seconds > LIMITS.get(p.planner, 1e9)]
    for point in late:
        console.print(f"over the limit: {point.planner}, {point.seconds:.2f} s")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
