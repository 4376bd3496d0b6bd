"""The run as a table and as curves of free places. Pure."""

from __future__ import annotations

from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.common.drawing import COLOURS, QUIET, Axes, Picture
from examples.common.program import Result
from examples.parking.town import PARKS
from examples.parking.web import WebPage


class Outcome(Result, kw_only=True):
    """What came of the run."""

    seconds: float
    drivers: int
    parked: int
    refused: int
    """Drivers whom all car parks have told that they are full."""
    requests: int
    repeated: int
    """Requests that came once more, and got the place that they had."""
    by_worker: dict[str, int]
    """Requests that each worker has answered."""
    killed: str | None
    killed_at: float | None
    seen: dict[str, list[tuple[float, int]]]
    """Free places of each car park, with the time, as a Web page has seen them."""


def board(page: WebPage) -> Table:
    """The signs now."""
    shown = Table("car park", "free", "", box=SIMPLE_HEAD, show_edge=False)
    for park in PARKS:
        free = page.free(park)
        taken = "" if free is None else "█" * (park.places - free) + "░" * free
        shown.add_row(park.name, "-" if free is None else str(free), Text(taken, "blue"))
    return shown


def render(outcome: Outcome) -> RenderableType:
    """The result for people."""
    shown = Table("drivers", "parked", "refused", "requests", "came twice", box=SIMPLE_HEAD, show_edge=False)
    shown.add_row(
        str(outcome.drivers),
        str(outcome.parked),
        str(outcome.refused),
        str(outcome.requests),
        str(outcome.repeated),
    )
    workers = ", ".join(f"{name} {count}" for name, count in outcome.by_worker.items())
    lines = [Text(f"Requests answered by {workers}.", "dim")]
    if outcome.killed_at is not None:
        lines.append(Text(f"Broker {outcome.killed} was killed after {outcome.killed_at:.1f} s.", "dim"))
    if not outcome.problems:
        lines.append(Text("Every place was sold once, every driver and every sign knows the truth.", "green"))
    return Group(shown, *lines)


def draw(outcome: Outcome) -> Picture:
    """The free places through the run."""
    picture = Picture(760, 330, "Parking guidance: free places")
    most = max(park.places for park in PARKS)
    end = max([outcome.seconds, *(at for seen in outcome.seen.values() for at, _ in seen)])
    axes = Axes(picture, (60, 60, 580, 220), (0, end), (0, most))
    axes.frame("seconds", "free places", "Free places, as a Web page has seen the retained counts")
    if outcome.killed_at is not None:
        x, top = axes.at(outcome.killed_at, most)
        picture.line([(x, top), (x, axes.at(0, 0)[1])], "#c92a2a", 1.5, "4 3")
        picture.text(x + 5, top + 10, f"{outcome.killed} is killed", size=11, colour="#c92a2a")
    for n, park in enumerate(PARKS):
        seen = [(max(0.0, at), float(free)) for at, free in outcome.seen.get(park.name, [])]
        steps = [(at, last) for (_, last), (at, _) in pairwise(seen)]
        corners = [point for pair in zip(seen, steps, strict=False) for point in pair] + seen[-1:]
        axes.curve([*corners, *((end, free) for _, free in seen[-1:])], COLOURS[n])
        if seen:
            picture.text(650, 70 + 16 * n, park.name, size=11, colour=COLOURS[n])
    picture.text(650, 140, f"{outcome.parked} parked", size=11, colour=QUIET)
    picture.text(650, 156, f"{outcome.refused} refused", size=11, colour=QUIET)
    return picture
