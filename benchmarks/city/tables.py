"""The samples as Markdown tables, one for each group of rows and place of its subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.city.brokers import BASE
from benchmarks.city.kept import Kept, Party, Result
from benchmarks.city.ours import SAPS
from benchmarks.city.rows import NAMES, SUITE, Row
from benchmarks.summary import Spread, ratios, spread

TITLES = {
    "telemetry": "1,000 publishers with a topic each; 1 subscriber to `#`, or 10 by district with `+`",
    "pairs": "500 publishers to 500 subscribers",
    "gateway": "One connection publishes for 1,000 topics in random order, with MQTT 5 properties, to 10 subscribers "
    "whose filters overlap",
    "display": "One topic to many",
    "commands": "One publisher to 1,000 devices with persistent sessions, a random one for each message",
    "open": "Latency in the open loop, at half of what Mosquitto carries",
    "saturated": "Saturated: one publisher with 1,000 messages under way, payloads of 150 to 250 bytes",
    "features": "What a feature costs",
    "emq": "EMQ's open benchmark suite, scaled to two processors",
}
"""The groups, as headings."""

NOTES = {
    "features": "The same traffic by a plain SAPS and one with the feature; x is against the plain one. Of the "
    "tree the brokers count, not the switches ([on Open vSwitch](lab-traffic.md)).",
    "emq": "; ".join(f"*{name}*: {said}" for name, said in SUITE.items()) + ". At a nominal rate all peers deliver the "
    "same, so the processor time is what differs. Of connections, a delivery is a CONNACK. "
    "The kernel counts processor time in steps of 10 ms, so at these rates differences below a tenth mean nothing.",
}
"""What a reader must know to read a group's table."""

HEAD = (
    "row",
    "peer",
    "CPU µs/delivery (user + system)",
    "x {base} (min - max)",
    "deliveries/s",
    "x {base} (min - max)",
)
TAIL = ("lost", "doubled", "generator CPU")
TIMES = ("p50 ms", "p99 ms", "p99.9 ms")


def base_of(row: Row) -> str:
    """Whom the others are compared with in this row."""
    return SAPS if row.group == "features" else BASE


def cpu_ratios(kept: Kept, row: str, peer: str, base: str) -> list[float]:
    """Processor time for a delivery, of the peer over the base, round by round."""
    return _ratios(kept, row, peer, base, lambda result: result.cpu)


def speed_ratios(kept: Kept, row: str, peer: str, base: str) -> list[float]:
    """Deliveries a second, of the peer over the base, round by round."""
    return _ratios(kept, row, peer, base, lambda result: result.speed)


def _ratios(kept: Kept, row: str, peer: str, base: str, value: Callable[[Result], float]) -> list[float]:
    mine, other = kept.results(row, peer), kept.results(row, base)
    rounds = sorted(mine.keys() & other.keys())
    return ratios([value(mine[n]) or None for n in rounds], [value(other[n]) for n in rounds])


def shown(found: Sequence[float]) -> str:
    """A median with the least and the greatest, or nothing."""
    if not found:
        return ""
    values: Spread = spread(found)
    return f"{values.median:.2f} ({values.low:.2f} - {values.high:.2f})"


def tables(kept: Kept) -> Iterator[str]:
    """All lines."""
    for group, title in TITLES.items():
        for between in (False, True):
            rows = [row for row in NAMES.values() if row.group == group and row.between == between]
            rows = [row for row in rows if any(s.row == row.name for s in kept.samples)]
            if rows:
                yield from ("", f"### {title}{', between brokers' if between else ''}", "")
                if group in NOTES:
                    yield from (NOTES[group], "")
                yield from table(kept, rows)


def table(kept: Kept, rows: Sequence[Row]) -> Iterator[str]:
    """The rows of one table, all of one group. Then those who are not in it, with the reason."""
    timed = rows[0].group == "open"
    head = [*HEAD, *(TIMES if timed else ()), *TAIL]
    yield "| " + " | ".join(title.format(base=base_of(rows[0])) for title in head) + " |"
    yield "|---|---" + "|---:" * (len(head) - 2) + "|"
    for row in rows:
        for party in _parties(kept, row):
            yield "| " + " | ".join((row.name, party, *_figures(kept, row, party, timed))) + " |"
    for (peer, why), names in _missing(kept, rows).items():
        which = "all rows" if len(names) == len(rows) else ", ".join(names)
        yield "| " + " | ".join((which, peer, why, *[""] * (len(head) - 3))) + " |"


def _parties(kept: Kept, row: Row) -> list[str]:
    order = {party.name: place for place, party in enumerate(kept.parties)}
    found = {s.peer for s in kept.samples if s.row == row.name}
    return sorted(found, key=lambda name: order.get(name, len(order)))


def _figures(kept: Kept, row: Row, peer: str, timed: bool) -> tuple[str, ...]:
    samples = kept.of(row.name, peer)
    results: list[Result] = [s.result for s in samples if s.result is not None]
    faults = [s.fault for s in samples if s.fault]
    width = len(HEAD) + len(TAIL) + (len(TIMES) if timed else 0) - 2
    if not results:
        return (f"failed: {faults[0].replace('|', '/')}", *[""] * (width - 1))
    base = base_of(row)
    compared = peer != base
    cells = [
        _cpu(results),
        shown(cpu_ratios(kept, row.name, peer, base)) if compared else "",
        f"{spread([r.speed for r in results]).median:,.0f}",
        shown(speed_ratios(kept, row.name, peer, base)) if compared else "",
    ]
    if timed:
        cells += [_milliseconds([getattr(r, name) for r in results]) for name in ("p50", "p99", "p999")]
    lost = str(sum(r.lost for r in results))
    said = [r.faults for r in results if r.faults]
    if faults:
        said = [f"{len(faults)} of {len(samples)} failed: {faults[0]}", *said]
    own = spread([(r.generator_user + r.generator_system) / r.seconds for r in results]).median
    return (*cells, "; ".join([lost, *said[:1]]).replace("|", "/"), str(sum(r.doubled for r in results)), f"{own:.0%}")


def _cpu(results: Sequence[Result]) -> str:
    counted = [r for r in results if r.deliveries]
    if not counted:
        return "nothing was delivered"
    user, system = (
        spread([getattr(r, kind) / r.deliveries * 1e6 for r in counted]).median for kind in ("user", "system")
    )
    return f"{spread([r.cpu for r in counted]).median:.2f} ({user:.2f} + {system:.2f})"


def _milliseconds(values: Sequence[float]) -> str:
    return f"{spread(values).median * 1e3:.2f}"


def _missing(kept: Kept, rows: Sequence[Row]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    names = {row.name for row in rows}
    for row, peer, why in kept.refusals:
        if row in names:
            found.setdefault((peer, why), []).append(row)
    return found


def described(party: Party) -> str:
    """A peer in a line."""
    if party.version is None:
        return f"{party.name}: not measured, {party.why or 'it is not installed'}."
    return f"{party.name} {party.version}: {party.settings}.".replace(" -:", ":")
