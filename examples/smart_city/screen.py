"""The live screen: a glance as tables that fit the terminal, and the one-line form for no terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from examples.smart_city.glance import Glance, LoopGlance, SubscriberGlance, TallyGlance
from examples.smart_city.run import Phase

WIDE = 110
"""From this width on, in columns, tables stand side by side and show trends."""

BARS = "▁▂▃▄▅▆▇█"

GROUP_STYLES = {"air": "cyan", "traffic": "green", "parking": "blue", "alert": "bold red"}

MODE_STYLES = {"ALM": "bold cyan", "OFM": "bold green"}

GOOD, BAD, QUIET = "green", "bold red", "bright_black"


class Screen:
    """One glance, drawn for whatever size the terminal has at the moment. (A rich renderable.)"""

    def __init__(self, glance: Glance) -> None:
        self._glance = glance

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.max_height
        wide = width >= WIDE and not options.ascii_only
        glance = self._glance
        brokers, paths = (
            _brokers(glance, most=max(4, height - (14 if glance.loop is None else 19))),
            _tallies("path", glance.paths, wide=False),
        )
        blocks: list[RenderableType] = [_header(glance, width), Text()]
        used = 5
        if glance.loop is not None:
            blocks += [*_loop(glance.loop, width), Text()]
            used += 5
        if wide:
            blocks.append(_beside(brokers, paths))
            used += max(brokers.row_count, paths.row_count)
        else:
            blocks.append(brokers)
            used += brokers.row_count
        blocks += [Text(), _tallies("topics", glance.groups, wide=wide)]
        used += 3 + len(glance.groups)
        room = height - used - 2
        if not wide and room >= paths.row_count + 3:
            blocks += [Text(), paths]
            room -= paths.row_count + 3
        if room >= 7:
            subscribers = _subscribers(glance.subscribers[: room - 3])
            blocks += [Text(), subscribers]
            room -= subscribers.row_count + 3
        if room >= 2:
            blocks += [Text(), _news(glance, min(room - 1, 6))]
        yield Padding(Group(*blocks, Text(), _totals(glance)), (0, 1))


def status_line(glance: Glance) -> str:
    """The glance in one line of plain text."""
    total = glance.total
    if total.published == 0 or glance.phase is Phase.CLOSING:
        up = sum(broker.up for broker in glance.brokers)
        clients = sum(broker.clients for broker in glance.brokers)
        return f"{glance.phase}: {up} of {len(glance.brokers)} brokers up, {clients} clients"
    line = (
        f"{glance.elapsed:4.0f} s  published {total.published:,} ({total.published_rate:,.0f}/s)  "
        f"delivered {total.delivered:,} of {total.expected:,} ({total.delivered_rate:,.0f}/s)  "
        f"in flight {total.expected - total.delivered:,}  "
        f"wrong {total.wrong:,}  latency p50 {milliseconds(total.p50)} p99 {milliseconds(total.p99)}"
    )
    if glance.loop is not None:
        topic = glance.loop.topic
        line += f"\n        {glance.loop.act}; {topic.topic} goes by {topic.mode}: {topic.rate:,.0f}/s"
        if topic.rate:
            line += f", {topic.per_publication:.2f} packets between clusters for each"
    return line


def milliseconds(seconds: float | None) -> str:
    """A latency for people, with its unit."""
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def spark(values: Sequence[float], width: int) -> str:
    """The last `width` values as little bars, the largest of them full height."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0) or 1.0
    return "".join(BARS[round(max(value, 0.0) / top * (len(BARS) - 1))] for value in shown)


def _header(glance: Glance, width: int) -> Group:
    clusters = len({broker.cluster for broker in glance.brokers})
    clients = sum(broker.clients for broker in glance.brokers)
    title = Text.assemble(
        (f" {glance.title} ", "bold white on blue"),
        f"  {len(glance.brokers)} brokers in {clusters} clusters, {clients} MQTT clients",
        no_wrap=True,
        overflow="ellipsis",
    )
    phase = Text(glance.phase.value.ljust(29), "bold")
    line = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(no_wrap=True, justify="right"), padding=(0, 2))
    if glance.loop is not None:  # lasts until the loop has closed
        line.add_row(phase, Text(f"look at {glance.loop.page}", "bold"), f"{glance.elapsed:.0f} s")
        return Group(title, line)
    left = max(0.0, glance.seconds - glance.elapsed)
    bar = ProgressBar(total=glance.seconds, completed=min(glance.elapsed, glance.seconds), width=max(10, width - 46))
    line.add_row(phase, bar, f"{left:3.0f} s left")
    return Group(title, line)


def _table(*columns: Column) -> Table:
    return Table(*columns, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), header_style="bold", show_edge=False)


def _number(name: str, width: int = 8) -> Column:
    return Column(name, justify="right", no_wrap=True, min_width=width)


