"""docs/performance.md, written whole; only the words between its markers are kept."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.city.goals import goals
from benchmarks.city.kept import Kept
from benchmarks.city.tables import described, tables
from benchmarks.report import origin
from benchmarks.section import replace_section

WORDS = "words"
"""The section that is written by hand."""
NOTHING_SAID = "Nothing has been said yet about the goals that are missed."


def words_of(page: str) -> str:
    """What stands between the markers of a page, or that nothing does. Raises ValueError."""
    begin, end = f"<!-- {WORDS}:begin -->", f"<!-- {WORDS}:end -->"
    _, found, rest = page.partition(begin)
    if not found:
        return NOTHING_SAID
    words, closed, _ = rest.partition(end)
    if not closed:
        raise ValueError(f"the page has {begin} without {end}")
    return words.strip()


def page(kept: Kept, words: str) -> str:
    """The whole page."""
    noise = [s.result.foreign / s.result.seconds for s in kept.samples if s.result is not None]
    middle, worst = (statistics.median(noise), max(noise)) if noise else (0.0, 0.0)
    placed = (
        "The broker, or both brokers, run on the first processor and the generator on the second, for all peers alike."
        if kept.pinned
        else "No process is bound to a processor."
    )
    head = [
        "# Performance",
        "",
        "What a message costs where traffic looks like a city's: many devices with a topic each, gateways, displays, "
        "commands. Judge a broker by the processor time of all its processes for a delivery: that figure holds on a "
        "machine that is shared. This page is written by one command; "
        "[benchmarks/](../benchmarks/README.md) says how it measures.",
        "",
        *origin(kept.date, kept.command, kept.machine),
        f"- {placed}",
        f"- {kept.rounds} rounds, each sample on a fresh broker: {kept.warm:g} s to warm up, {kept.seconds:g} s "
        "measured. The peers take turns. Ratios are taken round by round: median, least, greatest. NATS, rumqttd, "
        "amqtt, aedes, ejabberd, the floor and SAPS as pure Python take part in the first round only, "
        "unless `--full` was given.",
        "- Payloads have 60 to 400 random bytes unless a row says otherwise. Every client has a TCP connection of its "
        "own. In the closed loop a message is under way until all its deliveries have come, and with QoS 1 its PUBACK "
        "too; *w10* in a row's name: 10 messages under way.",
        "- *lost* and *doubled* are counted by sequence numbers over all rounds, from the first message after the "
        "paths were there until nothing more came.",
        f"- Noise: other processes and the hypervisor took {middle:.0%} of a processor in the median sample, "
        f"{worst:.0%} in the worst.",
        "- The generator is one C program; its own share of a processor stands in each row. The floor's rows show what "
        "it can carry.",
        "",
        *(f"- {described(party)}" for party in kept.parties),
        "",
        "## Goals",
        "",
        *goals(kept),
    ]
    body = "\n".join(head) + "\n"
    return replace_section(body, WORDS, words) + "\n## Rows\n" + "\n".join([*tables(kept), *_calls(kept)]) + "\n"


def _calls(kept: Kept) -> list[str]:
    """The table of calls, if they were counted."""
    if not kept.calls:
        return []
    return [
        "",
        "### Calls of project functions for a publication",
        "",
        "Counted by `benchmarks.calls` in two simulated brokers, from the read to the last write, acknowledgements "
        "included. A batch is 50 publications in one read, to 7 topics.",
        "",
        "| publication | QoS | calls |",
        "|---|---:|---:|",
        *(f"| {name} | {qos} | {calls:.1f} |" for name, qos, calls in kept.calls),
    ]


def write(kept: Kept, path: Path) -> None:
    """Write the page, with the words that are there. Raises OSError, ValueError."""
    words = words_of(path.read_text()) if path.exists() else NOTHING_SAID
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(kept, words))
