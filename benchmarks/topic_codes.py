"""Codes of topics compared: how long they are, which topics have no address of their own, and how few flow entries do.

Nothing is timed: the same seed gives the same figures on every machine.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.section import update_page
from research.weighted_codes import WeightedCode, recoded
from saps.ofm.topics.aggregate import aggregate
from saps.ofm.topics.coding import TopicCode
from saps.ofm.topics.delimited import DelimitedCode
from saps.ofm.topics.sibling import SiblingCode
from saps.ofm.topics.tree import TopicTree

PAGE = Path(__file__).resolve().parent.parent / "docs" / "topic-codes.md"
CITIES, WARDS, SENSORS = 10, 12, 10
KINDS = ("air", "noise", "traffic", "water", "energy", "parking", "alert", "waste")
WARD_FILTERS, KIND_FILTERS, SENSOR_FILTERS = 5, 20, 40
"""Subscriptions of each cluster beside those to all of its own city: to whole wards of others, to one kind in a ward,
and to single sensors."""
ALERTED = 3
"""Clusters that subscribe to every ward's alerts."""
FLAT = 10_000
"""Siblings of the flat tree."""
HEADERS = (
    "tree", "code", "topics", "without address", "address shared (by topics of two trees)", "longest code",
    "mean by use", "entries, one each",
    "entries, aggregated", "recoded by one more topic",
)  # fmt: skip


class City(NamedTuple):
    """Topics, how much each is used, and to which clusters each goes."""

    tree: TopicTree
    use: dict[str, float]
    trees: dict[str, frozenset[str]]


class Figures(NamedTuple):
    """One row."""

    tree: str
    code: str
    topics: int
    too_long: int
    shared: int
    clashing: int
    longest: int
    mean: float
    alone: int
    entries: int
    recoded: int


def cities(seed: int) -> City:
    """``city/ward/kind/sensor``. Every cluster is a city's; use falls off as 1/rank over sensors in a random order."""
    rng = random.Random(seed)
    tree = TopicTree()
    names = [f"city{i}" for i in range(CITIES)]
    for name in names:
        for ward in range(WARDS):
            for kind in KINDS:
                for sensor in range(SENSORS):
                    tree.add(f"{name}/ward{ward}/{kind}/s{sensor}")
    by_level: dict[int, list[str]] = {}
    for topic in tree:
        by_level.setdefault(topic.count("/"), []).append(topic)
    interested: dict[str, set[str]] = {}
    for name in names:
        wanted = [name]
        for level, count in ((1, WARD_FILTERS), (2, KIND_FILTERS), (3, SENSOR_FILTERS)):
            wanted += rng.sample(by_level[level], count)
        for topic in wanted:
            interested.setdefault(topic, set()).add(name)
    for topic in by_level[2]:
        if topic.endswith("/alert"):
            interested.setdefault(topic, set()).update(names[:ALERTED])
    trees: dict[str, frozenset[str]] = {}
    for topic in tree:
        levels = topic.split("/")
        above = ("/".join(parts) for parts in accumulate(([level] for level in levels), lambda a, b: a + b))
        trees[topic] = frozenset(name for each in above for name in interested.get(each, ()))
    return City(tree, _zipf(rng, by_level[3]), trees)


def flat(seed: int) -> City:
    """Siblings only, half of them with one tree and the others each with one of ten."""
    rng = random.Random(seed)
    tree = TopicTree()
    for i in range(FLAT):
        tree.add(f"s{i}")
    trees = {topic: frozenset([rng.choice("0123456789") if i % 2 else "-"]) for i, topic in enumerate(tree)}
    return City(tree, _zipf(rng, list(tree)), trees)


def _zipf(rng: random.Random, topics: list[str]) -> dict[str, float]:
    order = rng.sample(topics, len(topics))
    return {topic: 1 / rank for rank, topic in enumerate(order, 1)}


def measure(name: str, city: City) -> list[Figures]:
    """One row for each code."""
    makers: list[Callable[[], TopicCode]] = [
        lambda: SiblingCode(city.tree),
        lambda: DelimitedCode(city.tree),
        lambda: WeightedCode(city.tree, city.use),
    ]
    return [_row(name, city, make) for make in makers]


def _row(name: str, city: City, make: Callable[[], TopicCode]) -> Figures:
    code = make()
    found = aggregate(code, city.trees)
    without = set(found.too_long)
    fitting = [topic for topic in city.tree if topic not in without]
    lengths = {topic: len(code.code(topic)) for topic in fitting}
    use = sum(city.use.get(topic, 0.0) for topic in fitting)
    mean = sum(city.use.get(topic, 0.0) * length for topic, length in lengths.items()) / use
    words = {topic: code.word(topic) for topic in fitting}
    shared = len(words) - len(set(words.values()))
    newcomer = "city0/ward0/air/new" if "city0" in city.tree else "new"
    city.tree.add(newcomer)
    changed = len(recoded(words, make()))
    city.tree.remove(newcomer)
    return Figures(
        name, code.name, len(city.tree), len(without), shared, len(found.clashing), max(lengths.values()), mean,
        found.alone,
        len(found.entries), changed,
    )  # fmt: skip


def cells(row: Figures) -> list[str]:
    """A row as texts."""
    counts = [
        f"{row.topics:,}",
        f"{row.too_long:,}",
        f"{row.shared:,} ({row.clashing:,})",
        f"{row.longest}",
        f"{row.mean:.1f}",
    ]
    return [row.tree, row.code, *counts, f"{row.alone:,}", f"{row.entries:,}", f"{row.recoded:,}"]


def markdown(rows: list[Figures], seed: int) -> str:
    """The figures as a section of the page."""
    lines = [f"By `python -m benchmarks.topic_codes --markdown`, seed {seed}.", ""]
    lines += ["| " + " | ".join(HEADERS) + " |", "|" + " --- |" * len(HEADERS)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topic_codes", description="Codes of topics compared.")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--markdown", action="store_true", help="write the figures into docs/topic-codes.md")
    chosen = parser.parse_args()
    rows = [*measure("city", cities(chosen.seed)), *measure("flat", flat(chosen.seed))]
    table = Table(*HEADERS)
    for row in rows:
        table.add_row(*cells(row))
    Console(width=160).print(table)
    if chosen.markdown:
        update_page(PAGE, "figures", markdown(rows, chosen.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
