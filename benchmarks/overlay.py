"""How search and multicast grow with the overlay: ``python -m benchmarks.overlay --help``.

The brokers are the product's own machines in the deterministic simulator, where every frame takes one unit of time, so
that the depth of a multicast is the time its last copy arrives. All figures are counts: they depend on the seed, not on
the machine.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.section import PAGE, update_page
from saps.overlay.frames.calls import AgentCall
from saps.overlay.frames.ring import Found
from saps.overlay.rendezvous.range_calls import Outcome
from saps.overlay.ring.keys import ALL_BROKERS, one_broker
from saps.simulator import Network, SimBroker, Simulation

DOCS = Path(__file__).parent.parent / "docs"
PLOT = "overlay-growth.svg"

SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
"""Numbers of keys: one for each broker."""
QUICK_SIZES = SIZES[:5]
UNIT = 0.001
"""Virtual seconds every frame takes."""
SEARCHES = 300
"""Random searches for each size."""
CALLS = 10
"""Range calls over all keys, and publications to all brokers, for each size, each from another random broker."""
CLUSTERS = 10
TOPIC = "city/alert"


class Point(msgspec.Struct, frozen=True):
    """What was counted with `keys` brokers."""

    keys: int
    search_mean: float
    """Hops."""
    search_max: int
    call_messages: float
    """Messages of one range call over all keys, without the replies; mean."""
    call_depth: int
    """Hops of the longest branch, the way to the range included; greatest of all calls."""
    multicast_messages: float
    """Inter-broker data messages of one publication to all other brokers; mean."""
    multicast_depth: int
    """Hops of the longest branch; greatest of all publications."""


HEADERS = (
    "keys",
    "log2",
    "search hops, mean",
    "max",
    "range call: messages",
    "depth",
    "publication: messages",
    "depth",
)


def grow(simulation: Simulation, size: int) -> list[SimBroker]:
    """Let `size` brokers b0, b1, ... of ten clusters join, as many at the same time as there are: one by one takes for
    ever."""
    brokers = [simulation.add("b0", "c0")]
    while len(brokers) < size:
        present = [broker.name for broker in brokers]
        for number in range(len(present), min(size, 2 * len(present))):
            contact = simulation.rng.choice(present)
            brokers.append(simulation.add(f"b{number}", f"c{number % CLUSTERS}", contact))
        run_until_all(simulation, brokers[len(present) :], lambda broker: broker.joined)
    return brokers


def run_until_all(simulation: Simulation, brokers: Iterable[SimBroker], ready: Callable[[SimBroker], bool]) -> None:
    """Run until all are ready. The condition is checked at every event, so it looks at one broker at a time."""
    waiting = iter(brokers)
    current = next(waiting, None)

    def none_left() -> bool:
        nonlocal current
        while current is not None and ready(current):
            current = next(waiting, None)
        return current is None

    simulation.run_until(none_left)


class Overlay:
    """`size` brokers that have joined, in a simulation of their own."""

    def __init__(self, size: int, seed: int) -> None:
        self.simulation = Simulation(seed, network=Network(latency=(UNIT, UNIT)), check=False)
        self.brokers = grow(self.simulation, size)

    def any_broker(self) -> SimBroker:
        """A random one."""
        return self.simulation.rng.choice(self.brokers)

    def search(self) -> int:
        """Hops from a random broker to the predecessor of another's key."""
        broker, target = self.any_broker(), one_broker(self.any_broker().name).low
        graph = broker.node.graph
        nearest = graph.nearest(target)
        if nearest is not None and graph.takes(nearest, target):
            return 0
        found: list[Found] = []
        self._act(broker, lambda: broker.node.graph.find(target, found.append))
        self.simulation.run_until(lambda: bool(found))
        return found[0].hops

    def call(self) -> tuple[int, int]:
        """Messages and depth of a range call from a random broker over the keys of all."""
        broker = self.any_broker()
        before = self._frames("Locate", "Broadcast")
        outcomes: list[Outcome] = []
        body = AgentCall("nobody", "", (), 1, broker.ref)
        self._act(broker, lambda: broker.node.rendezvous.calls.call(ALL_BROKERS, body, outcomes.append))
        self.simulation.run_until(lambda: bool(outcomes))
        return self._frames("Locate", "Broadcast") - before, outcomes[0].depth

    def subscribe_all(self) -> None:
        """Every broker has a subscriber for TOPIC."""
        done: set[str] = set()
        for broker in self.brokers:
            broker.subscribe(TOPIC, lambda name=broker.name: done.add(name))  # type: ignore[misc]
        self.simulation.run_until(lambda: len(done) == len(self.brokers))

    def publish(self) -> tuple[int, int]:
        """Data messages and depth of a publication by a random broker to all others.

        The publication before it opens the stream and teaches the links their numbers.
        """
        broker = self.any_broker()
        self._deliver_from(broker)
        return self._deliver_from(broker)

    def _deliver_from(self, publisher: SimBroker) -> tuple[int, int]:
        others = [broker for broker in self.brokers if broker is not publisher]
        for broker in others:
            broker.delivered.clear()
        before, start = self._frames("Publish"), self.simulation.now
        publisher.publish(TOPIC)
        run_until_all(self.simulation, others, lambda broker: bool(broker.delivered))
        last = max(broker.delivered[0][0] for broker in others)
        return self._frames("Publish") - before, round((last - start) / UNIT)

    def _act(self, broker: SimBroker, action: Callable[[], object]) -> None:
        action()
        self.simulation.after_event(broker)

    def _frames(self, *kinds: str) -> int:
        return sum(self.simulation.counters.by_kind.get(kind, 0) for kind in kinds)


