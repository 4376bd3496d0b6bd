"""What begins and ends a measurement against other brokers: who is there; and the report is made, shown, kept, and
becomes the exit status."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.machine import this_machine
from benchmarks.peers import BASE, Peer
from benchmarks.report import Contender, Report, faults, terminal_table
from benchmarks.runs import Measurement, Plan
from benchmarks.scenarios import Scenario


def installed(invited: Sequence[Peer], console: Console) -> tuple[list[Contender], list[Peer]]:
    """All who are invited, and those of them that are there; who is not is said on `console`."""
    tested = [Contender(peer.name, peer.version(), peer.settings) for peer in invited]
    for peer in tested:
        if peer.version is None:
            console.print(f"[yellow]{peer.name} is not installed: skipped[/]")
    return tested, [peer for peer, found in zip(invited, tested, strict=True) if found.version is not None]


def report_of(
    command: str, plan: Plan, peers: list[Contender], measurements: list[Measurement], base: str = BASE
) -> Report:
    """The report of what has been measured here, just now. `base`: the peer the others are compared with."""
    return Report(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        machine=this_machine(),
        plan=plan,
        peers=peers,
        measurements=measurements,
        base=base,
    )


def conclude(
    report: Report, wanted: Sequence[Scenario], console: Console, json: Path | None, lines: Iterable[str] = ()
) -> int:
    """Print the table, and these lines below it; say on `console` what failed; write `json`. Returns the exit status: 1
    if a measurement failed, or a message was lost or came twice."""
    Console(width=None if sys.stdout.isatty() else 160).print(terminal_table(report, wanted))
    for line in lines:
        print(line)
    for fault in faults(report):
        console.print(f"[red]failed[/]: {fault}", highlight=False)
    if json:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return int(any(m.outcome is None or m.outcome.lost or m.outcome.repeated for m in report.measurements))
