"""Traffic between clusters on real switches: ``python -m benchmarks.lab_traffic --help``. Needs root and Open vSwitch.

A height-2 tree of Open vSwitch switches, one `saps broker` process on each host that has a subscriber, 100 MQTT
subscribers at random hosts. Brokers that have a subscriber publish in turn, one message at a time. Counted are packets
at the ports of the switches (`lab.traffic`), and who sent how much to whom from the kernel's counts of each TCP
connection. Nothing is computed from the protocol.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.lab_crowd import Crowd, spread
from benchmarks.lab_report import PAGE, Row, markdown
from benchmarks.machine import this_machine
from benchmarks.section import update_page
from lab import Lab, LabError
from lab.counters import Counters
from lab.programs import CALM, OVERLAY, Mesh
from lab.traffic import (
    Background,
    Edge,
    alm_packet,
    broker_hops,
    copies,
    data_packets,
    link_hops,
    ofm_packet,
    passed_on,
    sent_bytes,
)

ORDERS = {"ALM": "plain", "ALM-LA": "la", "cluster-aware ALM": "cluster"}
"""Ways of ALM by the name in the tables, and `overlay.alm_order`. OFM is measured on the last mesh."""
TOPIC = "city/alert/fire"
PAYLOAD = 1200
"""Bytes of a publication: much more than anything brokers say beside it, and still one packet."""
IDLE = 3.0
"""Seconds for which the mesh is watched while nobody publishes."""
SWITCHED = 120.0
"""Seconds a publisher may take until it uses a new tree."""


class Plan(msgspec.Struct, frozen=True):
    """What to measure."""

    brokers: int
    """Hosts in a cluster; those without a subscriber have no broker."""
    subscribers: int
    publishers: int
    """How many of the brokers publish."""
    messages: int
    """Publications of each."""
    seed: int


class Sample(msgspec.Struct, frozen=True):
    """What one publisher's messages came to, for each of them."""

    copies: int
    hops: int
    """Links between clusters on the way to the broker that is farthest by them."""
    packets: float
    """Packets of any kind between clusters, less those of the idle mesh."""
    bytes: float
    doubt: float
    seconds: float
    """Median time until the last subscriber had a message."""


class Bench:
    """A mesh with its crowd, and what is measured there."""

    def __init__(self, lab: Lab, mesh: Mesh, crowd: Crowd, plan: Plan) -> None:
        self.lab, self.mesh, self.crowd, self.plan = lab, mesh, crowd, plan
        self._background = self._rest()

    def _rest(self) -> Background:
        """What crosses the links while nobody publishes."""
        before, began = self.lab.counters(), time.monotonic()
        time.sleep(IDLE)
        return Background(self.lab.counters() - before, time.monotonic() - began)

    def alm(self, publisher: str) -> Sample:
        """One publisher's messages by ALM."""
        self.crowd.publish(publisher, PAYLOAD)  # opens the stream, and gives the slices their numbers
        before = sent_bytes(self.lab, self.mesh.hosts, OVERLAY)

        def hops(_links: dict[Edge, int]) -> dict[str, int]:
            after = sent_bytes(self.lab, self.mesh.hosts, OVERLAY)
            edges = passed_on(before, after, self.plan.messages * PAYLOAD)
            return broker_hops(self.lab.topology, publisher, edges)

        return self._sample(publisher, alm_packet(TOPIC, PAYLOAD), hops)

    def ofm(self, publisher: str) -> Sample:
        """One publisher's messages by OFM; waits until it uses the tree."""
        self._switched(publisher)
        return self._sample(
            publisher, ofm_packet(TOPIC, PAYLOAD), lambda links: link_hops(self.lab.topology, publisher, links)
        )

    def _sample(self, publisher: str, size: int, hops: Callable[[dict[Edge, int]], dict[str, int]]) -> Sample:
        count = self.plan.messages
        before, began = self.lab.counters(), time.monotonic()
        times = [self.crowd.publish(publisher, PAYLOAD) for _ in range(count)]
        seen, took = self.lab.counters() - before, time.monotonic() - began
        found = copies(seen, count, size, self._background, took)
        depths = hops(dict(found.links))
        unreached = set(self.mesh.hosts) - depths.keys()
        if unreached:
            raise LabError(f"it is not clear how a message from {publisher} came to {', '.join(sorted(unreached))}")
        return Sample(
            found.inter_cluster,
            max(depths[host] for host in self.mesh.hosts),
            (seen.inter_cluster.packets - self._background.packets(took)) / count,
            (seen.inter_cluster.bytes - self._background.bytes(took)) / count,
            found.doubt,
            statistics.median(times),
        )

    def _switched(self, publisher: str) -> None:
        """Publish until one packet leaves the publisher's host for a message: it uses the tree."""
        deadline = time.monotonic() + SWITCHED
        while True:
            seen = self._one(publisher)
            if (
                round(data_packets(seen.from_host(publisher), ofm_packet(TOPIC, PAYLOAD))) == 1
                and seen.to_host(publisher).packets
            ):
                return
            if time.monotonic() > deadline:
                raise LabError(f"{publisher} does not use the tree after {SWITCHED:.0f} s")

    def _one(self, publisher: str) -> Counters:
        before = self.lab.counters()
        self.crowd.publish(publisher, PAYLOAD)
        return self.lab.counters() - before


