"""Tracks one switch's tables by OFM: what it shall hold, what it is known to hold, and the next changes between the
two.

The controller says what is wanted. One batch at a time is under way, which combines the changes of many OFMs. After a
lost or refused batch, the switch is read anew and brought to what is wanted then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from saps.ofm.flows.plan import COOKIE, COOKIE_MASK, ours, part_of_group, part_of_meter
from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import (
    Change,
    DropFlow,
    DropGroup,
    DropMeter,
    Flow,
    FlowName,
    Group,
    Meter,
    PutFlow,
    PutGroup,
    PutMeter,
    Tables,
)

Part: TypeAlias = int
"""The owner of entries: the group id of an OFM, or `BASE`."""
BASE: Part = 0
"""The part that every switch has, independent of OFMs."""
_NOTHING = Tables()


class SwitchState:
    """The wanted and the known tables of one switch."""

    def __init__(self, baseline: Tables) -> None:
        self._wanted: dict[Part, Tables] = {BASE: baseline}
        self._actual: dict[Part, Tables] | None = None
        """The known tables by part. None: the switch is away or has not been read."""
        self._entries = 0
        """Flow entries in `_actual`."""
        self._unsettled: dict[Part, None] = {}
        """Parts that may differ from what is wanted, oldest first."""
        self._flying: dict[Part, Tables] = {}
        """The tables of the parts in the batch under way, once it is carried out."""
        self._assured: set[Part] = set()
        """Parts that were settled at some time since the switch was last read."""
        self._reading = False
        """Whether the switch has refused a change. It must be read before anything else is changed."""
        self._meters = True
        """Whether the switch takes meters, as far as is known."""

    @property
    def known(self) -> bool:
        """Whether the switch's tables are known."""
        return self._actual is not None

    @property
    def entries(self) -> int | None:
        """SAPS's flow entries that the switch is known to hold. None: changes are under way, or the tables are
        unknown."""
        if self._actual is None or self._flying or self._reading:
            return None
        return self._entries

    def holds(self, part: Part) -> Tables:
        """Return what the switch is known to hold of a part; empty if unknown."""
        return (self._actual or {}).get(part, _NOTHING)

    def settled(self, part: Part) -> bool:
        """Return whether the switch is known to hold what is wanted of this part."""
        return self.known and part not in self._unsettled and part not in self._flying

    def assured(self, part: Part) -> bool:
        """Return whether the part was settled once since the switch was last read. Then a batch under way leads from
        one wanted state to the next, and repairs nothing."""
        return part in self._assured

    @property
    def strangers(self) -> list[Part]:
        """Parts in the switch for which `want` was never called: an earlier run of a controller left them."""
        return [part for part in self._actual or () if part not in self._wanted]

    @property
    def idle(self) -> bool:
        """Whether nothing but the baseline is wanted."""
        return all(tables == _NOTHING for part, tables in self._wanted.items() if part != BASE)

    def want(self, part: Part, tables: Tables) -> bool:
        """Set what is wanted of a part. Return whether that is a change."""
        if part in self._wanted and self._wanted[part] == tables:
            return False
        self._wanted[part] = tables
        self._unsettled[part] = None
        return True

    def read(self, tables: Tables) -> set[Part]:
        """Take `tables` as the switch's present content; it may include foreign entries. Strangers stay unchanged.
        Return the parts that were not known to be as wanted, and those that turn out to differ."""
        before = set(self._wanted) if self._actual is None else self._unsettled.keys() | self._flying.keys()
        self._actual = split(ours(tables))
        self._entries = sum(len(part.flows) for part in self._actual.values())
        self._flying, self._reading = {}, False
        settled = [part for part, wanted in self._wanted.items() if self._is(part, self._fit(wanted))]
        self._assured = set(settled)
        self._unsettled = dict.fromkeys(part for part in self._wanted if part not in self._assured)
        self._tidy(settled)
        return before | self._unsettled.keys()

    def lost(self) -> None:
        """Forget what the switch holds."""
        self._actual = None
        self._flying, self._reading = {}, False
        self._assured = set()

    def gone(self) -> None:
        """Forget all about the switch, since another may come in its place. What is wanted stays."""
        self.lost()
        self._meters = True

    def refused(self, change: object) -> list[Part]:
        """Handle a batch that the switch has carried out in part, without `change`. What it holds of the batch's parts
        is unknown until it is `read`; the other parts are unaffected. Return the refused part. The rest of the batch
        has led on from its previous wanted state, as far as it was applied."""
        part = part_of(change)
        self._unsettled |= dict.fromkeys(self._flying)
        self._assured.discard(BASE if part is None else part)
        self._flying, self._reading = {}, True
        return [] if part is None else [part]

    def without_meters(self) -> bool:
        """Want no meters from now on, as the switch takes none. Return whether that is new."""
        new, self._meters = self._meters, False
        return new

    def batch(self) -> tuple[list[Change], list[Part]]:
        """Return the next changes, and the parts that turn out to be as wanted already if there is nothing to change.
        There are no changes if nothing is unsettled, or while a batch is under way. Call `done`, `refused` or `lost`
        after a batch."""
        if self._actual is None or self._reading or self._flying or not self._unsettled:
            return [], []
        wanted = {part: self._fit(self._wanted[part]) for part in self._unsettled}
        changes = difference(_joined(self.holds(part) for part in wanted), _joined(wanted.values()))
        self._unsettled = {}
        self._flying = wanted
        return (changes, []) if changes else ([], self.done())

    def done(self) -> list[Part]:
        """Record that the batch has been carried out. Return its parts."""
        parts = list(self._flying)
        if self._actual is not None:
            self._entries += sum(len(to.flows) - len(self.holds(part).flows) for part, to in self._flying.items())
            self._actual |= self._flying
        self._assured.update(self._flying)  # `|=` with a view would copy the set
        self._tidy(self._flying)
        self._flying = {}
        return parts

    def _is(self, part: Part, wanted: Tables) -> bool:
        """Return whether the switch holds exactly `wanted` of a part."""
        there = self.holds(part)
        return there == wanted or not difference(there, wanted)

    def _fit(self, tables: Tables) -> Tables:
        """Return the tables without meters if the switch takes none."""
        return tables if self._meters else tables.unmetered()

    def _tidy(self, parts: Iterable[Part]) -> None:
        """Forget parts of which nothing is wanted and nothing is left."""
        for part in parts:
            if self._wanted.get(part) == _NOTHING == self.holds(part) and part not in self._unsettled:
                del self._wanted[part]
                self._assured.discard(part)
                if self._actual is not None:
                    self._actual.pop(part, None)


