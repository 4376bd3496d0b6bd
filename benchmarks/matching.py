"""Time to find a topic's subscribers against the number of subscriptions: ``python -m benchmarks.matching --help``.

The index is the broker's own (`saps.routing.subscriptions`), in this process, without the hub's cache of answers: each
figure is what the first message of a topic costs. The loads are made so that every topic has the same number of
subscribers whatever the number of subscriptions is; so if the time grows, it is the index's doing or the processor
caches'.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import itertools
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.machine import this_machine
from benchmarks.probes import resident_bytes
from benchmarks.section import PAGE, update_page
from saps.agents.user import SubscriberAgent
from saps.messages import Subscription
from saps.routing.hub import Hub
from saps.routing.subscriptions import SubscriptionIndex

SIZES = (1_000, 100_000, 1_000_000)
"""Numbers of subscriptions."""
QUICK_SIZES = SIZES[:2]
CLIENTS = 1000
"""Who subscribes, in turns."""
HOT = 200
"""Topics that are asked for again and again: they stay in the processor's caches."""
BATCH = 2000
"""Topics asked for in a row, whose mean time is one sample."""
ROUNDS = 15
"""Samples; their median counts: a pause by another process falls out."""


class Shape(NamedTuple):
    """A kind of load."""

    name: str
    text: str
    filters: Callable[[int], Iterator[str]]
    """The filters of the subscribers of topic number i, all that match it; no other topic's filters do."""
    matches: int
    """How many those are."""


def topic_of(number: int) -> str:
    """Topics as of machines in the halls of many sites: 5 levels, each site with 1,000 machines."""
    return f"site/{number // 1000}/{number // 10 % 100}/{number}/temperature"


def _mixed(number: int) -> Iterator[str]:
    site, hall = number // 1000, number // 10 % 100
    yield topic_of(number)
    yield f"site/{site}/+/{number}/temperature"
    yield f"site/{site}/{hall}/{number}/#"
    yield f"+/+/{hall}/{number}/+"


def _dense(number: int) -> Iterator[str]:
    levels = topic_of(number).split("/")
    for hidden in itertools.product((False, True), repeat=4):
        head = ("+" if h else level for h, level in zip(hidden, (*levels[:3], levels[4]), strict=True))
        site, name, hall, quantity = head
        yield f"{site}/{name}/{hall}/{number}/{quantity}"


SHAPES = (
    Shape(
        "mixed", "of 4 matching filters one is exact, one has a `+`, one ends with `#`, one has three `+`", _mixed, 4
    ),
    Shape("dense", "16 matching filters: each of 4 levels is a `+` or not, in every combination", _dense, 16),
)


class Point(msgspec.Struct, frozen=True):
    """One number of subscriptions."""

    shape: str
    subscriptions: int
    hot: float
    """Processor seconds a match, of HOT topics in turns."""
    random: float
    """The same, of topics drawn from all."""
    least: float
    """The fastest sample of the latter."""
    greatest: float
    add: float
    """Processor seconds to add a subscription."""
    memory: float
    """Resident bytes a subscription, with the filter's text."""
    calls: float
    """Function calls a match, C functions too: the work itself, the same on every machine."""


