"""Latency at a fixed rate, of brokers that are all up and take turns: ``python -m benchmarks.latency --help``.

Where processors are shared with others, moments in which one is away decide p99. All brokers of a turn meet nearly the
same ones, so that turn by turn their tails can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import peers
from benchmarks.client import SetupError
from benchmarks.conclusion import installed
from benchmarks.machine import awake, this_machine
from benchmarks.paced import Latencies, Turns
from benchmarks.processes import Place, StartError, pinned
from benchmarks.progress import interrupt_at_termination, progress_bar
from benchmarks.report import Contender, described, origin
from benchmarks.runs import GeneratorError, answered, processors
from benchmarks.scenarios import PAYLOAD
from benchmarks.section import PAGE, update_page
from benchmarks.summary import ratios

RATE = 1000
"""Messages a second."""
MESSAGES = 500
"""In each turn."""
HEADERS = ("scenario", "peer", "p50", "p95", "p99", "p99 of a turn", "x Mosquitto in the same turn", "lower in", "lost")


class Control(peers.Mosquitto):
    """A second Mosquitto: what its multiples of the first one's tails are worth, those of all others are."""

    name = f"{peers.BASE}, a second one"
    settings = "the same; what it differs from the first by is chance"


class Scenario(NamedTuple):
    """One publisher, and so many subscribers."""

    subscribers: int
    qos: int

    @property
    def name(self) -> str:
        """As in the tables."""
        return f"1:{self.subscribers}-q{self.qos}"


SCENARIOS = tuple(Scenario(subscribers, qos) for qos in (0, 1) for subscribers in (1, 10))


ALL: tuple[peers.Peer, ...] = (*peers.ALL, Control())


class Measured(msgspec.Struct, frozen=True):
    """One scenario of one peer."""

    scenario: str
    peer: str
    latencies: Latencies


