"""Computes the room that a tree needs on each switch, and holds the switches' budgets.

The network is a star: each cluster has its own switch, and trees over several clusters meet in the core. The numbers
are those of `saps.ofm.flows.plan`: a flow entry for each link of the tree and each broker, and a bucket for each link
and each receiving broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from monitoring.counts.features import Site

CORE = "*core*"
"""Name of the switch where the clusters' links meet; no cluster can have this name."""


class Room(NamedTuple):
    """Numbers of flow entries and group buckets that a switch has or a tree needs."""

    entries: int = 0
    buckets: int = 0


Needs = dict[str, Room]
"""Room that a tree needs, by switch."""


ROOM = Room(1000, 10_000)
"""Default budget of a switch in `saps controller`."""


@dataclass(frozen=True, slots=True)
class Network:
    """The room that OFMs may use on each switch."""

    default: Room = ROOM
    budgets: Mapping[str, Room] = field(default_factory=dict)
    """Budget by the name of a switch or `CORE`, where it is not the default."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """Cluster -> name of its switch, where several clusters share a switch; elsewhere the name is the cluster's."""
    dpids: Mapping[str, str] = field(default_factory=dict)
    """Name of a switch, or `CORE` -> its datapath id at the controller, 16 hexadecimal digits."""

    def budget(self, switch: str) -> Room:
        """Return the budget of a switch."""
        return self.budgets.get(switch, self.default)

    def needs(self, sites: list[Site]) -> Needs:
        """Return the room that a tree for brokers at these sites needs; on one switch it needs nothing in the core."""
        brokers: dict[str, list[int]] = {}
        for site in sites:
            counts = brokers.setdefault(self.switches.get(site.cluster, site.cluster), [0, 0])
            counts[0] += site.members
            counts[1] += site.senders
        uplinks = int(len(brokers) > 1)
        needs = {
            switch: Room(uplinks + members + senders, uplinks + members)
            for switch, (members, senders) in brokers.items()
        }
        if uplinks:
            needs[CORE] = Room(len(brokers), len(brokers))
        return needs


def read_network(file: Path) -> Network:
    """Read a network from a JSON file.

    For example ``{"default": [1000, 10000], "budgets": {"tokyo": [50, 100]}, "switches": {"osaka": "w"},
    "dpids": {"tokyo": "0000000000000002"}}``. Raises OSError, and ValueError for a malformed file."""
    plain = json.loads(file.read_text())
    try:
        return Network(
            Room(*map(int, plain.get("default", Room(1000, 10_000)))),
            {name: Room(*map(int, room)) for name, room in plain.get("budgets", {}).items()},
            dict(plain.get("switches", {})),
            {name: str(dpid) for name, dpid in plain.get("dpids", {}).items()},
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{file} describes no network: {error}") from None


def parse_budget(text: str) -> tuple[str, Room]:
    """Parse a budget of entries and buckets: ``tokyo=50:100``, or ``50:100`` for all other switches.

    Returns the switch (empty for all others) and its room. Raises ValueError for any other text."""
    switch, _, room = text.rpartition("=")
    entries, separator, buckets = room.partition(":")
    if not (separator and entries.isdecimal() and buckets.isdecimal()):
        raise ValueError(f"{text!r} is no budget: SWITCH=ENTRIES:BUCKETS or ENTRIES:BUCKETS")
    return switch, Room(int(entries), int(buckets))