def _brokers(glance: Glance, most: int) -> Table:
    numbers = (_number("clients", 7), _number("in", 7), _number("in/s", 5), _number("out"), _number("out/s", 5))
    table = _table(Column("broker", no_wrap=True), Column("cluster", no_wrap=True), *numbers)
    shown = glance.brokers if len(glance.brokers) <= most else glance.brokers[: most - 1]
    for broker in shown:
        table.add_row(
            Text.assemble(("● ", GOOD if broker.up else BAD), broker.name),
            Text(broker.cluster, _cluster_style(glance, broker.cluster)),
            str(broker.clients),
            f"{broker.received:,}",
            f"{broker.received_rate:,.0f}",
            f"{broker.sent:,}",
            f"{broker.sent_rate:,.0f}",
        )
    if len(shown) < len(glance.brokers):
        table.add_row(Text(f"  and {len(glance.brokers) - len(shown)} more", QUIET))
    return table


def _cluster_style(glance: Glance, cluster: str) -> str:
    clusters = list(dict.fromkeys(broker.cluster for broker in glance.brokers))
    styles = ("magenta", "yellow", "cyan", "green")
    return styles[clusters.index(cluster) % len(styles)]


def _loop(loop: LoopGlance, width: int) -> list[RenderableType]:
    """The topic that moves between ALM and OFM, and what is going on."""
    topic, style = loop.topic, MODE_STYLES.get(loop.topic.mode, "bold yellow")
    numbers = (_number("/s", 5), _number("between/s", 9), _number("each", 5))
    table = _table(Column("topic", no_wrap=True, min_width=30), Column("goes by", no_wrap=True, min_width=18), *numbers)
    each = f"{topic.per_publication:.2f}" if topic.rate else "-"
    row: list[RenderableType] = [
        topic.topic,
        Text(topic.mode, style),
        f"{topic.rate:,.0f}",
        f"{topic.between:,.0f}",
        each,
    ]
    if width >= WIDE:
        table.add_column("packets between clusters for each", no_wrap=True)
        row.append(Text(spark(topic.trend, 33), style))
    table.add_row(*row)
    return [table, Text(f"{loop.decider} decides; {loop.act}", QUIET, no_wrap=True, overflow="ellipsis")]


def _tallies(what: str, tallies: Sequence[TallyGlance], *, wide: bool) -> Table:
    """Topic groups with what is published, or paths (a path has no publications of its own)."""
    published = what == "topics"
    columns = [Column(what, no_wrap=True, min_width=13)]
    if published:
        columns += [_number("published"), _number("/s", 5)]
    columns += [_number("delivered", 9), _number("/s", 5), _number("p50"), _number("p99")]
    if wide:
        columns.append(Column("deliveries/s", no_wrap=True))
    table = _table(*columns)
    for tally in tallies:
        row: list[RenderableType] = [Text(f"city/+/{tally.name}" if published else tally.name, _style(tally))]
        if published:
            row += [f"{tally.published:,}", f"{tally.published_rate:,.0f}"]
        row += [f"{tally.delivered:,}", f"{tally.delivered_rate:,.0f}"]
        row += [milliseconds(tally.p50), milliseconds(tally.p99)]
        if wide:
            row.append(Text(spark(tally.trend, 36), GROUP_STYLES.get(tally.name, "")))
        table.add_row(*row)
    return table


def _style(tally: TallyGlance) -> str:
    return BAD if tally.wrong else GROUP_STYLES.get(tally.name, "")


def _beside(*tables: Table) -> Table:
    grid = Table.grid(*(Column() for _ in tables), padding=(0, 4))
    grid.add_row(*tables)
    return grid


def _subscribers(subscribers: Sequence[SubscriberGlance]) -> Table:
    table = _table(
        Column("subscriber", no_wrap=True, min_width=20),
        Column("at", no_wrap=True, min_width=3),
        Column("MQTT", no_wrap=True, min_width=5),
        _number("QoS", 3),
        _number("expected"),
        _number("delivered", 9),
        Column("filters", no_wrap=True, overflow="ellipsis", ratio=1),
    )
    for subscriber in subscribers:
        counts = (f"{subscriber.expected:,}", f"{subscriber.delivered:,}")
        style = BAD if subscriber.wrong else "" if subscriber.subscribed else QUIET
        about = (subscriber.broker, subscriber.protocol, str(subscriber.qos))
        filters = Text(subscriber.filters, QUIET)
        table.add_row(Text(subscriber.name, style), *about, *counts, filters, style=style)
    return table


def _news(glance: Glance, most: int) -> Text:
    """The latest `most` pieces of news, one line each."""
    lines = (f"{at:4.0f} s  {text}" for at, text in glance.news[-most:])
    return Text("\n".join(lines), QUIET, no_wrap=True, overflow="ellipsis")


def _totals(glance: Glance) -> Text:
    total = glance.total
    text = Text(no_wrap=True, overflow="ellipsis")
    for part, style in _total_parts(glance, total):
        text.append(part + "  ", style)
    return text


def _total_parts(glance: Glance, total: TallyGlance) -> Iterator[tuple[str, str]]:
    yield f"published {total.published:,}", "bold"
    yield f"delivered {total.delivered:,}", "bold"
    yield f"in flight {total.expected - total.delivered:,}", ""
    yield f"duplicated {glance.duplicated:,}", BAD if glance.duplicated else GOOD
    yield f"disorder {glance.out_of_order:,}", BAD if glance.out_of_order else GOOD
