"""The decision once more on the run's own counts, with little room in the switches: who is left? (`monitoring`.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from monitoring.decisions.decider import Decider
from monitoring.selection.network import Network, Room
from monitoring.settings import rules_for
from saps.statistics import Row

WINDOW = 2.0
"""Seconds of traffic that are judged together."""


def rows(directory: Path) -> Iterator[Row]:
    """What the brokers have counted."""
    import pyarrow.parquet as pq

    for file in sorted(directory.glob("*/*.parquet")):
        if not file.name.startswith("."):
            yield from (Row(**row) for row in pq.read_table(file).to_pylist())


def chosen(counted: list[Row], trees: int, brokers_each: int) -> list[str]:
    """The topics that get trees if each switch has room for about so many; `brokers_each`: at a cluster's switch."""
    room = Room(trees * (brokers_each + 1), trees * (brokers_each + 1))
    rules = rules_for(WINDOW)
    decider = Decider(replace(rules, network=Network(default=room), calm=rules.calm._replace(hysteresis=0.0, dwell=0)))
    decider.feed(counted)
    table = decider.decide()
    return sorted(table.trees) if table is not None else []
