"""How throughput grows with `--workers`, on few processors: ``python -m benchmarks.workers --help``.

Each worker process gets a fixed share of a processor (`benchmarks.shares`), and so do the brokers it is compared with.
All brokers run on the first processor and together take less than it has, the generator on the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from benchmarks import peers
from benchmarks.client import SetupError
from benchmarks.conclusion import conclude, report_of
from benchmarks.probes import family
from benchmarks.processes import Place, StartError, pinned
from benchmarks.progress import interrupt_at_termination, progress_bar
from benchmarks.report import Contender, Report, markdown, values_of
from benchmarks.runs import GeneratorError, Measurement, Plan, allow_many_files, cells, generate, processors
from benchmarks.scenarios import LEAVES, VARY, WINDOW, Scenario
from benchmarks.section import update_page
from benchmarks.shares import PERIOD_US, Controller, ShareError, Shares, this_controller
from benchmarks.summary import ratios, spread

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
"""Where `--markdown` writes."""
SHARE = 20.0
"""Percent of a processor for each worker."""
WORKERS = (1, 2, 3, 4)
MOST = 90.0
"""Percent of the first processor that all shares together may take: the rest is for the supervisor and the system."""
PLAN = Plan(rounds=2, warm_up=2.0, measure=2.0)
"""It takes a second until processes that wait for their shares have found out who wants 320 topics, and until what is
in flight has spread."""
SHAPES = ((1, 100), (20, 10), (20, 1))
"""Topics (with one publisher each) and subscribers of each topic."""


LONE = 3000
"""Messages in flight of a publisher that is the only one. On its way through two workers each of them may wait for its
next share twice (8 ms and more); 100,000 messages a second are to be under way all that time."""


def _window(topics: int, qos: int) -> int:
    """Messages of each publisher in flight: enough for what a process does not read while it waits for its next share,
    and not more of QoS 1 than a slow broker can deliver in seconds when the measurement is over."""
    if qos:
        return 400 if topics > 1 else WINDOW
    return WINDOW if topics > 1 else LONE


SCENARIOS = (
    *(
        Scenario(f"{n}:{n * each}-q{qos}", "workers", "throughput", n, each, qos, _window(n, qos), VARY)
        for n, each in SHAPES
        for qos in (0, 1)
    ),
    *(
        Scenario(f"20:200-q{qos}-changing", "workers", "throughput", 20, 10, qos, _window(20, qos), VARY, leaves=LEAVES)
        for qos in (0, 1)
    ),
)


class Entrant(NamedTuple):
    """A broker, and what it gets of the processor."""

    name: str
    peer: peers.Peer
    shares: int
    """0: as much as it can take."""
    workers: bool = False
    """One share is for each process but the first, which carries no message; else all are for the one process."""

    def limit(self, shares: Shares, pids: Sequence[int], percent: float) -> None:
        """Give its processes, the first one first, their shares. Raises ShareError."""
        if self.workers and len(pids) != 1 + self.shares:
            raise ShareError(f"{len(pids)} processes instead of {1 + self.shares}")
        if self.workers:
            for pid in pids[1:]:
                shares.give(pid, percent)
        elif self.shares:
            shares.give(pids[0], percent * self.shares)


def entrants(workers: Sequence[int]) -> list[Entrant]:
    """Who is measured: SAPS with so many workers, and the others beside it."""
    mosquitto, nats, relay = peers.Mosquitto(), peers.Nats(), peers.BareRelay()
    most = max(workers)
    out = [Entrant(mosquitto.name, mosquitto, 1), Entrant(f"{nats.name}, {_shares(1)}", nats, 1)]
    if most > 1:
        out.append(Entrant(f"{nats.name}, {_shares(most)}", nats, most))
    out += [Entrant(worker_name(n), peers.Saps(workers=n), n, workers=n > 1) for n in workers]
    return [*out, Entrant(relay.name, relay, 0)]


def worker_name(workers: int) -> str:
    """How SAPS with so many workers is called."""
    return f"SAPS, {workers} worker" + "s" * (workers > 1)


def _shares(count: int) -> str:
    return f"{count} share" + "s" * (count > 1)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    known = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workers",
        description="How throughput grows with the number of workers, each with a fixed share of a processor. As root.",
        epilog=f"Scenarios: {', '.join(known)}.",
    )
    parser.add_argument("--share", type=float, default=SHARE, metavar="PERCENT", help=f"of each (default {SHARE:g})")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS), metavar="N", help="how many workers")
    parser.add_argument("--rounds", type=int, default=PLAN.rounds, metavar="N", help=f"default {PLAN.rounds}")
    parser.add_argument("--scenarios", nargs="+", choices=known, default=known, metavar="NAME", help="only these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--markdown", action="store_true", help="write the tables into docs/benchmarks.md")
    chosen = parser.parse_args(argv)
    if min(chosen.workers) < 1 or not 10 <= chosen.share <= chosen.share * max(chosen.workers) <= MOST:
        parser.error(f"a share is at least 10 %, and all of them together at most {MOST:g} %")
    if not 1 <= chosen.rounds <= 100:
        parser.error("--rounds must be from 1 to 100")
    return chosen


def measure(
    plan: Plan, scenario: Scenario, entrant: Entrant, number: int, percent: float, found: Controller, cpus: set[int]
) -> Measurement:
    """One measurement on a fresh broker. It is free until it serves, then it has its shares."""
    outcome, fault = None, ""
    with Place(cpus) as place:
        try:
            site = entrant.peer.launch(place, scenario.kind)
            pids = family(place.pids)
            with Shares(found) as shares:
                entrant.limit(shares, pids, percent)
                outcome = generate(scenario.load(site, pids, plan.warm_up, plan.measure))
        except (StartError, SetupError, GeneratorError, ShareError, OSError) as error:
            fault = str(error)
    return Measurement(scenario=scenario.name, peer=entrant.name, round=number, outcome=outcome, fault=fault)


def growth(report: Report, scenarios: Sequence[Scenario], workers: Sequence[int]) -> Iterator[str]:
    """The lines of a Markdown table: how many times the deliveries of one share each number of them makes."""
    most = max(workers)
    pairs = [(worker_name(n), worker_name(1)) for n in workers if n > 1]
    pairs.append((f"NATS, {_shares(most)}", f"NATS, {_shares(1)}"))
    yield "| scenario | " + " | ".join(name for name, _ in pairs) + " |"
    yield "|---" + "|---:" * len(pairs) + "|"
    for scenario in scenarios:
        cells = []
        for name, one in pairs:
            found = ratios(values_of(report, scenario, name), values_of(report, scenario, one))
            cells.append("{:.2f} ({:.2f} - {:.2f})".format(*spread(found)) if found else "")
        yield f"| {scenario.name} | " + " | ".join(cells) + " |"


def section(report: Report, scenarios: Sequence[Scenario], workers: Sequence[int], percent: float) -> str:
    """The section of docs/benchmarks.md."""
    return "\n".join(
        [
            f"Each worker has {percent:g} % of a processor, in periods of {PERIOD_US // 1000} ms, by the kernel's CPU "
            f"bandwidth controller; so has Mosquitto, and NATS one such share or {max(workers)} for its one process. "
            "All brokers run on the first processor and take less than it has, the generator has the second; the bare "
            "relay has no limit. So this shows what a worker more adds and what it costs that messages cross from one "
            "to another. It does not show what processors share: caches and memory.",
            "",
            "The kernel deals the connections out by chance, so that some workers have more of them than others; the "
            "one with most to do is the slowest.",
            "",
            "Deliveries, as a multiple of those with one share:",
            "",
            *growth(report, scenarios, workers),
            "",
            markdown(report, scenarios),
        ]
    )


def command_of(chosen: argparse.Namespace) -> str:
    """The command that repeats the measurement."""
    words = ["python -m benchmarks.workers"]
    words += [f"--share {chosen.share:g}"] * (chosen.share != SHARE)
    words += [f"--workers {' '.join(map(str, chosen.workers))}"] * (tuple(chosen.workers) != WORKERS)
    words += [f"--rounds {chosen.rounds}"] * (chosen.rounds != PLAN.rounds)
    words += [f"--scenarios {' '.join(chosen.scenarios)}"] * (len(chosen.scenarios) < len(SCENARIOS))
    return " ".join(words)


def measured(
    console: Console,
    plan: Plan,
    wanted: Sequence[Scenario],
    present: Sequence[Entrant],
    percent: float,
    found: Controller,
) -> list[Measurement]:
    """Run with a progress bar on the terminal. Raises ShareError if the generator has no processor of its own."""
    layout = processors(pin=True)
    if layout.broker is None:
        raise ShareError("the generator needs a processor of its own, and there is only one")
    allow_many_files()
    out: list[Measurement] = []
    with progress_bar(console, len(wanted) * len(present) * plan.rounds) as show, pinned(layout.generator):
        for scenario, entrant, number in cells(wanted, present, plan.rounds):
            show(f"{scenario.name}  {entrant.name}  round {number + 1}/{plan.rounds}")
            out.append(measure(plan, scenario, entrant, number, percent, found, layout.broker))
    return out


def main() -> int:
    """The command. Exit status 1 if a measurement failed or a message was lost, 2 if this machine gives no shares, 130
    if interrupted."""
    chosen = arguments(sys.argv[1:])
    console = Console(stderr=True)
    interrupt_at_termination()
    plan = msgspec.structs.replace(PLAN, rounds=chosen.rounds)
    wanted = [scenario for scenario in SCENARIOS if scenario.name in chosen.scenarios]
    invited = entrants(chosen.workers)
    tested = [Contender(each.name, each.peer.version(), each.peer.settings) for each in invited]
    present = [each for each, contender in zip(invited, tested, strict=True) if contender.version is not None]
    try:
        measurements = measured(console, plan, wanted, present, chosen.share, this_controller())
    except ShareError as error:
        console.print(f"[red]cannot measure[/]: {error}", highlight=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left running")
        return 130
    report = report_of(command_of(chosen), plan, tested, measurements)
    status = conclude(report, wanted, console, chosen.json, growth(report, wanted, chosen.workers))
    if chosen.markdown:
        update_page(PAGE, "workers", section(report, wanted, chosen.workers, chosen.share))
    return status


if __name__ == "__main__":
    sys.exit(main())
