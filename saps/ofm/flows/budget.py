"""Keeps the budgets of switches: the flow entries and buckets that OFMs may use, and those they use (SAPS 2016,
4.1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import Plan
from saps.ofm.flows.tables import Room, Tables

LARGEST_GROUP = 744
"""Most buckets in one group. With the three rewrites of a last hop, more do not fit a message of 64 KiB (OpenFlow
1.3.5, 7.1). Measured with Open vSwitch 3.1."""
MOST_GROUPS = 0xFFFF_FF00
"""Most groups in one switch (OpenFlow 1.3.5, A.2.1: OFPG_MAX)."""
_PLANES = OfmAddress("ff15::", 0)
"""Placeholder address under which the ledger counts stateless delivery, which has no plan."""
LEARNT = 300.0
"""Seconds until a learnt limit expires, since other users of the switch may have freed room. A smaller value repeats
requests that the switch refuses more often."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one switch for all OFMs together."""

    entries: int
    buckets: int
    groups: int = MOST_GROUPS
    group_size: int = LARGEST_GROUP
    """Most buckets in one group."""


class Usage(NamedTuple):
    """Flow entries, group buckets and groups in use on one switch."""

    entries: int = 0
    buckets: int = 0
    groups: int = 0

    @classmethod
    def of(cls, tables: Tables) -> Usage:
        """Return what these tables use."""
        return cls(tables.entries, tables.buckets, len(tables.groups))

    def exchanged(self, old: Usage, new: Usage) -> Usage:
        """Return the usage after `new` has replaced `old` in it."""
        return Usage(
            self.entries - old.entries + new.entries,
            self.buckets - old.buckets + new.buckets,
            self.groups - old.groups + new.groups,
        )


_NONE = Usage()


class OverBudgetError(Exception):
    """A plan that does not fit a switch's budget: `what` ("flow entries", "buckets", "groups" or "buckets in one
    group") would be `wanted`, but `allowed` is the limit."""

    def __init__(self, dpid: int, what: str, wanted: int, allowed: int) -> None:
        self.dpid, self.what, self.wanted, self.allowed = dpid, what, wanted, allowed
        super().__init__(f"switch {dpid:016x} would need {wanted} {what}; its budget is {allowed}")


