"""What goes wrong, when, and for how long: drawn from a seed, so that a run can be had again. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

import msgspec

from saps.overlay.frames.framing import LOWEST_VERSION, VERSION


class Kind(StrEnum):
    """What can be done to a mesh, and to what moves its topics to OpenFlow."""

    KILL = "kill"
    PAUSE = "pause"
    FREEZE = "freeze"
    RESTART = "restart"
    DISK = "disk"
    CLOCK = "clock"
    REBOOT = "reboot"
    WIPE = "wipe"
    GONE = "gone"
    DAMAGE = "damage"
    BLACKOUT = "blackout"
    POWER = "power"
    BROKEN = "broken disk"
    SYNC = "slow disk"
    DATABASE = "database"
    STROBE = "strobe"
    DESCRIPTORS = "descriptors"
    GUEST = "guest"
    PARTITION = "partition"
    CUT = "cut"
    ONE_WAY = "one way"
    LOSS = "loss"
    MANGLE = "mangle"
    RING = "ring"
    SLOW = "slow"
    SWITCH = "switch"
    CONTROLLER = "controller"
    OFGATE = "ofgate"
    SPARK = "spark"


WHAT = {
    Kind.KILL: "`kill -9` of a broker; it is started again after 0 to 4 s",
    Kind.PAUSE: "SIGSTOP, and SIGCONT before anyone suspects the broker (0.2 to 0.7 s)",
    Kind.FREEZE: "SIGSTOP, and SIGCONT after it is considered dead (4 to 7 s)",
    Kind.RESTART: "rolling restart: SIGTERM of each broker in turn, and back, with each version of its protocol",
    Kind.DISK: "no block left on the disk of a broker's `storage.file` (1 to 3 s)",
    Kind.CLOCK: "the clock of a broker jumps, up to a day ahead or back, and back again (1 to 2 s)",
    Kind.REBOOT: "`kill -9` of a broker; it is started again with a clock that is up to a day ahead or behind",
    Kind.WIPE: "`kill -9` of a broker, and its disk is gone; it is started again after 0 to 4 s, with an empty one",
    Kind.GONE: "`kill -9` of a broker that never comes back, nor its disk; one with another name takes its place after"
    " 0 to 8 s",
    Kind.DAMAGE: "`kill -9` of a broker, and its storage is damaged: a bit flipped, a file cut in half or gone, a block"
    " copied over another; it is started again, after `saps storage repair` if it refuses",
    Kind.BLACKOUT: "`kill -9` of all brokers at once, and with `storage.sync = full` what their disks had not synced is"
    " gone; each is started again after 0 to 4 s of its own",
    Kind.POWER: "the same of one broker (0 to 4 s)",
    Kind.BROKEN: "writes and syncs of the disk of a broker's `storage.file` end with EIO (1 to 3 s)",
    Kind.SYNC: "each sync of that disk takes 0.05 to 0.4 s (2 to 5 s)",
    Kind.DATABASE: "`kill -9` of the PostgreSQL server of all brokers; it is started again after 0 to 4 s",
    Kind.STROBE: "the clock of a broker jumps to and fro each second (4 to 8 s)",
    Kind.DESCRIPTORS: "a broker gets no more descriptors, while clients and brokers connect (2 to 4 s)",
    Kind.GUEST: "a broker joins, stays for 1 to 4 s, and leaves in order or by `kill -9`",
    Kind.PARTITION: "nothing passes between the clusters (1 to 6 s)",
    Kind.CUT: "the same for 40 to 60 s",
    Kind.ONE_WAY: "nothing passes from one cluster to the other; the other way all does (1 to 5 s)",
    Kind.LOSS: "2 to 15 % of the packets from one cluster to the other are lost (2 to 4 s)",
    Kind.MANGLE: "of the packets from one cluster to the other 2 to 15 % are duplicated, as many late, and as many "
    "with a wrong bit (2 to 4 s)",
    Kind.RING: "each broker hears only its neighbours in a ring: the majorities of no two of them are the same (2 to 6"
    " s)",
    Kind.SLOW: "2 Mbit/s from one cluster to the other (2 to 4 s)",
    Kind.SWITCH: "a switch restarts with empty tables (out for 0 to 3 s)",
    Kind.CONTROLLER: "`kill -9` of the OpenFlow controller; it is started again after 0 to 3 s",
    Kind.OFGATE: "`kill -9` of OFGate; it is started again after 0 to 3 s",
    Kind.SPARK: "`kill -9` of the Spark job; it is started again at once",
}
LENGTH = {
    Kind.KILL: (0.0, 4.0),
    Kind.PAUSE: (0.2, 0.7),
    Kind.FREEZE: (4.0, 7.0),
    Kind.RESTART: (0.0, 0.0),
    Kind.DISK: (1.0, 3.0),
    Kind.CLOCK: (1.0, 2.0),
    Kind.REBOOT: (0.0, 2.0),
    Kind.WIPE: (0.0, 4.0),
    Kind.GONE: (0.0, 8.0),
    Kind.DAMAGE: (0.0, 4.0),
    Kind.BLACKOUT: (0.0, 4.0),
    Kind.POWER: (0.0, 4.0),
    Kind.BROKEN: (1.0, 3.0),
    Kind.SYNC: (2.0, 5.0),
    Kind.DATABASE: (0.0, 4.0),
    Kind.STROBE: (4.0, 8.0),
    Kind.DESCRIPTORS: (2.0, 4.0),
    Kind.GUEST: (1.0, 4.0),
    Kind.PARTITION: (1.0, 6.0),
    Kind.CUT: (40.0, 60.0),
    Kind.ONE_WAY: (1.0, 5.0),
    Kind.LOSS: (2.0, 4.0),
    Kind.MANGLE: (2.0, 4.0),
    Kind.RING: (2.0, 6.0),
    Kind.SLOW: (2.0, 4.0),
    Kind.SWITCH: (0.0, 3.0),
    Kind.CONTROLLER: (0.0, 3.0),
    Kind.OFGATE: (0.0, 3.0),
    Kind.SPARK: (0.0, 0.0),
}
"""Seconds from the fault to its repair, least and most. Detection takes 1 s (a broken link) or 1.5 s (silence)."""
LOSS = (0.02, 0.15)
"""Share of the packets that is lost, least and most."""
JUMP = (1.0, 86_400.0)
"""Seconds by which a clock jumps, least and most; small jumps are as frequent as large ones (log-uniform)."""
STALL = (0.05, 0.4)
"""Seconds a sync of a slow disk takes, least and most."""
BETWEEN = frozenset({Kind.PARTITION, Kind.CUT, Kind.ONE_WAY, Kind.LOSS, Kind.MANGLE, Kind.RING, Kind.SLOW})
"""What happens between clusters, and needs a network of one's own."""
OPENFLOW = frozenset({Kind.SWITCH, Kind.CONTROLLER, Kind.OFGATE, Kind.SPARK})
"""What happens to the programs and switches of OpenFlow multicast."""
ENDS = frozenset(
    {
        Kind.KILL,
        Kind.FREEZE,
        Kind.RESTART,
        Kind.DISK,
        Kind.REBOOT,
        Kind.WIPE,
        Kind.GONE,
        Kind.DAMAGE,
        Kind.POWER,
        Kind.BROKEN,
    }
)
"""What takes a broker, or its disk, away."""
DISKS = frozenset({Kind.WIPE, Kind.GONE, Kind.DAMAGE})
"""What takes the disk's content away, or some of it."""
VOLUMES = frozenset({Kind.DISK, Kind.POWER, Kind.BROKEN, Kind.SYNC})
"""What needs disks of one's own."""
FOR_ALL = frozenset({Kind.BLACKOUT, Kind.DATABASE})
"""What befalls all brokers at once."""
CLOCKS = frozenset({Kind.CLOCK, Kind.REBOOT, Kind.STROBE})
"""What needs a clock that can be set for one process."""
MOST = 4
"""Faults that overlap, at most."""
SPREAD = 2.0
"""Seconds within which those of one phase begin."""
QUARTER = 0.25
"""Share of the phases that have no faults."""
QUIET = 5.0
"""Seconds that these take."""
VERSIONS = (LOWEST_VERSION, VERSION)
"""Of the protocol between brokers: a rolling restart goes to the other one, if there are two."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One fault."""

    kind: Kind
    broker: str = ""
    """Its victim, or the switch; empty for what happens between clusters, and to what there is one of."""
    seconds: float = 0.0
    """Until it is repaired."""
    forth: bool = True
    """From the first cluster to the second, or back."""
    share: float = 0.0
    """Of the packets lost or mangled; of a slow disk the seconds of a sync."""
    jump: float = 0.0
    """Seconds that a clock is then ahead; behind if negative."""
    version: int = VERSIONS[-1]
    """Highest version that a restarted broker speaks."""
    draw: int = 0
    """From which the rest is drawn: which bit is flipped, who starts first."""
    calm: float = 1.0
    """Seconds of peace before it; in a phase of several, from its beginning."""


