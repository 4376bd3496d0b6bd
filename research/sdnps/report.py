"""Writes the output of ``saps reproduce sdnps``: Markdown, plots, and the terminal's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from rich.console import Console
from rich.table import Table as Grid

from research.sdnps.small import Small
from research.sdnps.study import CAPACITY, EVENTS, LINKS, NO_SHAPE, NODES, RELEVANT, THOROUGH, Gap, Record
from saps.ofm.planner.registry import ALGORITHMS

MEANING = {
    "even": "E events in all, shared evenly",
    "zipf": "E events in all, shared by Zipf's law (exponent 2.0)",
    "printed": "E events of every topic, as printed",
}


class Results(NamedTuple):
    """All results of one run."""

    graphs: int
    seed: int
    records: list[Record]
    gaps: list[Gap]
    small: list[Small]


def label(record: Record) -> str:
    """Return a planner's name, with the paper's name for the shape of the topic tree if it depends on that."""
    return record.planner if record.shape == NO_SHAPE else f"{record.planner}: {record.shape}"


def markdown(results: Results) -> str:
    """Return the page docs/reproduction/sdnps.md."""
    rows = results.records
    parts = [
        "# SDNPS (2016): Figures 6 to 8",
        f"Computed by `saps reproduce sdnps --seed {results.seed} --graphs {results.graphs}`: {results.graphs} random "
        f"networks of {NODES} nodes and {LINKS} links\nfor each number of topics, the same for all planners; "
        f"{RELEVANT} nodes a topic, of which 20 % publish. The tables have means\nover the networks, `sdnps.json` "
        "standard deviations and\nall points. The paper's figures have no numbers, so only shapes can be compared.\n"
        "[Decision 050](../decisions/050-tree-planners-for-ofm.md) has the readings taken, "
        "[planner](../planner.md) the planners.",
        "SDNPS is shown as printed (widest paths by Kruskal's algorithm) and mended (of widest paths the shortest; "
        "children are\npruned), for three shapes of the topic tree: CMMR, all topics at the first level; "
        "MCOTO, half of them; EMCOTO, one\nbranch. Our planners are in bold.",
        "![Figure 6: time to plan](sdnps-6.svg)",
        "![Figure 7: topic diameter](sdnps-7.svg)",
        "![Figure 8: residual bandwidth](sdnps-8.svg)",
        f"## The greatest number of topics, {max(_topics(rows))}",
        "*Time* is the processor's for all topics, compiled; the paper's are about 10 s (Java, Intel i5-3230). *Links* "
        "of a tree\nand *diameter*, the hops on its longest way, are means over the topics. *Residual bandwidth* is "
        f"the least left on any\nlink, of {CAPACITY:g} units (Definition 3), with E = {EVENTS[0]:,} events in all, "
        f"shared evenly or by Zipf's law (exponent 2.0); at\nE = {EVENTS[-1]:,} ten times as much is used. "
        "*No planner* is the proven bound. With E events of every topic, as printed, no\nplanner has a feasible plan.",
        _ends([row for row in rows if row.topics == max(_topics(rows))]),
    ]
    return "\n\n".join([*parts, *_quality(results)]) + "\n"


def _quality(results: Results) -> list[str]:
    lines = ["| planner | events are | " + " | ".join(str(t) for t in _topics(results.gaps)) + " |"]
    lines.append("|---|---|" + "---:|" * len(_topics(results.gaps)))
    for planner, reading in dict.fromkeys((gap.planner, gap.reading) for gap in results.gaps):
        own = [gap for gap in results.gaps if (gap.planner, gap.reading) == (planner, reading)]
        cells = " | ".join(f"{100 * gap.mean:.1f} % ({100 * gap.worst:.1f} %)" for gap in own)
        lines.append(f"| {planner} | {reading} | {cells} |")
    small = ["| links | members | cost first, mean | worst | local search alone, mean | worst |"]
    small.append("|---:|---:|---:|---:|---:|---:|")
    for point in results.small:
        figures = (point.mean, point.worst, point.search_mean, point.search_worst)
        cells = " | ".join(f"{100 * value:.2f} %" for value in figures)
        small.append(f"| {point.links} | {point.members} | {cells} |")
    return [
        "## Our planners against bounds",
        "**Busiest link above the proven bound**, mean (worst network). The bound, the greatest of cuts around "
        "sets of up to 6\nnodes and of dual bounds by edge lengths, holds for every planner.",
        "\n".join(lines),
        "**Tree cost against Mehlhorn's**, at even rates:\n"
        + ", ".join(f"{t} topics {100 * _against(results.records, t):+.1f} %" for t in _topics(results.records))
        + f" ({THOROUGH}).",
        "**Cost first against the optimum** (Dreyfus-Wagner), random networks of 40 nodes:",
        "\n".join(small),
    ]


def _against(rows: Sequence[Record], topics: int) -> float:
    cost = {r.planner: r.tree_cost for r in _of(rows, "7") if r.topics == topics and r.shape == NO_SHAPE}
    return cost[THOROUGH] / cost["Mehlhorn"] - 1


def _of(rows: Iterable[Record], figure: str) -> list[Record]:
    return [row for row in rows if row.figure == figure]


def _topics(rows: Iterable[Record | Gap]) -> list[int]:
    return sorted({row.topics for row in rows})


def _bound(rows: Iterable[Record], topics: int) -> float:
    return next(row.residual_bound for row in rows if row.topics == topics)


def _ends(rows: Sequence[Record]) -> str:
    """Return a table with a line for each planner, at one number of topics."""
    lines = ["| planner | time, ms | links | diameter | residual: even | Zipf |", "|---|---:|---:|---:|---:|---:|"]
    last = [row for row in _of(rows, "8") if row.events == EVENTS[0]]
    for name in dict.fromkeys(map(label, rows)):
        own = [row for row in rows if label(row) == name]
        first, left = own[0], {row.reading: row.residual for row in last if label(row) == name}
        head = f"**{name}**" if ALGORITHMS[first.planner].ours else name
        lines.append(
            f"| {head} | {1e3 * first.seconds:.1f} | {first.tree_cost:.1f} | {first.diameter:.1f} "
            f"| {left['even']:.1f} | {left['zipf']:.1f} |"
        )
    bounds = {row.reading: row.residual_bound for row in last}
    return "\n".join([*lines, f"| no planner | | | | {bounds['even']:.1f} | {bounds['zipf']:.1f} |"])


def show(results: Results, console: Console) -> None:
    """Print the points of the figures with the most topics on the terminal."""
    for topics in _topics(results.records)[-1:]:
        grid = Grid("planner", "seconds", "diameter", "links", *MEANING, title=f"{topics} topics, 10,000 events")
        rows = [row for row in results.records if row.topics == topics]
        for name in dict.fromkeys(map(label, rows)):
            own = [row for row in rows if label(row) == name]
            left = {r.reading: f"{r.residual:.1f}" for r in _of(own, "8") if r.events == EVENTS[0]}
            first = own[0]
            figures = f"{first.seconds:.3f}", f"{first.diameter:.1f}", f"{first.tree_cost:.1f}"
            grid.add_row(name, *figures, *(left[reading] for reading in MEANING))
        console.print(grid)
    for gap in results.gaps:
        worst = f"{100 * gap.mean:.1f} % on average, {100 * gap.worst:.1f} % at worst"
        console.print(f"{gap.planner}, {gap.topics} topics, {gap.reading}: above the bound by {worst}")


def plot(results: Results, directory: Path) -> None:
    """Write sdnps-6.svg, sdnps-7.svg and sdnps-8.svg. Equal results give equal files."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "sdnps"
    from matplotlib import pyplot

    panels: dict[str, list[tuple[str, list[Record]]]] = {
        "6": [("Figure 6: time to plan", _of(results.records, "6"))],
        "7": [("Figure 7: topic diameter", _of(results.records, "7"))],
        "8": [
            (f"{reading}, {events:,} events", [r for r in _of(results.records, "8") if (r.reading, r.events) == key])
            for reading in ("even", "zipf")
            for events in (EVENTS[0], EVENTS[-1])
            if (key := (reading, events))
        ],
    }
    for figure, drawings in panels.items():
        across = 2 if len(drawings) > 1 else 1
        size = (12, 9) if across == 2 else (8, 5)
        canvas, axes = pyplot.subplots(
            len(drawings) // across, across, figsize=size, layout="constrained", squeeze=False
        )
        for axis, (title, rows) in zip(axes.flat, drawings, strict=True):
            for colour, name in enumerate(dict.fromkeys(map(label, rows))):
                own = [row for row in rows if label(row) == name]
                style = "o-" if ALGORITHMS[own[0].planner].ours else ".--"
                xs, (ys, sds) = [row.topics for row in own], _values(figure, own)
                axis.errorbar(xs, ys, sds, fmt=style, color=f"C{colour}", label=name, capsize=2, linewidth=1)
            if figure == "8":
                topics = _topics(rows)
                axis.plot(topics, [_bound(rows, t) for t in topics], ":", color="black", label="no planner")
                axis.set_ylim(bottom=max(axis.get_ylim()[0], -CAPACITY))
            axis.set(title=title, xlabel="topics", ylabel=_UNITS[figure])
            if figure == "6":
                axis.set_yscale("log")
            axis.grid(alpha=0.3)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
        canvas.savefig(directory / f"sdnps-{figure}.svg", metadata={"Date": None})
        pyplot.close(canvas)


_UNITS = {"6": "seconds", "7": "hops", "8": "residual bandwidth, units"}


def _values(figure: str, rows: Sequence[Record]) -> tuple[list[float], list[float]]:
    if figure == "6":
        return [row.seconds for row in rows], [row.seconds_sd for row in rows]
    if figure == "7":
        return [row.diameter for row in rows], [row.diameter_sd for row in rows]
    return [row.residual for row in rows], [row.residual_sd for row in rows]
