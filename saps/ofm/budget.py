"""Budgets of switches: how many flow entries and buckets OFMs may use there, and do use (SAPS 2016, 4.1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from saps.ofm.addresses import OfmAddress
from saps.ofm.plan import Plan
from saps.ofm.tables import Tables

LARGEST_GROUP = 744
"""Buckets in one group: with the three rewrites of a last hop more do not fit a message of 64 KiB (OpenFlow 1.3.5,
7.1); measured with Open vSwitch 3.1."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What all OFMs together may use on one switch."""

    entries: int
    buckets: int
    group_size: int = LARGEST_GROUP
    """Buckets of one group."""


class Usage(NamedTuple):
    """What is used on one switch."""

    entries: int = 0
    buckets: int = 0


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
        self._plans: dict[OfmAddress, Plan] = {}
        self._used: dict[int, Usage] = {}
        self._counted: dict[OfmAddress, dict[int, Usage]] = {}
        """What of `_used` is for each OFM."""

    def budget(self, dpid: int) -> Budget:
        """The budget of a switch: its own, or the default."""
        return self.budgets.get(dpid, self.default)

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
            before = self._part(plan.ofm.address, dpid)
            budget, used = self.budget(dpid), self.used(dpid)
            for what, old, new, total, allowed in (
                ("flow entries", before.entries, tables.entries, used.entries, budget.entries),
                ("buckets", before.buckets, tables.buckets, used.buckets, budget.buckets),
                ("buckets in one group", _largest(before), _largest(tables), _largest(before), budget.group_size),
            ):
                wanted = total - old + new
                if new > old and wanted > allowed:
                    raise OverBudgetError(dpid, what, wanted, allowed)

    def admit(self, plan: Plan, *, both: bool = False) -> None:
        """Puts the plan in force in place of its predecessor. `both`: until `settle`, the predecessor counts wherever
        it needs more. Raises `OverBudgetError`; then nothing has changed."""
        self.check(plan)
        address = plan.ofm.address
        before = self._counted.get(address, {}) if both else {}
        self._plans[address] = plan
        self._count(address, _larger(before, _usage(plan)))

    def settle(self, address: OfmAddress) -> bool:
        """The plan in force has replaced its predecessor in all switches: only it counts now. Says whether that has
        freed anything."""
        plan, before = self._plans.get(address), self._counted.get(address, {})
        if plan is None or _usage(plan) == before:
            return False
        self._count(address, _usage(plan))
        return True

    def release(self, address: OfmAddress) -> None:
        """An OFM is no more: what it used is free."""
        self._plans.pop(address, None)
        self._count(address, {})

    def desired(self, dpid: int) -> Tables:
        """All that the plans in force want on a switch."""
        parts = [plan.tables[dpid] for _, plan in sorted(self._plans.items()) if dpid in plan.tables]
        return Tables.of(
            (flow for part in parts for flow in part.flows.values()),
            (group for part in parts for group in part.groups.values()),
            (meter for part in parts for meter in part.meters.values()),
        )

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans.values())

    def _part(self, address: OfmAddress, dpid: int) -> Tables:
        plan = self._plans.get(address)
        return plan.tables.get(dpid, Tables()) if plan is not None else Tables()

    def _count(self, address: OfmAddress, usage: dict[int, Usage]) -> None:
        """From now on this is what an OFM uses."""
        for part, sign in ((self._counted.pop(address, {}), -1), (usage, 1)):
            for dpid, (entries, buckets) in part.items():
                used = self.used(dpid)
                self._used[dpid] = Usage(used.entries + sign * entries, used.buckets + sign * buckets)
        if usage:
            self._counted[address] = usage


def _usage(plan: Plan) -> dict[int, Usage]:
    return {dpid: Usage(tables.entries, tables.buckets) for dpid, tables in plan.tables.items()}


def _larger(one: Mapping[int, Usage], other: Mapping[int, Usage]) -> dict[int, Usage]:
    nothing = Usage()
    pairs = {dpid: (one.get(dpid, nothing), other.get(dpid, nothing)) for dpid in one.keys() | other.keys()}
    return {dpid: Usage(max(a.entries, b.entries), max(a.buckets, b.buckets)) for dpid, (a, b) in pairs.items()}


def _largest(tables: Tables) -> int:
    return max((len(group.buckets) for group in tables.groups.values()), default=0)
