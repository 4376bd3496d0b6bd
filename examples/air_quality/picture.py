"""The run as a table and as a map of the districts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from examples.air_quality.air import DISTRICTS
from examples.air_quality.index import COLOURS, Level
from examples.air_quality.services import SILENT, Aggregate
from examples.common.drawing import GRID, INK, QUIET, Picture
from examples.common.program import Result

TILE, STRIP, LEFT = 108, 420, 24


class Outcome(Result, kw_only=True):
    """What city hall has at the end."""

    hours: dict[str, list[Aggregate]]
    status: dict[str, str]
    """Of each station, as a service that asks only now is told."""
    readings: int
    """Taken by the stations."""


def table(hours: Mapping[str, Sequence[Aggregate]], status: Mapping[str, str]) -> Table:
    """The districts, with their hours as a strip of colours."""
    shown = Table("district", "NO2", "PM2.5", "index", "stations", "hours", box=SIMPLE_HEAD, show_edge=False)
    for district in DISTRICTS:
        own = hours.get(district.name, ())
        if not own:
            shown.add_row(district.name)
            continue
        last = own[-1]
        silent = sum(status.get(station) == SILENT for station in district.stations)
        shown.add_row(
            district.name,
            *(f"{value:.1f}" if value is not None else "-" for value in last.means.values()),
            Text(Level(last.level).words, f"bold {COLOURS[Level(last.level)]}") if last.level else Text("?"),
            Text(f"{silent} silent", "bold red") if silent else "all",
            Text.assemble(*(("█", _colour(each)) for each in own[-40:])),
        )
    return shown


def render(outcome: Outcome) -> Table:
    """The result for people."""
    shown = table(outcome.hours, outcome.status)
    hours = sum(len(own) for own in outcome.hours.values())
    shown.caption = f"{outcome.readings:,} readings, {hours:,} hours of districts, each computed again: " + (
        "all as they should be" if not outcome.problems else "NOT as they should be"
    )
    return shown


def draw(outcome: Outcome) -> Picture:
    """The map at the end, with the stations; and the hours of each district."""
    picture = Picture(LEFT + 2 * TILE + 120 + STRIP + 24, 3 * TILE + 110, "Air quality of a made-up city")
    picture.text(LEFT, 28, "European Air Quality Index, last hour", size=13, bold=True)
    x = LEFT + 2 * TILE + 110
    picture.text(x, 28, "Hour by hour", size=13, bold=True)
    longest = max((len(own) for own in outcome.hours.values()), default=1)
    for district in DISTRICTS:
        own = outcome.hours.get(district.name, [])
        left, top = LEFT + district.column * TILE, 44 + district.row * TILE
        picture.rectangle(left, top, TILE - 6, TILE - 6, _colour(own[-1]) if own else GRID, round_=8)
        ink = "#ffffff" if own and (own[-1].level or 0) > Level.POOR else INK
        picture.text(left + 10, top + 22, district.name, bold=True, colour=ink)
        picture.text(left + 10, top + 40, _words(own), size=11, colour=ink)
        for n, station in enumerate(district.stations):
            silent = outcome.status.get(station) == SILENT
            picture.circle(left + 18 + 24 * n, top + TILE - 28, 7, "#ffffff" if silent else INK, INK)
        if any(outcome.status.get(station) == SILENT for station in district.stations):
            picture.text(left + 10 + 24 * len(district.stations), top + TILE - 24, "silent", size=11, colour=ink)
        y = 52 + (2 * district.row + district.column) * (TILE / 2)
        picture.text(x - 8, y + 22, district.name, size=11, colour=QUIET, anchor="end")
        for n, each in enumerate(own):
            picture.rectangle(x + n * STRIP / longest, y + 4, STRIP / longest + 0.3, TILE / 2 - 14, _colour(each))
    for hour in range(0, longest + 1, 6):
        picture.text(x + hour * STRIP / longest, 52 + 3 * TILE + 6, f"{hour} h", size=11, colour=QUIET, anchor="middle")
    for level in Level:
        at = LEFT + (level - 1) * 118
        picture.rectangle(at, 3 * TILE + 78, 14, 14, COLOURS[level], round_=3)
        picture.text(at + 20, 3 * TILE + 89, level.words, size=11)
    return picture


def _colour(said: Aggregate) -> str:
    return COLOURS[Level(said.level)] if said.level else GRID


def _words(own: Sequence[Aggregate]) -> str:
    return Level(own[-1].level).words if own and own[-1].level else "not known"