def steps(
    seed: int, brokers: Sequence[str], kinds: Collection[Kind], faults: int, switches: Sequence[str] = ()
) -> Iterator[Step]:
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
                victims = rng.sample(brokers, len(brokers))
            else:
                victims = [_victim(rng, kind, brokers, switches)]
            for victim in victims:
                yield _step(rng, kind, victim, version)
                done += 1


def singly(
    seed: int, brokers: Sequence[str], kinds: Collection[Kind], faults: int, switches: Sequence[str] = ()
) -> Iterator[list[Step]]:
    """Those of `steps`, one after the other."""
    for step in steps(seed, brokers, kinds, faults, switches):
        yield [step]


def phases(
    seed: int, brokers: Sequence[str], kinds: Collection[Kind], faults: int, switches: Sequence[str] = ()
) -> Iterator[list[Step]]:
    """At least `faults` steps in phases: a random subset at a time (after Jepsen), a quarter of the time none.

    Those of a phase have victims of their own. No two of them happen to the network between the clusters, none beside
    what befalls all brokers, and nothing that takes a broker away beside a wiped or damaged disk: three brokers have
    each session, and two disks that go at once are more than is promised."""
    rng = random.Random(seed)
    chosen, version, done = sorted(kinds), VERSIONS[-1], 0
    while done < faults:
        if rng.random() < QUARTER:
            yield []
            continue
        phase: list[Step] = []
        for kind in rng.sample(chosen, min(len(chosen), rng.randint(1, MOST))):
            free = [broker for broker in brokers if all(step.broker != broker for step in phase)]
            if not free or not _beside(kind, [step.kind for step in phase]):
                continue
            if kind is Kind.RESTART:
                version = VERSIONS[0] + VERSIONS[-1] - version
            step = _step(rng, kind, _victim(rng, kind, free, switches), version)
            phase.append(msgspec.structs.replace(step, calm=round(rng.uniform(0.1, SPREAD), 2)))
        done += len(phase)
        yield phase


