"""The measurements as tables: for the terminal, and as Markdown for docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from rich.table import Table

from benchmarks.machine import Machine
from benchmarks.peers import BASE
from benchmarks.runs import Measurement, Plan
from benchmarks.scenarios import PAYLOAD, VARY, WINDOW, Scenario
from benchmarks.summary import Broadcast, ratios, spread

HEADERS = (
    "scenario",
    "peer",
    "median",
    "min - max",
    "x {base}",
    "(min - max)",
    "broker CPU",
    "generator CPU",
    "what is acknowledged outlives",
    "lost",
)
"""`{base}` is the peer the others are compared with."""


Show = Callable[[float], str]
"""How a value is written."""


class Contender(msgspec.Struct, frozen=True):
    """A peer as it was measured."""

    name: str
    version: str | None
    """None: missing on this machine, so not measured."""
    settings: str
    outlives: str = ""
    """What a message that was acknowledged to its publisher outlives, where brokers are compared that differ in it."""


class Report(msgspec.Struct, frozen=True):
    """Everything of one run; what `--json` writes."""

    date: str
    command: str
    machine: Machine
    plan: Plan
    peers: list[Contender]
    measurements: list[Measurement]
    base: str = BASE
    """The peer the others are compared with."""

    def headers(self) -> tuple[str, ...]:
        """HEADERS with the name of that peer."""
        return tuple(header.format(base=self.base) for header in HEADERS)


class Row(NamedTuple):
    """One scenario of one peer, summed up; the cells are text in the order of HEADERS."""

    scenario: str
    group: str
    peer: str
    cells: tuple[str, ...]

    @property
    def compact(self) -> str:
        """Median, multiple of the base with its spread, and what was lost, in one cell."""
        median, _, ratio, spreading = self.cells[2:6]
        lost = self.cells[-1]
        said = f"{median.removesuffix('/s')} ({spreading})" if ratio else median.removesuffix("/s")
        return said if lost in ("", "0") else f"{said}, lost: {lost}"


def rows(report: Report, scenarios: Sequence[Scenario]) -> Iterator[Row]:
    """The rows of the table: scenarios in their order, and in each the peers in theirs."""
    for scenario in scenarios:
        base = values_of(report, scenario, report.base)
        for peer in report.peers:
            if any(m.scenario == scenario.name and m.peer == peer.name for m in report.measurements):
                cells = (scenario.name, peer.name, *_figures(report, scenario, peer, base))
                yield Row(scenario.name, scenario.group, peer.name, cells)


def _of(report: Report, scenario: Scenario, peer: str) -> list[Measurement]:
    found = [m for m in report.measurements if m.scenario == scenario.name and m.peer == peer]
    return sorted(found, key=lambda m: m.round)


def values_of(report: Report, scenario: Scenario, peer: str) -> list[float | None]:
    """One value a round; None where the measurement failed."""
    out: list[float | None] = [None] * report.plan.rounds
    for m in _of(report, scenario, peer):
        out[m.round] = scenario.value(m.outcome) if m.outcome else None
    return out


def _figures(report: Report, scenario: Scenario, peer: Contender, base: list[float | None]) -> tuple[str, ...]:
    measured = _of(report, scenario, peer.name)
    outcomes = [m.outcome for m in measured if m.outcome is not None]
    if not outcomes:
        return ("failed", *[""] * (len(HEADERS) - 3))
    values = values_of(report, scenario, peer.name)
    show = _per_second
    own = spread([value for value in values if value is not None])
    relative = ratios(values, base) if peer.name != report.base else []
    return (
        show(own.median),
        _range(own, show),
        f"{spread(relative).median:.2f}" if relative else "",
        _range(spread(relative), lambda ratio: f"{ratio:.2f}") if relative else "",
        f"{spread([o.broker_cpu for o in outcomes]).median:.0%}",
        f"{spread([o.generator_cpu for o in outcomes]).median:.0%}",
        peer.outlives,
        _losses(measured, outcomes),
    )


def _losses(measured: Sequence[Measurement], outcomes: Sequence[object]) -> str:
    lost = sum(m.outcome.lost for m in measured if m.outcome)
    repeated = sum(m.outcome.repeated for m in measured if m.outcome)
    parts = [str(lost)]
    if repeated:
        parts.append(f"{repeated} repeated")
    if failed := len(measured) - len(outcomes):
        parts.append(f"{failed} of {len(measured)} rounds failed")
    return ", ".join(parts)


def _range(values: Broadcast, show: Show) -> str:
    return f"{show(values.low)} - {show(values.high)}"


def _per_second(value: float) -> str:
    return f"{value:,.0f}/s"


def faults(report: Report) -> list[str]:
    """One line for each measurement that failed."""
    return [f"{m.scenario}, {m.peer}, round {m.round + 1}: {m.fault}" for m in report.measurements if m.fault]


def terminal_table(report: Report, scenarios: Sequence[Scenario]) -> Table:
    """All rows, for rich."""
    table = Table(title=f"median of {report.plan.rounds} rounds, payloads of {PAYLOAD} bytes (mixed: +-{VARY})")
    found = list(rows(report, scenarios))
    used = _used(found)
    for i in used:
        table.add_column(report.headers()[i], justify="left" if i < 2 else "right", overflow="fold")
    last = ""
    for row in found:
        if last and row.scenario != last:
            table.add_section()
        first = "" if row.scenario == last else row.scenario
        table.add_row(first, *(row.cells[i] for i in used[1:]))
        last = row.scenario
    return table


def origin(date: str, command: str, machine: Machine) -> list[str]:
    """Where figures come from: the first lines of a section."""
    return [
        f"Measured on {date} by `{command}`.",
        "",
        f"- Machine: {machine.processors} processors ({machine.processor}), {machine.memory_gib} GiB, "
        f"{machine.system}, Linux {machine.kernel}, Python {machine.python}; loopback only.",
    ]


def markdown(report: Report, scenarios: Sequence[Scenario]) -> str:
    """The section of docs/performance.md: a line for each scenario, a column for each peer."""
    plan = report.plan
    found = list(rows(report, scenarios))
    names = list(dict.fromkeys(row.peer for row in found))
    outlives = {peer.name: peer.outlives for peer in report.peers}
    cells = {(row.scenario, row.peer): row.compact for row in found}
    lines = [
        *origin(report.date, report.command, report.machine),
        f"- {_placement(plan)} {plan.rounds} rounds by turns, each measurement on a fresh broker: {plan.warm_up:g} s "
        f"to warm up, {plan.measure:g} s measured. MQTT 3.1.1, {WINDOW} messages of each publisher under way unless "
        f"the scenario says otherwise. Noise: {_noise(report)} of a processor in the median measurement, "
        f"{_noise(report, worst=True)} in the worst.",
        f"- Deliveries a second, median; in brackets the multiple of *{report.base}*, least and greatest.",
        *(f"- {described(peer)}" for peer in report.peers),
        "",
        f"| scenario | {' | '.join(names)} |",
        "|---" + "|---:" * len(names) + "|",
        f"| what is acknowledged outlives | {' | '.join(outlives[name] for name in names)} |",
        *(
            f"| {scenario} | {' | '.join(cells.get((scenario, name), '') for name in names)} |"
            for scenario in dict.fromkeys(row.scenario for row in found)
        ),
    ]
    if failed := faults(report):
        lines += ["", *(f"- failed: {fault}" for fault in failed)]
    return "\n".join(lines) + "\n"


def _placement(plan: Plan) -> str:
    if plan.pin:
        return "Broker (or both brokers) on the first processor, generator on the others, for all peers alike."
    return "No process is bound to a processor."


def described(peer: Contender) -> str:
    """What was measured, in a line."""
    if peer.version is None:
        return f"{peer.name}: not installed, not measured."
    return f"{peer.name} {peer.version}: {peer.settings}.".replace(" -:", ":")


def _noise(report: Report, *, worst: bool = False) -> str:
    shares = [m.outcome.foreign_cpu for m in report.measurements if m.outcome and m.outcome.seconds]
    if not shares:
        return "an unknown part"
    return f"{spread(shares).high if worst else spread(shares).median:.0%}"


def _used(found: Sequence[Row]) -> list[int]:
    """The columns in which any of the rows has something."""
    return [i for i in range(len(HEADERS)) if any(row.cells[i] for row in found)]
