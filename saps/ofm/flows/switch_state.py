"""One switch's tables, OFM by OFM: what it shall hold, what it is known to hold, and the next changes between the two.

The controller says what is wanted; one batch of changes at a time is under way, in which the changes of many OFMs go
together. Whatever happens to the switch, it is read anew and brought to what is wanted then.
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
"""Whose entries: the group id of an OFM, or `BASE`."""
BASE: Part = 0
"""The part that every switch has, whatever the OFMs are."""
_NOTHING = Tables()


class SwitchState:
    """The tables of one switch."""

    def __init__(self, baseline: Tables) -> None:
        self._wanted: dict[Part, Tables] = {BASE: baseline}
        self._actual: dict[Part, Tables] | None = None
        """None: not known, because the switch is away or not yet read."""
        self._unsettled: dict[Part, None] = {}
        """Parts that may differ from what is wanted, in the order in which that came about."""
        self._flying: dict[Part, Tables] = {}
        """What the batch under way makes of some parts."""
        self._assured: set[Part] = set()
        """Parts that were settled at some time since the switch was last read."""
        self._reading = False
        """The switch has refused something: nothing is changed before it has been read."""
        self._meters = True
        """The switch takes meters, as far as is known."""

    @property
    def known(self) -> bool:
        """It is known what the switch holds."""
        return self._actual is not None

    @property
    def entries(self) -> int | None:
        """Flow entries of ours that the switch is known to hold; None: changes are under way, or it is not known."""
        if self._actual is None or self._flying or self._reading:
            return None
        return sum(len(tables.flows) for tables in self._actual.values())

    def holds(self, part: Part) -> Tables:
        """What the switch is known to hold of a part, as far as it is known."""
        return (self._actual or {}).get(part, _NOTHING)

    def settled(self, part: Part) -> bool:
        """The switch is known to hold what is wanted of this part."""
        return self.known and part not in self._unsettled and part not in self._flying

    def assured(self, part: Part) -> bool:
        """It was settled once since the switch was last read: what is under way now leads from one wanted state to the
        next, and repairs nothing."""
        return part in self._assured

    @property
    def strangers(self) -> list[Part]:
        """Parts in the switch that nobody has said anything about: left by an earlier run of a controller."""
        return [part for part in self._actual or () if part not in self._wanted]

    def want(self, part: Part, tables: Tables) -> bool:
        """From now on this is wanted of a part. Says whether it was not before."""
        if part in self._wanted and self._wanted[part] == tables:
            return False
        self._wanted[part] = tables
        self._unsettled[part] = None
        return True

    def read(self, tables: Tables) -> set[Part]:
        """This is in the switch now; entries of others may be among it. Strangers stay as they are. Gives the parts
        that were not known to be as wanted, or turn out not to be."""
        before = set(self._wanted) if self._actual is None else self._unsettled.keys() | self._flying.keys()
        self._actual = split(ours(tables))
        self._flying, self._reading = {}, False
        settled = [part for part, wanted in self._wanted.items() if self._is(part, self._fit(wanted))]
        self._assured = set(settled)
        self._unsettled = dict.fromkeys(part for part in self._wanted if part not in self._assured)
        self._tidy(settled)
        return before | self._unsettled.keys()

    def lost(self) -> None:
        """What the switch holds is not known any more."""
        self._actual = None
        self._flying, self._reading = {}, False
        self._assured = set()

    def refused(self, change: object) -> list[Part]:
        """The batch was carried out in part, without this change: what the switch holds of its parts is not known until
        it is `read`. It still holds what it did of the others. Gives the part that was refused; the rest of the batch
        has led on from what was wanted there before, as far as it came."""
        part = part_of(change)
        self._unsettled |= dict.fromkeys(self._flying)
        self._assured.discard(BASE if part is None else part)
        self._flying, self._reading = {}, True
        return [] if part is None else [part]

    def without_meters(self) -> bool:
        """The switch takes no meters: from now on none are wanted there. Says whether that is new."""
        new, self._meters = self._meters, False
        return new

    def batch(self) -> tuple[list[Change], list[Part]]:
        """The next changes, to be followed by `done` or `lost`: none if nothing is to be done, or some are under way.
        And the parts that have turned out to be as wanted already, if there is nothing else to do."""
        if self._actual is None or self._reading or self._flying or not self._unsettled:
            return [], []
        wanted = {part: self._fit(self._wanted[part]) for part in self._unsettled}
        changes = difference(_joined(self.holds(part) for part in wanted), _joined(wanted.values()))
        self._unsettled = {}
        self._flying = wanted
        return (changes, []) if changes else ([], self.done())

    def done(self) -> list[Part]:
        """The batch has been carried out. Gives the parts it was about."""
        parts = list(self._flying)
        if self._actual is not None:
            self._actual |= self._flying
        self._assured |= self._flying.keys()
        self._tidy(self._flying)
        self._flying = {}
        return parts

    def _is(self, part: Part, wanted: Tables) -> bool:
        """The switch holds exactly this of a part."""
        there = self.holds(part)
        return there == wanted or not difference(there, wanted)

    def _fit(self, tables: Tables) -> Tables:
        """As the switch takes them."""
        return tables if self._meters else tables.unmetered()

    def _tidy(self, parts: Iterable[Part]) -> None:
        """Forgets parts of which nothing is wanted nor left."""
        for part in parts:
            if self._wanted.get(part) == _NOTHING == self.holds(part) and part not in self._unsettled:
                del self._wanted[part]
                self._assured.discard(part)
                if self._actual is not None:
                    self._actual.pop(part, None)


def split(tables: Tables) -> dict[Part, Tables]:
    """Our part of a switch's tables, by OFM."""
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
    """The part that a change is about; None for what is not ours."""
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
