"""Repeats the selection on recorded traffic under other budgets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from monitoring.decisions.store import Store
from monitoring.decisions.table import OFM, Judged, Table, decide
from monitoring.selection.network import Network, parse_budget
from monitoring.selection.selection import Calm


class Outcome(NamedTuple):
    """The decisions under other budgets."""

    table: Table
    words: str
    """Comparison with the decisions that were made."""


def again(store: Store, epoch: int, budgets: Iterable[str]) -> Outcome:
    """Decide the epoch again under these budgets (`network.parse_budget`), without regard to earlier decisions.

    Raises ValueError for a malformed budget or an epoch whose traffic is not kept, and OSError if the store cannot be
    read."""
    given = dict(parse_budget(text) for text in budgets)
    default = given.pop("", Network().default)
    network = replace(Network(), default=default, budgets=given)
    before = store.table(epoch)
    table = decide(judged(store, epoch), {}, network, epoch, Calm(hysteresis=0.0, dwell=0))
    return Outcome(table, _words(before, table))


def judged(store: Store, epoch: int) -> list[Judged]:
    """Return the topics that were worth a tree in the last epoch.

    Raises ValueError for any other epoch, because the store keeps only the last one's traffic."""
    last = store.last()
    if last.topics and last.closed == epoch:
        import pyarrow.compute as pc

        rows = store.folder.table(last.topics, list(Judged._fields))
        worth = rows.filter(pc.greater(rows["saving"], rows["cost"]))
        return [Judged(**row) for row in worth.to_pylist()]
    raise ValueError(f"the traffic of epoch {epoch} is not kept, only that of {last.closed}")


def _words(before: Table, after: Table) -> str:
    had, has = set(before.trees), set(after.trees)
    saved = [sum(d.inter for d in table.decisions if d.mode == OFM) for table in (before, after)]
    return (
        f"{len(has)} trees instead of {len(had)} ({len(has - had)} more, {len(had - has)} less); between clusters "
        f"{saved[1]:,.0f} B/s less instead of {saved[0]:,.0f}"
    )
