"""Tracks one switch's tables where entries serve many OFMs (`topics.shared_entries`), with the interface of
`switch_state.SwitchState`.

The wanted tables are kept by OFM, the actual tables only as a whole. An OFM is settled when the switch holds what all
OFMs together want. The owner of an entry that an earlier run left cannot be told, so the first batch drops all entries
that are not wanted. A controller that forgets its intents therefore forgets its trees.
"""

from __future__ import annotations

from typing import Protocol

from saps.ofm.flows.plan import ours
from saps.ofm.flows.switch_state import BASE, Part, part_of
from saps.ofm.flows.tables import Barrier, Change, DropFlow, DropGroup, DropMeter, PutFlow, PutGroup, Tables
from saps.ofm.topics.shared_entries import Coded, ordered, shared

_NOTHING = Tables()


class Codes(Protocol):
    """The codes of all OFMs that have an address (`coded_pool.CodedPool`)."""

    words: dict[Part, Coded]
    version: int
    """Number of changes of `words` so far."""


class SharedSwitchState:
    """The tables of one switch. See `SwitchState` for the members without a docstring."""

    def __init__(self, baseline: Tables, codes: Codes) -> None:
        self._codes = codes
        self._seen = codes.version
        """Version of the codes that the switch's entries follow, or will follow after the batch under way."""
        self._wanted: dict[Part, Tables] = {BASE: baseline}
        self._actual: Tables | None = None
        self._unsettled: dict[Part, None] = {}
        self._flying: dict[Part, Tables] = {}
        self._next: Tables | None = None
        """The tables after the batch under way; None if there is no batch."""
        self._assured: set[Part] = set()

    @property
    def known(self) -> bool:
        return self._actual is not None

    @property
    def entries(self) -> int | None:
        return self._actual.entries if self._actual is not None and self._next is None else None

    def holds(self, part: Part) -> Tables:
        """Return no tables: the owner of a shared entry cannot be told."""
        return _NOTHING

    def settled(self, part: Part) -> bool:
        return self.known and part not in self._unsettled and part not in self._flying

    def assured(self, part: Part) -> bool:
        return part in self._assured

    @property
    def strangers(self) -> list[Part]:
        """Always empty: entries that nobody wants go with the first batch."""
        return []

    @property
    def idle(self) -> bool:
        return all(tables == _NOTHING for part, tables in self._wanted.items() if part != BASE)

    def want(self, part: Part, tables: Tables) -> bool:
        """See `SwitchState.want`. An OFM that shall have nothing here needs a batch all the same, as no entry of others
        may match its packets."""
        if part in self._wanted and self._wanted[part] == tables:
            return False
        self._wanted[part] = tables
        self._unsettled[part] = None
        return True

    def read(self, tables: Tables) -> set[Part]:
        self._actual = ours(tables)
        self._flying, self._next = {}, None
        self._assured = set()
        self._unsettled = dict.fromkeys(self._wanted)
        return set(self._wanted)

    def lost(self) -> None:
        self._actual = None
        self._flying, self._next = {}, None
        self._assured = set()

    def gone(self) -> None:
        self.lost()

    def refused(self, change: object) -> list[Part]:
        """Mark all tables as unknown, since each entry may serve many OFMs, and return the part that was refused."""
        self.lost()
        part = part_of(change)
        return [] if part is None else [part]

    def without_meters(self) -> bool:
        """Return False: entries that serve many OFMs have no meters (`program.rules`)."""
        return False

    def batch(self) -> tuple[list[Change], list[Part]]:
        idle = not self._unsettled and self._seen == self._codes.version
        if self._actual is None or self._next is not None or idle:
            return [], []
        self._tidy()
        self._flying = {part: self._wanted[part] for part in self._unsettled}
        self._unsettled, self._seen = {}, self._codes.version
        parts = {part: tables for part, tables in self._wanted.items() if part != BASE and tables != _NOTHING}
        self._next = self._wanted[BASE].with_(shared(parts, self._codes.words, self._actual.groups))
        changes = exchange(self._actual, self._next)
        return (changes, []) if changes else ([], self.done())

    def done(self) -> list[Part]:
        parts = list(self._flying)
        if self._actual is not None and self._next is not None:
            self._actual = self._next
        self._assured |= self._flying.keys()
        self._flying, self._next = {}, None
        return parts

    def _tidy(self) -> None:
        """Drop the state of OFMs that no longer have an address."""
        words = self._codes.words
        for part, tables in list(self._wanted.items()):
            if part != BASE and tables == _NOTHING and part not in words and part not in self._unsettled:
                del self._wanted[part]
                self._assured.discard(part)


def exchange(actual: Tables, desired: Tables) -> list[Change]:
    """Return the changes as `reconcile.difference` does, for entries that overlap. After each change, every address is
    treated either as before or as desired. Longer prefixes are put first and dropped last."""
    puts = ordered([flow for name, flow in desired.flows.items() if actual.flows.get(name) != flow])
    drops = ordered([flow for name, flow in actual.flows.items() if name not in desired.flows])
    steps: list[list[Change]] = [
        [PutGroup(group) for id, group in sorted(desired.groups.items()) if actual.groups.get(id) != group],
        [PutFlow(flow) for flow in puts],
        [DropFlow(flow) for flow in reversed(drops)],
        [
            *(DropGroup(id) for id in sorted(actual.groups) if id not in desired.groups),
            *(DropMeter(id) for id in sorted(actual.meters)),  # left by a run in which each OFM had its own entries
        ],
    ]
    changes: list[Change] = []
    for step in steps:
        if step:
            changes += [*step, Barrier()]
    return changes
