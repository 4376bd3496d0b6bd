"""The goals, and which of them the samples meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.city.brokers import BASE
from benchmarks.city.kept import Kept
from benchmarks.city.ours import OWN, SAPS, features
from benchmarks.city.rows import NAMES, Row
from benchmarks.city.tables import cpu_ratios, speed_ratios
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


def _city(row: Row) -> bool:
    return row.group in CITY


FEATURES = tuple(broker.name for broker in features(OWN)[1:])

GOALS: tuple[Goal, ...] = (
    Goal("CPU at most Mosquitto's, every row on one broker", lambda r: _city(r) and not r.between, most=1.0),
    Goal(
        "CPU 0.7 of Mosquitto's in telemetry, QoS 0 (aim)",
        lambda r: r.group == "telemetry" and not r.qos and not r.between,
        most=0.7,
    ),
    Goal(
        "CPU at most 0.25 of Mosquitto's in display with 10 and more",
        lambda r: r.group == "display" and not r.between and not r.name.startswith("display-1-"),
        most=0.25,
    ),
    Goal("CPU at most half of the bridge's between brokers", lambda r: _city(r) and r.between, most=0.5),
    Goal("Saturated 1:1, QoS 0: 13 times the deliveries", lambda r: r.name == "saturated-1-q0", least=13.0),
    Goal("Saturated 1:10, QoS 0: 50 times the deliveries", lambda r: r.name == "saturated-10-q0", least=50.0),
    Goal("Saturated 1:1, QoS 1: 7 times the deliveries", lambda r: r.name == "saturated-1-q1", least=7.0),
    *(
        Goal(f"{name}: CPU at most 1.5 of plain", lambda r: r.group == "features", most=1.5, base=SAPS, peers=(name,))
        for name in FEATURES
    ),
)


CALLS = {"single, remote": 60, "batch, a property": 20}
"""Most calls for a publication, by the rows of `benchmarks.calls`."""


def goals(kept: Kept) -> Iterator[str]:
    """The lines of the table."""
    yield "| goal | met | rows | figures |"
    yield "|---|---|---:|---|"
    for goal in GOALS:
        yield "| " + " | ".join((goal.said, *_judged(kept, goal))) + " |"
    for name, most in CALLS.items():
        found = [(f"QoS {qos}", calls <= most, f"{calls:.0f}") for said, qos, calls in kept.calls if said == name]
        yield "| " + " | ".join((f"Calls of project functions, {name}: at most {most}", *_verdict(found))) + " |"
    yield "| " + " | ".join(("Deliveries a second ahead of every other broker, every row", *_ahead(kept))) + " |"
    yield "| " + " | ".join(("Nothing lost, doubled or wrong by SAPS, every row", *_whole(kept))) + " |"


def _judged(kept: Kept, goal: Goal) -> tuple[str, str, str]:
    found: list[tuple[str, float]] = []
    for row in filter(goal.rows, NAMES.values()):
        for peer in goal.peers:
            values = (cpu_ratios if goal.most is not None else speed_ratios)(kept, row.name, peer, goal.base)
            if values:
                found.append((row.name, spread(values).median))
    return _verdict([(name, _met(goal, value), f"{value:.2f}") for name, value in found])


def _met(goal: Goal, value: float) -> bool:
    return value <= goal.most if goal.most is not None else value >= (goal.least or 0.0)


def _verdict(found: Sequence[tuple[str, bool, str]]) -> tuple[str, str, str]:
    """Of rows: name, whether it is met, and the figure."""
    if not found:
        return "not measured", "0", ""
    missed = [f"{name} {value}" for name, met, value in found if not met]
    if missed:
        return "**missed**", f"{len(found) - len(missed)} of {len(found)}", "missed: " + ", ".join(missed)
    return "met", f"{len(found)} of {len(found)}", ", ".join(f"{name} {value}" for name, _, value in found)


def _ahead(kept: Kept) -> tuple[str, str, str]:
    found: list[tuple[str, bool, str]] = []
    others = [p.name for p in kept.parties if not p.name.startswith(SAPS) and p.name != "floor"]
    for row in filter(lambda r: _city(r) or r.group == "saturated", NAMES.values()):
        values = {peer: speed_ratios(kept, row.name, SAPS, peer) for peer in others}
        medians = {peer: spread(value).median for peer, value in values.items() if value}
        if medians:
            closest = min(medians, key=lambda peer: medians[peer])
            found.append((row.name, medians[closest] > 1.0, f"{medians[closest]:.2f} of {closest}"))
    return _verdict(found)


def _whole(kept: Kept) -> tuple[str, str, str]:
    found: list[tuple[str, bool, str]] = []
    for row in NAMES:
        samples = [s for s in kept.samples if s.row == row and s.peer.startswith(SAPS)]
        if samples:
            results = [s.result for s in samples if s.result is not None]
            bad = sum(r.lost + r.doubled + r.wrong + r.refused for r in results)
            failed = len(samples) - len(results)
            found.append((row, not bad and not failed, f"{bad} messages, {failed} failed" if bad or failed else "0"))
    met, count, figures = _verdict(found)
    return met, count, figures if met != "met" else "0 in all"