def _beside(kind: Kind, others: Sequence[Kind]) -> bool:
    """May it happen together with these?"""
    both = {kind, *others}
    if not both.isdisjoint(FOR_ALL) or (
        not both.isdisjoint(DISKS) and sum(each in ENDS for each in (kind, *others)) > 1
    ):
        return not others
    return not (kind in BETWEEN and BETWEEN.intersection(others))


def _victim(rng: random.Random, kind: Kind, brokers: Sequence[str], switches: Sequence[str]) -> str:
    if kind is Kind.SWITCH:
        return rng.choice(switches)
    return "" if kind in BETWEEN | OPENFLOW | FOR_ALL else rng.choice(brokers)


def _share(rng: random.Random, kind: Kind) -> float:
    if kind is Kind.SYNC:
        return round(rng.uniform(*STALL), 3)
    return round(rng.uniform(*LOSS), 3) if kind in (Kind.LOSS, Kind.MANGLE) else 0.0


def _step(rng: random.Random, kind: Kind, broker: str, version: int) -> Step:
    jump = rng.choice((-1, 1)) * JUMP[0] * (JUMP[1] / JUMP[0]) ** rng.random()
    return Step(
        kind=kind,
        broker=broker,
        seconds=round(rng.uniform(*LENGTH[kind]), 2),
        forth=rng.random() < 0.5,
        share=_share(rng, kind),
        jump=round(jump, 1) if kind in CLOCKS else 0.0,
        version=version,
        draw=rng.getrandbits(32),
        calm=round(rng.uniform(0.1, 0.7), 2),
    )
