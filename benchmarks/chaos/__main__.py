"""``python -m benchmarks.chaos``: kill, stop, cut off, fill up, and see what arrives."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.chaos.account import Incident, Recorder
from benchmarks.chaos.faults import available
from benchmarks.chaos.ground import Cable, Ground, in_lab, on_loopback, topology
from benchmarks.chaos.report import COUNTS, FAULTS, Result, count_rows, fault_rows, markdown, verdict
from benchmarks.chaos.run import Outcome, Run, Traffic
from benchmarks.chaos.schedule import Kind, Step, steps
from benchmarks.machine import this_machine
from benchmarks.section import update_page
from examples.smart_city.processes import BrokerError
from saps.lab import Lab, LabError, obstacle

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 if a promise was broken, 2 if the run could not be carried out."""
    chosen = _parser().parse_args(arguments)
    why = obstacle()
    if chosen.lab and why:
        print(f"chaos: {why}", file=sys.stderr)
        return 2
    lab, disks = not chosen.loopback and why is None, os.geteuid() == 0
    kinds = available(lab, disks)
    if chosen.kinds:
        kinds = [kind for kind in kinds if kind in chosen.kinds]
    if not kinds:
        print("chaos: none of these faults can be brought about here", file=sys.stderr)
        return 2
    left_out = ", ".join(kind for kind in Kind if kind not in kinds)
    print(f"seed {chosen.seed}; {'a lab' if lab else 'loopback'}{'; without: ' * bool(left_out)}{left_out}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcome = _carry_out(chosen, lab, disks, kinds)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("chaos: interrupted; everything is cleared away", file=sys.stderr)
        return 130
    except (BrokerError, LabError, TimeoutError) as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    result = Result(
        date=date.today().isoformat(),
        command=f'make chaos ARGS="{shlex.join(_repeatable(chosen))}"',
        seed=chosen.seed,
        brokers=chosen.brokers,
        place="lab" if lab else "loopback",
        traffic=Traffic(chosen.rate),
        machine=this_machine(),
        outcome=outcome,
    )
    _publish(result, chosen.json, write_page=chosen.markdown)
    return 0 if outcome.good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=40, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="begin no fault later (default: %(default)s)")
    parser.add_argument("--brokers", type=int, default=6, metavar="N", help="an even number (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second of a publisher (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), metavar="KIND", help=", ".join(Kind))
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--loopback", action="store_true", help="no lab, even if there can be one")
    place.add_argument("--lab", action="store_true", help="refuse to run if there can be no lab")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--markdown", action="store_true", help="write the section of docs/reliability.md")
    return parser


def _repeatable(chosen: argparse.Namespace) -> list[str]:
    words = ["--seed", str(chosen.seed), "--faults", str(chosen.faults), "--minutes", f"{chosen.minutes:g}"]
    words += ["--brokers", str(chosen.brokers), "--rate", f"{chosen.rate:g}"]
    return words + (["--kinds", *chosen.kinds] if chosen.kinds else []) + ["--loopback"] * chosen.loopback


def _carry_out(chosen: argparse.Namespace, lab: bool, disks: bool, kinds: list[Kind]) -> Outcome:
    """The run, with everything it needs; nothing of that is left after it. Raises as `Run.carry_out` and `Lab.up`."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="saps-chaos-")))
        built = stack.enter_context(Lab(topology(chosen.brokers))) if lab else None
        if built is not None:
            ground, cable = in_lab(built, folder, {}, disks=disks), Cable(built)
        else:
            ground, cable = on_loopback(chosen.brokers, folder, random.Random(chosen.seed), {}, disks=disks), None
        planned = list(steps(chosen.seed, list(ground.sites), kinds, chosen.faults))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        return runner.run(_perform(ground, cable, planned, chosen))


async def _perform(ground: Ground, cable: Cable | None, planned: list[Step], chosen: argparse.Namespace) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    done = 0

    def progress(incident: Incident, recorder: Recorder) -> None:
        nonlocal done
        done += 1
        print(f"{done:5} of {len(planned)}  {told(incident, recorder)}", flush=True)

    async with ground:
        outcome = await Run(ground, cable, Traffic(chosen.rate)).carry_out(planned, 60 * chosen.minutes, progress)
        if not outcome.good:
            for site in ground.sites.values():
                print(f"{site.name} said last:\n{site.last_words}", file=sys.stderr)
        return outcome


def told(incident: Incident, recorder: Recorder) -> str:
    """A line about a fault that is over."""
    step, published = incident.step, sum(stream.last for stream in recorder.streams.values())
    outage = f"{max(incident.outages):5.2f} s" if incident.outages else "      -"
    flowing = incident.flowing - incident.repaired
    return (
        f"{incident.struck:7.1f} s  {step.kind:9} {step.broker:5} {step.seconds:4.1f} s"
        f"  all flows after {flowing:5.2f} s  longest outage of others {outage}  {published:,} messages"
    )


def _publish(result: Result, file: Path | None, *, write_page: bool) -> None:
    console = Console(width=160)
    for headers, rows in ((COUNTS, count_rows(result.outcome)), (FAULTS, fault_rows(result.outcome))):
        table = Table(*headers)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in result.outcome.details:
        print(line)
    print(verdict(result.outcome))
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    if write_page:
        update_page(PAGE, "chaos", markdown(result))


if __name__ == "__main__":
    sys.exit(main())
