"""What a designed overlay saves: ``python -m benchmarks.alm_links --help``.

The same brokers with the same random subscriptions, in the simulator, run ALM in the orders of the keys and on designed
overlays; every subscriber publishes once to each of its topics. Counted are the hops of each copy, and for each broker
the others that it exchanges publications with (its *links*). The figures depend on the seed, not on the machine.
`benchmarks.alm_processes` counts the same on broker processes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.section import update_page
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Publish
from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.simulator import Network, SimBroker, Simulation

PAGE = Path(__file__).parent.parent / "docs" / "concepts.md"
CLUSTERS = 10
INTERVAL = 1.0
"""Virtual seconds between two surveys."""
KINDS: dict[str, tuple[KeyOrder, DesignSettings | None]] = {
    "plain": (KeyOrder.ALM, None),
    "la": (KeyOrder.ALM_LA, None),
    "cluster": (KeyOrder.CLUSTER, None),
    "designed, 1 level": (KeyOrder.CLUSTER, DesignSettings(1, INTERVAL)),
    "designed, 2 levels": (KeyOrder.CLUSTER, DesignSettings(2, INTERVAL)),
}


class Row(msgspec.Struct, frozen=True):
    """What was counted with one way of running ALM."""

    alm: str
    messages: float
    """Inter-broker messages for each member reached: 1 is the least."""
    inter_cluster: float
    """Copies of a publication that crossed between clusters, mean."""
    hops_mean: float
    hops_max: int
    links_mean: float
    """Brokers that a broker exchanges publications with."""
    links_max: int


HEADERS = ("ALM", "messages a member", "copies between clusters", "hops, mean", "max", "links a broker, mean", "max")


class Counting(Simulation):
    """A simulation that follows the copies of each publication."""

    def __init__(self, seed: int, order: KeyOrder, design: DesignSettings | None) -> None:
        network = Network(latency=(0.001, 0.002))
        super().__init__(seed, network=network, order=order, design=design, check=False)
        self.hops: dict[bytes, dict[str, int]] = defaultdict(dict)
        self.links: dict[str, set[str]] = defaultdict(set)
        self.inter_cluster = 0

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Publish):
            for payload in frame.payloads:
                way = self.hops[payload]
                way[to.name] = way.get(source.name, 0) + 1
            self.links[source.name].add(to.name)
            self.links[to.name].add(source.name)
            self.inter_cluster += len(frame.payloads) * (source.ref.cluster != to.cluster)
        super()._send(source, to, frame)


def interests(brokers: int, topics: int, subscriptions: int, seed: int) -> list[list[str]]:
    """The topics of each broker."""
    rng = random.Random(seed)
    names = [f"city/{number}" for number in range(topics)]
    return [rng.sample(names, subscriptions) for _ in range(brokers)]


def count(alm: str, wanted: Sequence[Sequence[str]], seed: int) -> Row:
    """Run one mesh in the simulator."""
    simulation = Counting(seed, *KINDS[alm])
    brokers = [simulation.add("b0", "c0")]
    while len(brokers) < len(wanted):
        first, size = len(brokers), min(len(wanted), 2 * len(brokers))
        for number in range(first, size):
            contact = simulation.rng.choice(brokers[:first]).name
            brokers.append(simulation.add(f"b{number}", f"c{number % CLUSTERS}", contact))
        _until_all(simulation, [_joined(broker) for broker in brokers[first:]])
    ready: list[bool] = []
    for broker, topics in zip(brokers, wanted, strict=True):
        for topic in topics:
            broker.subscribe(topic, lambda: ready.append(True))
    simulation.run_until(lambda: len(ready) == sum(map(len, wanted)), 600.0)
    for broker, topics in zip(brokers, wanted, strict=True):
        for topic in topics:  # opens the streams
            broker.publish(topic, b"")
    simulation.run(5 * INTERVAL)
    simulation.hops.clear()
    simulation.links.clear()
    simulation.inter_cluster, before = 0, simulation.counters.data
    for broker, topics in zip(brokers, wanted, strict=True):
        for topic in topics:
            broker.publish(topic, f"{broker.name} {topic}".encode())
    simulation.run(2.0)
    hops = [hops for way in simulation.hops.values() for hops in way.values()]
    links = [len(simulation.links[broker.name]) for broker in brokers]
    return Row(
        alm,
        (simulation.counters.data - before) / len(hops),
        simulation.inter_cluster / sum(map(len, wanted)),
        statistics.mean(hops),
        max(hops),
        statistics.mean(links),
        max(links),
    )


def _joined(broker: SimBroker) -> Callable[[], bool]:
    return lambda: broker.joined


def _until_all(simulation: Simulation, conditions: list[Callable[[], bool]]) -> None:
    """Run until all hold. They are looked at after every event, so one at a time."""

    def none_left() -> bool:
        while conditions and conditions[-1]():
            conditions.pop()
        return not conditions

    simulation.run_until(none_left, 600.0)


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = [f"| {' | '.join(HEADERS)} |", f"|{' --- |' * len(HEADERS)}"]
    lines += [
        f"| {row.alm} | {row.messages:.3f} | {row.inter_cluster:.2f} | {row.hops_mean:.2f} | {row.hops_max} "
        f"| {row.links_mean:.1f} | {row.links_max} |"
        for row in rows
    ]
    return "\n".join(lines)


def orders(
    arguments: Sequence[str] | None,
    kinds: Collection[str],
    prog: str,
    about: str | None,
    defaults: tuple[int, int, int],
) -> argparse.Namespace:
    """What the command line asks for; `defaults` are brokers, topics, and subscriptions of each broker."""
    brokers, topics, subscriptions = defaults
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--brokers", type=int, default=brokers)
    parser.add_argument("--topics", type=int, default=topics)
    parser.add_argument("--subscriptions", type=int, default=subscriptions, help="of each broker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alm", choices=kinds, action="append", help="only this one; may be repeated")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print, and with ``--write`` update the page."""
    chosen = orders(arguments, KINDS, "python -m benchmarks.alm_links", __doc__, (200, 200, 10))
    console = Console(stderr=True)
    wanted = interests(chosen.brokers, chosen.topics, chosen.subscriptions, chosen.seed)
    rows = []
    for alm in chosen.alm or KINDS:
        console.print(f"[dim]{alm} ...[/]")
        rows.append(count(alm, wanted, chosen.seed))
        console.print(rows[-1])
    title = (
        f"{chosen.brokers} brokers in {CLUSTERS} clusters, {chosen.topics} topics, {chosen.subscriptions} random "
        f"subscriptions a broker, seed {chosen.seed}:\n\n"
    )
    print(title + table(rows))
    if chosen.write:
        update_page(PAGE, "simulator", title + table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