def measure(size: int, seed: int) -> Point:
    """All figures for one number of keys."""
    overlay = Overlay(size, seed)
    hops = [overlay.search() for _ in range(SEARCHES)]
    calls = [overlay.call() for _ in range(CALLS)]
    overlay.subscribe_all()
    publications = [overlay.publish() for _ in range(CALLS)]
    return Point(
        keys=size,
        search_mean=statistics.mean(hops),
        search_max=max(hops),
        call_messages=statistics.mean(messages for messages, _ in calls),
        call_depth=max(depth for _, depth in calls),
        multicast_messages=statistics.mean(messages for messages, _ in publications),
        multicast_depth=max(depth for _, depth in publications),
    )


def cells(point: Point) -> tuple[str, ...]:
    """The point in the order of HEADERS."""
    return (
        f"{point.keys:,}",
        f"{math.log2(point.keys):.1f}",
        f"{point.search_mean:.1f}",
        str(point.search_max),
        f"{point.call_messages:,.0f}",
        str(point.call_depth),
        f"{point.multicast_messages:,.0f}",
        str(point.multicast_depth),
    )


def slope(points: Sequence[Point], value: Callable[[Point], float]) -> float:
    """Hops added by each doubling of the number of keys: least squares over log2."""
    return statistics.linear_regression([math.log2(point.keys) for point in points], [value(p) for p in points]).slope


def markdown(points: Sequence[Point], seed: int) -> str:
    """The section of docs/performance.md."""
    lines = [
        f"Counted by `python -m benchmarks.overlay --markdown` (seed {seed}) in the deterministic simulator: "
        f"{SEARCHES} searches, {CALLS} range calls over all keys and {CALLS} publications to all other brokers for "
        "each size, from random brokers; one key for each broker when searching and calling.",
        "",
        f"Each doubling of the number of keys adds {slope(points, lambda p: p.search_mean):.1f} hops to the mean "
        f"search, {slope(points, lambda p: p.call_depth):.1f} to the depth of a range call and "
        f"{slope(points, lambda p: p.multicast_depth):.1f} to the depth of a publication. A publication to k other "
        "brokers costs k messages.",
        "",
        "| " + " | ".join(HEADERS) + " |",
        "|" + "---:|" * len(HEADERS),
        *("| " + " | ".join(cells(point)) + " |" for point in points),
        "",
        f"![Hops against the number of keys]({PLOT})",
    ]
    return "\n".join(lines)


def plot(points: Sequence[Point], path: Path) -> None:
    """Hops and depth against the number of keys, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "overlay"  # the same points give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    keys = [point.keys for point in points]
    axes.plot(keys, [point.search_max for point in points], "v:", color="tab:blue", label="search, longest")
    axes.plot(keys, [point.search_mean for point in points], "o-", color="tab:blue", label="search, mean")
    axes.plot(keys, [point.call_depth for point in points], "s-", color="tab:orange", label="range call, depth")
    axes.plot(keys, [point.multicast_depth for point in points], "^-", color="tab:green", label="publication, depth")
    axes.plot(keys, [math.log2(n) for n in keys], "--", color="gray", label="log2 of the number of keys")
    axes.set(xscale="log", xlabel="keys", ylabel="hops", title="Search and multicast in the Skip Graph")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overlay",
        description="Hops of search, depth and messages of multicast, for growing numbers of keys.",
    )
    parser.add_argument("--quick", action="store_true", help=f"only up to {QUICK_SIZES[-1]:,} keys")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--markdown", action="store_true", help="write table and plot into docs/")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    points: list[Point] = []
    with Progress(console=console, refresh_per_second=2) as progress:
        sizes = QUICK_SIZES if chosen.quick else SIZES
        task = progress.add_task("keys", total=sum(sizes))
        for size in sizes:
            progress.update(task, description=f"{size:,} keys")
            points.append(measure(size, chosen.seed))
            progress.advance(task, size)
    table = Table(*HEADERS)
    for point in points:
        table.add_row(*cells(point))
    Console().print(table)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(points)))
    if chosen.markdown:
        plot(points, DOCS / PLOT)
        update_page(PAGE, "overlay", markdown(points, chosen.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
