"""The result of a run: as a value for JSON, and as a table for people. Pure."""

from __future__ import annotations

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.common.machine import shortage
from examples.smart_city.loop import NAMES, Facts
from examples.smart_city.recorder import Tally
from examples.smart_city.run import Run
from examples.smart_city.screen import BAD, GOOD

SHOWN = 6
"""How many faults and how many troubles the summary lists; the JSON has more."""


class Counts(msgspec.Struct, frozen=True):
    """What became of some of the messages. Latencies in milliseconds, over all deliveries."""

    published: int
    expected: int
    delivered: int
    lost: int
    duplicated: int
    out_of_order: int
    stray: int
    early: int
    """Delivered though published before the SUBACK: allowed, not owed."""
    p50: float | None
    p99: float | None
    max: float | None


class Report(msgspec.Struct, frozen=True):
    """The result of a run."""

    sound: bool
    """Nothing lost, duplicated, out of order or stray, no broker or device failed, and the loop has closed."""
    interrupted: bool
    seconds: float
    brokers: int
    clusters: int
    publishers: int
    subscribers: int
    total: Counts
    groups: dict[str, Counts]
    paths: dict[str, Counts]
    by_subscriber: dict[str, Counts]
    faults: list[str]
    """The first faults in detail."""
    troubles: list[str]
    """Brokers and devices that failed."""
    loop: Facts | None = None
    """What the loop of decisions and trees came to."""
    busy: float | None = None
    """Share of this machine's processors in use while it played."""


def report(run: Run, loop: Facts | None = None) -> Report:
    """The result of a run that is over."""
    recorder, scene = run.recorder, run.scene
    return Report(
        sound=run.sound and (loop is None or loop.complete or run.interrupted),
        interrupted=run.interrupted,
        seconds=round(run.elapsed, 2),
        brokers=len(scene.brokers),
        clusters=len(scene.clusters),
        publishers=len(scene.publishers),
        subscribers=len(recorder.subscribers),
        total=counts(recorder.total),
        groups={name: counts(tally) for name, tally in sorted(recorder.groups.items())},
        paths={path.value: counts(tally) for path, tally in recorder.paths.items()},
        by_subscriber={name: counts(tally) for name, tally in recorder.subscribers.items()},
        faults=[str(fault) for fault in recorder.faults()],
        troubles=list(run.troubles),
        loop=loop,
        busy=None if run.busy is None else round(run.busy, 3),
    )


def counts(tally: Tally) -> Counts:
    """The tally once nothing is on the way any more: what is missing is lost."""

    def in_milliseconds(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds * 1000, 3)

    latencies = tally.latencies
    return Counts(
        published=tally.published,
        expected=tally.expected,
        delivered=tally.delivered,
        lost=tally.missing,
        duplicated=tally.duplicated,
        out_of_order=tally.out_of_order,
        stray=tally.stray,
        early=tally.early,
        p50=in_milliseconds(latencies.percentile(50)),
        p99=in_milliseconds(latencies.percentile(99)),
        max=in_milliseconds(latencies.maximum if latencies.count else None),
    )


def render(result: Report) -> RenderableType:
    """The result as a table with a verdict under it."""
    if result.interrupted and not result.total.published:
        lines = [Text(storage_fault, BAD) for storage_fault in _some(result.troubles)]
        return Group(*lines, Text("Interrupted before anything was published.", "yellow"))
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("published", "expected", "delivered", "lost", "dup.", "disorder", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, part in result.groups.items():
        _add(table, f"city/+/{name}", part)
    table.add_section()
    for name, part in result.paths.items():
        if part.expected:
            _add(table, f"to {name}" if name != "same broker" else name, part)
    table.add_section()
    _add(table, "all", result.total, style="bold")
    told = [_told(result.loop), Text()] if result.loop is not None else []
    return Group(_title(result), Text(), table, Text(), *told, _verdict(result))


def _told(facts: Facts) -> Text:
    """What the loop came to, in sentences."""
    lines = [f"{facts.topic}: {' -> '.join(facts.modes) or 'not seen'}"]
    if facts.decided_after is not None:
        lines.append(
            f"{NAMES[facts.decider]} decided {facts.decided_after:.1f} s after the rise "
            f"({facts.intervals:.1f} intervals of {facts.interval:g} s)"
        )
    if facts.built_after is not None:
        lines[-1] += f", the tree was in use {facts.built_after:.1f} s later"
    if facts.copies_by_alm is not None and facts.copies_by_ofm is not None:
        lines.append(
            f"packets between clusters for each publication: {facts.copies_by_alm:.2f} by ALM, "
            f"{facts.copies_by_ofm:.2f} by OFM; links taken: {facts.links_by_alm:.2f}, {facts.links_by_ofm:.2f}"
        )
    if facts.gone_after is not None:
        lines.append(f"the tree was gone {facts.gone_after:.1f} s after the traffic")
    return Text("\n".join(lines))


def _add(table: Table, name: str, part: Counts, style: str = "") -> None:
    def fault(count: int) -> Text:
        return Text(f"{count:,}", BAD if count else GOOD)

    def latency(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    table.add_row(
        name,
        f"{part.published:,}" if part.published else "",
        f"{part.expected:,}",
        f"{part.delivered:,}",
        fault(part.lost),
        fault(part.duplicated),
        fault(part.out_of_order),
        latency(part.p50),
        latency(part.p99),
        style=style,
    )


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"... and {more} more like that"]


def _title(result: Report) -> Text:
    return Text.assemble(
        (" SAPS smart city ", "bold white on blue"),
        f"  {result.seconds:.0f} s, {result.brokers} brokers in {result.clusters} clusters, "
        f"{result.publishers} publishers, {result.subscribers} subscribers",
    )


def _verdict(result: Report) -> Text:
    lines = [(storage_fault, BAD) for storage_fault in _some(result.troubles)]
    lines += [(fault, BAD) for fault in _some(result.faults)]
    if result.interrupted:
        lines.append(("Interrupted; the counts are those so far.", "yellow"))
    total = result.total
    lines.append(of_messages(total.lost, total.duplicated, total.out_of_order, total.stray))
    if result.loop is not None and result.loop.gap is not None and not result.interrupted:
        lines.append((f"The loop did NOT close: {result.loop.gap}.", BAD))
    if not result.sound and (short := shortage(result.busy)) is not None:
        lines.append((short, "yellow"))
    return Text("\n").join(Text(text, style) for text, style in lines)


def of_messages(lost: int, duplicated: int, out_of_order: int, stray: int = 0) -> tuple[str, str]:
    """The verdict on the messages alone, and its style: what failed beside them says itself."""
    counts = {"lost": lost, "duplicated": duplicated, "out of order": out_of_order, "that nobody asked for": stray}
    wrong = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    if wrong:
        return f"NOT every message arrived once and in order: {wrong}.", BAD
    return "Every message arrived once, and in order.", GOOD
