"""What runs have shown: as JSON, as tables, and as a section of docs/reliability.md. Several runs add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill

import msgspec

from benchmarks.chaos.account import Count, Incident
from benchmarks.chaos.run import Outcome, Traffic
from benchmarks.chaos.schedule import WHAT, Kind
from benchmarks.machine import Machine

COUNTS = (
    "QoS",
    "published",
    "delivered",
    "lost",
    "duplicated",
    "out of order",
    "not owed: lost",
    "not owed: duplicated",
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


def together(results: Sequence[Result]) -> Outcome:
    """The sum of at least one run."""
    outcomes = [result.outcome for result in results]
    found: dict[int, Count] = {}
    for count in (count for outcome in outcomes for count in outcome.counts):
        total = found.setdefault(count.qos, Count(qos=count.qos))
        for field in Count.__struct_fields__[1:]:
            setattr(total, field, getattr(total, field) + getattr(count, field))
    return Outcome(
        seconds=round(sum(outcome.seconds for outcome in outcomes), 1),
        counts=[found[qos] for qos in sorted(found)],
        incidents=[incident for outcome in outcomes for incident in outcome.incidents],
        sessions_lost=sum(outcome.sessions_lost for outcome in outcomes),
        not_recovered=[each for outcome in outcomes for each in outcome.not_recovered],
        never_came=any(outcome.never_came for outcome in outcomes),
        details=[detail for outcome in outcomes for detail in outcome.details],
        places=dict(sum((Counter(outcome.places) for outcome in outcomes), Counter())),
        tree_topics=sum(outcome.tree_topics for outcome in outcomes),
        by_tree=sum(outcome.by_tree for outcome in outcomes),
    )


def count_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """The cells under `COUNTS`: one row for each QoS, and one for all."""
    fields = Count.__struct_fields__[1:]
    for c in outcome.counts:
        yield (str(c.qos), *(f"{getattr(c, field):,}" for field in fields))
    yield ("all", *(f"{sum(getattr(c, field) for c in outcome.counts):,}" for field in fields))


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
    return (f"{len(incidents):,}", *("-" if value is None else f"{value:.2f} s" for value in shown))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The least value that at least this share of all does not exceed; None of none."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None


def verdict(outcome: Outcome) -> str:
    """One line."""
    words = [f"{len(outcome.incidents):,} faults in {outcome.seconds:,.0f} s"]
    words.append(f"sessions lost: {outcome.sessions_lost}")
    if outcome.tree_topics:
        share = 100 * outcome.by_tree / outcome.tree_topics
        words.append(f"{share:.0f} % of what was published to topics of OpenFlow multicast left by it")
    words += [f"lost from the {place} of a stream: {count}" for place, count in sorted(outcome.places.items()) if count]
    words += [f"not recovered: {each}" for each in outcome.not_recovered]
    if outcome.never_came:
        words.append("something that is owed has not come")
    words.append("all promises kept" if outcome.good else "PROMISES BROKEN")
    return "; ".join(words)


def markdown(results: Sequence[Result]) -> str:
    """The section, of at least one run."""
    outcome, first = together(results), results[0]
    machine = first.machine
    places = {"lab": "each on a host of a network of Open vSwitch switches", "loopback": "on loopback"}
    where = ", or ".join(text for place, text in places.items() if any(result.place == place for result in results))
    system = f"Linux {machine.kernel}, Python {machine.python}"
    brokers, takers, topics, rates = (
        " or ".join(f"{value:g}" for value in sorted(values))
        for values in (
            {result.brokers for result in results},
            {result.traffic.subscribers for result in results},
            {result.traffic.topics for result in results},
            {result.traffic.rate for result in results},
        )
    )
    lines = [
        *(
            fill(f"- `{result.command}`, {result.date}", 120, subsequent_indent="  ", break_on_hyphens=False)
            for result in results
        ),
        "",
        fill(
            f"{brokers} brokers in two clusters, {where}. At each broker {takers} subscribers and a publisher of each"
            f" QoS, with {topics} topic{'s'[: topics != '1']} and {rates} messages a second to each. All of it on"
            f" {machine.processors} processors ({machine.processor}), {system}.",
            120,
        ),
        "",
        fill(f"{verdict(outcome)}.", 120),
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
