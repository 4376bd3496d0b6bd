"""One switch's tables where entries serve many OFMs (`topics.shared_entries`): a `switch_state.SwitchState` in all it
shows.

What is wanted is kept by OFM, what the switch holds only as a whole: an OFM is settled when the switch holds what all
together want. Nobody can tell whose an entry is that an earlier run has left, so what is not wanted goes with the first
batch: a controller that forgets its intents forgets its trees.
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
    """Counts the changes of `words`."""


class SharedSwitchState:
    """The tables of one switch. See `SwitchState` for all that has no words of its own."""

    def __init__(self, baseline: Tables, codes: Codes) -> None:
        self._codes = codes
        self._seen = codes.version
        """Version of the codes that the switch's entries go by, or shall."""
        self._wanted: dict[Part, Tables] = {BASE: baseline}
        self._actual: Tables | None = None
        self._unsettled: dict[Part, None] = {}
        self._flying: dict[Part, Tables] = {}
        self._next: Tables | None = None
        """What the batch under way makes of the switch; None: none is."""
        self._assured: set[Part] = set()

    @property
    def known(self) -> bool:
        return self._actual is not None

    @property
    def entries(self) -> int | None:
        return self._actual.entries if self._actual is not None and self._next is None else None

    def holds(self, part: Part) -> Tables:
        """Nothing: it cannot be told."""
        return _NOTHING

    def settled(self, part: Part) -> bool:
        return self.known and part not in self._unsettled and part not in self._flying

    def assured(self, part: Part) -> bool:
        return part in self._assured

    @property
    def strangers(self) -> list[Part]:
        """None: they go by themselves."""
        return []

    def want(self, part: Part, tables: Tables) -> bool:
        """As `SwitchState.want`. An OFM that shall have nothing here has to be told all the same: none of the entries
        of others may be for it."""
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

    def refused(self, change: object) -> list[Part]:
        """All is to be read: entries serve many OFMs."""
        self.lost()
        part = part_of(change)
        return [] if part is None else [part]

    def without_meters(self) -> bool:
        """Nothing new: entries that serve many OFMs have none (`program.rules`)."""
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
        """Forgets OFMs that have no address any more."""
        words = self._codes.words
        for part, tables in list(self._wanted.items()):
            if part != BASE and tables == _NOTHING and part not in words and part not in self._unsettled:
                del self._wanted[part]
                self._assured.discard(part)


def exchange(actual: Tables, desired: Tables) -> list[Change]:
    """As `reconcile.difference`, where entries overlap: after each change every address is treated either as before or
    as it shall be. Longer prefixes are put first, and dropped last."""
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
