"""Results of the switch-over as tables for a terminal and for a page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.switchover.faults import FAULTS, Broken
from benchmarks.switchover.moves import Moved

Rows = list[tuple[str, ...]]

MOVES = (
    "mode", "QoS", "messages/s", "deliveries/s", "moves", "joins, leaves", "published", "by OFM", "wrong", "to OFM",
    "to ALM", "longest gap",
)  # fmt: skip
FAULT = (
    "fault", "mode", "QoS", "published", "wrong", "longest gap", "gap before", "by ALM", "all by OFM after",
)  # fmt: skip


def moves_rows(results: Sequence[Moved]) -> Rows:
    """One row a run; wrong: lost/doubled/out of order, of the stable subscribers and the guests together."""
    rows: Rows = []
    for run in results:
        wrong = [
            getattr(run.tally, name) + getattr(run.guests, name) for name in ("lost", "duplicated", "out_of_order")
        ]
        rows.append(
            (
                run.plan.mode.upper(),
                str(run.plan.qos),
                f"{run.rate:.0f}",
                f"{(run.tally.delivered + run.guests.delivered) / run.seconds:,.0f}",
                str(run.plan.times),
                f"{run.joins}, {run.leaves}",
                f"{run.published:,}",
                f"{run.carried:,}",
                "/".join(map(str, wrong)),
                milliseconds(run.constructed),
                milliseconds(run.released),
                f"{1000 * run.gap:.0f} ms",
            )
        )
    return rows


def fault_rows(results: Sequence[Broken]) -> Rows:
    """One row a run; wrong: lost/doubled/out of order."""
    return [
        (
            FAULTS[run.plan.fault].what,
            run.plan.mode.upper(),
            str(run.plan.qos),
            f"{run.published:,}",
            f"{run.tally.lost}/{run.tally.duplicated}/{run.tally.out_of_order}",
            f"{1000 * run.gap:.0f} ms",
            f"{1000 * run.gap_before:.0f} ms",
            str(run.by_alm),
            f"{run.back:.1f} s",
        )
        for run in results
    ]


def milliseconds(times: Sequence[float]) -> str:
    """Median and greatest."""
    return f"{1000 * statistics.median(times):.0f} ({1000 * max(times):.0f}) ms"


def markdown(header: Sequence[str], rows: Rows) -> str:
    """As a Markdown table."""
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])
