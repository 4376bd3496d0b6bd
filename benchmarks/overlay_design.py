"""How long the design of a topic-connected overlay takes, and how that grows.

The command is ``python -m benchmarks.overlay_design``; ``--help`` says what it can do.

One process on one core. Times are processor times, so that other programs on the machine count little; compilation is
not counted (it happens once on a machine: the machine code is kept).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from research.overlay_designs.balanced_stars import centres
from research.overlay_designs.greedy_merge import greedy_merge
from research.overlay_designs.interest import Interest, Ints
from research.overlay_designs.overlay import Statistics, statistics
from research.overlay_designs.registry import ALGORITHMS
from research.overlay_designs.two_level_trees import parents
from saps.overlay.design.compiled import COMPILED
from saps.overlay.design.growth import WORN, Load, fresh, load, overlay_of, trees_of
from saps.overlay.design.live import LiveOverlay, live

PAGE = Path(__file__).parent.parent / "docs" / "reproduction" / "overlay-design-speed.md"
PLOT = "overlay-design-speed.svg"
SUBSCRIPTIONS = 10
NODES_A_TOPIC = 100
"""On average: each size has ten times as many nodes as topics."""
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
"""Nodes."""
CHURN_SETTING = (200, 100, 10)
"""Nodes, topics, subscriptions where nodes come and go: the first of the paper's Tables I and II."""
LEAVES = 1_000
QUICK_SIZES = SIZES[:3]
LIMITS = {
    10_000: {"GM": 1, "TD-CD-ODA": 1, "balanced stars": 1, "two centres": 1, "two-level trees": 1},
    100_000: {"GM": 3, "TD-CD-ODA": 10, "balanced stars": 5, "two centres": 5, "two-level trees": 5},
}
"""Seconds it may take."""


class Point(NamedTuple):
    """One algorithm at one size."""

    nodes: int
    topics: int
    algorithm: str
    seconds: float
    """Processor time, the least of the repetitions."""
    figures: Statistics


def measure(nodes: int, algorithm: str, repetitions: int, seed: int) -> Point:
    """Design for the same random interests `repetitions` times."""
    topics = nodes * SUBSCRIPTIONS // NODES_A_TOPIC
    interest = Interest.uniform(nodes, topics, SUBSCRIPTIONS, np.random.default_rng([seed, nodes]))
    taken = []
    for _ in range(repetitions):
        start = time.process_time()
        overlay = ALGORITHMS[algorithm].design(interest, np.random.default_rng(seed))
        taken.append(time.process_time() - start)
    return Point(nodes, topics, algorithm, min(taken), statistics(interest, overlay))


def with_random_ties(nodes: int, seed: int) -> int:
    """The maximum degree by GM if a random one of equal edges is added, not the lowest."""
    interest = Interest.uniform(
        nodes, nodes * SUBSCRIPTIONS // NODES_A_TOPIC, SUBSCRIPTIONS, np.random.default_rng([seed, nodes])
    )
    overlay = greedy_merge(interest, np.random.default_rng(seed), random_ties=True)
    return statistics(interest, overlay).maximum_degree


class Churn(NamedTuple):
    """What nodes that come and go cost a designed overlay, and what becomes of it."""

    levels: int
    leaves: int
    """As many nodes have left, each followed by a join of a new one with new topics."""
    join_mean: float
    """Links added."""
    join_max: int
    leave_mean: float
    """Links added; those of the node that left go anyway."""
    leave_max: int
    before: Load
    after: Load
    worn: Load
    """The worst while the design was made anew whenever it was worn (`growth.WORN`)."""
    designed: int
    """How often it was."""
    fresh: Load
    """If the same nodes were designed anew."""


