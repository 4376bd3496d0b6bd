"""QoS 1 with storage, beside Mosquitto with persistence: ``python -m benchmarks.durable_throughput --help``.

Sessions last, so that brokers with storage store their messages. What
an acknowledgement is worth differs from row to row, and the table says it. With `--copies` three brokers have each
message on their disks, beside a cluster of three nats-servers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.city.install import InstallError, install
from benchmarks.conclusion import conclude, report_of
from benchmarks.durable_peers import BASE, Keeper, ReplicatedNats, holders, keepers
from benchmarks.progress import interrupt_at_termination, progress_bar
from benchmarks.report import Contender, markdown
from benchmarks.runs import Plan, run
from benchmarks.scenarios import VARY, Scenario
from benchmarks.section import PAGE, update_page

PLAN = Plan(rounds=3, warm_up=0.5, measure=2.0)
"""Seconds enough for a Mosquitto that saves each second to do so."""
SHAPES = ((1, 1, 100), (1, 1, 1000), (1, 10, 1000), (10, 1, 100))
"""Topics (with one publisher each), subscribers of each topic, messages of each publisher in flight."""
SCENARIOS = tuple(
    Scenario(f"{n}:{n * each}-q1-window{window}", "durable", n, each, 1, window, VARY, lasting=True)
    for n, each, window in SHAPES
)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    known = [scenario.name for scenario in SCENARIOS]
    peers = [keeper.peer.name for keeper in (*keepers(Path()), *holders(Path()))]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.durable_throughput",
        description="QoS 1 throughput with storage, and what an acknowledged message outlives, beside Mosquitto.",
        epilog=f"Scenarios: {', '.join(known)}. Peers: {'; '.join(peers)}.",
    )
    parser.add_argument("--rounds", type=int, default=PLAN.rounds, metavar="N", help=f"default {PLAN.rounds}")
    parser.add_argument("--seconds", type=float, default=PLAN.measure, metavar="S", help="of each measurement")
    parser.add_argument("--scenarios", nargs="+", choices=known, default=known, metavar="NAME", help="only these")
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers, metavar="NAME", help="only these")
    parser.add_argument("--copies", action="store_true", help="brokers that have each message on three disks, instead")
    parser.add_argument(
        "--folder", type=Path, help="where the brokers' files are to be; the folder for temporary files"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/performance.md")
    chosen = parser.parse_args(argv)
    if not 1 <= chosen.rounds <= 100 or not 0.1 <= chosen.seconds <= 60:
        parser.error("--rounds must be from 1 to 100, --seconds from 0.1 to 60")
    if chosen.folder is not None and not chosen.folder.is_dir():
        parser.error(f"{chosen.folder} is not a folder")
    return chosen


def command_of(chosen: argparse.Namespace) -> str:
    """The command that repeats the measurement."""
    words = ["python -m benchmarks.durable_throughput"]
    words += [f"--rounds {chosen.rounds}"] * (chosen.rounds != PLAN.rounds)
    words += [f"--seconds {chosen.seconds:g}"] * (chosen.seconds != PLAN.measure)
    words += [f"--scenarios {' '.join(chosen.scenarios)}"] * (len(chosen.scenarios) < len(SCENARIOS))
    words += ["--copies"] * chosen.copies
    everybody = len(keepers(Path())) + len(holders(Path()))
    words += ["--peers " + " ".join(f"'{name}'" for name in chosen.peers)] * (len(chosen.peers) < everybody)
    return " ".join(words)


def file_system(folder: Path, mounts: str) -> str:
    """The type of the file system that a folder is on, from the text of ``/proc/mounts``: on tmpfs nothing outlives a
    loss of power, and waiting for the disk costs nothing."""
    place = os.path.realpath(folder)
    found = [line.split()[1:3] for line in mounts.splitlines()]
    over = [(point, kind) for point, kind in found if os.path.commonpath([point, place]) == point]
    return max(over, key=lambda each: len(each[0]))[1] if over else "an unknown one"


def _invited(chosen: argparse.Namespace, folder: Path) -> list[Keeper]:
    if not chosen.copies:
        return keepers(folder)
    try:
        install("nats")
    except InstallError as error:
        print(f"NATS cannot be had: {error}", file=sys.stderr)
    return holders(folder)


def main() -> int:
    """The command. Exit status 1 if a measurement failed or a message was lost, 130 if interrupted."""
    chosen = arguments(sys.argv[1:])
    console = Console(stderr=True)
    interrupt_at_termination()
    plan = msgspec.structs.replace(PLAN, rounds=chosen.rounds, measure=chosen.seconds)
    wanted = [scenario for scenario in SCENARIOS if scenario.name in chosen.scenarios]
    with tempfile.TemporaryDirectory(prefix="saps-durable-", dir=chosen.folder) as folder:
        invited = [keeper for keeper in _invited(chosen, Path(folder)) if keeper.peer.name in chosen.peers]
        tested = [Contender(peer.name, peer.version(), peer.settings, outlives) for peer, outlives in invited]
        present = [keeper.peer for keeper, found in zip(invited, tested, strict=True) if found.version is not None]
        disk = file_system(Path(folder), Path("/proc/mounts").read_text())
        try:
            with progress_bar(console, len(wanted) * len(present) * plan.rounds) as show:
                measurements = run(plan, wanted, present, show)
        except KeyboardInterrupt:
            console.print("interrupted; nothing is left running")
            return 130
    base = ReplicatedNats.name if chosen.copies else BASE
    report = report_of(command_of(chosen), plan, tested, measurements, base)
    said = f"The files are on {disk}."
    status = conclude(report, wanted, console, chosen.json, [said])
    if chosen.markdown:
        update_page(PAGE, "copies" if chosen.copies else "durable", f"{said}\n\n{markdown(report, wanted)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