def measure(shape: Shape, count: int, seed: int) -> Point:
    """Fill an index with `count` subscriptions and ask it. Memory is right in a fresh process only."""
    hub, rng = Hub(), random.Random(seed)
    agents = itertools.cycle([SubscriberAgent(hub, f"c{number}") for number in range(CLIENTS)])
    topics = count // shape.matches
    pairs = ((next(agents), Subscription(f)) for number in range(topics) for f in shape.filters(number))
    before = resident_bytes([os.getpid()])
    index = SubscriptionIndex()
    begun = time.thread_time()
    for agent, subscription in pairs:
        index.add(agent, subscription)
    added = time.thread_time() - begun
    memory = resident_bytes([os.getpid()]) - before
    hot = [topic_of(rng.randrange(topics)) for _ in range(HOT)]
    again = [_sample(index, hot * (BATCH // HOT), shape.matches) for _ in range(ROUNDS)]
    drawn = [
        _sample(index, [topic_of(rng.randrange(topics)) for _ in range(BATCH)], shape.matches) for _ in range(ROUNDS)
    ]
    size = topics * shape.matches
    spread = statistics.median(drawn), min(drawn), max(drawn)
    work = calls_of(index, [topic_of(rng.randrange(topics)) for _ in range(HOT)])
    return Point(shape.name, size, statistics.median(again), *spread, added / size, memory / size, work)


def calls_of(index: SubscriptionIndex, topics: Sequence[str]) -> float:
    """Mean number of function calls to find a topic's subscribers, with none of them at hand since another topic."""
    calls = 0
    agent = SubscriberAgent(Hub(), "another")

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # its callbacks are calls too
    for topic in topics:
        index.add(agent, Subscription("another"))
        sys.setprofile(note)
        index.targets(topic)
        sys.setprofile(before)
    gc.enable()
    return calls / len(topics) - 1  # without that of `setprofile` itself


def _sample(index: SubscriptionIndex, topics: Sequence[str], matches: int) -> float:
    """Mean processor seconds a match. Raises AssertionError if a topic has not exactly its subscribers."""
    targets = index.targets
    begun = time.thread_time()
    found = sum([len(targets(topic)) for topic in topics])
    seconds = time.thread_time() - begun
    assert found == matches * len(topics), (found, matches * len(topics))
    return seconds / len(topics)


def run(sizes: Sequence[int], seed: int, progress: Callable[[str], None]) -> list[Point]:
    """Measure all sizes, each in a fresh process."""
    points = []
    for number, shape in enumerate(SHAPES):
        for size in sizes:
            progress(f"{shape.name}  {size:,}")
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                points.append(process.submit(_alone, number, size, seed).result())
    return points


def _alone(shape: int, size: int, seed: int) -> Point:
    """In a process of its own. Without collections of reference cycles, as good as in a broker: it has calmed them."""
    gc.disable()
    return measure(SHAPES[shape], size, seed)


HEADERS = (
    "load",
    "subscriptions",
    "200 topics in turns",
    "topics drawn from all",
    "min - max",
    "to add one",
    "memory",
    "calls",
)


def cells(point: Point) -> tuple[str, ...]:
    """One row."""
    return (
        point.shape,
        f"{point.subscriptions:,}",
        f"{point.hot * 1e6:.2f} µs",
        f"{point.random * 1e6:.2f} µs",
        f"{point.least * 1e6:.2f} - {point.greatest * 1e6:.2f} µs",
        f"{point.add * 1e6:.1f} µs",
        f"{point.memory / 1000:.2f} kB",
        f"{point.calls:.1f}",
    )


def growth(points: Sequence[Point]) -> str:
    """The least and the greatest number of subscriptions beside each other."""
    lines = []
    for shape in SHAPES:
        own = [point for point in points if point.shape == shape.name]
        first, last = own[0], own[-1]
        lines.append(
            f"- {shape.name}: {last.subscriptions / first.subscriptions:,.0f} times the subscriptions take "
            f"{last.hot / first.hot:.2f} times the time for topics asked for again, and "
            f"{last.random / first.random:.2f} times for topics drawn from all. ({shape.text}.)"
        )
    return "\n".join(lines)


def markdown(points: Sequence[Point], command: str) -> str:
    """The section of docs/performance.md."""
    machine, now = this_machine(), datetime.datetime.now(datetime.UTC)
    lines = [
        f"Measured on {now:%Y-%m-%d %H:%M} UTC by `{command}`; {machine.processors} processors ({machine.processor}), "
        f"Python {machine.python}, load average {os.getloadavg()[0]:.1f} by all programs at the end.",
        "",
        f"Processor time, each size in a fresh process; {CLIENTS:,} clients, {ROUNDS} samples of {BATCH:,} matches: "
        "their median, least and greatest. A match is what the first message of a topic costs. *Calls* are function "
        "calls, C functions too.",
        "",
        growth(points),
        "",
        "| " + " | ".join(HEADERS) + " |",
        "|---|" + "---:|" * (len(HEADERS) - 1),
        *("| " + " | ".join(cells(point)) + " |" for point in points),
        "",
        "*Calls* depend on the topic's levels and matching filters only; time grows as less of memory is in caches.",
    ]
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matching", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"up to {QUICK_SIZES[-1]:,} subscriptions")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/performance.md")
    chosen = parser.parse_args()
    sizes = QUICK_SIZES if chosen.quick else SIZES
    with Progress(console=Console(stderr=True), refresh_per_second=1) as bar:
        task = bar.add_task("", total=len(sizes) * len(SHAPES))
        points = run(sizes, chosen.seed, lambda what: bar.update(task, description=what, advance=1))
    table = Table(*HEADERS)
    for point in points:
        table.add_row(*cells(point))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(growth(points))
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(points)))
    if chosen.markdown:
        command = "python -m benchmarks.matching" + " --quick" * chosen.quick
        update_page(PAGE, "matching", markdown(points, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
