"""Writes the page on stateless delivery: its counts, beside the figures that Elmo and BIER publish."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from research.stateless.study import MEAN, Row

HEAD = (
    "network",
    "brokers",
    "switches",
    "planes",
    "entries",
    "groups",
    "tables",
    "entries, trees",
    "copies",
    "on ports",
    "worst",
)


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a line of the table."""
    planes = f"{row.laid}" if row.laid == row.planes else f"{row.laid} (of {row.planes})"
    return (
        row.network,
        f"{row.brokers:,}",
        str(row.switches),
        planes,
        f"{row.entries:,}",
        str(row.groups),
        str(row.tables),
        f"{row.topic_entries:,}",
        f"{row.copies:.2f}",
        f"{row.on_ports:.2f}",
        f"{row.worst:.2f}",
    )


def markdown(rows: Sequence[Row], seed: int) -> str:
    """Return the page docs/reproduction/stateless.md."""
    topics = rows[0].topics
    lines = "\n".join(f"| {' | '.join(cells(row))} |" for row in rows)
    many = rows[-1]
    return f"""# Stateless delivery, counted

Computed by `saps reproduce stateless --seed {seed}` with the product's own planes and tables: {topics:,} topics of 2
members and {MEAN:g} more in the mean (exponential), at random brokers; the first publishes. *Entries*, *groups* and
*tables* are those of the switch that has most; no topic is in them, so 10,000 or 100,000 topics have the same.
*Entries, trees*: of the fullest switch with the product's tree for each of the {topics:,} topics; they grow with the
topics. *Copies* on links between switches by the best plane, all topics together, where the least tree (Steiner) is 1;
*on ports*: with the links of the brokers; *worst*: copies of the worst topic. {many.brokers:,} brokers are
{-(-many.brokers // 96)} sets: the publisher sends one packet for each that has members, {many.packets:.1f} in the mean.

| {" | ".join(HEAD)} |
|---|{"---:|" * (len(HEAD) - 1)}
{lines}

## Compared with published figures

| | switches | state of a switch | header | traffic, ideal = 1 |
|---|---|---|---|---|
| Elmo (SIGCOMM 2019): Clos, 27,000 hosts, a million groups | P4 | 1,100 group entries | 325 bytes | 1.05 |
| BIER (RFC 8279) | BIER | an entry for each egress router | 256 bits (64 to 4,096) | shortest paths |
| stateless OFM: any network, brokers by sets of 96 | OpenFlow 1.3 | above | none beyond IPv6 | above |

An egress is a broker here, a host of the group in Elmo, a router in BIER; theirs are their own figures, not ours.
"""


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table on a terminal."""
    table = Table(*HEAD)
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
