"""Replays a synthetic day under several policies, and reports the bytes between clusters and the changes of trees.

Run it by ``python -m monitoring.decisions.replay --help``.

The trees decided after one window carry the traffic of the next. The job's policy is compared with three others: ALM
only; the topics with the most messages first; and a clairvoyant, which knows the next window's traffic and pays nothing
for changes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from monitoring.counts.features import sites_of
from monitoring.counts.synthetic import City, city, columns, traffic
from monitoring.decisions.table import Judged, decide
from monitoring.forecasts.forecast import HOUR
from monitoring.forecasts.vector import JUDGED, TOPICS, epoch_of
from monitoring.selection.network import Network, Room
from monitoring.selection.score import HEADER
from monitoring.selection.selection import Calm, Candidate, Held, select
from monitoring.settings import Rules

Windows = Mapping[str, list[Any]]


@dataclass(slots=True)
class Way:
    """A policy and its results."""

    name: str
    trees: set[str] = field(default_factory=set)
    carried: list[float] = field(default_factory=list)
    """Bytes between clusters in each window."""
    changes: list[int] = field(default_factory=list)
    """Trees built or dropped after each window."""

    def carry(self, seen: Windows) -> None:
        """Carry the traffic of a window by the present trees."""
        total = 0.0
        for topic, messages, size, up, far in zip(
            seen["topic"], seen["messages"], seen["bytes"], seen["up"], seen["far"], strict=True
        ):
            packet = size / messages + HEADER
            total += packet * (up + far if topic in self.trees else 2 * far)
        self.carried.append(total)

    def turn(self, trees: set[str]) -> None:
        """Replace the trees, and count the changes."""
        self.changes.append(len(trees ^ self.trees))
        self.trees = trees


def saving_of(seen: Windows) -> dict[str, float]:
    """Return the bytes between clusters that a tree would have saved, for each topic with a saving."""
    return {
        topic: (size / messages + HEADER) * (far - up)
        for topic, messages, size, up, far in zip(
            seen["topic"], seen["messages"], seen["bytes"], seen["up"], seen["far"], strict=True
        )
        if far > up
    }


def clairvoyant(seen: Windows, network: Network) -> set[str]:
    """Return the topics of the best trees for a window, chosen by that window's traffic."""
    saving, places = saving_of(seen), dict(zip(seen["topic"], seen["sites"], strict=True))
    candidates = [
        Candidate(topic, saved, 0.0, network.needs(sites_of(places[topic]))) for topic, saved in saving.items()
    ]
    return select(candidates, network, {}, 0, Calm(0.0, 0)).chosen


def most_messages(seen: Windows, network: Network) -> set[str]:
    """Return the topics with the most messages of a window, as many as fit the budgets."""
    spare: dict[str, Room] = {}
    chosen = set()
    ranked = sorted(zip(seen["messages"], seen["topic"], seen["sites"], strict=True), key=lambda row: (-row[0], row[1]))
    for _, topic, places in ranked:
        needs = network.needs(sites_of(places))
        for switch in needs:
            spare.setdefault(switch, network.budget(switch))
        if all(r.entries <= spare[s].entries and r.buckets <= spare[s].buckets for s, r in needs.items()):
            chosen.add(topic)
            for switch, room in needs.items():
                spare[switch] = Room(spare[switch].entries - room.entries, spare[switch].buckets - room.buckets)
    return chosen


