"""Writes the output of ``saps reproduce sdnps-lab``: the paper's tables beside ours, in Markdown and JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as Grid

from research.sdnps.anova import Effect, Sample, describe, effect
from research.sdnps.ends import PACKET
from research.sdnps.lab import STEADY_PACKETS, STEADY_RATE, Run, Settings
from research.sdnps.tables import ALPHA, ANOVA, PACKETS, RUNS, Anova, Cell


class Measured(NamedTuple):
    """One cell: the paper's row, and our runs with their statistics."""

    cell: Cell
    runs: list[Run]
    duration: Sample
    """Durations of the bursts in ms."""
    delay: Sample
    """Medians of single packets' delays in µs."""

    @property
    def loss(self) -> float:
        """Lost packets of all bursts, in per cent."""
        return 100 * (1 - sum(run.received for run in self.runs) / sum(run.packets for run in self.runs))

    @property
    def single_loss(self) -> float:
        """Lost packets of all runs at the low rate, in per cent."""
        return 100 * (1 - sum(run.steady_received for run in self.runs) / sum(run.steady_sent for run in self.runs))


class Results(NamedTuple):
    """All results of one run."""

    command: str
    settings: Settings
    load: tuple[float, float]
    """The machine's load averages before and after the run."""
    cells: list[Measured]

    def effects(self) -> dict[int, tuple[Effect, Effect]]:
        """Return the effects of the number of flow entries on duration and delay, by table with at least two rows."""
        tables = {table: [each for each in self.cells if each.cell.table == table] for table in ANOVA}
        return {
            table: (
                effect([[run.duration_ms for run in each.runs] for each in rows]),
                effect([[run.delay_us for run in each.runs] for each in rows]),
            )
            for table, rows in tables.items()
            if len(rows) > 1
        }


def results(
    command: str, settings: Settings, load: tuple[float, float], cells: Sequence[Cell], runs: Sequence[Run]
) -> Results:
    """Return the runs grouped by cell, with their statistics."""
    made = []
    for place, cell in enumerate(cells):
        row = sum(other.table == cell.table for other in cells[:place])
        mine = [run for run in runs if (run.table, run.row) == (cell.table, row)]
        made.append(
            Measured(
                cell,
                mine,
                describe([run.duration_ms for run in mine], settings.seed),
                describe([run.delay_us for run in mine], settings.seed),
            )
        )
    return Results(command, settings, load, made)


def records(found: Results) -> dict[str, Any]:
    """Return the content of sdnps-lab.json."""
    return {
        "command": found.command,
        "settings": found.settings._asdict(),
        "load": found.load,
        "cells": [
            {
                **each.cell._asdict(),
                "duration": each.duration._asdict(),
                "delay_us": each.delay._asdict(),
                "measured_loss": each.loss,
                "single_loss": each.single_loss,
                "runs": [run._asdict() for run in each.runs],
            }
            for each in found.cells
        ],
        "effects": [
            {"table": table, "duration": _effect(duration), "delay": _effect(delay)}
            for table, (duration, delay) in found.effects().items()
        ],
    }


def _effect(found: Effect) -> dict[str, Any]:
    return {**found.anova._asdict(), "kruskal_p": found.kruskal_p}


def markdown(found: Results) -> str:
    """Return the page docs/reproduction/sdnps-lab.md."""
    parts = [_head(found), _readings(found)]
    parts += [
        "## Tables 1 to 6",
        _rows(found.cells),
        "## Normality",
        _normality(found),
        "## Do flow entries matter?",
        _anova(found),
    ]
    return "\n\n".join(parts) + "\n"


def _head(found: Results) -> str:
    settings, (before, after), processors = found.settings, found.load, os.cpu_count() or 1
    busy = (
        "**The machine was busy with other work**: what is lost was lost while the switches waited for a processor. "
        if before > processors
        else ""
    )
    return (
        "# SDNPS (2016): Tables 1 to 9\n\n"
        f"Measured by `{found.command}` on Open vSwitch (userspace,\nthree switches in a row, seven hosts in network "
        f"namespaces), with trees made by `saps controller`: {settings.runs} runs of each cell\nin an order from "
        f"the seed, {settings.packets:,} packets of {PACKET} bytes a publisher and run. {platform.machine()}, "
        f"{processors} processors carry switches,\npublishers and subscribers; load average "
        f"{before:.1f} before, {after:.1f} after. {busy}Means ± standard deviations."
    )


