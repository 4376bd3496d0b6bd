"""What comes of it: how late each alert was, with priority and without, as a table and as a picture. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.common.drawing import COLOURS, QUIET, Axes, Picture
from examples.common.program import Result
from examples.smart_city.latency import percentile

HERE, THERE = "tokyo", "osaka"
"""The cities: alerts are given in the first."""
CALM, LOADED = "calm", "full"
"""The way: when an alert was given."""
TOPICS = {True: "alert/quake", False: "notice/quake"}
"""With priority, and without."""
NAMES = {True: f"{TOPICS[True]} (priority)", False: f"{TOPICS[False]} (the same words, without)"}


class Arrival(NamedTuple):
    """An alert at a siren."""

    city: str
    priority: bool
    number: int
    at: float
    """When it was given, seconds from the beginning."""
    late: float
    """Seconds it took."""


class Times(msgspec.Struct, frozen=True):
    """Of the alerts at the sirens of one city, in milliseconds."""

    city: str
    priority: bool
    way: str
    """`CALM` or `LOADED`."""
    alerts: int
    p50: float
    p99: float
    most: float


class Emergency(Result, kw_only=True):
    """One run."""

    world: str
    trees: bool
    """The alert topic used OpenFlow multicast in both cities."""
    given: tuple[int, int]
    """Alerts with priority, and the same without."""
    arrivals: list[Arrival]
    load: tuple[float, float]
    """Seconds from the beginning between which the cameras sent."""
    pictures: int
    archived: int
    """Pictures that had come to the archive."""
    megabits: float | None
    """That the way carried a second while the cameras sent, where that is counted."""

    def judged(self) -> Emergency:
        """The same, with what is wrong: an alert that a siren did not get, got twice, or after a later one."""
        for city in sorted({arrival.city for arrival in self.arrivals}):
            for (priority, name), given in zip(NAMES.items(), self.given, strict=True):
                wanted = set(range(1, given + 1))
                got = [each.number for each in self.arrivals if (each.city, each.priority) == (city, priority)]
                if lost := wanted - set(got):
                    self.problems.append(f"{city}: {len(lost)} of {name} did not come")
                if len(set(got)) < len(got):
                    self.problems.append(f"{city}: {len(got) - len(set(got))} of {name} came twice")
                if got != sorted(got):
                    self.problems.append(f"{city}: {name} came out of order")
        if not self.arrivals:
            self.problems.append("no alert came to any siren")
        return self

    def times(self) -> list[Times]:
        """By city, topic, and how the way was."""
        found: dict[tuple[str, bool, str], list[float]] = {}
        for each in self.arrivals:
            way = LOADED if self.load[0] <= each.at < self.load[1] else CALM
            found.setdefault((each.city, not each.priority, way), []).append(1000 * each.late)
        rows = []
        for (city, ordinary, way), late in sorted(found.items()):
            late.sort()
            p50, p99 = (percentile(late, percent) or 0.0 for percent in (50, 99))
            rows.append(Times(city, not ordinary, way, len(late), round(p50, 1), round(p99, 1), round(late[-1], 1)))
        return rows


def render(result: Emergency) -> RenderableType:
    """The table."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in ("siren in", "topic", "the way was"):
        table.add_column(name, no_wrap=True)
    for name in ("came", "p50 ms", "p99 ms", "most ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.times():
        style = "bold" if row.priority and row.way == LOADED else ""
        table.add_row(
            row.city,
            TOPICS[row.priority],
            row.way,
            f"{row.alerts}",
            *(f"{value:,.1f}" for value in (row.p50, row.p99, row.most)),
            style=style,
        )
    by = "along an OpenFlow tree in each city, one message between them" if result.trees else "from broker to broker"
    carried = "" if result.megabits is None else f", {result.megabits:.1f} Mbit/s of which the way carried"
    return Group(
        Text.assemble((" SAPS emergency ", "bold white on red"), f"  {result.world}"),
        Text(f"Alerts go {by}. Cameras sent {result.pictures:,} pictures{carried}."),
        Text(),
        table,
    )


def draw(result: Emergency) -> Picture:
    """How late each alert was in the other city, over the time at which it was given."""
    picture = Picture(720, 330, "How late alerts are, with and without priority")
    there = [each for each in result.arrivals if each.city == THERE]
    end = max([each.at for each in there] + [result.load[1], 1.0])
    box = (60.0, 50.0, 620.0, 220.0)
    axes = Axes(picture, box, (0, end), (0, max([each.late for each in there] + [0.1])))
    (left, _), (right, _) = axes.at(result.load[0], 0), axes.at(result.load[1], 0)
    picture.rectangle(left, box[1], right - left, box[3], "#fff3bf")
    picture.text((left + right) / 2, box[1] + 14, "cameras fill the way", size=11, colour=QUIET, anchor="middle")
    axes.frame("given at, s", "seconds until it is heard", f"Alerts from {HERE}, heard in {THERE}")
    for priority, colour in ((False, COLOURS[1]), (True, COLOURS[0])):
        points = [(each.at, each.late) for each in there if each.priority is priority]
        axes.curve(points, colour)
        for point in points:
            axes.dot(*point, colour, 2.5)
    for place, (priority, colour) in enumerate(((True, COLOURS[0]), (False, COLOURS[1]))):
        picture.circle(70 + 260 * place, 316, 4, colour)
        picture.text(80 + 260 * place, 320, NAMES[priority], size=11)
    return picture
