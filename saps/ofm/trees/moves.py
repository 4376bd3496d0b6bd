"""Moves intact trees to other links to balance the load (SDNPS 2016, 4.3).

Two trees along different links cannot be exchanged under one address without a gap (`reconcile.rollout`). So a move
takes three steps:

1. The new tree is made beside the old one, under an address of its own.
2. When all its switches hold it, the OFM takes that address.
3. The old tree stays for `overlap` seconds, until all senders have changed over.

No member misses a packet, and OFGate need not take anything back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from saps.ofm.controller.admission import Admission, NotAdmittedError
from saps.ofm.controller.record import Record
from saps.ofm.network.network import Network
from saps.ofm.northbound.schema import Status
from saps.ofm.planner.moderation import Moderation
from saps.ofm.trees.tree import UnreachableError
from saps.policy.model import UnknownSwitchesError

TIMEOUT = 30.0
"""Seconds until a new tree that some switch has not confirmed is given up."""
TRIES = 20
"""Most trees planned anew in one round, since each costs a planner's search."""


class Phase(Enum):
    """The stage of a move."""

    BUILDING = "the second tree is the new one, and nobody knows its address"
    DRAINING = "the second tree is the former one, and still works"
    LEAVING = "the second tree is taken away"


@dataclass(slots=True)
class Move:
    """The move of one topic's tree: its second tree."""

    second: Record
    """The record of the second tree. Its `topic` is the owner of its address (see `second_of`), not a topic."""
    phase: Phase
    until: float


def second_of(topic: str) -> str:
    """Return the owner of the address of a topic's second tree. No topic contains its last character."""
    return f"{topic}\0"


class Moves:
    """The moves of all OFMs of a controller. The caller must continue with the records whose names the methods
    return."""

    def __init__(self, admission: Admission, network: Network, share: float, overlap: float) -> None:
        self._admission, self._network = admission, network
        self._moderation = Moderation(share)
        self._overlap = overlap
        self._now = 0.0
        self._moves: dict[str, Move] = {}

    def record(self, owner: str) -> Record | None:
        """Return the record of a second tree, or None if `owner` has none."""
        move = self._moves.get(owner[:-1]) if owner.endswith("\0") else None
        return move.second if move is not None else None

    def former(self, topic: str) -> str | None:
        """Return the former address of a topic while it still works, or None."""
        move = self._moves.get(topic)
        return str(move.second.address) if move is not None and move.phase is Phase.DRAINING else None

    @property
    def owners(self) -> list[str]:
        """The owners of the addresses of all second trees."""
        return [move.second.topic for move in self._moves.values()]

    def at(self, now: float, records: dict[str, Record]) -> list[str]:
        """Set the time to `now` (seconds), end the moves that are due, and begin moves that are worth it. Return the
        names of all records that have changed."""
        self._now = now
        touched: list[str] = []
        for topic, move in self._moves.items():
            record = records.get(topic)
            if move.phase is not Phase.LEAVING and (now >= move.until or record is None or record.intent is None):
                building = move.phase is Phase.BUILDING
                self._leave(move, record)
                if building:
                    move.second.abandon()
                touched += [topic, move.second.topic]
        return touched + self._begin(now, records)

    def _begin(self, now: float, records: dict[str, Record]) -> list[str]:
        begun: list[str] = []
        planner = self._admission.planner
        for topic in planner.crowded()[:TRIES]:
            if not self._moderation.left(now, len(records)):
                break
            record = records.get(topic)
            if record is None or record.plan is None or topic in self._moves or not self._calm(record):
                continue
            try:
                topology = self._admission.barriers.around(topic, self._network.topology)
                tree = planner.better(topic, topology)
            except (UnknownSwitchesError, UnreachableError):
                continue
            if tree is None:
                continue
            second = Record(second_of(topic))
            try:
                made = self._admission.beside(record, second, tree, topology)
            except NotAdmittedError:
                continue
            second.head_for(made, self._admission.informed(second, self._network))
            self._moderation.moved(now)
            self._moves[topic] = Move(second, Phase.BUILDING, now + TIMEOUT)
            begun.append(second.topic)
        return begun

    def _calm(self, record: Record) -> bool:
        """Return whether the tree is constructed as wanted and nothing is under way."""
        return record.state.status is Status.CONSTRUCTED and not record.busy and record.intent is not None

    def rest(self, second: Record, records: dict[str, Record]) -> tuple[bool, list[str]]:
        """Handle a second tree that has come to rest. Return whether its record needs further changes, and the names of
        other records to examine."""
        topic = second.topic[:-1]
        move, record = self._moves[topic], records.get(topic)
        if move.phase is Phase.BUILDING:
            if record is not None and self._fits(record, second):
                self._admission.exchange(record, second)
                move.phase, move.until = Phase.DRAINING, self._now + self._overlap
                return False, [topic]
            self._leave(move, record)
        if move.phase is Phase.DRAINING:
            return False, []
        if second.plan is not None:
            second.head_for(None)
            return True, []
        self._admission.release(second)
        del self._moves[topic]
        return False, [topic]

    def failed(self, second: Record, records: dict[str, Record]) -> str:
        """Remove a second tree that a switch has refused. Return its topic."""
        topic = second.topic[:-1]
        self._leave(self._moves[topic], records.get(topic))
        second.abandon()
        return topic

    def _fits(self, record: Record, second: Record) -> bool:
        """Return whether the new tree can replace the present one now: it serves the same brokers alike, and all its
        switches hold it."""
        old, new = record.plan, second.plan
        if old is None or new is None or not self._calm(record) or not new.tree.intact(self._network.topology):
            return False
        same = (old.ofm.service, old.tree.brokers, old.silent) == (new.ofm.service, new.tree.brokers, new.silent)
        part = self._admission.part(second)
        return same and all(self._network.holds(dpid, part) for dpid in new.tables)

    def _leave(self, move: Move, record: Record | None) -> None:
        if move.phase is Phase.BUILDING:
            tree = record.plan.tree if record is not None and record.plan is not None else None
            self._admission.planner.adopted(move.second.topic[:-1], tree)
        move.phase = Phase.LEAVING
