"""What goes wrong, when, and for how long: drawn from a seed, so that a run can be had again. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What can be done to a mesh."""

    KILL = "kill"
    PAUSE = "pause"
    FREEZE = "freeze"
    RESTART = "restart"
    DISK = "disk"
    PARTITION = "partition"
    ONE_WAY = "one way"
    LOSS = "loss"
    SLOW = "slow"


WHAT = {
    Kind.KILL: "`kill -9` of a broker; it is started again after 0 to 4 s",
    Kind.PAUSE: "SIGSTOP, and SIGCONT before anyone suspects the broker (0.2 to 0.7 s)",
    Kind.FREEZE: "SIGSTOP, and SIGCONT after it is taken for dead (4 to 7 s)",
    Kind.RESTART: "rolling restart: SIGTERM of each broker in turn, and back with another version of the protocol",
    Kind.DISK: "no block left on the disk of a broker's `storage.file` (2 to 4 s)",
    Kind.PARTITION: "nothing passes between the clusters (1 to 8 s)",
    Kind.ONE_WAY: "nothing passes from one cluster to the other; the other way all does (1 to 6 s)",
    Kind.LOSS: "2 to 15 % of the packets from one cluster to the other are lost (3 to 6 s)",
    Kind.SLOW: "2 Mbit/s from one cluster to the other (3 to 6 s)",
}
LENGTH = {
    Kind.KILL: (0.0, 4.0),
    Kind.PAUSE: (0.2, 0.7),
    Kind.FREEZE: (4.0, 7.0),
    Kind.RESTART: (0.0, 0.0),
    Kind.DISK: (2.0, 4.0),
    Kind.PARTITION: (1.0, 8.0),
    Kind.ONE_WAY: (1.0, 6.0),
    Kind.LOSS: (3.0, 6.0),
    Kind.SLOW: (3.0, 6.0),
}
"""Seconds from the fault to its repair, least and most. Detection takes 1 s (a broken link) or 1.5 s (silence)."""
LOSS = (0.02, 0.15)
"""Share of the packets that is lost, least and most."""
BETWEEN = frozenset({Kind.PARTITION, Kind.ONE_WAY, Kind.LOSS, Kind.SLOW})
"""What happens between clusters, and needs a network of one's own."""
VERSIONS = (1, 2)
"""Of the protocol between brokers: a rolling restart goes to the other one."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One fault."""

    kind: Kind
    broker: str = ""
    """Its victim; empty for what happens between clusters."""
    seconds: float = 0.0
    """Until it is repaired."""
    forth: bool = True
    """From the first cluster to the second, or back."""
    share: float = 0.0
    """Of the packets lost."""
    version: int = VERSIONS[-1]
    """Highest version that a restarted broker speaks."""
    calm: float = 1.0
    """Seconds of peace before it."""


def steps(seed: int, brokers: Sequence[str], kinds: Collection[Kind], faults: int) -> Iterator[Step]:
    """At least `faults` steps, a rolling restart being one for each broker. Every kind comes once a round, in another
    order each time; a rolling restart begins with a broker drawn at random, and ends when all have the new version."""
    rng = random.Random(seed)
    chosen, version, done = sorted(kinds), VERSIONS[-1], 0
    while done < faults:
        for kind in rng.sample(chosen, len(chosen)):
            if done >= faults:
                return
            if kind is Kind.RESTART:
                version = VERSIONS[0] + VERSIONS[-1] - version
                order = rng.sample(brokers, len(brokers))
            else:
                order = ["" if kind in BETWEEN else rng.choice(brokers)]
            for broker in order:
                yield _step(rng, kind, broker, version)
                done += 1


def _step(rng: random.Random, kind: Kind, broker: str, version: int) -> Step:
    return Step(
        kind=kind,
        broker=broker,
        seconds=round(rng.uniform(*LENGTH[kind]), 2),
        forth=rng.random() < 0.5,
        share=round(rng.uniform(*LOSS), 3) if kind is Kind.LOSS else 0.0,
        version=version,
        calm=round(rng.uniform(0.5, 1.5), 2),
    )