class JobWay:
    """Runs the job's models and decisions without Spark."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._kept = pa.Table.from_pylist([], schema=pa.schema([*TOPICS, *JUDGED]))
        self._held: dict[str, Held] = {}

    def learn(self, seen: Windows, now: int) -> None:
        """Advance the models over a window that ended at `now` (ms since 1970). Topics with trees used them."""
        trees = {topic for topic, before in self._held.items() if before.tree}
        by_tree = [n if t in trees else 0 for t, n in zip(seen["topic"], seen["messages"], strict=True)]
        seen = {**seen, "by_tree": by_tree}
        self._kept = epoch_of(self._rules, now)(pa.table(dict(seen)), self._kept)

    def decide(self, now: int) -> set[str]:
        """Return the topics that have trees from `now` on (ms since 1970)."""
        names = list(Judged._fields)
        worth = (Judged(**row) for row in self._kept.select(names).to_pylist())
        listed = [row for row in worth if row.saving > row.cost or row.topic in self._held]
        table = decide(listed, self._held, self._rules.network, now, self._rules.calm)
        self._held = table.held(self._held, self._rules.calm)
        return set(table.trees)


def replay(place: City, rules: Rules, begin: int, days: int, ways: Mapping[str, Rules]) -> dict[str, Way]:
    """Replay `days` days after `begin` days of learning. Returns each policy by name.

    `ways` names further rules with which the job is replayed."""
    day = 24 * HOUR // place.length
    jobs = {name: JobWay(own) for name, own in {"job": rules, **ways}.items()}
    found = {name: Way(name) for name in ("ALM only", *jobs, "most messages first", "clairvoyant")}
    for number in range((begin + days) * day):
        seen = _plain(columns(place, traffic(place, number)))
        now = seen["start"][0] + place.length
        if number >= begin * day:
            found["clairvoyant"].turn(clairvoyant(seen, rules.network))
            for way in found.values():
                way.carry(seen)
        for name, job in jobs.items():
            job.learn(seen, now)
            if number >= begin * day - 1:
                found[name].turn(job.decide(now))
        if number >= begin * day - 1:
            found["most messages first"].turn(most_messages(seen, rules.network))
    return found


def _plain(found: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: column if isinstance(column, list) else column.tolist() for name, column in found.items()}


def figures(found: Mapping[str, Way], hours: float) -> list[dict[str, float | str]]:
    """Return a line for each policy.

    A line gives the bytes between clusters (GB), the share saved of ALM's, the share of the clairvoyant's saving, and
    the changed trees an hour. `hours` is the length of the replay."""
    alm, best = sum(found["ALM only"].carried), sum(found["clairvoyant"].carried)
    lines: list[dict[str, float | str]] = []
    for name, way in found.items():
        carried = sum(way.carried)
        lines.append(
            {
                "way": name,
                "GB": carried / 1e9,
                "saved": 1 - carried / alm,
                "of the clairvoyant": (alm - carried) / (alm - best),
                "changes/h": sum(way.changes[1:]) / hours,
            }
        )
    return lines


def main(argv: list[str] | None = None) -> None:
    """Replay a synthetic city's days and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.decisions.replay", description=__doc__)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--learn", type=int, default=7, metavar="DAYS")
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entries", type=int, default=150, help="flow entries of each switch; the core has four times")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(argv)
    room = Room(chosen.entries, chosen.entries)
    rules = Rules(network=Network(room, {"*core*": Room(4 * room.entries, 4 * room.buckets)}))
    ways = {
        "job, no hysteresis": replace(rules, calm=Calm(0.0, 0)),
        "job, 1 h ahead": replace(rules, pace=rules.pace._replace(horizon=1)),
        "job, 24 h ahead": replace(rules, pace=rules.pace._replace(horizon=24)),
    }
    place = city(chosen.topics, seed=chosen.seed)
    found = replay(place, rules, chosen.learn, chosen.days, ways)
    lines = figures(found, chosen.days * 24.0)
    for line in lines:
        print(
            "  ".join(f"{name} {value:.3f}" if isinstance(value, float) else str(value) for name, value in line.items())
        )
    if chosen.json is not None:
        series = {name: {"carried": way.carried, "changes": way.changes[1:]} for name, way in found.items()}
        chosen.json.write_text(json.dumps({"figures": lines, "series": series, "length": place.length}))


if __name__ == "__main__":
    main()
