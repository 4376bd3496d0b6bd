"""The run as a table, as a grid of junctions and as a curve. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.common.drawing import COLOURS, GRID, INK, QUIET, Axes, Picture
from examples.common.program import Result
from examples.traffic_lights.compare import Comparison
from examples.traffic_lights.street import COLUMNS, EAST_WEST, JUNCTIONS, ROWS, STEP, Junction, Street

ADAPTIVE, FIXED = COLOURS[0], COLOURS[1]
TILE = 84


class Outcome(Result, kw_only=True):
    """What came of the run, and of the same streets without a mesh."""

    steps: int
    """Each `STEP` seconds of the city."""
    vehicles: int
    messages: int
    """That the traffic office got."""
    max_pressure: float
    """Seconds of waiting for each vehicle: by the controllers on the mesh, as `fixed` by the fixed-time plan."""
    fixed: float
    waiting: list[int]
    """Vehicles in queues after each step, max pressure."""
    waiting_fixed: list[int]
    mean_queues: dict[str, float]
    """Vehicles at each junction, the mean over the run."""
    seeds: Comparison
    """Both plans on other days, computed without a mesh."""


def grid(street: Street, phases: dict[Junction, int]) -> RenderableType:
    """The city now: each junction's vehicles, and who has green."""
    shown = Table.grid(padding=(0, 3))
    for row in range(ROWS):
        cells = []
        for column in range(COLUMNS):
            vehicles = sum(street.lanes((row, column)))
            sign = "↔" if phases.get((row, column)) == EAST_WEST else "↕"
            style = "green" if vehicles < 20 else "yellow" if vehicles < 50 else "bold red"
            cells.append(Text.assemble((sign, "bold"), (f"{vehicles:4d}", style)))
        shown.add_row(*cells)
    title = f"step {street.step}, {street.step * STEP // 60} min of the city; {_mean(street)} s of waiting each"
    return Group(Text(title, "bold"), Text(), shown)


def _mean(street: Street) -> str:
    return f"{street.waited.mean:.1f}"


def render(outcome: Outcome) -> RenderableType:
    """The result for people."""
    shown = Table("waiting, s for each vehicle", "max pressure", "fixed time", "", box=SIMPLE_HEAD, show_edge=False)
    shown.add_row(
        f"this run, {outcome.steps * STEP / 60:.0f} min, {outcome.vehicles:,} vehicles",
        f"{outcome.max_pressure:.1f}",
        f"{outcome.fixed:.1f}",
        _change(outcome.max_pressure, outcome.fixed),
    )
    seeds = outcome.seeds
    shown.add_row(
        f"{seeds.seeds} other seeds, mean ± standard deviation",
        f"{seeds.max_pressure:.1f} ± {seeds.max_pressure_spread:.1f}",
        f"{seeds.fixed:.1f} ± {seeds.fixed_spread:.1f}",
        f"{_change(seeds.max_pressure, seeds.fixed)}, less with {seeds.wins} of {seeds.seeds}",
    )
    verdict = "Every junction decided at every step as it does without a mesh in between."
    return Group(shown, Text(f"{outcome.messages:,} messages at the traffic office.", "dim"), *_if(outcome, verdict))


def _if(outcome: Outcome, verdict: str) -> Sequence[Text]:
    return () if outcome.problems else (Text(verdict, "green"),)


def _change(adaptive: float, fixed: float) -> str:
    return f"{100 * (adaptive / fixed - 1):+.0f} %" if fixed else ""


def draw(outcome: Outcome) -> Picture:
    """The waiting vehicles through the run, and where they waited."""
    picture = Picture(900, 330, "Adaptive traffic lights")
    hours = outcome.steps * STEP / 60
    top = max([*outcome.waiting, *outcome.waiting_fixed, 1])
    axes = Axes(picture, (60, 60, 340, 220), (0, hours), (0, top))
    axes.frame("minutes", "vehicles", "Vehicles that wait")
    for series, colour, label in (
        (outcome.waiting_fixed, FIXED, "fixed time"),
        (outcome.waiting, ADAPTIVE, "max pressure"),
    ):
        axes.curve([(n * STEP / 60, float(value)) for n, value in enumerate(series)], colour, label)
    picture.text(510, 34, "Where they wait under max pressure", size=13, bold=True)
    most = max(outcome.mean_queues.values(), default=1) or 1
    for junction, (name, mean) in zip(JUNCTIONS, outcome.mean_queues.items(), strict=True):
        x, y = 550 + junction[1] * TILE, 90 + junction[0] * TILE * 0.85
        for step in (1, 0):
            if junction[step] < (COLUMNS if step else ROWS) - 1:
                picture.line([(x, y), (x + TILE * step, y + TILE * 0.85 * (1 - step))], GRID, 10)
        picture.circle(x, y, 8 + 20 * (mean / most) ** 0.5, ADAPTIVE)
        picture.text(x, y + 4, f"{mean:.0f}", size=11, colour="#ffffff", anchor="middle", bold=True)
        picture.text(x + 26, y - 16, name, size=11, colour=QUIET)
    picture.text(550, 318, "mean queue of each junction, vehicles", size=11, colour=INK)
    return picture
