"""What a run has shown: as JSON, as tables, and as a section of docs/reliability.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.chaos.account import Incident
from benchmarks.chaos.run import Outcome, Traffic
from benchmarks.chaos.schedule import WHAT, Kind
from benchmarks.machine import Machine

COUNTS = (
    "QoS",
    "published",
    "delivered",
    "lost",
    "doubled",
    "out of order",
    "not owed: lost",
    "not owed: doubled",
    "not owed: out of order",
)
FAULTS = ("fault", "times", "outage of others p50", "p99", "max", "all flows after p50", "max")


class Result(msgspec.Struct, frozen=True):
    """Everything of one run; what `--json` writes."""

    date: str
    command: str
    seed: int
    brokers: int
    place: str
    """``loopback`` or ``lab``."""
    traffic: Traffic
    machine: Machine
    outcome: Outcome


def count_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """The cells under `COUNTS`."""
    for c in outcome.counts:
        figures = (c.published, c.delivered, c.lost, c.doubled, c.disordered)
        unowed = (c.unowed_lost, c.unowed_doubled, c.unowed_disordered)
        yield (str(c.qos), *(f"{figure:,}" for figure in figures + unowed))


def fault_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """The cells under `FAULTS`: one row for each kind of fault, and one for all."""
    for kind in Kind:
        found = [incident for incident in outcome.incidents if incident.step.kind is kind]
        if found:
            yield (WHAT[kind], *_figures(found))
    yield ("all", *_figures(outcome.incidents))


def _figures(incidents: Sequence[Incident]) -> tuple[str, ...]:
    outages = sorted(outage for incident in incidents for outage in incident.outages)
    recoveries = sorted(incident.flowing - incident.repaired for incident in incidents)
    shown = [quantile(outages, share) for share in (0.5, 0.99, 1.0)]
    shown += [quantile(recoveries, share) for share in (0.5, 1.0)]
    return (str(len(incidents)), *("-" if value is None else f"{value:.2f} s" for value in shown))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The least value that at least this share of all does not exceed; None of none."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None


def verdict(outcome: Outcome) -> str:
    """One line."""
    words = [f"{len(outcome.incidents)} faults in {outcome.seconds:.0f} s"]
    words.append(f"sessions lost: {outcome.sessions_lost}")
    words += [f"not recovered: {each}" for each in outcome.not_recovered]
    if outcome.never_came:
        words.append("something that is owed has not come")
    words.append("all promises kept" if outcome.good else "PROMISES BROKEN")
    return "; ".join(words)


def markdown(result: Result) -> str:
    """The section."""
    outcome, machine = result.outcome, result.machine
    where = "each on a host of a network of Open vSwitch switches" if result.place == "lab" else "on loopback"
    system = f"Linux {machine.kernel}, Python {machine.python}"
    lines = [
        f"`{result.command}`, {result.date}: {result.brokers} brokers in two clusters, {where}. At each broker a"
        f" subscriber and a publisher of each QoS, at {result.traffic.rate:g} messages a second. All of it on"
        f" {machine.processors} processors ({machine.processor}), {system}.",
        "",
        f"{verdict(outcome)}.",
        "",
        *_table(COUNTS, count_rows(outcome)),
        "",
        *_table(FAULTS, fault_rows(outcome)),
    ]
    return "\n".join(lines)


def _table(headers: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(headers)} |"
    yield "|" + " --- |" + " ---: |" * (len(headers) - 1)
    for row in rows:
        yield f"| {' | '.join(row)} |"
