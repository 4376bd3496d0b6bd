"""``python -m benchmarks.chaos``: kill, stop, cut off, fill up, and see what arrives."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.chaos import database
from benchmarks.chaos.account import Incident, Recorder
from benchmarks.chaos.cable import Cable
from benchmarks.chaos.disk.disks import possible
from benchmarks.chaos.faults import available
from benchmarks.chaos.ground import Ground, in_lab, on_loopback, topology
from benchmarks.chaos.history import judge, write
from benchmarks.chaos.report import COUNTS, FAULTS, Result, count_rows, fault_rows, markdown, together, verdict
from benchmarks.chaos.run import Outcome, Run, Traffic
from benchmarks.chaos.schedule import CLOCKS, OPENFLOW, VOLUMES, Kind, Step, phases, singly
from benchmarks.machine import this_machine
from benchmarks.progress import interrupt_at_termination
from benchmarks.section import update_page
from examples.smart_city.processes import BrokerError
from lab import Lab, LabError, obstacle

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 if a promise was broken, 2 if the run could not be carried out."""
    chosen = _parser().parse_args(arguments)
    if chosen.judge:
        return _judge(chosen.judge)
    if chosen.add:
        return _publish([read(file) for file in chosen.add], None, write_page=chosen.markdown)
    why = obstacle()
    if chosen.lab and why:
        print(f"chaos: {why}", file=sys.stderr)
        return 2
    lab, disks = not (chosen.loopback or chosen.postgresql) and why is None, possible() and not chosen.postgresql
    full, stored = chosen.sync == "full", chosen.postgresql
    kinds = available(lab, disks, lab and chosen.spark, full=full, database=stored)
    if chosen.kinds:
        kinds = [kind for kind in kinds if kind in chosen.kinds]
    disks = disks and (full or not VOLUMES.isdisjoint(kinds))
    if not kinds:
        print("chaos: none of these faults can be brought about here", file=sys.stderr)
        return 2
    left_out = ", ".join(kind for kind in Kind if kind not in kinds)
    print(f"seed {chosen.seed}; {'a lab' if lab else 'loopback'}{'; without: ' * bool(left_out)}{left_out}", flush=True)
    interrupt_at_termination()
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
        traffic=traffic(chosen),
        machine=this_machine(),
        outcome=outcome,
    )
    return _publish([result], chosen.json, write_page=chosen.markdown)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=40, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="begin no fault later (default: %(default)s)")
    parser.add_argument("--brokers", type=int, default=6, metavar="N", help="an even number (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second to each topic (%(default)s)")
    parser.add_argument("--topics", type=int, default=1, metavar="N", help="of a publisher, all at once (%(default)s)")
    parser.add_argument("--subscribers", type=int, default=1, metavar="N", help="at each broker (default: %(default)s)")
    parser.add_argument(
        "--roamers", type=int, default=1, metavar="N", help="that change brokers (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), metavar="KIND", help=", ".join(Kind))
    spark = shutil.which("java") is not None and find_spec("pyspark") is not None
    parser.add_argument("--spark", action="store_true" if spark else _Missing, help="the Spark job is there, too")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--loopback", action="store_true", help="no lab, even if there can be one")
    place.add_argument("--lab", action="store_true", help="refuse to run if there can be no lab")
    place.add_argument(
        "--postgresql",
        action="store_true" if database.possible() else _Missing,
        help="on loopback, and the brokers store in a PostgreSQL server",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--overlap", action="store_true", help="random subsets of the faults at a time, after Jepsen")
    parser.add_argument("--sync", choices=("off", "normal", "full"), default="off", help="storage.sync (%(default)s)")
    parser.add_argument("--history", type=Path, metavar="FILE", help="write all that happened, for --judge")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the brokers' logs of level debug")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="no run: judge what --history has written")
    parser.add_argument("--add", nargs="+", type=Path, metavar="FILE", help="no run: add up what --json has written")
    parser.add_argument("--markdown", action="store_true", help="write the section of docs/reliability.md")
    return parser


class _Missing(argparse.Action):
    """An option that cannot be had here."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=False, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        needed = {"spark": "Java and pip install saps[spark]", "postgresql": "PostgreSQL and saps[postgresql]"}
        parser.error(f"--{self.dest} needs {needed[self.dest]}")


def traffic(chosen: argparse.Namespace) -> Traffic:
    """What the devices are to do."""
    return Traffic(rate=chosen.rate, subscribers=chosen.subscribers, topics=chosen.topics, roamers=chosen.roamers)


def _repeatable(chosen: argparse.Namespace) -> list[str]:
    words = ["--seed", str(chosen.seed), "--faults", str(chosen.faults), "--minutes", f"{chosen.minutes:g}"]
    words += ["--brokers", str(chosen.brokers), "--rate", f"{chosen.rate:g}"]
    words += ["--topics", str(chosen.topics)] if chosen.topics > 1 else []
    words += ["--subscribers", str(chosen.subscribers)] if chosen.subscribers > 1 else []
    words += ["--roamers", str(chosen.roamers)] if chosen.roamers != 1 else []
    words += ["--overlap"] * chosen.overlap + (["--sync", chosen.sync] if chosen.sync != "off" else [])
    words += ["--spark"] * chosen.spark + ["--loopback"] * chosen.loopback
    words += ["--postgresql"] * chosen.postgresql
    return words + (["--kinds", *chosen.kinds] if chosen.kinds else [])


def _carry_out(chosen: argparse.Namespace, lab: bool, disks: bool, kinds: list[Kind]) -> Outcome:
    """The run, with everything it needs; nothing of that is left after it. Raises as `Run.carry_out` and `Lab.up`."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="saps-chaos-")))
        sync = {"storage.sync": chosen.sync}
        built = stack.enter_context(Lab(topology(chosen.brokers), ipv6=True)) if lab else None
        if built is not None:
            openflow = not OPENFLOW.isdisjoint(kinds)
            ground = in_lab(built, folder, sync, disks=disks, openflow=openflow, job=chosen.spark)
            cable, switches = Cable(built), [switch.name for switch in built.topology.switches]
        else:
            rng, stored = random.Random(chosen.seed), chosen.postgresql
            ground = on_loopback(chosen.brokers, folder, rng, sync, disks=disks, database=stored)
            cable, switches = None, []
        for site in ground.sites.values():
            site.own_clock = not CLOCKS.isdisjoint(kinds)
        if chosen.logs is not None:
            ground.keep_logs(chosen.logs)
        drawn = phases if chosen.overlap else singly
        planned = list(drawn(chosen.seed, list(ground.sites), kinds, chosen.faults, switches))
        for number in INTERRUPTS:  # from then on nothing stops the clearing away
            stack.callback(signal.signal, number, signal.SIG_IGN)
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        return runner.run(_perform(ground, cable, planned, chosen))


async def _perform(
    ground: Ground, cable: Cable | None, planned: list[list[Step]], chosen: argparse.Namespace
) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    for number in INTERRUPTS:
        asyncio.get_running_loop().add_signal_handler(number, _interrupt, task)
    done, faults = 0, sum(map(len, planned))

    def progress(incidents: Sequence[Incident], recorder: Recorder) -> None:
        nonlocal done
        for incident in incidents:
            done += 1
            print(f"{done:5} of {faults}  {told(incident, recorder)}", flush=True)

    async with ground:
        run = Run(ground, cable, traffic(chosen), keep=chosen.history is not None)
        outcome = await run.carry_out(planned, 60 * chosen.minutes, progress)
        if chosen.history is not None:
            write(run.recorder, chosen.history)
        if not outcome.good:
            for name, words in ground.last_words:
                print(f"{name} said last:\n{words}", file=sys.stderr)
        return outcome


def _interrupt(task: asyncio.Task[Outcome]) -> None:
    if not task.cancelling():
        print("chaos: clearing away", file=sys.stderr, flush=True)
        task.cancel()


def told(incident: Incident, recorder: Recorder) -> str:
    """A line about a fault that is over."""
    step, published = incident.step, sum(stream.last for stream in recorder.streams.values())
    outage = f"{max(incident.outages):5.2f} s" if incident.outages else "      -"
    flowing = incident.flowing - incident.repaired
    return (
        f"{incident.struck:7.1f} s  {step.kind:10} {step.broker:5} {step.seconds:4.1f} s"
        f"  all flows after {flowing:5.2f} s  longest outage of others {outage}  {published:,} messages"
    )


def read(file: Path) -> Result:
    """What `--json` has written. Raises `OSError`, and `msgspec.DecodeError` for anything else."""
    return msgspec.json.decode(file.read_bytes(), type=Result)


def _judge(file: Path) -> int:
    """Judge a history again. Gives the exit status."""
    try:
        counts, recorder = judge(file)
    except (OSError, ValueError) as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    seconds = max((incident.flowing for incident in recorder.incidents), default=0.0)
    outcome = Outcome(
        seconds=seconds,
        counts=counts,
        incidents=recorder.incidents,
        sessions_lost=0,
        not_recovered=[],
        never_came=False,
        details=recorder.details,
        places=dict(recorder.places),
    )
    _show(outcome)
    return 0 if outcome.good else 1


def _publish(results: Sequence[Result], file: Path | None, *, write_page: bool) -> int:
    """Show what they have come to together. Gives the exit status."""
    outcome = together(results)
    _show(outcome)
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(results[0])))
    if write_page:
        update_page(PAGE, "chaos", markdown(results))
    return 0 if outcome.good else 1


def _show(outcome: Outcome) -> None:
    console = Console(width=160)
    for headers, rows in ((COUNTS, count_rows(outcome)), (FAULTS, fault_rows(outcome))):
        table = Table(*headers)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in outcome.details:
        print(line)
    print(verdict(outcome))


if __name__ == "__main__":
    sys.exit(main())