def split(tables: Tables) -> dict[Part, Tables]:
    """Split SAPS's part of a switch's tables by OFM."""
    flows: dict[Part, dict[FlowName, Flow]] = {}
    for name, flow in tables.flows.items():
        flows.setdefault(flow.cookie & ~COOKIE_MASK, {})[name] = flow
    meters: dict[Part, dict[int, Meter]] = {}
    for id, meter in tables.meters.items():
        meters.setdefault(part_of_meter(id) or BASE, {})[id] = meter
    groups: dict[Part, dict[int, Group]] = {}
    for id, group in tables.groups.items():
        groups.setdefault(part_of_group(id) or BASE, {})[id] = group
    return {
        part: Tables(flows.get(part, {}), groups.get(part, {}), meters.get(part, {}))
        for part in sorted(flows.keys() | groups.keys() | meters.keys())
    }


def part_of(change: object) -> Part | None:
    """Return the part that a change belongs to, or None for a foreign one."""
    match change:
        case PutFlow(flow) | DropFlow(flow) if flow.cookie & COOKIE_MASK == COOKIE:
            return flow.cookie & ~COOKIE_MASK
        case PutGroup(group):
            return part_of_group(group.id)
        case DropGroup(id):
            return part_of_group(id)
        case PutMeter(meter):
            return part_of_meter(meter.id)
        case DropMeter(id):
            return part_of_meter(id)
    return None


def _joined(parts: Iterable[Tables]) -> Tables:
    listed = list(parts)
    flows = {name: flow for part in listed for name, flow in part.flows.items()}
    groups = {id: group for part in listed for id, group in part.groups.items()}
    meters = {id: meter for part in listed for id, meter in part.meters.items()}
    return Tables(flows, groups, meters)
