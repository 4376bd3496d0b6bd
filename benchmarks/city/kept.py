"""The samples of a run: saved after each one, so that an interrupted run can go on."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from benchmarks.machine import Machine


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What the generator counted. Times in seconds; all but `lost` and what follows it until `given_up` are of the
    measured time, those of the whole run."""

    seconds: float
    messages: int
    deliveries: int
    lost: int
    doubled: int
    disordered: int
    """Came after a later one of their topic; allowed between topics only, but counted for shared groups too."""
    wrong: int
    """Were not what was published."""
    refused: int
    """PUBACKs that say no."""
    unacknowledged: int
    given_up: int
    """Held a publisher up for so long that it went on without them."""
    user: float
    """Processor time of all processes of the broker or brokers."""
    system: float
    generator_user: float
    generator_system: float
    foreign: float
    """Processor time of all others, and what the hypervisor took away: noise."""
    p50: float
    """Of the latency from the moment a message was due; 0 in a closed loop."""
    p99: float
    p999: float

    @property
    def cpu(self) -> float:
        """Microseconds of the broker's processor time for each delivery; 0 without deliveries."""
        return (self.user + self.system) / self.deliveries * 1e6 if self.deliveries else 0.0

    @property
    def speed(self) -> float:
        """Deliveries a second."""
        return self.deliveries / self.seconds

    @property
    def faults(self) -> str:
        """What is wrong besides losses and doubles, or nothing."""
        found = {"wrong": self.wrong, "refused": self.refused, "unacknowledged": self.unacknowledged}
        return ", ".join(f"{count} {kind}" for kind, count in found.items() if count)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One peer in one row and one round: a result, or why there is none."""

    row: str
    peer: str
    round: int
    result: Result | None = None
    fault: str = ""
    rate: float = 0.0
    """Messages a second that were offered; 0 in a closed loop."""


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """A peer as it was measured."""

    name: str
    version: str | None
    """None: it could not be had."""
    settings: str
    why: str = ""
    """Why it could not be had."""


class Kept(msgspec.Struct, kw_only=True):
    """A run; what ``--json`` writes."""

    date: str
    command: str
    machine: Machine
    rounds: int
    seconds: float
    warm: float
    pinned: bool
    parties: list[Party]
    refusals: list[tuple[str, str, str]]
    """Row, peer, and why it is not measured in it."""
    samples: list[Sample]
    calls: list[tuple[str, int, float]] = []
    """Calls of project functions for a publication (`benchmarks.calls`): what is sent, its QoS, how many."""

    def of(self, row: str, peer: str) -> list[Sample]:
        """In the order of the rounds."""
        return sorted((s for s in self.samples if s.row == row and s.peer == peer), key=lambda s: s.round)

    def results(self, row: str, peer: str) -> dict[int, Result]:
        """By round."""
        return {s.round: s.result for s in self.of(row, peer) if s.result is not None}


def save(kept: Kept, path: Path) -> None:
    """Write it, all or nothing."""
    partly = path.with_name(path.name + ".partly")
    partly.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
    os.replace(partly, path)


def load(path: Path) -> Kept:
    """Raises OSError and msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Kept)
