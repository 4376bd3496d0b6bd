"""The sections of docs/performance.md that this benchmark writes: which goals are met, and the rows."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.city.goals import goals
from benchmarks.city.kept import Kept
from benchmarks.city.tables import described, refused, tables
from benchmarks.report import origin
from benchmarks.section import update_page


def summary(kept: Kept) -> list[str]:
    """When, where, and what came of the goals."""
    return [*origin(kept.date, kept.command, kept.machine), "", *goals(kept)]


def details(kept: Kept) -> list[str]:
    """How it was measured, who took part, and all rows."""
    noise = [s.result.foreign / s.result.seconds for s in kept.samples if s.result is not None]
    middle, worst = (statistics.median(noise), max(noise)) if noise else (0.0, 0.0)
    placed = (
        "The broker, or both, run on the first processor and the generator on the second, for all peers alike."
        if kept.pinned
        else "No process is bound to a processor."
    )
    return [
        f"- {placed} {kept.rounds} rounds, by turns, each sample on a fresh broker: {kept.warm:g} s to warm up, "
        f"{kept.seconds:g} s measured. Noise: other processes and the hypervisor took {middle:.0%} of a processor in "
        f"the median sample, {worst:.0%} in the worst.",
        "- A cell: microseconds of processor time (user and system, all processes of the brokers) for a delivery / "
        "thousands of deliveries a second, medians of the rounds. *x* is round by round: median (least - greatest).",
        "- *bad*: messages lost + duplicated, by whom; 0: by nobody. *gen*: the generator's share of its processor, at "
        "most.",
        *(f"- {described(party)}" for party in kept.parties),
        *tables(kept),
        *refused(kept),
        *_calls(kept),
    ]


def _calls(kept: Kept) -> list[str]:
    """The table of calls, if they were counted."""
    found: dict[str, list[float]] = {}
    for name, _, calls in kept.calls:
        found.setdefault(name, []).append(calls)
    if not found:
        return []
    return [
        "",
        "### Calls of project functions for a publication",
        "",
        "By `benchmarks.calls`, in two simulated brokers, from the read to the last write, acknowledgements included. "
        "A batch: 50 publications in one read, to 7 topics.",
        "",
        "| publication | QoS 0 | QoS 1 |",
        "|---|---:|---:|",
        *(f"| {name} | {' | '.join(f'{each:.1f}' for each in calls)} |" for name, calls in found.items()),
    ]


def write(kept: Kept, path: Path) -> None:
    """Write the sections into the page. Raises OSError, ValueError."""
    update_page(path, "goals", "\n".join(summary(kept)))
    update_page(path, "rows", "\n".join(details(kept)))
