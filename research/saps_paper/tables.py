"""Formats the Markdown tables of the page docs/reproduction/saps.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from research.saps_paper.headline import Claim, Left, texts
from research.saps_paper.records import FEW, METHODS, Example, Queries, Reading, Record, Resources

SHOWN = (10, 100, 1000, 100_000)
"""Numbers of subscribers in the page's tables; the plots and saps.json have all."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 0) -> str:
    """Return a table. The first `words` columns are aligned left and the others, numbers, right."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in (heads, rule, *rows))


def claims(found: Iterable[Claim], series: int) -> str:
    heads = ("statement", "reading", "paper", "ours", "difference", f"{series} more series: mean (range)")
    return table(heads, [(claim.statement, claim.reading, *texts(claim)) for claim in found], words=2)


def readings(found: Iterable[Reading]) -> str:
    """Return the headline with other numbers of hosts, where any broker publishes."""
    return table(
        ("hosts in a cluster", "traffic", "greatest hops", "mean hops"),
        [
            (r.brokers or "one for each subscriber", *_saved(r.traffic, r.hops_of_greatest, r.hops_of_mean))
            for r in found
            if r.publisher == "any"
        ],
        words=1,
    )


def figure(points: Sequence[Record]) -> str:
    """Return the table of Figure 8, 9 or 10, with a line for each x."""
    by_clusters = points[0].figure == "10"
    lines: dict[int, list[str]] = {}
    for p in points:
        if by_clusters or p.subscribers in SHOWN:
            cell = f"{p.traffic:.1f} ({p.hops_mean:.1f})"
            lines.setdefault(p.clusters if by_clusters else p.subscribers, []).append(cell)
    heads = ("clusters" if by_clusters else "subscribers", *METHODS[points[0].topology])
    return table(heads, [(f"{x:,}", *cells) for x, cells in lines.items()])


def farthest(points: Iterable[Record]) -> float:
    """Return the greatest distance of a point from its closed form, in standard errors."""
    return max(_errors(point) for point in points if point.closed_form is not None)


def _errors(point: Record) -> float:
    apart = abs(point.traffic - (point.closed_form or 0.0))
    return 0.0 if apart < 0.005 else apart / max(point.traffic_error, 1e-9)


def left(found: Iterable[Left]) -> str:
    return table(
        ("clusters", "traffic, of ALM-LA's", "of cluster-aware", "at most", "hops, of cluster-aware"),
        [
            (p.clusters, *_saved(p.over_alm_la, p.over_aware, p.most, p.hops_over_aware))
            for p in found
            if p.subscribers == FEW
        ],
    )


def _saved(*shares: float) -> list[str]:
    return [f"{-100 * share:.1f} %" if share else "0 %" for share in shares]


def examples(found: Iterable[Example]) -> str:
    return table(
        ("topology", "entries: paper", "product", "one for each link", "buckets: paper", "product"),
        [
            (
                e.topology,
                *(
                    f"{count:.1f}"
                    for count in (
                        e.paper_flow_entries,
                        e.flow_entries,
                        e.flow_entries_per_port,
                        e.paper_buckets,
                        e.buckets,
                    )
                ),
            )
            for e in found
        ],
        words=1,
    )


def resources(found: Sequence[Resources]) -> str:
    lines: dict[int, list[str]] = {}
    for r in found:
        if r.subscribers in SHOWN:
            lines.setdefault(r.subscribers, []).append(f"{r.flow_entries:.3f} ({r.buckets:.3f})")
    heads = ["subscribers", *dict.fromkeys(f"{r.topology}, {r.distribution}" for r in found)]
    heads = [heads[0], *(f"{head}: entries (buckets)" for head in heads[1:])]
    return table(heads, [(f"{x:,}", *cells) for x, cells in lines.items()])


def counted(points: Iterable[Queries]) -> str:
    """Return the queries a second of Figure 13, where they were counted at the state machines."""
    return table(
        ("method", "joins and leaves of each a second", "by the equation", "counted"),
        [
            (p.method, f"{p.join_rate:g}", f"{p.queries:.0f}", f"{p.counted:.1f}")
            for p in points
            if p.counted is not None
        ],
        words=1,
    )
