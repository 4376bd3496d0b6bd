"""The SAPS paper's numeric statements beside ours. Only the paper's numbers were not computed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from research.saps_paper import closed
from research.saps_paper.records import (
    ALM_LA,
    ALM_LA_RANDOM,
    AWARE,
    BROKERS,
    CLUSTERS,
    FEW,
    OFM,
    Record,
    Resources,
    Series,
)
from research.saps_paper.switches import ZIPF


class Claim(NamedTuple):
    """One statement of the paper; `paper`, `ours` and `again` are in `unit`."""

    statement: str
    paper: float
    ours: float
    unit: str
    again: list[float]
    """Our values in further series of overlays."""
    reading: str
    """The reading of the paper on which `ours` is based."""

    @property
    def difference(self) -> float:
        """Our value less the paper's, in `unit`."""
        return self.ours - self.paper


def claims(points: Iterable[Record], resources: Iterable[Resources], series: Sequence[Series]) -> list[Claim]:
    """Return the paper's statements in section 4.1 beside ours."""
    at = {(p.figure, p.method): p for p in points if (p.clusters, p.subscribers) == (CLUSTERS, FEW)}
    ofm, alm_la = at["9", OFM], at["9", ALM_LA]
    involved = {(r.topology, r.distribution, r.subscribers): 100 * r.flow_entries for r in resources}
    return [
        Claim(
            "OFM against ALM-LA, tree, 16 clusters, 100 subscribers: inter-cluster traffic",
            -71.6,
            -100 * (1 - ofm.traffic / alm_la.traffic),
            "%",
            [-100 * s.traffic for s in series],
            f"means of the overlays; {BROKERS} hosts in a cluster, any broker with a subscriber publishes",
        ),
        Claim(
            "the same: maximum inter-cluster hops",
            -87.5,
            -100 * (1 - ofm.hops_max / alm_la.hops_max),
            "%",
            [-100 * s.hops for s in series],
            "greatest of all overlays",
        ),
        Claim(
            "ALM-LA on the line, random cluster numbers against sorted ones: maximum hops ('almost 4 times')",
            4,
            at["8", ALM_LA_RANDOM].hops_max / at["8", ALM_LA].hops_max,
            "times",
            [s.ratio for s in series],
            "greatest of all overlays; 100 subscribers",
        ),
        Claim("OFM on the tree: maximum hops", 2, ofm.hops_max, "hops", [], "up to the upper switch, and down"),
        Claim(
            "switches with a flow entry, tree, uniform, 100 subscribers ('all')",
            100,
            involved["tree", "uniform", FEW],
            "%",
            [],
            "the upper switch counts",
        ),
        Claim(
            "the same, Zipf, 1,000 subscribers",
            100,
            involved["tree", "Zipf", 1000],
            "%",
            [],
            f"Zipf's law over the clusters, exponent {ZIPF:g}",
        ),
    ]


def texts(claim: Claim) -> tuple[str, str, str, str]:
    """Return the texts of the paper's figure, ours, the difference, and the further series' mean and range."""
    points = "points" if claim.unit == "%" else claim.unit
    again = ""
    if claim.again:
        again = f"{fmean(claim.again):.1f} ({min(claim.again):.1f} to {max(claim.again):.1f})"
    return f"{claim.paper:g} {claim.unit}", f"{claim.ours:.4g} {claim.unit}", f"{claim.difference:+.2f} {points}", again


class Left(NamedTuple):
    """The shares of the traffic and of the maximum hops that OFM saves on the tree."""

    clusters: int
    subscribers: int
    over_alm_la: float
    """Share of ALM-LA's traffic."""
    over_aware: float
    """Share of cluster-aware ALM's traffic."""
    most: float
    """Share of the least possible traffic without OFM if all clusters have subscribers."""
    hops_over_aware: float
    """Share of cluster-aware ALM's maximum hops."""


def left_for_ofm(points: Iterable[Record]) -> list[Left]:
    """Return the savings at each point of Figures 9 and 10."""
    at = {(p.clusters, p.subscribers, p.method): p for p in points if p.topology == "tree"}
    found = []
    for clusters, subscribers in sorted({key[:2] for key in at}):
        ofm, alm_la, aware = (at[clusters, subscribers, method] for method in (OFM, ALM_LA, AWARE))
        found.append(
            Left(
                clusters,
                subscribers,
                1 - ofm.traffic / alm_la.traffic,
                1 - ofm.traffic / aware.traffic,
                closed.left_for_ofm(clusters),
                1 - ofm.hops_max / aware.hops_max,
            )
        )
    return found
