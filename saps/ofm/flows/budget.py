"""Budgets of switches: how many flow entries and buckets OFMs may use there, and do use (SAPS 2016, 4.1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import Plan
from saps.ofm.flows.tables import Room, Tables

LARGEST_GROUP = 744
"""Buckets in one group: with the three rewrites of a last hop more do not fit a message of 64 KiB (OpenFlow 1.3.5,
7.1); measured with Open vSwitch 3.1."""
MOST_GROUPS = 0xFFFF_FF00
"""Groups in one switch (OpenFlow 1.3.5, A.2.1: OFPG_MAX)."""
_PLANES = OfmAddress("ff15::", 0)
"""Stands for stateless delivery, which has no plan."""
LEARNT = 300.0
"""Seconds for which a limit that a switch has shown is believed: others may have given room back since. Less asks
more often for what will be refused again."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What all OFMs together may use on one switch."""

    entries: int
    buckets: int
    groups: int = MOST_GROUPS
    group_size: int = LARGEST_GROUP
    """Buckets of one group."""


class Usage(NamedTuple):
    """What is used on one switch."""

    entries: int = 0
    buckets: int = 0
    groups: int = 0

    @classmethod
    def of(cls, tables: Tables) -> Usage:
        """What these tables use."""
        return cls(tables.entries, tables.buckets, len(tables.groups))

    def exchanged(self, old: Usage, new: Usage) -> Usage:
        """What is used when `new` is in the place of `old`."""
        return Usage(*(total - before + after for total, before, after in zip(self, old, new, strict=True)))


class OverBudgetError(Exception):
    """A plan does not fit a switch's budget: `what` ("flow entries", "buckets", "buckets in one group") would be
    `wanted`, but `allowed` is the limit."""

    def __init__(self, dpid: int, what: str, wanted: int, allowed: int) -> None:
        self.dpid, self.what, self.wanted, self.allowed = dpid, what, wanted, allowed
        super().__init__(f"switch {dpid:016x} would need {wanted} {what}; its budget is {allowed}")


