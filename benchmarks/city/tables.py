"""The samples as Markdown tables: one for each group, one line for each row, one column for each peer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.city.brokers import BASE, LEFT_OUT
from benchmarks.city.kept import Kept, Party, Result
from benchmarks.city.ours import SAPS
from benchmarks.city.rows import NAMES, SUITE, Row
from benchmarks.summary import ratios, spread

TITLES = {
    "telemetry": "telemetry: 1,000 publishers with a topic each; 1 subscriber to `#`, or 10 by district with `+`",
    "pairs": "pairs: 500 publishers to 500 subscribers",
    "gateway": "gateway: one connection publishes for 1,000 topics in random order, with MQTT 5 properties, to 10 "
    "subscribers whose filters overlap",
    "display": "display: one topic to 1, 10, 100 and 1,000 subscribers",
    "commands": "commands: one publisher to 1,000 devices with persistent sessions, a random one for each message",
    "open": "Open loop, at half of what Mosquitto carries",
    "saturated": "Saturated: one publisher with 1,000 messages under way, payloads of 150 to 250 bytes",
    "features": "What a feature costs",
    "emq": "EMQ's open benchmark suite, scaled to two processors",
}
"""The groups, as headings."""

NOTES = {
    "open": "Cells: latency from the moment a message was due, p50 / p99 / p99.9, ms; *x* is processor time.",
    "features": "Against a plain SAPS. Of the tree the brokers count, not the switches "
    "([on Open vSwitch](lab-traffic.md)).",
    "emq": "; ".join(f"*{name}*: {said}" for name, said in SUITE.items()) + ". At a nominal rate all deliver the "
    "same; the kernel counts in steps of 10 ms, so differences below a tenth mean nothing.",
}
"""What a reader must know to read a group's table."""


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
    values = spread(found)
    return f"{values.median:.2f} ({values.low:.2f}-{values.high:.2f})"


def ahead(kept: Kept, row: str) -> tuple[float, str] | None:
    """Deliveries a second of SAPS over those of the fastest other broker, and which one that is."""
    others = [party.name for party in kept.parties if not party.name.startswith(SAPS) and party.name != "floor"]
    found = {peer: speed_ratios(kept, row, SAPS, peer) for peer in others}
    return min(((spread(values).median, peer) for peer, values in found.items() if values), default=None)


def tables(kept: Kept) -> Iterator[str]:
    """All lines."""
    for group, title in TITLES.items():
        rows = [row for row in NAMES.values() if row.group == group and any(s.row == row.name for s in kept.samples)]
        if rows:
            yield from ("", f"### {title}", "")
            if group in NOTES:
                yield from (NOTES[group], "")
            yield from table(kept, rows)


def table(kept: Kept, rows: Sequence[Row]) -> Iterator[str]:
    """The rows of one group, then what has failed in them."""
    base, group = base_of(rows[0]), rows[0].group
    there = {s.peer for row in rows for s in kept.samples if s.row == row.name}
    names = [party.name for party in kept.parties if party.name in there]
    compared = [name for name in names if name != base] if group == "features" else [SAPS] * (SAPS in names)
    head = [*names, *(f"x {base}: {_short(name)}" for name in compared)]
    fastest = group not in ("open", "features", "emq")
    head += ["x the fastest other, deliveries"] * fastest + ["bad", "gen"]
    yield f"|row|{'|'.join(map(_short, head))}|"
    yield f"|---{'|---:' * len(head)}|"
    for row in rows:
        cells = [_cell(kept, row, name) for name in names]
        cells += [shown(cpu_ratios(kept, row.name, name, base)) for name in compared]
        if fastest:
            found = ahead(kept, row.name)
            cells.append(f"{found[0]:.2f} {found[1]}" if found else "")
        yield f"|{'|'.join((row.name, *cells, _bad(kept, row, names), _generator(kept, row)))}|"
    faults = {(s.row, s.peer, s.fault) for row in rows for s in kept.samples if s.row == row.name and s.fault}
    if faults:
        yield from ("", *(f"- {row}, {peer}, failed: {why}" for row, peer, why in sorted(faults)))


def _short(name: str) -> str:
    return name.removeprefix("SAPS, ")


def _cell(kept: Kept, row: Row, peer: str) -> str:
    results = list(kept.results(row.name, peer).values())
    if not results:
        return "failed" if kept.of(row.name, peer) else ""
    if row.group == "open":
        return "/".join(
            f"{spread([getattr(r, name) for r in results]).median * 1e3:.2f}" for name in ("p50", "p99", "p999")
        )
    delivering = [result.cpu for result in results if result.deliveries]
    if not delivering:
        return "nothing delivered"
    return f"{spread(delivering).median:.2f}/{spread([r.speed for r in results]).median / 1e3:.1f}"


def _bad(kept: Kept, row: Row, names: Sequence[str]) -> str:
    """Who has lost or doubled how many, or not done what it should."""
    said: list[str] = []
    for name in names:
        results = list(kept.results(row.name, name).values())
        lost, doubled = sum(r.lost for r in results), sum(r.doubled for r in results)
        faults = [r.faults for r in results if r.faults]
        if lost or doubled or faults:
            said.append(" ".join((f"{_short(name)} {lost}+{doubled}", *faults[:1])))
    return "; ".join(said) or "0"


def _generator(kept: Kept, row: Row) -> str:
    shares = [
        (s.result.generator_user + s.result.generator_system) / s.result.seconds
        for s in kept.samples
        if s.row == row.name and s.result is not None and s.peer != "floor"
    ]
    return f"{max(shares):.0%}" if shares else ""


def refused(kept: Kept) -> Iterator[str]:
    """Who is not in a row, and why, but for those left out to save time."""
    found: dict[tuple[str, str], list[str]] = {}
    for row, peer, why in kept.refusals:
        if why != LEFT_OUT:
            found.setdefault((peer, why), []).append(row)
    if found:
        yield from ("", "### Not in a row", "")
    for (peer, why), names in found.items():
        groups = list(dict.fromkeys(NAMES[name].group for name in names if name in NAMES))
        yield f"- {peer} ({', '.join(groups) if len(groups) < len(TITLES) - 1 else 'all'}): {why}."


def described(party: Party) -> str:
    """A peer in a line."""
    if party.version is None:
        return f"{party.name}: not measured, {party.why or 'it is not installed'}."
    return f"{party.name} {party.version}: {party.settings}.".replace(" -:", ":")
