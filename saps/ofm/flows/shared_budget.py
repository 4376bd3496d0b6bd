"""Keeps budgets where entries serve several OFMs: counts what all plans take together, not the sum of each plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import gt

from saps.ofm.flows.budget import Budget, Ledger, OverBudgetError, Usage, largest
from saps.ofm.flows.plan import Plan
from saps.ofm.flows.switch_state import Part
from saps.ofm.flows.tables import Group, Tables
from saps.ofm.topics.shared_entries import Coded, shared


class SharedLedger(Ledger):
    """A `Ledger` of plans whose entries are merged. The sum is an upper bound, so the exact usage is computed only
    where the sum exceeds a budget. While one plan replaces another, a switch may hold entries of both."""

    def __init__(self, default: Budget, budgets: Mapping[int, Budget] | None, words: Mapping[Part, Coded]) -> None:
        """`words` are the codes of all OFMs that have an address, by group id."""
        super().__init__(default, budgets)
        self._words = words

    def check(self, plan: Plan) -> None:
        """See `Ledger.check`. Every switch is checked, since a new OFM may cost entries that drop its packets on any of
        them."""
        others = [other for other in self if other.ofm.address != plan.ofm.address]
        for dpid in sorted({*self._used, *plan.tables}):
            tables = plan.tables.get(dpid, Tables())
            old, budget = self._part(plan.ofm.address, dpid), self.budget(dpid)
            most = (budget.entries, budget.buckets, budget.groups)
            wanted = self.used(dpid).exchanged(Usage.of(old), Usage.of(tables))
            if any(map(gt, wanted, most)) or largest(tables) > budget.group_size:
                self._check(dpid, [*others, plan], self._before(dpid, plan))

    def _before(self, dpid: int, plan: Plan) -> Usage:
        """Return what is taken of a switch before a plan is in force."""
        words = dict(self._words)
        if self.plan_of(plan.ofm.address) is None:
            words.pop(plan.ofm.group, None)
        return Usage.of(shared({other.ofm.group: other.tables[dpid] for other in self if dpid in other.tables}, words))

    def taken(self, dpid: int) -> Usage:
        """See `Ledger.taken`."""
        return Usage.of(self.desired(dpid))

    def desired(self, dpid: int, groups: Mapping[int, Group] | None = None) -> Tables:
        """Return all that the plans in force want on a switch. The numbers of groups depend on `groups`, those that the
        switch holds."""
        return self._together(dpid, self, groups)

    def _together(self, dpid: int, plans: Iterable[Plan], groups: Mapping[int, Group] | None = None) -> Tables:
        parts = {plan.ofm.group: plan.tables[dpid] for plan in plans if dpid in plan.tables}
        return shared(parts, self._words, groups)

    def _check(self, dpid: int, plans: Iterable[Plan], before: Usage) -> None:
        tables, budget = self._together(dpid, plans), self.budget(dpid)
        after = Usage.of(tables)
        for what, old, new, allowed in (
            ("flow entries", before.entries, after.entries, budget.entries),
            ("buckets", before.buckets, after.buckets, budget.buckets),
            ("groups", before.groups, after.groups, budget.groups),
            ("buckets in one group", 0, largest(tables), budget.group_size),
        ):
            if new > max(old, allowed):
                raise OverBudgetError(dpid, what, new, allowed)