class Ledger:
    """The plans in force and their use of each switch. While a plan replaces another one, a switch holds at most the
    larger of the two (see `reconcile.rollout`), so what is admitted here holds at every moment; where changes of other
    OFMs may be done earlier than this one's, let the larger of the two count meanwhile (`admit`)."""

    def __init__(self, default: Budget, budgets: Mapping[int, Budget] | None = None) -> None:
        self.default = default
        self.budgets = dict(budgets or {})
        self._now = 0.0
        self._learnt: dict[int, Budget] = {}
        """What switches have shown to be all they have room for: at most their budget."""
        self._until: dict[int, float] = {}
        """When that is not believed any more."""
        self._plans: dict[OfmAddress, Plan] = {}
        self._used: dict[int, Usage] = {}
        self._counted: dict[OfmAddress, dict[int, Usage]] = {}
        """What of `_used` is for each OFM."""
        self._aside: Mapping[int, Tables] = {}
        """What switches hold for stateless delivery."""

    def budget(self, dpid: int) -> Budget:
        """The budget of a switch: its own, or the default, but no more than it has shown to have room for."""
        return self._learnt.get(dpid) or self.budgets.get(dpid, self.default)

    def learn(self, dpid: int, room: Room, full: Tables, baseline: Tables) -> None:
        """A switch that holds `full`, with the `baseline` that no OFM pays for, has refused more for lack of room."""
        held, budget = Usage.of(full).exchanged(Usage.of(baseline), Usage()), self.budget(dpid)
        match room:
            case Room.ENTRIES:
                budget = replace(budget, entries=min(budget.entries, held.entries))
            case Room.GROUPS:
                budget = replace(budget, groups=min(budget.groups, held.groups))
            case Room.PARTITIONS:
                budget = replace(budget, buckets=min(budget.buckets, held.buckets))
        self._learnt[dpid], self._until[dpid] = budget, self._now + LEARNT

    def at(self, now: float) -> bool:
        """It is this time, in seconds. Says whether a limit that was learnt is not believed any more."""
        self._now = now
        past = [dpid for dpid, until in self._until.items() if until <= now]
        return any([self.forget(dpid) for dpid in past])

    def forget(self, dpid: int) -> bool:
        """A limit that a switch has shown is not believed any more: it may be another switch now. Says whether there
        was one."""
        self._until.pop(dpid, None)
        return self._learnt.pop(dpid, None) is not None

    def used(self, dpid: int) -> Usage:
        """What the plans in force use on a switch."""
        return self._used.get(dpid, Usage())

    def taken(self, dpid: int) -> Usage:
        """What all plans together take of a switch: what is used, if each has entries of its own."""
        return self.used(dpid)

    def plan_of(self, address: OfmAddress) -> Plan | None:
        """The plan in force for an OFM."""
        return self._plans.get(address)

    def check(self, plan: Plan) -> None:
        """Would the plan fit, in place of the one in force for its OFM? Raises `OverBudgetError` for the first switch
        that has no room; a switch on which the plan needs no more than before is never a reason."""
        for dpid, tables in plan.tables.items():
            self._check_switch(dpid, self._part(plan.ofm.address, dpid), tables)

    def set_aside(self, tables: Mapping[int, Tables]) -> None:
        """What each switch holds for stateless delivery. Raises `OverBudgetError`; then nothing has changed."""
        for dpid, each in tables.items():
            self._check_switch(dpid, self._aside.get(dpid, Tables()), each)
        self._aside = dict(tables)
        self._count(_PLANES, {dpid: Usage.of(each) for dpid, each in tables.items()})

    def _check_switch(self, dpid: int, before: Tables, tables: Tables) -> None:
        if before is not tables:
            budget, old, new = self.budget(dpid), Usage.of(before), Usage.of(tables)
            wanted = self.used(dpid).exchanged(old, new)
            for what, grows, total, allowed in (
                ("flow entries", new.entries > old.entries, wanted.entries, budget.entries),
                ("buckets", new.buckets > old.buckets, wanted.buckets, budget.buckets),
                ("groups", new.groups > old.groups, wanted.groups, budget.groups),
                ("buckets in one group", largest(tables) > largest(before), largest(tables), budget.group_size),
            ):
                if grows and total > allowed:
                    raise OverBudgetError(dpid, what, total, allowed)

    def admit(self, plan: Plan, *, both: bool = False) -> None:
        """Puts the plan in force in place of its predecessor. `both`: until `settle`, the predecessor counts wherever
        it needs more. Raises `OverBudgetError`; then nothing has changed."""
        self.check(plan)
        address = plan.ofm.address
        before = self._counted.get(address, {}) if both else {}
        self._plans[address] = plan
        self._count(address, _larger(before, _usage(plan)))

    def settle(self, address: OfmAddress, plan: Plan | None) -> bool:
        """This plan, or none, is all that the switches hold of an OFM now: only it counts. Says whether that has freed
        anything."""
        usage = _usage(plan) if plan is not None else {}
        if usage == self._counted.get(address, {}):
            return False
        if plan is None:
            self._plans.pop(address, None)
        self._count(address, usage)
        return True

    def release(self, address: OfmAddress) -> None:
        """An OFM is no more: what it used is free."""
        self._plans.pop(address, None)
        self._count(address, {})

    def desired(self, dpid: int) -> Tables:
        """All that the plans in force want on a switch."""
        return Tables.merged(plan.tables[dpid] for _, plan in sorted(self._plans.items()) if dpid in plan.tables)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans.values())

    def _part(self, address: OfmAddress, dpid: int) -> Tables:
        plan = self._plans.get(address)
        return plan.tables.get(dpid, Tables()) if plan is not None else Tables()

    def _count(self, address: OfmAddress, usage: dict[int, Usage]) -> None:
        """From now on this is what an OFM uses."""
        before = self._counted.pop(address, {})
        for dpid in before.keys() | usage.keys():
            self._used[dpid] = self.used(dpid).exchanged(before.get(dpid, Usage()), usage.get(dpid, Usage()))
        if usage:
            self._counted[address] = usage


def _usage(plan: Plan) -> dict[int, Usage]:
    return {dpid: Usage.of(tables) for dpid, tables in plan.tables.items()}


def _larger(one: Mapping[int, Usage], other: Mapping[int, Usage]) -> dict[int, Usage]:
    nothing = Usage()
    pairs = {dpid: (one.get(dpid, nothing), other.get(dpid, nothing)) for dpid in one.keys() | other.keys()}
    return {dpid: Usage(*map(max, *pair)) for dpid, pair in pairs.items()}


def largest(tables: Tables) -> int:
    """Buckets of the largest group."""
    return max((len(group.buckets) for group in tables.groups.values()), default=0)
