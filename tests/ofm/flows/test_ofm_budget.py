"""Budgets: never exceeded, refused with the switch's name, and nothing is forgotten or counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.budget import LARGEST_GROUP, Budget, Ledger, OverBudgetError, Usage
from saps.ofm.flows.plan import Loopback, Ofm, Plan, plan
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import Port
from saps.ofm.trees.tree import SharedTree, Tree
from tests.ofm.networks import BASELINE, broker_at, fabric_with, networks

LOOPBACK = Loopback("10.0.255.254", "02:ff:00:00:00:01")


def ofm(number: int) -> Ofm:
    return Ofm(OfmAddress("239.77.0.9", 5000 + number), number, LOOPBACK)


@given(st.data())
def test_admitted_plans_fit_and_refused_ones_do_not(data: st.DataObject) -> None:
    network = data.draw(networks())
    budget = Budget(data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12)), data.draw(st.integers(1, 6)))
    ledger = Ledger(budget)
    wanted: dict[OfmAddress, Plan] = {}
    for number, chosen in data.draw(
        st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 7), max_size=4)), max_size=12)
    ):
        made = plan(ofm(number), SharedTree().plan(network.topology, network.members(chosen)))
        together = {**wanted, made.ofm.address: made}
        refusal = refusal_of(ledger, made)
        if refusal is None:
            wanted = together
        else:
            assert refusal.wanted > refusal.allowed
            assert refusal.wanted == needed(together, made, refusal)
            assert f"{refusal.dpid:016x}" in str(refusal)
        assert {each.ofm.address: each for each in ledger} == wanted
        for dpid in network.topology.switches:
            tables = ledger.desired(dpid)
            assert ledger.used(dpid) == Usage.of(tables)
            assert tables.entries <= budget.entries
            assert tables.buckets <= budget.buckets
            assert all(len(group.buckets) <= budget.group_size for group in tables.groups.values())
    # A real switch with exactly this room takes them all.
    fabric_with(network.topology, *wanted.values(), capacity=budget.entries + BASELINE.entries)
    for address in wanted:
        ledger.release(address)
    assert all(ledger.used(dpid) == Usage(0, 0) for dpid in network.topology.switches)


def refusal_of(ledger: Ledger, made: Plan) -> OverBudgetError | None:
    try:
        ledger.admit(made)
    except OverBudgetError as error:
        return error
    return None


def needed(plans: dict[OfmAddress, Plan], made: Plan, error: OverBudgetError) -> int:
    """What the refusal speaks of, counted from the tables."""
    tables = [each.tables.get(error.dpid, Tables()) for each in plans.values()]
    return {
        "flow entries": sum(each.entries for each in tables),
        "buckets": sum(each.buckets for each in tables),
        "groups": sum(len(each.groups) for each in tables),
        "buckets in one group": made.tables[error.dpid].buckets,
    }[error.what]


def test_a_switch_may_have_a_budget_of_its_own() -> None:
    tree = Tree(frozenset(), {broker_at(n, 6000): Port(7, n + 1) for n in range(3)})
    ledger = Ledger(Budget(10, 10), {7: Budget(2, 10)})
    with pytest.raises(OverBudgetError, match="switch 0000000000000007 would need 3 flow entries; its budget is 2"):
        ledger.admit(plan(ofm(1), tree))


def test_a_group_that_no_message_could_carry_is_refused() -> None:
    ledger = Ledger(Budget(10_000, 10_000))
    brokers = {broker_at(n, 6000): Port(7, n + 1) for n in range(LARGEST_GROUP + 1)}
    with pytest.raises(OverBudgetError, match="745 buckets in one group; its budget is 744"):
        ledger.admit(plan(ofm(1), Tree(frozenset(), brokers)))
    brokers.popitem()
    ledger.admit(plan(ofm(1), Tree(frozenset(), brokers)))
    assert ledger.used(7) == Usage(744, 744, 1)


def test_leaving_is_admitted_even_where_the_budget_was_cut() -> None:
    tree = Tree(frozenset(), {broker_at(n, 6000): Port(7, n + 1) for n in range(3)})
    ledger = Ledger(Budget(10, 10))
    ledger.admit(plan(ofm(1), tree))
    ledger.default = Budget(1, 1)
    ledger.admit(plan(ofm(1), tree.without([broker_at(0, 6000)])))
    assert ledger.used(7) == Usage(2, 2, 1)
