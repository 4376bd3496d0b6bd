"""Draws the plots of ``saps reproduce saps``: saps-8, -9, -10, -12, -13 and -growth, as SVG files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl

from research.saps_paper.queries import RATES
from research.saps_paper.records import (
    ALM,
    ALM_LA,
    ALM_LA_RANDOM,
    AWARE,
    AWARE_RANDOM,
    METHODS,
    OFM,
    Growth,
    Queries,
    Record,
    Resources,
)
from research.saps_paper.report import Results

COLOURS = {ALM: "C7", ALM_LA: "C0", ALM_LA_RANDOM: "C9", OFM: "C3", AWARE: "C2", AWARE_RANDOM: "C8"}


def plot(results: Results, directory: Path) -> None:
    """Write all plots into `directory`. Equal results give equal files."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "saps"
    from matplotlib import pyplot

    drawings = {
        "8": ("Figure 8: line, 16 clusters", partial(_traffic, results.figure("8"))),
        "9": ("Figure 9: height-2 tree, 16 clusters", partial(_traffic, results.figure("9"))),
        "10": ("Figure 10: height-2 tree, 100 subscribers", partial(_traffic, results.figure("10"))),
        "12": ("Figure 12: switches and buckets that one topic takes", partial(_resources, results.resources)),
        "13": ("Figure 13: queries to OFGate a second", partial(_queries, results.queries)),
        "growth": ("One multicast by ALM-LA, 16 clusters", partial(_growth, results.growth)),
    }
    for name, (title, draw) in drawings.items():
        figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        figure.suptitle(title)
        draw(*panels)
        for panel in panels:
            panel.grid(alpha=0.3)
        handles, labels = panels[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        figure.savefig(directory / f"saps-{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def _traffic(points: Sequence[Record], left: Any, right: Any) -> None:
    by_clusters = points[0].figure == "10"
    for method in METHODS[points[0].topology]:
        found = [point for point in points if point.method == method]
        xs = [point.clusters if by_clusters else point.subscribers for point in found]
        style: dict[str, Any] = {"color": COLOURS[method], "marker": "o", "markersize": 3}
        left.plot(xs, [point.traffic for point in found], label=method, **style)
        right.plot(xs, [point.hops_max for point in found], **style)
        right.plot(xs, [point.hops_mean for point in found], "--", linewidth=1, color=COLOURS[method])
    what = "clusters" if by_clusters else "subscribers"
    left.set(xlabel=what, ylabel="inter-cluster traffic", xscale="log", yscale="log")
    right.set(xlabel=what, ylabel="maximum hops (dashed: mean)", xscale="log", ylim=(0, None))


def _resources(found: Sequence[Resources], left: Any, right: Any) -> None:
    for topology, distribution in dict.fromkeys((r.topology, r.distribution) for r in found):
        series = [r for r in found if (r.topology, r.distribution) == (topology, distribution)]
        xs = [r.subscribers for r in series]
        left.plot(xs, [r.flow_entries for r in series], "o-", markersize=3, label=f"{topology}, {distribution}")
        right.plot(xs, [r.buckets for r in series], "o-", markersize=3)
    left.set(xlabel="subscribers", ylabel="switches with a flow entry / all", xscale="log", ylim=(0, None))
    right.set(xlabel="subscribers", ylabel="rewriting buckets / switches", xscale="log", ylim=(0, None))


def _queries(found: Sequence[Queries], left: Any, right: Any) -> None:
    highest = max(point.queries for point in found)
    levels = [highest * i / 12 for i in range(13)]
    for panel, method in ((left, "EITHER"), (right, "BOTH")):
        at = {(p.join_rate, p.leave_rate): p.queries for p in found if p.method == method}
        drawn = panel.contourf(RATES, RATES, [[at[join, leave] for join in RATES] for leave in RATES], levels)
        panel.figure.colorbar(drawn, ax=panel)
        panel.set(title=method, xlabel="joins of each subscriber a second", ylabel="leaves")


def _growth(found: Sequence[Growth], left: Any, right: Any) -> None:
    xs = [g.subscribers for g in found]
    left.plot(xs, [g.copies for g in found], "o-", markersize=3, label="inter-cluster copies")
    left.plot(xs, [g.crossings for g in found], "o-", markersize=3, label="of these in a row")
    left.plot(xs, [g.depth for g in found], "o-", markersize=3, label="messages in a row")
    left.set(xlabel="subscribers", xscale="log", ylim=(0, None))
    right.plot(xs, [g.seconds for g in found], "o-", markersize=3)
    right.set(xlabel="subscribers", ylabel="seconds of the simulation", xscale="log", yscale="log")
