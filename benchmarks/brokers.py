"""SAPS against Mosquitto and NATS on this machine: ``python -m benchmarks.brokers --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks import peers, scenarios
from benchmarks.conclusion import conclude, installed, report_of
from benchmarks.progress import interrupt_at_termination, progress_bar
from benchmarks.report import markdown
from benchmarks.runs import Measurement, Plan, run
from benchmarks.scenarios import Scenario
from benchmarks.section import update_page

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
"""Where `--markdown` writes."""

QUICK = Plan(rounds=1, warm_up=0.2, measure=0.5)
"""Under a minute: shows that everything works; too short to compare by."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    known = [scenario.name for scenario in scenarios.ALL]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.brokers",
        description="Throughput and memory of SAPS against other MQTT brokers, all on loopback.",
        epilog=f"Scenarios: {', '.join(known)}.",
    )
    parser.add_argument("--quick", action="store_true", help="some scenarios, one short round, under 60 s")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds (default {Plan().rounds})")
    parser.add_argument("--scenarios", nargs="+", choices=known, metavar="NAME", help="only these")
    parser.add_argument("--peers", nargs="+", choices=[p.name for p in peers.ALL], metavar="NAME", help="only these")
    parser.add_argument("--no-pin", action="store_true", help="bind no process to a processor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--markdown", action="store_true", help="write the tables into docs/benchmarks.md")
    chosen = parser.parse_args(argv)
    if chosen.rounds is not None and not 1 <= chosen.rounds <= 100:
        parser.error("--rounds must be from 1 to 100")
    return chosen


def plan_of(chosen: argparse.Namespace) -> Plan:
    """How much to measure, as chosen."""
    plan = QUICK if chosen.quick else Plan()
    return msgspec.structs.replace(plan, rounds=chosen.rounds or plan.rounds, pin=not chosen.no_pin)


def command_of(chosen: argparse.Namespace) -> str:
    """The command that repeats the measurement: the options that decide what is measured, not where it is written."""
    words = ["python -m benchmarks.brokers"]
    words += ["--quick"] * chosen.quick + ["--no-pin"] * chosen.no_pin
    words += [f"--rounds {chosen.rounds}"] if chosen.rounds else []
    words += [f"--peers {' '.join(chosen.peers)}"] if chosen.peers else []
    if chosen.scenarios:
        left_out = [s.name for s in scenarios.ALL if s.name not in chosen.scenarios]
        few = len(chosen.scenarios) <= len(left_out)
        words.append(f"--scenarios {' '.join(chosen.scenarios)}" if few else f"(without {' '.join(left_out)})")
    return " ".join(words)


def scenarios_of(chosen: argparse.Namespace) -> list[Scenario]:
    """What to measure, as chosen."""
    if chosen.scenarios:
        return [scenario for scenario in scenarios.ALL if scenario.name in chosen.scenarios]
    return [scenario for scenario in scenarios.ALL if scenario.quick or not chosen.quick]


def measured(
    console: Console, plan: Plan, wanted: Sequence[Scenario], present: Sequence[peers.Peer]
) -> list[Measurement]:
    """Run with a progress bar on the terminal."""
    with progress_bar(console, len(wanted) * len(present) * plan.rounds) as show:
        return run(plan, wanted, present, show)


def main() -> int:
    """The command. Exit status 1 if a measurement failed or a message was lost, 130 if interrupted."""
    chosen = arguments(sys.argv[1:])
    console = Console(stderr=True)
    interrupt_at_termination()
    plan, wanted = plan_of(chosen), scenarios_of(chosen)
    invited = [peer for peer in peers.ALL if not chosen.peers or peer.name in chosen.peers]
    tested, present = installed(invited, console)
    try:
        measurements = measured(console, plan, wanted, present)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left running")
        return 130
    report = report_of(command_of(chosen), plan, tested, measurements)
    status = conclude(report, wanted, console, chosen.json)
    if chosen.markdown:
        update_page(PAGE, "brokers", markdown(report, wanted))
    return status


if __name__ == "__main__":
    sys.exit(main())
