"""Topics moved between ALM and OFM under traffic, and faults: ``python -m benchmarks.switchover --help``.

Needs root and Open vSwitch: `saps broker` processes on eight hosts in four clusters, `saps controller` and `saps
ofgate`, behind Open vSwitch switches in network namespaces. Exit status 1 if a message was lost (with faults: of
QoS 1), doubled or out of order.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.machine import Machine, this_machine
from benchmarks.section import update_page
from benchmarks.switchover import faults, moves, report
from benchmarks.switchover.city import CONTROLLER, TOPICS, City
from lab import Lab, obstacle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ofm.md"


class Results(msgspec.Struct, kw_only=True):
    """All that was measured."""

    date: str
    command: str
    machine: Machine
    moves: list[moves.Moved] = []
    faults: list[faults.Broken] = []


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.switchover", description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", choices=["moves", "faults"], default=["moves", "faults"])
    parser.add_argument("--mode", nargs="+", choices=list(TOPICS), default=list(TOPICS))
    parser.add_argument("--qos", nargs="+", type=int, choices=[0, 1], default=[0, 1])
    parser.add_argument("--fault", nargs="+", choices=list(faults.FAULTS), default=list(faults.FAULTS))
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second (moves; faults: half of it)")
    parser.add_argument("--subscribers", type=int, default=100, help="of the moves")
    parser.add_argument("--times", type=int, default=10, help="moves to OFM and back")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/ofm.md")
    return parser.parse_args(words)


def what(words: Sequence[str]) -> list[str]:
    """The words that say what is measured, not where the results go."""
    kept = [word for word in words if word != "--write" and not word.startswith("--json=")]
    while "--json" in kept:
        at = kept.index("--json")
        del kept[at : at + 2]
    return kept


@contextmanager
def city(topology: str, gates: int) -> Iterator[City]:
    """A mesh on a lab of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="saps-lab-") as folder,
        Lab(topology, name=f"move{os.getpid()}", controller=CONTROLLER, directory=Path(folder) / "d") as lab,
        City(lab, gates=gates) as made,
    ):
        yield made


def measure(chosen: argparse.Namespace, results: Results, tell: Console) -> None:
    """Run all that is chosen."""
    if "moves" in chosen.what:
        with city(faults.TREE, 1) as made:
            for mode in chosen.mode:
                for qos in chosen.qos:
                    plan = moves.Moves(
                        mode=mode, qos=qos, rate=chosen.rate, subscribers=chosen.subscribers, times=chosen.times
                    )
                    results.moves.append(moves.run(made, plan, tell.print))
                    save(results, chosen.json)
    if "faults" in chosen.what:
        for topology in (faults.TREE, faults.SPARE):
            names = [name for name in chosen.fault if faults.FAULTS[name].topology == topology]
            if names:
                with city(topology, 2) as made:
                    for name in names:
                        for mode in chosen.mode:
                            for qos in chosen.qos:
                                tell.print(f"{mode}, QoS {qos}: {faults.FAULTS[name].what}")
                                broken = faults.Plan(fault=name, mode=mode, qos=qos, rate=chosen.rate / 2)
                                results.faults.append(faults.run(made, broken))
                                save(results, chosen.json)


def save(results: Results, path: Path | None) -> None:
    """What there is so far, as JSON."""
    if path is not None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(results)))


def show(results: Results, console: Console) -> None:
    """Print what was measured."""
    for header, rows in (
        (report.MOVES, report.moves_rows(results.moves)),
        (report.FAULT, report.fault_rows(results.faults)),
    ):
        if rows:
            table = Table(*header)
            for row in rows:
                table.add_row(*row)
            console.print(table)


def write(results: Results) -> None:
    """Put the tables into the page."""
    said = f"`{results.command}`, {results.date}; {results.machine.processor}, {results.machine.processors} processors."
    if results.moves:
        update_page(PAGE, "moves", f"{said}\n\n{report.markdown(report.MOVES, report.moves_rows(results.moves))}")
    if results.faults:
        update_page(PAGE, "faults", f"{said}\n\n{report.markdown(report.FAULT, report.fault_rows(results.faults))}")


def wrong(results: Results) -> int:
    """Messages that were not delivered as they should have been."""
    broken = sum(run.tally.wrong + run.guests.wrong for run in results.moves)
    for run in results.faults:
        broken += run.tally.duplicated + run.tally.out_of_order + (run.tally.lost if run.plan.qos else 0)
    return broken


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = arguments(words)
    console = Console(stderr=True)
    if why := obstacle():
        console.print(why)
        return 2
    signal.signal(signal.SIGTERM, _interrupted)
    results = Results(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=" ".join(["python -m benchmarks.switchover", *what(sys.argv[1:] if words is None else words)]),
        machine=this_machine(),
    )
    try:
        measure(chosen, results, console)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left running")
        return 130
    show(results, Console(width=None if sys.stdout.isatty() else 180))
    if chosen.write:
        write(results)
    return int(wrong(results) > 0)


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