def measure(scenario: Scenario, present: Sequence[peers.Peer], turns: int) -> list[Measured]:
    """All peers in one scenario. Raises `StartError`, `SetupError`, `GeneratorError` and `OSError`."""
    layout = processors(pin=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(pinned(layout.generator))
        ports = [peer.launch(stack.enter_context(Place(layout.broker)), "latency").publish_port for peer in present]
        plan = Turns(
            ports=ports,
            subscribers=scenario.subscribers,
            qos=scenario.qos,
            payload=PAYLOAD,
            rate=RATE,
            turns=turns,
            messages=MESSAGES,
        )
        deadline = 60.0 + 2 * (turns + 1) * len(ports) * MESSAGES / RATE
        found = msgspec.json.decode(
            answered([sys.executable, "-m", "benchmarks.paced"], msgspec.json.encode(plan), deadline),
            type=list[Latencies],
        )
    return [Measured(scenario.name, peer.name, each) for peer, each in zip(present, found, strict=True)]


def rows(measurements: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    """The cells of the table, in the order of HEADERS."""
    for measured in measurements:
        found = measured.latencies
        base = next((m for m in measurements if m.scenario == measured.scenario and m.peer == peers.BASE), None)
        beside, lower = "", ""
        if base is not None and base is not measured:
            beside = _quartiles(ratios(found.tails, base.latencies.tails), "{:.2f}")
            fewer = sum(one < other for one, other in zip(found.tails, base.latencies.tails, strict=True))
            lower = f"{fewer} of {len(found.tails)}"
        tails = _quartiles([1e6 * tail for tail in found.tails], "{:,.0f} µs")
        figures = (f"{1e6 * seconds:,.0f} µs" for seconds in (found.p50, found.p95, found.p99))
        yield (measured.scenario, measured.peer, *figures, tails, beside, lower, str(found.lost))


def _quartiles(values: Sequence[float], form: str) -> str:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{form.format(median)} ({form.format(low)} - {form.format(high)})"


def section(
    command: str, tested: Sequence[Contender], measurements: Sequence[Measured], turns: int, kept_awake: bool = False
) -> str:
    """The section of docs/performance.md."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    names = list(dict.fromkeys(each.peer for each in measurements))
    cells: dict[str, dict[str, str]] = {}
    for scenario, peer, p50, _, p99, _, beside, _, lost in rows(measurements):
        said = f"{p50.removesuffix(' µs')}/{p99}" + f", {beside.replace(' - ', '-')}" * bool(beside)
        cells.setdefault(scenario, {})[peer] = said if lost == "0" else f"{said}, lost: {lost}"
    return "\n".join(
        [
            *origin(date, command, this_machine()),
            f"- One publisher with {RATE:,} messages a second of {PAYLOAD} bytes. All brokers are up on the first "
            f"processor and take {turns} turns of {MESSAGES} messages; the generator is on another.",
            "- A cell: p50/p99, then p99 of a turn as a multiple of Mosquitto's in the same round of turns: median "
            "(quartiles).",
            *(["- The processors were kept from sleeping between messages."] if kept_awake else []),
            *(f"- {described(peer)}" for peer in tested),
            "",
            f"| scenario | {' | '.join(names)} |",
            "|---" + "|---:" * len(names) + "|",
            *(f"| {name} | {' | '.join(found.get(peer, '') for peer in names)} |" for name, found in cells.items()),
            "",
        ]
    )


def table(measurements: Sequence[Measured]) -> Table:
    """The same for the terminal."""
    out = Table()
    for number, header in enumerate(HEADERS):
        out.add_column(header, justify="left" if number < 2 else "right")
    for cells in rows(measurements):
        out.add_row(*cells)
    return out


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.latency",
        description="Latency of SAPS and other MQTT brokers at a fixed rate: all are up at once and take turns.",
        epilog=f"Scenarios: {', '.join(names)}.",
    )
    parser.add_argument("--turns", type=int, default=30, metavar="N", help="of each broker (default %(default)s)")
    parser.add_argument("--scenarios", nargs="+", choices=names, default=names, metavar="NAME", help="only these")
    parser.add_argument("--peers", nargs="+", choices=[p.name for p in ALL], metavar="NAME", help="only these")
    parser.add_argument("--awake", action="store_true", help="keep the processors from sleeping meanwhile (as root)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/performance.md")
    chosen = parser.parse_args(argv)
    if not 2 <= chosen.turns <= 1000:
        parser.error("--turns must be from 2 to 1000")
    return chosen


def command_of(chosen: argparse.Namespace) -> str:
    """The command that repeats the measurement."""
    words = ["python -m benchmarks.latency", f"--turns {chosen.turns}"]
    words += [f"--peers {' '.join(chosen.peers)}"] if chosen.peers else []
    words += [f"--scenarios {' '.join(chosen.scenarios)}"] * (len(chosen.scenarios) < len(SCENARIOS))
    words += ["--awake"] * chosen.awake
    return " ".join(words)


def main() -> int:
    """The command. Exit status 1 if a measurement failed or a message was lost, 130 if interrupted."""
    chosen = arguments(sys.argv[1:])
    console = Console(stderr=True)
    interrupt_at_termination()
    invited = [p for p in ALL if not chosen.peers or p.name in chosen.peers]
    tested, present = installed(invited, console)
    wanted = [scenario for scenario in SCENARIOS if scenario.name in chosen.scenarios]
    measurements: list[Measured] = []
    try:
        with awake(chosen.awake), progress_bar(console, len(wanted)) as show:
            for scenario in wanted:
                show(f"{scenario.name}, {chosen.turns} turns of {len(present)} brokers")
                measurements += measure(scenario, present, chosen.turns)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left running")
        return 130
    except (StartError, SetupError, GeneratorError, OSError) as error:
        console.print(f"[red]failed[/]: {error}", highlight=False)
        return 1
    Console(width=None if sys.stdout.isatty() else 160).print(table(measurements))
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(measurements)))
    if chosen.markdown:
        name = "latency-awake" if chosen.awake else "latency"
        update_page(PAGE, name, section(command_of(chosen), tested, measurements, chosen.turns, chosen.awake))
    return int(any(measured.latencies.lost for measured in measurements))


if __name__ == "__main__":
    sys.exit(main())
