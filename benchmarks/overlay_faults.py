"""What a large mesh survives: ``python -m benchmarks.overlay_faults --help``.

Thousands of the product's own overlay machines in the deterministic simulator. Topics have publishers and subscribers
spread over the mesh; in turn the mesh is left alone, churns, loses a share of its brokers at once, and is cut in two
and healed. For each second: the share of that second's publications that reached every broker which was owed them.

Owed is a broker whose subscription was confirmed before the publication and that lives on until its message should
long have arrived. While the mesh is cut, a side owes nothing to the other; what one side published then is not sent to
the other afterwards.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.overlay import grow
from benchmarks.section import update_page
from saps.overlay.membership.failure_detector import DetectorSettings
from saps.simulator import Network, Simulation

DOCS = Path(__file__).parent.parent / "docs"
PLOT = "overlay-faults.svg"

UPKEEP_FREE = frozenset({"Publish"})
"""Kinds of frames that are not maintenance."""
TIMEOUT = 10.0
"""Virtual seconds after which a message that has not arrived is counted as not delivered."""
PERIOD = 1.0
"""Virtual seconds between two publications to a topic."""


class Settings(msgspec.Struct, frozen=True):
    """One run. Times in virtual seconds."""

    brokers: int = 1000
    topics: int = 50
    subscribers: int = 20
    heartbeat: float = 0.5
    session: float = 600.0
    """Median time a broker stays, while the mesh churns: half of those that go are killed, half take their leave."""
    calm: float = 10.0
    churn: float = 60.0
    crash: float = 0.3
    """Share of brokers that are killed at once."""
    cut: float = 60.0
    recovery: float = 30.0
    seed: int = 1


class Second(msgspec.Struct):
    """What came of the publications of one virtual second."""

    time: float
    phase: str
    published: int = 0
    complete: int = 0
    owed: int = 0
    arrived: int = 0


class Phase(msgspec.Struct):
    """One phase in figures."""

    name: str
    seconds: int
    publications: int
    complete: float
    """Share of publications that reached everyone owed them."""
    deliveries: float
    """Share of deliveries owed that came."""
    repaired: float | None
    """Virtual seconds from the beginning of the phase after which every publication was complete; None: not seen."""
    upkeep: float
    """Frames a broker sends in a second that carry no publication."""


class Outcome(msgspec.Struct):
    """One run."""

    settings: Settings
    phases: list[Phase]
    seconds: list[Second]
    repeated: int
    """Deliveries of what the broker had already."""
    joined: int
    left: int
    killed: int
    cpu: float
    """Seconds of one core that all of it took, the joins included."""
    memory: float
    """GiB that the process had at most."""


class _Publication(msgspec.Struct):
    second: Second
    owed: set[str]
    arrived: set[str]


class Mesh:
    """The brokers, who subscribes and publishes, and what has come of it."""

    def __init__(self, settings: Settings, report: Callable[[str, float], None]) -> None:
        self.settings = settings
        self._report = report
        beat = settings.heartbeat
        detector = DetectorSettings(heartbeat=beat, suspect_after=3 * beat, probe=2 * beat)
        network = Network(latency=(0.001, 0.005), between_clusters=0.02)
        self.simulation = Simulation(settings.seed, network=network, detector=detector, check=False)
        self.rng = self.simulation.rng
        grow(self.simulation, settings.brokers)
        self.living = list(self.simulation.brokers)
        self.seconds: list[Second] = []
        self.repeated = self.joined = self.left = self.killed = 0
        self._phase = ""
        self._side: dict[str, int] = {}
        self._serial = 0
        self._open: dict[bytes, _Publication] = {}
        self._confirmed: dict[str, set[str]] = defaultdict(set)
        """Topic -> brokers whose subscription has been confirmed."""
        self._subscribed: dict[str, set[str]] = defaultdict(set)
        """Broker -> its topics."""
        self._publishers: dict[str, str] = {}
        topics = [f"city/{number:03d}" for number in range(settings.topics)]
        for topic in topics:
            for name in self.rng.sample(self.living, settings.subscribers):
                self._subscribe(name, topic)
            self._publishers[topic] = self.rng.choice(self.living)
        self.simulation.run_until(
            lambda: sum(map(len, self._confirmed.values())) == settings.topics * settings.subscribers
        )
        self._pass(5.0)

    # --- phases ---------------------------------------------------------------------------------------------------

    def calm(self, name: str, seconds: float) -> float:
        """Leave the mesh alone. Returns the maintenance frames of a broker and second."""
        self._phase = name
        return self._pass(seconds)

    def churn(self, name: str, seconds: float) -> float:
        """Brokers come and go, at a rate that keeps their number about the same."""
        self._phase = name
        gap = self.settings.session / math.log(2) / self.settings.brokers
        end, now = self.simulation.now + seconds, self.simulation.now
        while (now := now + self.rng.expovariate(1 / gap)) < end:
            self.simulation.at(now, self._one_goes_one_comes)
        return self._pass(seconds)

    def crash(self, name: str, share: float, seconds: float) -> float:
        """Kill a share of the brokers, all in the same instant."""
        self._phase = name
        for victim in self.rng.sample(self.living, round(share * len(self.living))):
            self._gone(victim)
            self.simulation.crash(victim)
            self.killed += 1
        return self._pass(seconds)

    def cut(self, name: str, seconds: float) -> float:
        """Two halves do not reach each other."""
        self._phase = name
        half = set(self.rng.sample(self.living, len(self.living) // 2))
        self._side = dict.fromkeys(half, 1)
        self.simulation.partition(sorted(half))
        frames = self._pass(seconds)
        self.simulation.heal()
        self._side = {}
        return frames

    def _one_goes_one_comes(self) -> None:
        name = self.rng.choice(self.living)
        broker = self.simulation.brokers[name]
        topics = sorted(self._gone(name))
        if self.rng.random() < 0.5:
            self.simulation.crash(name)
            self.killed += 1
        else:
            broker.leave()
            self.left += 1
        self._serial += 1
        newcomer, contact = f"n{self._serial}", self.rng.choice(self.living)
        self.joined += 1
        self.simulation.add(newcomer, broker.ref.cluster, contact)
        self.living.append(newcomer)
        for topic in topics:
            self._subscribe(newcomer, topic)

    def _gone(self, name: str) -> set[str]:
        """Owe a broker nothing any more. Returns the topics it had subscribed to."""
        self.living.remove(name)
        topics = self._subscribed.pop(name, set())
        for topic in topics:
            self._confirmed[topic].discard(name)
        for publication in self._open.values():
            publication.owed.discard(name)
        for topic, publisher in self._publishers.items():
            if publisher == name:
                self._publishers[topic] = self.rng.choice(self.living)
        return topics

    # --- messages -------------------------------------------------------------------------------------------------

    def _subscribe(self, name: str, topic: str) -> None:
        self._subscribed[name].add(topic)

        def confirmed() -> None:
            if topic in self._subscribed.get(name, ()):
                self._confirmed[topic].add(name)

        self.simulation.brokers[name].subscribe(topic, confirmed)

    def _publish(self, topic: str, second: Second) -> None:
        name = self._publishers[topic]
        broker = self.simulation.brokers[name]
        if not broker.joined:
            return
        self._serial += 1
        payload = b"%d" % self._serial
        side = self._side.get(name)
        owed = {other for other in self._confirmed[topic] if self._side.get(other) == side} - {name}
        self._open[payload] = _Publication(second, owed, set())
        broker.publish(topic, payload)

    def _pass(self, seconds: float) -> float:
        """Let time pass, publish, collect. Returns the maintenance frames of a broker and second."""
        before, start = self._upkeep(), self.simulation.now
        for _ in range(round(seconds)):
            second = Second(self.simulation.now, self._phase)
            self.seconds.append(second)
            for topic in self._publishers:
                moment = self.simulation.now + self.rng.uniform(0, PERIOD)
                self.simulation.at(moment, partial(self._publish, topic, second))
            self.simulation.run(PERIOD)
            self._collect()
            self._close(self.simulation.now - TIMEOUT)
            self._report(self._phase, self.simulation.now)
        return (self._upkeep() - before) / len(self.living) / (self.simulation.now - start)

    def _collect(self) -> None:
        for name in self._subscribed:
            broker = self.simulation.brokers[name]
            for _, message in broker.delivered:
                publication = self._open.get(message.payload)
                if publication is None:
                    continue
                if name in publication.arrived:
                    self.repeated += 1
                publication.arrived.add(name)
            broker.delivered.clear()

    def _close(self, until: float) -> None:
        for payload, publication in list(self._open.items()):
            if publication.second.time <= until:
                del self._open[payload]
                second, came = publication.second, len(publication.owed & publication.arrived)
                second.published += 1
                second.owed += len(publication.owed)
                second.arrived += came
                second.complete += came == len(publication.owed)

    def finish(self) -> None:
        """Wait for the last messages."""
        self.simulation.run(TIMEOUT)
        self._collect()
        self._close(math.inf)

    def _upkeep(self) -> int:
        return sum(count for kind, count in self.simulation.counters.by_kind.items() if kind not in UPKEEP_FREE)


def run(settings: Settings, report: Callable[[str, float], None]) -> Outcome:
    """All phases, one after the other, on one mesh."""
    begun = process_time()
    mesh = Mesh(settings, report)
    mesh.seconds.clear()
    upkeep = {
        "calm": mesh.calm("calm", settings.calm),
        "churn": mesh.churn("churn", settings.churn),
        "after churn": mesh.calm("after churn", settings.calm),
        "crash": mesh.crash("crash", settings.crash, settings.recovery),
        "cut": mesh.cut("cut", settings.cut),
        "healed": mesh.calm("healed", settings.recovery),
    }
    mesh.finish()
    phases = [_phase(name, mesh.seconds, frames) for name, frames in upkeep.items()]
    memory = getrusage(RUSAGE_SELF).ru_maxrss / (1 << 20)
    return Outcome(
        settings,
        phases,
        mesh.seconds,
        mesh.repeated,
        mesh.joined,
        mesh.left,
        mesh.killed,
        process_time() - begun,
        memory,
    )


def _phase(name: str, seconds: list[Second], upkeep: float) -> Phase:
    of_phase = [second for second in seconds if second.phase == name]
    published, owed = sum(second.published for second in of_phase), sum(second.owed for second in of_phase)
    last = max((i for i, second in enumerate(of_phase) if second.complete < second.published), default=-1)
    return Phase(
        name,
        len(of_phase),
        published,
        sum(second.complete for second in of_phase) / published,
        sum(second.arrived for second in of_phase) / owed,
        None if last + 1 == len(of_phase) else last + 1.0,
        upkeep,
    )


HEADERS = ("phase", "seconds", "publications", "fully delivered", "deliveries", "all complete after", "upkeep")


def cells(phase: Phase) -> tuple[str, ...]:
    """The phase in the order of HEADERS."""
    return (
        phase.name,
        str(phase.seconds),
        f"{phase.publications:,}",
        f"{phase.complete:.2%}",
        f"{phase.deliveries:.3%}",
        "not within it" if phase.repaired is None else f"{phase.repaired:.0f} s",
        f"{phase.upkeep:.1f}",
    )


def markdown(outcomes: list[Outcome]) -> str:
    """The section of docs/reliability.md."""
    lines: list[str] = []
    for outcome in outcomes:
        chosen = outcome.settings
        lines += [
            f"**{chosen.brokers:,} brokers**, heartbeat {chosen.heartbeat:g} s, {chosen.topics} topics, "
            f"seed {chosen.seed}: {outcome.joined:,} joined, {outcome.left} left in order, {outcome.killed:,} killed, "
            f"{outcome.repeated} deliveries",
            f"repeated; {outcome.cpu / 60:.1f} minutes of one core, {outcome.memory:.1f} GiB.",
            "",
            "| " + " | ".join(HEADERS) + " |",
            "| --- |" + " ---: |" * (len(HEADERS) - 1),
            *("| " + " | ".join(cells(phase)) + " |" for phase in outcome.phases),
            "",
        ]
    return "\n".join([*lines, f"![Share of publications fully delivered, over time]({PLOT})"])


def plot(outcomes: list[Outcome], path: Path) -> None:
    """The share of publications fully delivered over time, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "overlay-faults"
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(len(outcomes), figsize=(8, 2.6 * len(outcomes)), layout="constrained", squeeze=False)
    for axes, outcome in zip(rows[:, 0], outcomes, strict=True):
        begin = outcome.seconds[0].time
        shares = [(s.time - begin, 100 * s.complete / s.published) for s in outcome.seconds if s.published]
        axes.step(*zip(*shares, strict=True), where="post", color="tab:blue")
        for number, (phase, start) in enumerate(_starts(outcome.seconds)):
            axes.axvline(start - begin, color="gray", linewidth=0.6)
            axes.text(start - begin + 0.5, 13 if number % 2 else 4, phase, fontsize=8, color="gray")  # short ones too
        axes.set(ylim=(0, 104), xlabel="virtual seconds", ylabel="% fully delivered")
        axes.set_title(f"{outcome.settings.brokers:,} brokers", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _starts(seconds: list[Second]) -> Iterator[tuple[str, float]]:
    phase = None
    for second in seconds:
        if second.phase != phase:
            phase = second.phase
            yield phase, second.time


def _arguments() -> argparse.ArgumentParser:
    defaults = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overlay_faults",
        description="Churn, a mass crash and a partition, in the deterministic simulator: what is delivered meanwhile.",
    )
    parser.add_argument("--brokers", type=int, metavar="N", help=f"size of the mesh (default: {defaults.brokers})")
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=defaults.heartbeat,
        metavar="SECONDS",
        help="failure detection; it sets the pace of the upkeep (default: %(default)s)",
    )
    parser.add_argument("--topics", type=int, default=defaults.topics, metavar="N")
    parser.add_argument("--session", type=float, default=defaults.session, metavar="SECONDS", help="median stay")
    for phase in ("calm", "churn", "cut", "recovery"):
        default = getattr(defaults, phase)
        parser.add_argument(f"--{phase}", type=float, default=default, metavar="SECONDS", help="length of the phase")
    parser.add_argument("--seed", type=int, default=defaults.seed, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE", help="figures of earlier runs")
    parser.add_argument("--markdown", action="store_true", help="write tables and plot into docs/")
    return parser


def _watched(settings: Settings) -> Outcome:
    """One run, with a bar that shows how far it has come."""
    total = settings.churn + settings.cut + 2 * settings.calm + 2 * settings.recovery
    with Progress(console=Console(stderr=True), refresh_per_second=2) as progress:
        task = progress.add_task(f"{settings.brokers:,} brokers join", total=total)

        def report(phase: str, now: float) -> None:
            if phase:
                progress.update(task, description=f"{settings.brokers:,} brokers: {phase}", advance=1)

        return run(settings, report)


def main() -> int:
    """The command."""
    chosen = _arguments().parse_args()
    outcomes = [
        outcome for path in chosen.add for outcome in msgspec.json.decode(path.read_bytes(), type=list[Outcome])
    ]
    if chosen.brokers or not outcomes:
        given = {
            name: value for name in Settings.__struct_fields__ if (value := getattr(chosen, name, None)) is not None
        }
        outcomes.append(_watched(Settings(**given)))
    for outcome in outcomes:
        table = Table(*HEADERS, title=f"{outcome.settings.brokers:,} brokers")
        for phase in outcome.phases:
            table.add_row(*cells(phase))
        Console().print(table)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes)))
    if chosen.markdown:
        plot(outcomes, DOCS / PLOT)
        update_page(DOCS / "reliability.md", "overlay-faults", markdown(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