@contextmanager
def bench(order: str, clusters: int, plan: Plan, overlay: int, *, ofm: bool = False) -> Iterator[Bench]:
    """A lab with a mesh and its crowd. `overlay` numbers it: other hosts have subscribers, brokers other names."""
    rng = random.Random(f"{plan.seed} {clusters} {plan.brokers} {overlay}")
    with Lab(f"tree:{clusters}x{plan.brokers}") as lab:
        at = spread([host.name for host in lab.topology.hosts], plan.subscribers, rng)
        hosts = [host.name for host in lab.topology.hosts if at[host.name]]
        with (
            Mesh(lab, hosts, order=order, ofm=ofm, settings=CALM, prefix=f"{overlay}-" if overlay else "") as mesh,
            Crowd(lab, TOPIC, at) as crowd,
        ):
            yield Bench(lab, mesh, crowd, plan)


def publishers(hosts: Sequence[str], plan: Plan, overlay: int) -> list[str]:
    """Who publishes: the same for each way of ALM, and for OFM."""
    rng = random.Random(f"{plan.seed} publishers {overlay}")
    return rng.sample(hosts, min(plan.publishers, len(hosts)))


def measure(clusters: int, plan: Plan, overlays: int, tell: Callable[[str], None]) -> list[Row]:
    """All ways, for one number of clusters."""
    samples: dict[str, list[Sample]] = {name: [] for name in (*ORDERS, "OFM")}
    brokers: list[int] = []
    for overlay in range(overlays):
        for name, order in ORDERS.items():
            last = order == "cluster"
            tell(f"{clusters} clusters, overlay {overlay}: {name}{' and OFM' if last else ''}")
            with bench(order, clusters, plan, overlay, ofm=last) as made:
                chosen = publishers(made.mesh.hosts, plan, overlay)
                samples[name] += [made.alm(host) for host in chosen]
                if last:
                    brokers.append(len(made.mesh.hosts))
                    made.mesh.exploit([TOPIC])
                    samples["OFM"] += [made.ofm(host) for host in chosen]
    return [_row(name, clusters, brokers, plan, found) for name, found in samples.items()]


def _row(name: str, clusters: int, brokers: Sequence[int], plan: Plan, samples: Sequence[Sample]) -> Row:
    return Row(
        way=name,
        clusters=clusters,
        hosts=plan.brokers,
        brokers=statistics.mean(brokers),
        subscribers=plan.subscribers,
        publications=len(samples) * plan.messages,
        copies=statistics.mean(sample.copies for sample in samples),
        hops_max=max(sample.hops for sample in samples),
        hops_mean=statistics.mean(sample.hops for sample in samples),
        packets=statistics.mean(sample.packets for sample in samples),
        bytes=statistics.mean(sample.bytes for sample in samples),
        doubt=max(sample.doubt for sample in samples),
        ms=1000 * statistics.median(sample.seconds for sample in samples),
    )


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure, print, and write what was asked for. Returns the exit status."""
    chosen = _parser().parse_args(None if arguments is None else list(arguments))
    console = Console(stderr=True)
    rows: list[Row] = []
    try:
        for brokers in chosen.brokers:
            plan = Plan(brokers, chosen.subscribers, chosen.publishers, chosen.messages, chosen.seed)
            for clusters in chosen.clusters:
                rows += measure(clusters, plan, chosen.overlays, console.log)
                if chosen.json is not None:
                    chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    except LabError as error:
        print(f"lab_traffic: {error}", file=sys.stderr)
        return 2
    text = markdown(rows, this_machine())
    print(text)
    if chosen.markdown:
        update_page(PAGE, "figures", text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab_traffic", description=__doc__)
    parser.add_argument("--clusters", type=_numbers, default=[4, 8, 16], metavar="N,N,...", help="default: 4,8,16")
    parser.add_argument(
        "--brokers", type=_numbers, default=[2], metavar="N,N,...", help="hosts in a cluster (default: 2)"
    )
    parser.add_argument("--subscribers", type=int, default=100, help="default: 100")
    parser.add_argument("--publishers", type=int, default=16, help="how many brokers publish (default: 16)")
    parser.add_argument("--messages", type=int, default=5, help="publications of each (default: 5)")
    parser.add_argument("--overlays", type=int, default=1, help="meshes for each figure (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="of places and publishers (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", action="store_true", help=f"write them into {PAGE}")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