class Ledger:
    """The plans in force and their use of each switch.

    While a plan replaces another, a switch holds at most the larger of the two (see `reconcile.rollout`). So an
    admitted plan fits at every moment of its own rollout. If changes of other OFMs may finish earlier than this plan's,
    `admit` it with `both`: the larger of the two plans counts until `settle`."""

    def __init__(self, default: Budget, budgets: Mapping[int, Budget] | None = None) -> None:
        self.default = default
        self.budgets = dict(budgets or {})
        self._now = 0.0
        self._learnt: dict[int, Budget] = {}
        """Learnt limits by switch, which it showed by refusing changes; never more than its budget."""
        self._until: dict[int, float] = {}
        """Times in seconds at which learnt limits expire, by switch."""
        self._plans: dict[OfmAddress, Plan] = {}
        self._used: dict[int, Usage] = {}
        self._counted: dict[OfmAddress, dict[int, Usage]] = {}
        """The part of `_used` that each OFM accounts for, by switch."""
        self._both: set[OfmAddress] = set()
        """OFMs whose predecessor may count, too (`admit`)."""
        self._aside: Mapping[int, Tables] = {}
        """The tables that switches hold for stateless delivery."""

    def budget(self, dpid: int) -> Budget:
        """Return the budget of a switch: its own or the default, lowered to a learnt limit."""
        return self._learnt.get(dpid) or self.budgets.get(dpid, self.default)

    def learn(self, dpid: int, room: Room, full: Tables, baseline: Tables) -> None:
        """Lower the budget of a switch that has refused a change for lack of room. The switch holds `full`, which
        includes the `baseline` that counts for no OFM."""
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
        """Set the time to `now` (seconds). Return whether a learnt limit has expired."""
        self._now = now
        past = [dpid for dpid, until in self._until.items() if until <= now]
        return any([self.forget(dpid) for dpid in past])

    def forget(self, dpid: int) -> bool:
        """Drop the learnt limit of a switch, e.g. as another switch may have taken its place. Return whether there was
        one."""
        self._until.pop(dpid, None)
        return self._learnt.pop(dpid, None) is not None

    def used(self, dpid: int) -> Usage:
        """Return what the plans in force use on a switch."""
        return self._used.get(dpid, Usage())

    def taken(self, dpid: int) -> Usage:
        """Return what all plans together take of a switch. If each plan has entries of its own, this equals `used`."""
        return self.used(dpid)

    def plan_of(self, address: OfmAddress) -> Plan | None:
        """Return the plan in force for an OFM, or None."""
        return self._plans.get(address)

    def check(self, plan: Plan) -> None:
        """Check that the plan fits in place of the one in force for its OFM. Raises `OverBudgetError` for the first
        switch that has no room. A switch on which the plan needs no more than before never raises."""
        for dpid, tables in plan.tables.items():
            self._check_switch(dpid, self._part(plan.ofm.address, dpid), tables)

    def set_aside(self, tables: Mapping[int, Tables]) -> None:
        """Replace the tables that count for stateless delivery, by switch. Raises `OverBudgetError`; then nothing has
        changed."""
        if tables == self._aside:
            return
        for dpid, each in tables.items():
            self._check_switch(dpid, self._aside.get(dpid, Tables()), each)
        self._aside = dict(tables)
        self._count(_PLANES, {dpid: Usage.of(each) for dpid, each in tables.items()})

    def has_room(self, dpid: int, tables: Tables) -> bool:
        """Return whether these tables would fit in place of what counts for stateless delivery on a switch."""
        try:
            self._check_switch(dpid, self._aside.get(dpid, Tables()), tables)
        except OverBudgetError:
            return False
        return True

    def _check_switch(self, dpid: int, before: Tables, tables: Tables) -> None:
        if before is not tables:
            budget, old, new = self.budget(dpid), Usage.of(before), Usage.of(tables)
            wanted = self.used(dpid).exchanged(old, new)
            # A plan that needs no more than before must pass even on a switch that is over its budget.
            if new.entries > old.entries and wanted.entries > budget.entries:
                raise OverBudgetError(dpid, "flow entries", wanted.entries, budget.entries)
            if new.buckets > old.buckets and wanted.buckets > budget.buckets:
                raise OverBudgetError(dpid, "buckets", wanted.buckets, budget.buckets)
            if new.groups > old.groups and wanted.groups > budget.groups:
                raise OverBudgetError(dpid, "groups", wanted.groups, budget.groups)
            if new.buckets > budget.group_size and (most := largest(tables)) > max(largest(before), budget.group_size):
                raise OverBudgetError(dpid, "buckets in one group", most, budget.group_size)

    def admit(self, plan: Plan, *, both: bool = False) -> None:
        """Put the plan in force in place of its predecessor. With `both`, the predecessor counts until `settle`
        wherever it needs more. Raises `OverBudgetError`; then nothing has changed."""
        self.check(plan)
        address = plan.ofm.address
        before = self._counted.get(address, {}) if both else {}
        self._plans[address] = plan
        self._count(address, _larger(before, _usage(plan)))
        if before:
            self._both.add(address)

    def settle(self, address: OfmAddress, plan: Plan | None) -> bool:
        """Count only this plan (None: nothing) for an OFM, since the switches now hold nothing else of it. Return
        whether the usage has changed."""
        if plan is self._plans.get(address) and address not in self._both:
            return False
        usage = _usage(plan) if plan is not None else {}
        self._both.discard(address)
        if usage == self._counted.get(address, {}):
            return False
        if plan is None:
            self._plans.pop(address, None)
        self._count(address, usage)
        return True

    def release(self, address: OfmAddress) -> None:
        """Remove the plan of an OFM that has ended, and free what it used."""
        self._plans.pop(address, None)
        self._both.discard(address)
        self._count(address, {})

    def desired(self, dpid: int) -> Tables:
        """Return all that the plans in force want on a switch."""
        return Tables.merged(plan.tables[dpid] for _, plan in sorted(self._plans.items()) if dpid in plan.tables)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans.values())

    def _part(self, address: OfmAddress, dpid: int) -> Tables:
        plan = self._plans.get(address)
        return plan.tables.get(dpid, Tables()) if plan is not None else Tables()

    def _count(self, address: OfmAddress, usage: dict[int, Usage]) -> None:
        """Replace what counts for an OFM, by switch."""
        before = self._counted.pop(address, {})
        for dpid in before.keys() | usage.keys():
            old, new = before.get(dpid, _NONE), usage.get(dpid, _NONE)
            if old != new:
                self._used[dpid] = self.used(dpid).exchanged(old, new)
        if usage:
            self._counted[address] = usage


def _usage(plan: Plan) -> dict[int, Usage]:
    return {dpid: Usage.of(tables) for dpid, tables in plan.tables.items()}


def _larger(one: Mapping[int, Usage], other: Mapping[int, Usage]) -> dict[int, Usage]:
    found = {**one, **other}
    for dpid in one.keys() & other.keys():
        if one[dpid] != other[dpid]:
            found[dpid] = Usage(*map(max, one[dpid], other[dpid]))
    return found


def largest(tables: Tables) -> int:
    """Return the number of buckets in the largest group."""
    return max((len(group.buckets) for group in tables.groups.values()), default=0)
