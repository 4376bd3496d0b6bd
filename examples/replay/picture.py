"""The replay as a table and as a curve. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.common.drawing import COLOURS, Axes, Picture
from examples.common.program import Result
from examples.replay.tape import Tape

PLAYED, ARRIVED = COLOURS[5], COLOURS[0]


class Heard(msgspec.Struct, frozen=True):
    """One receiver. Latencies in milliseconds."""

    name: str
    broker: str
    topics: int
    right: int
    """Messages that came in their place."""
    missing: int
    again: int
    strange: int
    p50: float | None
    p99: float | None


class Outcome(Result, kw_only=True):
    """What came of the replay, or of a recording."""

    tape: str
    messages: int
    """On the tape, as `topics` and `seconds`."""
    topics: int
    seconds: float
    note: str = ""
    """What was recorded."""
    speed: float = 1.0
    played: int = 0
    late_p99: float | None = None
    """Milliseconds by which the players were behind the tape's time."""
    heard: list[Heard] = []
    on_tape: list[int] = []
    """Messages in each second of the tape."""
    as_played: list[int] = []
    """The same as they were played, in seconds of the tape."""


def per_second(times: list[float]) -> list[int]:
    """How many fall into each second."""
    seconds = Counter(int(at) for at in times)
    return [seconds[second] for second in range(max(seconds, default=-1) + 1)]


def about(tape: Tape, name: str) -> Outcome:
    """What is on a tape."""
    times = [message.at for message in tape.messages]
    return Outcome(
        tape=name,
        messages=len(tape.messages),
        topics=len(tape.topics),
        seconds=round(tape.seconds, 1),
        note=tape.note,
        on_tape=per_second(times),
    )


def render(outcome: Outcome) -> RenderableType:
    """The result for people."""
    title = Text(
        f"{outcome.tape}: {outcome.messages:,} messages on {outcome.topics} topics in {outcome.seconds:.0f} s", "bold"
    )
    title.append(f"; {outcome.note}" if outcome.note else "")
    if not outcome.heard:
        return title
    shown = Table(
        "receiver at", "topics", "in place", "missing", "again", "strange", "p50 ms", "p99 ms", box=SIMPLE_HEAD
    )
    for each in outcome.heard:
        latencies = ("-" if value is None else f"{value:.1f}" for value in (each.p50, each.p99))
        counts = (each.topics, each.right, each.missing, each.again, each.strange)
        shown.add_row(each.broker, *(f"{count:,}" for count in counts), *latencies)
    behind = "" if outcome.late_p99 is None else f", 99 % of them at most {outcome.late_p99:.0f} ms behind the tape"
    lines = [Text(f"{outcome.played:,} messages played {outcome.speed:g} times as fast{behind}.", "dim")]
    if not outcome.problems:
        lines.append(Text("Every message came once, in its topic's order, without a gap.", "green"))
    return Group(title, shown, *lines)


def draw(outcome: Outcome) -> Picture:
    """Messages a second, on the tape and as they were played."""
    picture = Picture(640, 320, "Replay of recorded traffic")
    most = max([*outcome.on_tape, *outcome.as_played, 1])
    axes = Axes(picture, (60, 60, 460, 210), (0, max(len(outcome.on_tape), len(outcome.as_played), 2)), (0, most * 1.1))
    axes.frame("seconds of the tape", "messages", "Messages in each second of the tape")
    for series, colour, label, dash in (
        (outcome.on_tape, PLAYED, "", ""),
        (outcome.as_played, ARRIVED, "", "5 4"),
    ):
        axes.curve([(second + 0.5, float(count)) for second, count in enumerate(series)], colour, label, dash)
    picture.text(530, 80, "as recorded", size=11, colour=PLAYED)
    picture.text(530, 98, f"as played, {outcome.speed:g} x", size=11, colour=ARRIVED)
    return picture
