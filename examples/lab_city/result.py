"""The result of the play: as values for JSON, and as a table for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.smart_city.screen import BAD, GOOD
from examples.smart_city.summary import Counts, of_messages


class Outcome(msgspec.Struct, frozen=True):
    """What became of the messages of one act, and what they put on the links that join clusters."""

    published: int
    delivered: int
    lost: int
    duplicated: int
    out_of_order: int
    inter_cluster_packets_per_publication: float | None
    """Packets that carried one message, a probe: mean of the topics probed."""
    max_hops: int | None
    """Links between clusters that one copy after another of a probe crossed, at most."""
    inter_cluster_packets_of_any_kind: float
    """For a publication, while the devices published: with all acknowledgements, less those of the idle mesh."""
    inter_cluster_bytes: float
    """Their bytes."""
    p50_ms: float | None
    p99_ms: float | None

    @property
    def sound(self) -> bool:
        """Every message arrived once and in order."""
        return not (self.lost or self.duplicated or self.out_of_order)


class Switching(Outcome, frozen=True):
    """The act in which topics move while their messages flow."""

    moves: int
    """How often all of them moved, to OFM or back."""
    topics: int


Result = Mapping[str, Outcome]
"""By the name of the act."""


class Load(NamedTuple):
    """What went over all links that join clusters together, for so many publications."""

    publications: int
    packets: float
    bytes: float


def outcome(counts: Counts, load: Load) -> Outcome:
    """What can be told without probes."""
    each = max(load.publications, 1)
    return Outcome(
        published=counts.published,
        delivered=counts.delivered,
        lost=counts.lost,
        duplicated=counts.duplicated,
        out_of_order=counts.out_of_order,
        inter_cluster_packets_per_publication=None,
        max_hops=None,
        inter_cluster_packets_of_any_kind=round(load.packets / each, 2),
        inter_cluster_bytes=round(load.bytes / each, 1),
        p50_ms=counts.p50,
        p99_ms=counts.p99,
    )


def sound(result: Result) -> bool:
    """Nothing was lost, duplicated or out of order in any act."""
    return all(each.sound for each in result.values())


def render(result: Result, troubles: list[str]) -> RenderableType:
    """The table with a verdict under it."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("sent", "came", "lost", "dup.", "disorder", "packets", "hops", "of all", "bytes", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in result.items():
        table.add_row(
            name,
            f"{each.published:,}",
            f"{each.delivered:,}",
            *(Text(f"{count:,}", BAD if count else GOOD) for count in (each.lost, each.duplicated, each.out_of_order)),
            _number(each.inter_cluster_packets_per_publication),
            _number(each.max_hops),
            f"{each.inter_cluster_packets_of_any_kind:.1f}",
            f"{each.inter_cluster_bytes:,.0f}",
            _number(each.p50_ms),
            _number(each.p99_ms),
        )
    return Group(_title(), Text(), table, Text(), _verdict(result, troubles))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.1f}"


def _title() -> Text:
    return Text.assemble(
        (" SAPS smart city ", "bold white on blue"),
        "  what a message puts on the links that join clusters",
    )


def _verdict(result: Result, troubles: list[str]) -> Text:
    lines = [(storage_fault, BAD) for storage_fault in troubles]
    acts = result.values()
    lost, duplicated = sum(act.lost for act in acts), sum(act.duplicated for act in acts)
    lines.append(of_messages(lost, duplicated, sum(act.out_of_order for act in acts)))
    return Text("\n").join(Text(text, style) for text, style in lines)
