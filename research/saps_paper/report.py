"""Writes the output of ``saps reproduce saps``: the page docs/reproduction/saps.md, and the terminal's headline."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.table import Table as Grid

from research.saps_paper import tables
from research.saps_paper.counted import LEASE
from research.saps_paper.headline import claims, left_for_ofm, texts
from research.saps_paper.queries import PUBLISH_RATE, PUBLISHERS
from research.saps_paper.records import (
    BROKERS,
    CLUSTERS,
    FEW,
    Example,
    Growth,
    Queries,
    Reading,
    Record,
    Resources,
    Series,
)
from research.saps_paper.switches import MOST_ON_HOST, ZIPF
from saps.agents.both import LONGEST_WAIT
from saps.agents.either import ASK_AGAIN


class Results(NamedTuple):
    """All results of one run."""

    overlays: int
    seed: int
    points: list[Record]
    series: list[Series]
    examples: list[Example]
    resources: list[Resources]
    queries: list[Queries]
    readings: list[Reading]
    growth: list[Growth]

    def cells(self) -> list[dict[str, object]]:
        """Return the points of Figures 8 to 13 as records for saps.json."""
        return [
            *(point._asdict() for point in self.points),
            *(point._asdict() for point in self.examples),
            *(point._asdict() for point in self.resources),
            *(point._asdict() for point in self.queries),
        ]

    def figure(self, number: str) -> list[Record]:
        """Return the points of Figure 8, 9 or 10."""
        return [point for point in self.points if point.figure == number]


def markdown(results: Results) -> str:
    """Return the page docs/reproduction/saps.md."""
    found = claims(results.points, results.resources, results.series)
    return _PAGE.format(
        seed=results.seed,
        overlays=results.overlays,
        series=len(results.series),
        brokers=BROKERS,
        most=MOST_ON_HOST,
        zipf=ZIPF,
        publishers=PUBLISHERS,
        rate=PUBLISH_RATE,
        few=FEW,
        claims=tables.claims(found, len(results.series)),
        readings=tables.readings(results.readings),
        figure8=tables.figure(results.figure("8")),
        figure9=tables.figure(results.figure("9")),
        figure10=tables.figure(results.figure("10")),
        apart=tables.farthest(results.points),
        left=tables.left(left_for_ofm(results.points)),
        examples=tables.examples(results.examples),
        resources=tables.resources(results.resources),
        counted=tables.counted(results.queries),
        lease=LEASE,
        again=ASK_AGAIN,
        wait=LONGEST_WAIT,
    )


def show(results: Results, console: Console) -> None:
    """Print the paper's statements beside ours, and the savings that cluster-aware ALM leaves for OFM."""
    heads = ("statement", "paper", "ours", "difference", "reading taken")
    grid = Grid(*heads, title="SAPS 2016, section 4.1", show_lines=True)
    for claim in claims(results.points, results.resources, results.series):
        grid.add_row(claim.statement, *texts(claim)[:3], claim.reading)
    console.print(grid)
    for left in left_for_ofm(results.points):
        if (left.clusters, left.subscribers) == (CLUSTERS, FEW):
            console.print(
                "Cluster-aware ALM, the product's default, leaves for OFM "
                f"{100 * left.over_aware:.1f} % of the traffic (at most {100 * left.most:.1f} %) "
                f"and {100 * left.hops_over_aware:.0f} % of the hops."
            )


_PAGE = """\
# SAPS (2016): Figures 8 to 13

Computed by `saps reproduce saps --seed {seed} --overlays {overlays}`: {overlays} random overlays for each point and
one publication in each, by the product's own keys and multicast trees (`saps.overlay.delivery.tree`). Tests compare
these with the links of the running protocol. The file saps.json has every point.

## Paper and ours

{claims}

The last column computes the first three statements again in other series of {overlays} overlays.

## Readings

The paper leaves open how many brokers a cluster has, who publishes, how a multicast is divided, and which statistic
its maximum is. These readings meet all its statements at once:

- **{brokers} hosts in a cluster**, subscribers spread over them uniformly; a host with a subscriber is a broker
  with one key for the topic. This number is fitted to the 71.6 %, which is therefore no independent confirmation.
- **The publisher** is any broker with a subscriber; from there the range is divided to both sides.
- **Multicast** follows Skip Graph neighbours without relays, each with the part up to the next (the product's rule).
- **Traffic** on the tree: a unicast between two clusters counts 2, OFM 1 for each cluster with subscribers. On the
  line both count the links between switches.
- **Maximum hops** is the greatest of all overlays.

With other numbers of hosts OFM changes ALM-LA's figures (tree, 16 clusters, 100 subscribers) by:

{readings}

## Figure 8: line, 16 clusters

![Figure 8](saps-8.svg)

Traffic of a publication (maximum hops), mean of the overlays.

{figure8}

## Figure 9: height-2 tree, 16 clusters

![Figure 9](saps-9.svg)

{figure9}

## Figure 10: height-2 tree, 4 to 128 clusters, 100 subscribers

![Figure 10](saps-10.svg)

{figure10}

## Closed forms

ALM, OFM and, on the tree, cluster-aware ALM have closed forms (`research.saps_paper.closed`). No point is farther from
them than {apart:.1f} standard errors.

## What cluster-aware ALM leaves for OFM

Cluster-aware ALM, the default ([decision 015](../decisions/015-cluster-aware-multicast-trees.md)), sends each other
cluster with subscribers one copy, the least without switches' help. On the tree with c occupied clusters OFM saves at
most 1 - c / (2 (c - 1)) of its traffic. On the line with sorted numbers it sends half as many copies as ALM-LA from 100
subscribers on, but farther. With 100 subscribers OFM changes the tree's traffic by:

{left}

## Figure 11: entries and buckets of one topic

16 clusters, 100 subscribers, all switches together. The paper counts a flow entry on each switch of the tree and a
bucket for each rewritten address. The product (`saps.ofm.flows.plan`) adds an entry for each broker's loopback packet,
by default one for each tree link, and buckets for the tree links.

{examples}

## Figure 12: switches with state

![Figure 12](saps-12.svg)

Flow entries: switches in the topic's tree, as a share of all. Buckets: one for each host, divided by the number of
switches; a host takes up to {most:,} subscribers, as in the paper. Zipf: exponent {zipf:g} over the clusters.

{resources}

## Figure 13: queries to OFGate

![Figure 13](saps-13.svg)

Queries a second by Eq. (1) and (2) with {publishers} publishers of {rate:g} message a second and {few} subscribers, and
those that the product's machines ask in the simulator. Rates are joins and leaves of each subscriber a second.

{counted}

EITHER keeps an answer for a lease of {lease:g} s. A join or a leave is one query, as in the paper, and revokes the
leases; all publishers ask again, at most once in {again:g} s. BOTH asks only when a broker leaves the tree; one that
leaves within {wait:g} s, before it has joined the tree, asks nothing.

## Growth

![Growth](saps-growth.svg)

One multicast by ALM-LA in 16 clusters, each subscriber a broker of its own. The file saps-growth.json has copies,
depths and times.
"""
