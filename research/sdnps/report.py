"""What ``saps reproduce sdnps`` writes: Markdown, plots, and the table on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from rich.console import Console
from rich.table import Table as Grid

from research.sdnps.small import Small
from research.sdnps.study import CAPACITY, EVENTS, LINKS, NO_SHAPE, NODES, READINGS, RELEVANT, THOROUGH, Gap, Record
from saps.ofm.planner.registry import ALGORITHMS

MEANING = {
    "even": "E events in all, shared evenly",
    "zipf": "E events in all, shared by Zipf's law (exponent 2.0)",
    "printed": "E events of every topic, as printed",
}


class Results(NamedTuple):
    """All that was measured."""

    graphs: int
    seed: int
    records: list[Record]
    gaps: list[Gap]
    small: list[Small]


def label(record: Record) -> str:
    """A planner's name, with the paper's name for the shape of the topic tree."""
    return record.planner if record.shape == NO_SHAPE else f"{record.planner}: {record.shape}"


def markdown(results: Results) -> str:
    """The page docs/reproduction/sdnps.md."""
    rows = results.records
    parts = [
        "# SDNPS (2016): Figures 6 to 8",
        f"Computed by `saps reproduce sdnps --seed {results.seed} --graphs {results.graphs}`: {results.graphs} random "
        f"networks of {NODES} nodes and {LINKS} links\nfor each number of topics, the same for all planners; "
        f"{RELEVANT} nodes a topic, of which 20 % publish. The tables have means\nover the networks, `sdnps.json` "
        "standard deviations and the columns between. The paper's figures have no numbers, so\nonly shapes can be "
        "compared.\n[Decision 050](../decisions/050-tree-planners-for-ofm.md) has the readings taken, "
        "[planner](../planner.md) the planners.",
        "SDNPS is shown as printed (widest paths by Kruskal's algorithm) and mended (of widest paths the shortest; "
        "children are\npruned), for three shapes of the topic tree: CMMR, all topics at the first level; "
        "MCOTO, half of them; EMCOTO, one\nbranch. Our planners are in bold.",
        "## Figure 6: time to plan",
        "Milliseconds of processor time for all topics, compiled. The paper's are about 10,000 (Java, Intel "
        "i5-3230). The order\nof the shapes is the same: EMCOTO fastest, CMMR slowest.",
        "![Figure 6](sdnps-6.svg)",
        _table(_of(rows, "6"), lambda r: f"{1e3 * r.seconds:.1f}"),
        "## Figure 7: topic diameter",
        "Hops on the longest way within a tree, mean over the topics.",
        "![Figure 7](sdnps-7.svg)",
        _table(_of(rows, "7"), lambda r: f"{r.diameter:.1f}"),
        "## Figure 8: residual bandwidth",
        f"The least bandwidth left on any link, of {CAPACITY:g} units (Definition 3), with E = {EVENTS[0]:,} events. "
        f"What is used grows in\nproportion to E: a cell below {CAPACITY * (1 - EVENTS[0] / EVENTS[-1]):g} is "
        f'negative, and so infeasible, at E = {EVENTS[-1]:,}. "No planner" is the proven bound.',
        "![Figure 8](sdnps-8.svg)",
    ]
    for reading in READINGS:
        parts.append(f"### {MEANING[reading]}")
        chosen = [r for r in _of(rows, "8") if (r.reading, r.events) == (reading, EVENTS[0])]
        if not any(r.feasible for r in chosen):
            parts.append(f"Infeasible for every planner and number of topics, from E = {EVENTS[0]:,} on.")
            continue
        bound = "| no planner | " + " | ".join(f"{_bound(chosen, t):.1f}" for t in _columns(chosen)) + " |"
        parts.append(_table(chosen, lambda r: f"{r.residual:.1f}") + "\n" + bound)
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


def _columns(rows: Iterable[Record]) -> list[int]:
    """The numbers of topics that a table of the page shows: the least, the middle and the greatest."""
    topics = _topics(rows)
    return sorted({topics[0], topics[len(topics) // 2], topics[-1]})


def _bound(rows: Iterable[Record], topics: int) -> float:
    return next(row.residual_bound for row in rows if row.topics == topics)


def _table(rows: Sequence[Record], cell: Callable[[Record], str]) -> str:
    topics = _columns(rows)
    lines = ["| topics | " + " | ".join(map(str, topics)) + " |", "|---|" + "---:|" * len(topics)]
    for name in dict.fromkeys(map(label, rows)):
        own = [row for row in rows if label(row) == name]
        head = f"**{name}**" if ALGORITHMS[own[0].planner].ours else name
        lines.append(f"| {head} | " + " | ".join(cell(row) for row in own if row.topics in topics) + " |")
    return "\n".join(lines)


def show(results: Results, console: Console) -> None:
    """The ends of the figures on the terminal."""
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
    """sdnps-6.svg, sdnps-7.svg, sdnps-8.svg. The same figures give the same files."""
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