def _readings(found: Results) -> str:
    rate = found.settings.rate
    pace = f"{rate:,.0f} packets a second" if rate else "as many as it can"
    least = f", so it is at least {1000 * found.settings.packets / rate:,.0f} ms" if rate else ""
    return (
        "*Duration* (the paper's delay) is from the first packet sent to the last received. Each publisher "
        f"sends\n{pace}{least}. *Delay* (µs) is the median of {STEADY_PACKETS} single packets, "
        f"{STEADY_RATE:,.0f} a second,\nby the kernel's time stamps; *99 %* is of the same; {_single(found)}. "
        f"The paper has no such figures. Its own\nare means of {RUNS:,} runs of {PACKETS:,} packets on "
        "virtual machines that lost at the receiving end. Its links of\n10 Mb/s would need 16,000 ms for a run, more "
        "than it prints for one hop and two: links are not limited here."
    )


def _single(found: Results) -> str:
    lost = max(each.single_loss for each in found.cells)
    return f"at most {lost:.2f} % of them were lost" if lost else "none of them was lost"


def _rows(rows: Sequence[Measured]) -> str:
    lines = [
        "| table | | duration, ms: paper | ours | loss, %: paper | ours | delay, µs | 99 %, µs |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in rows:
        cell, tail = each.cell, statistics.median(run.delay_p99_us for run in each.runs)
        lines.append(
            f"| {cell.table} | {cell.label} | {cell.delay_ms:,.0f} | {_spread(each.duration)} | {cell.loss:.2f} "
            f"| {each.loss:.2f} | {_spread(each.delay)} | {tail:,.0f} |"
        )
    return "\n".join(lines)


def _spread(sample: Sample) -> str:
    return f"{sample.mean:,.0f} ± {sample.deviation:,.0f}"


def _normality(found: Results) -> str:
    def row(of: str, sample: Callable[[Measured], Sample]) -> str:
        plain = sum(sample(each).ks_p < ALPHA for each in found.cells)
        fitted = sum(sample(each).lilliefors_p < ALPHA for each in found.cells)
        return f"| {of} | {plain} of {len(found.cells)} | {fitted} of {len(found.cells)} |"

    return "\n".join(
        [
            f"The paper finds all its samples normal by the Kolmogorov-Smirnov test at {ALPHA}. Cells that this test "
            "and Lilliefors'\n(which allows for an estimated mean and deviation) refuse here:",
            "",
            "| | Kolmogorov-Smirnov | Lilliefors |",
            "|---|---:|---:|",
            row("duration", lambda each: each.duration),
            row("delay of a packet", lambda each: each.delay),
        ]
    )


def _anova(found: Results) -> str:
    effects = found.effects()
    if not effects:
        return "Only one number of flow entries was measured."
    lines = [
        "One-way analysis of variance over the numbers of flow entries (the paper's Tables 7 to 9), and the\n"
        f"Kruskal-Wallis test, which needs no normal samples. *Yes* below {ALPHA}.",
        "",
        "| table | of | F | p | an effect? | Kruskal-Wallis p |",
        "|---|---|---:|---:|---|---:|",
    ]
    for table, (duration, delay) in effects.items():
        lines.append(_anova_row(table, "paper", ANOVA[table], None))
        lines.append(_anova_row(table, "duration (ms)", duration.anova, duration.kruskal_p))
        lines.append(_anova_row(table, "delay (µs)", delay.anova, delay.kruskal_p))
    return "\n".join(lines)


def _anova_row(table: int, of: str, anova: Anova, kruskal: float | None) -> str:
    verdict = "yes" if anova.p < ALPHA else "no"
    other = f"{kruskal:.3f}" if kruskal is not None else ""
    return f"| {table} | {of} | {anova.f:,.2f} | {anova.p:.3g} | {verdict} | {other} |"


def show(found: Results, console: Console) -> None:
    """Print the durations, losses and delays on the terminal."""
    grid = Grid("table", "", "duration: paper", "ours", "loss: paper", "ours", "delay of a packet", box=None)
    for each in found.cells:
        grid.add_row(
            str(each.cell.table),
            each.cell.label,
            f"{each.cell.delay_ms:,.0f} ms",
            f"{each.duration.mean:,.0f} ms",
            f"{each.cell.loss:.2f} %",
            f"{each.loss:.2f} %",
            f"{each.delay.mean:,.0f} µs",
        )
    console.print(grid)