def churn(levels: int, seed: int, setting: tuple[int, int, int] = CHURN_SETTING, leaves: int = LEAVES) -> Churn:
    """Random nodes leave a designed overlay and others join it."""
    rng = np.random.default_rng([seed, levels])
    interest = Interest.uniform(*setting, rng)
    overlay = live(interest, _parents(interest, levels, rng), levels)
    living, when_grown = _designed(overlay, setting[1], levels, rng), fresh(overlay)
    before, worst, designed = load(overlay), load(overlay), 0
    joined, left = [], []
    for number in range(setting[0], setting[0] + leaves):
        gone, topics = list(overlay.topics)[rng.integers(setting[0])], rng.choice(setting[1], setting[2], replace=False)
        left.append(len(overlay.leave(gone).added))
        joined.append(len(overlay.join(number, topics.tolist()).added))
        living.leave(gone)
        living.join(number, topics.tolist())
        if when_grown.worn(living):
            living, designed = _designed(living, setting[1], levels, rng), designed + 1
            when_grown = fresh(living)
        worst = Load(*map(max, worst, load(living)))
    return Churn(
        levels,
        leaves,
        float(np.mean(joined)),
        max(joined),
        float(np.mean(left)),
        max(left),
        before,
        load(overlay),
        worst,
        designed,
        load(_designed(overlay, setting[1], levels, rng)),
    )


def _designed(
    overlay: LiveOverlay[int, int], topics: int, levels: int, rng: np.random.Generator
) -> LiveOverlay[int, int]:
    """A fresh design for the nodes of an overlay, under their own numbers."""
    nodes = list(overlay.topics)
    interest = Interest.from_sets([overlay.topics[node] for node in nodes], topics)
    found = live(interest, _parents(interest, levels, rng), levels)
    trees = {
        topic: (nodes[root], {nodes[node]: nodes[parent] for node, parent in parents_of.items()})
        for topic, (root, parents_of) in trees_of(found).items()
    }
    return overlay_of(trees, levels)


def _parents(interest: Interest, levels: int, rng: np.random.Generator) -> Ints:
    if levels == 2:
        return parents(interest, rng)
    return np.repeat(centres(interest, rng), np.diff(interest.nodes_at))


def cells(point: Point) -> tuple[str, ...]:
    """A row of the tables."""
    limit = LIMITS.get(point.nodes, {}).get(point.algorithm)
    figures = point.figures
    return (
        f"{point.nodes:,} x {point.topics:,}",
        point.algorithm,
        f"{point.seconds:.2f}",
        "" if limit is None else str(limit),
        f"{figures.average_degree:.2f}",
        str(figures.maximum_degree),
        str(figures.diameter),
    )


HEADERS = ("nodes x topics", "algorithm", "seconds", "limit", "average degree", "maximum degree", "topic diameter")


def markdown(points: Sequence[Point], churns: Sequence[Churn], seed: int, repetitions: int) -> str:
    """The page docs/reproduction/overlay-design-speed.md."""
    nodes, topics, each = CHURN_SETTING
    ties = ", ".join(str(with_random_ties(size, seed)) for size in sorted({point.nodes for point in points}))
    lines = [
        "# Speed of the overlay designs",
        "",
        f"Measured by `python -m benchmarks.overlay_design --markdown` (seed {seed}): processor seconds on one core, "
        f"the least of {repetitions},",
        f"without compilation. Every node takes {SUBSCRIPTIONS} topics at random; there are ten times as many nodes as "
        "topics. A cell reads",
        "seconds (limit), average degree, maximum degree, topic diameter.",
        "",
        *_table(points),
        "",
        f"GM adds the lowest of equal edges, as fits the paper. With `random_ties` its maximum degrees are {ties}.",
        "",
        f"![Seconds against the number of nodes]({PLOT})",
        "",
        "## Nodes that come and go",
        "",
        f"{nodes} nodes, {topics} topics, {each} subscriptions each; 1 level are stars, 2 two-level trees. "
        "A random node leaves and",
        f"another joins with random topics, {LEAVES:,} times. A cell reads maximum degree / links. Left alone, the "
        "design wears; a mesh",
        f"designs anew when either is {100 * (WORN - 1):.0f} % above what it was (`Fresh.worn`). Counts, not times.",
        "",
        "| levels | links added by a join, mean (most) | by a leave, mean (most) | before | left alone "
        "| designed anew when worn: the worst | how often | a fresh design at the end |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {c.levels} | {c.join_mean:.1f} ({c.join_max}) | {c.leave_mean:.1f} ({c.leave_max}) "
            f"| {_shown(c.before)} | {_shown(c.after)} | {_shown(c.worn)} | {c.designed} | {_shown(c.fresh)} |"
            for c in churns
        ),
        "",
    ]
    return "\n".join(lines)


