"""The figures of `benchmarks.lab_traffic` as Markdown, beside the paper's claim. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.machine import Machine

PAGE = Path("docs/lab-traffic.md")
UNEVEN = 0.15
"""From here on a link's count is not beyond doubt."""
PAPER_CLUSTERS = 16
PAPER_TRAFFIC, PAPER_HOPS = -71.6, -87.5
"""OFM against ALM-LA on a height-2 tree with 16 clusters and 100 subscribers, in per cent (SAPS 2016, 4.1.1)."""


class Row(msgspec.Struct, frozen=True):
    """What was measured in one way, with one number of clusters. Figures are for a publication."""

    way: str
    clusters: int
    hosts: int
    """In a cluster."""
    brokers: float
    """With a subscriber: mean of the overlays."""
    subscribers: int
    publications: int
    copies: float
    """Packets with the publication on links that join clusters: mean of the publishers."""
    hops_max: int
    """The greatest number of such links that one copy after another crossed."""
    hops_mean: float
    """The same for each publisher: mean."""
    packets: float
    """Packets of any kind on these links, less those of the idle mesh."""
    bytes: float
    doubt: float
    """The farthest that any link's count was from a whole number of packets a publication."""
    ms: float
    """Median time until the last subscriber had it."""


def _certainty(rows: Sequence[Row]) -> str:
    """How far the counts of links were from whole numbers of packets a publication."""
    clear = [row.doubt for row in rows if row.doubt < UNEVEN]
    told = f"In {len(clear)} of the {len(rows)} rows no link's count was more than {max(clear, default=0.0):.2f} from a"
    told += " whole number of packets a publication"
    if len(clear) < len(rows):
        told += f"; in the others up to {max(row.doubt for row in rows):.2f}, because so much else was sent meanwhile:"
        told += " there a link's count may be off by one"
    return f"{told}."


def change(ours: float, base: float) -> float:
    """Per cent by which `ours` differs from `base`."""
    return 100 * (ours - base) / base


def markdown(rows: Sequence[Row], machine: Machine) -> str:
    """All tables."""
    rows = sorted(rows, key=lambda row: (row.hosts, row.clusters))
    parts = []
    for hosts in sorted({row.hosts for row in rows}):
        some = [row for row in rows if row.hosts == hosts]
        parts += [f"### {hosts} hosts in a cluster", _figures(some), _savings(some)]
    parts.append(
        f"{sum(row.publications for row in rows):,} publications in all. {_certainty(rows)} Measured on "
        f"{machine.processors} processors ({machine.processor}), Linux {machine.kernel}."
    )
    return "\n\n".join(parts)


def _figures(rows: Sequence[Row]) -> str:
    lines = [
        "| clusters | brokers | way | packets | most hops | of any kind | all have it after, ms |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.clusters} | {row.brokers:g} | {row.way} | {row.copies:.1f} | {row.hops_max} | {row.packets:.0f} "
        f"| {row.ms:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _savings(rows: Sequence[Row]) -> str:
    by = {(row.clusters, row.way): row for row in rows}
    numbers = sorted({row.clusters for row in rows})
    lines = [
        f"| OFM against: traffic, most hops | {' | '.join(f'{number} clusters' for number in numbers)} |",
        f"| --- |{' ---: |' * len(numbers)}",
    ]
    for way in ("ALM", "ALM-LA", "cluster-aware ALM"):
        cells = [_saving(by[number, "OFM"], by[number, way]) for number in numbers]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    if PAPER_CLUSTERS in numbers:
        before = " |" * numbers.index(PAPER_CLUSTERS)
        after = " |" * (len(numbers) - numbers.index(PAPER_CLUSTERS) - 1)
        lines.append(f"| ALM-LA, paper |{before} {PAPER_TRAFFIC:.1f} %, {PAPER_HOPS:.1f} % |{after}")
    return "\n".join(lines)


def _saving(ofm: Row, base: Row) -> str:
    return f"{change(ofm.copies, base.copies):.1f} %, {change(ofm.hops_max, base.hops_max):.1f} %"
