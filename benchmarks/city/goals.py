"""The goals, and which of them the samples meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.city.brokers import BASE
from benchmarks.city.kept import Kept
from benchmarks.city.ours import OWN, SAPS, features
from benchmarks.city.rows import NAMES, Row
from benchmarks.city.tables import ahead, cpu_ratios, speed_ratios
from benchmarks.summary import spread

CITY = ("telemetry", "pairs", "gateway", "display", "commands")

Choice = Callable[[Row], bool]


class Goal(NamedTuple):
    """A bound on the ratio of a peer to a base in some rows."""

    said: str
    rows: Choice
    most: float | None = None
    """Of processor time for a delivery."""
    least: float | None = None
    """Of deliveries a second."""
    base: str = BASE
    peers: tuple[str, ...] = (SAPS,)
    why: str = ""
    """Where it is missed: where the time goes."""


class Figure(NamedTuple):
    """One row under a goal."""

    row: str
    met: bool
    value: float
    said: str


def _city(row: Row) -> bool:
    return row.group in CITY


FEATURES = tuple(broker.name for broker in features(OWN)[1:])
WHY = {
    "SAPS, OpenFlow tree": "a datagram of few messages is sealed, sent, returned and opened elsewhere: 170 calls, not "
    "53; compiled a fifth less",
    "SAPS, tracing 1 %": "0.8 ms for each traced message, two brokers together: OpenTelemetry takes 19 to 30 µs for a "
    "span, 35 to encode it",
}

GOALS: tuple[Goal, ...] = (
    Goal(
        "CPU at most Mosquitto's, on one broker",
        lambda r: _city(r) and not r.between,
        most=1.0,
        why="with one message under way the kernel's wake, read, write and sleep are most of it; SAPS adds 2 to 12 µs "
        "to C, half of them in the event loop and in making objects; commands-q1 also notes each message in "
        "the journal of a session that lasts, and strikes it out again",
    ),
    Goal(
        "CPU 0.7 of Mosquitto's: telemetry, QoS 0 (aim)",
        lambda r: r.group == "telemetry" and not r.qos and not r.between,
        most=0.7,
        why="half of the time is the kernel's reads",
    ),
    Goal(
        "CPU at most 0.25 of Mosquitto's: display with 10 and more",
        lambda r: r.group == "display" and not r.between and not r.name.startswith("display-1-"),
        most=0.25,
        why="with one message under way each subscriber costs a write of its own, which is the kernel's; met with 10",
    ),
    Goal(
        "CPU at most 0.5 of the bridge's, between brokers",
        lambda r: _city(r) and r.between,
        most=0.5,
        why="a message that comes by itself wakes two brokers, whose caches are cold as they take turns on one "
        "processor, in commands-q1 three times for the copy of a session that lasts, which a bridge does not make; met "
        "with 100 under way, or 10 and as many subscribers",
    ),
    Goal(
        "13 times the deliveries: saturated 1:1, QoS 0",
        lambda r: r.name == "saturated-1-q0",
        least=13.0,
        why="each message is cut out of its read, checked and copied, 0.3 µs more than the floor",
    ),
    Goal(
        "50 times the deliveries: saturated 1:10, QoS 0",
        lambda r: r.name == "saturated-10-q0",
        least=50.0,
        why="the generator carries little more (floor)",
    ),
    Goal(
        "7 times the deliveries: saturated 1:1, QoS 1",
        lambda r: r.name == "saturated-1-q1",
        least=7.0,
        why="two thirds make and free Python objects, a batch for each message",
    ),
    *(
        Goal(
            f"CPU at most 1.5 of plain: {name.removeprefix('SAPS, ')}",
            lambda r: r.group == "features",
            most=1.5,
            base=SAPS,
            peers=(name,),
            why=WHY.get(name, ""),
        )
        for name in FEATURES
    ),
)


CALLS = {"single, remote": 60, "batch, a property": 20}
"""Most calls for a publication, by the rows of `benchmarks.calls`."""
SHOWN = 3
"""Rows that are named where a goal is missed."""


def goals(kept: Kept) -> Iterator[str]:
    """The lines of the table."""
    yield "| goal (against Mosquitto) | met | worst rows | floor in missed rows | why missed |"
    yield "|---|---:|---|---:|---|"
    for goal in GOALS:
        missed = "least" if goal.least is not None else "most"
        yield _line(kept, goal.said, _figures(kept, goal), goal.why, missed)
    for name, most in CALLS.items():
        calls = [Figure(f"QoS {qos}", n <= most, n, f"{n:.0f}") for said, qos, n in kept.calls if said == name]
        why = "a PUBACK at each end and an answer between the brokers are three more packets, each with its read"
        yield _line(kept, f"Calls at most {most}: {name}", calls, why)
    why = "one processor is full: as above"
    yield _line(kept, "Deliveries a second ahead of every other broker", _ahead(kept), why, "least")
    yield _line(kept, "SAPS loses, duplicates and changes nothing", _whole(kept), "")


def _figures(kept: Kept, goal: Goal) -> list[Figure]:
    found: list[Figure] = []
    for row in filter(goal.rows, NAMES.values()):
        for peer in goal.peers:
            values = (cpu_ratios if goal.most is not None else speed_ratios)(kept, row.name, peer, goal.base)
            if values:
                value = spread(values).median
                met = value <= goal.most if goal.most is not None else value >= (goal.least or 0.0)
                found.append(Figure(row.name, met, value, f"{value:.2f}"))
    return found


def _line(kept: Kept, goal: str, found: Sequence[Figure], why: str, worse: str = "most") -> str:
    """The goal, the rows that meet it, the worst, what no broker could be below there, and why some are missed."""
    if not found:
        return f"| {goal} | not measured | | | |"
    missed = [figure for figure in found if not figure.met]
    worst = sorted(missed or found, key=lambda figure: figure.value, reverse=worse == "most")[: SHOWN if missed else 1]
    ratios = cpu_ratios if worse == "most" else speed_ratios
    floors = [value for figure in missed for value in ratios(kept, figure.row, "floor", BASE)]
    floor = f"{min(floors):.2f}-{max(floors):.2f}" if floors else ""
    count = f"{len(found) - len(missed)} of {len(found)}"
    named = ", ".join(f"{figure.row} {figure.said}" for figure in worst)
    return f"| {goal} | {f'**{count}**' if missed else count} | {named} | {floor} | {why if missed else ''} |"


def _ahead(kept: Kept) -> list[Figure]:
    return [
        Figure(row.name, closest[0] > 1.0, closest[0], f"{closest[0]:.2f} of {closest[1]}")
        for row in NAMES.values()
        if (_city(row) or row.group == "saturated") and (closest := ahead(kept, row.name))
    ]


def _whole(kept: Kept) -> list[Figure]:
    found: list[Figure] = []
    for row in NAMES:
        samples = [s for s in kept.samples if s.row == row and s.peer.startswith(SAPS)]
        if samples:
            results = [s.result for s in samples if s.result is not None]
            bad = sum(r.lost + r.doubled + r.wrong + r.refused for r in results)
            failed = len(samples) - len(results)
            said = f"{bad} messages, {failed} failed" if bad or failed else "0"
            found.append(Figure(row, not bad and not failed, bad + failed, said))
    return found