def _shown(found: Load) -> str:
    return f"{found.maximum_degree} / {found.links // 2}"


def _table(points: Sequence[Point]) -> Iterator[str]:
    """A row for each algorithm, a column for the least, the middle and the greatest number of nodes."""
    sizes = sorted({point.nodes for point in points})
    sizes = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
    yield "| algorithm | " + " | ".join(f"{nodes:,} nodes" for nodes in sizes) + " |"
    yield "|:---|" + "---:|" * len(sizes)
    for name in dict.fromkeys(point.algorithm for point in points):
        row = " | ".join(_cell(point) for point in points if point.algorithm == name and point.nodes in sizes)
        yield f"| {name} | {row} |"


def _cell(point: Point) -> str:
    limit = LIMITS.get(point.nodes, {}).get(point.algorithm)
    seconds = f"{point.seconds:.2f}" + (f" ({limit})" if limit else "")
    figures = point.figures
    return f"{seconds}, {figures.average_degree:.1f}, {figures.maximum_degree}, {figures.diameter}"


def plot(points: Sequence[Point], path: Path) -> None:
    """Seconds against nodes, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "overlay-design"  # the same points give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for name in dict.fromkeys(point.algorithm for point in points):
        own = [point for point in points if point.algorithm == name]
        style = "o-" if ALGORITHMS[name].ours else ".--"
        axes.plot([p.nodes for p in own], [p.seconds for p in own], style, label=name)
    sizes = sorted({point.nodes for point in points})
    axes.plot(sizes, [n / 1e5 for n in sizes], ":", color="gray", label="proportional to the nodes")
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds", title="Time to design an overlay")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    """The command. Status 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overlay_design",
        description="Time of the overlay designs, for growing numbers of nodes.",
    )
    parser.add_argument("--quick", action="store_true", help=f"only up to {QUICK_SIZES[-1]:,} nodes")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--markdown", action="store_true", help="write the page and its plot in docs/")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    if not COMPILED:
        console.print("numba is not installed: these times need it (extra 'research')")
        return 2
    sizes = QUICK_SIZES if chosen.quick else SIZES
    points: list[Point] = []
    with Progress(console=console, refresh_per_second=2) as progress:
        task = progress.add_task("designs", total=sum(sizes) * len(ALGORITHMS))
        for name in ALGORITHMS:
            measure(100, name, 1, chosen.seed)  # compiles
        for nodes in sizes:
            for name in ALGORITHMS:
                progress.update(task, description=f"{nodes:,} nodes: {name}")
                points.append(measure(nodes, name, chosen.repetitions, chosen.seed))
                progress.advance(task, nodes)
    table = Table(*HEADERS)
    for point in points:
        table.add_row(*cells(point))
    Console().print(table)
    if chosen.json:
        rows = [point._asdict() for point in points]
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    if chosen.markdown:
        plot(points, PAGE.parent / PLOT)
        churns = [churn(levels, chosen.seed) for levels in (1, 2)]
        PAGE.write_text(markdown(points, churns, chosen.seed, chosen.repetitions))
    late = [p for p in points if p.seconds > LIMITS.get(p.nodes, {}).get(p.algorithm, float("inf"))]
    for point in late:
        console.print(f"over the limit: {point.algorithm} at {point.nodes:,} nodes, {point.seconds:.2f} s")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
