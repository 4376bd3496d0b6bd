"""Provides the controller's metrics for ``/metrics``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from saps.frontend.web.http.metrics import Sample
from saps.ofm.northbound.schema import OfmState, Status, SwitchBudget


def samples(states: Iterable[OfmState], budgets: Iterable[SwitchBudget]) -> Iterator[Sample]:
    """Yield the controller's metrics, derived from the states of OFMs and the budgets of switches."""
    by_status, switches = Counter(state.status.value for state in states), list(budgets)
    statuses = {status.value: float(by_status[status.value]) for status in Status if status is not Status.NONE}
    yield Sample("controller_ofms", "OFMs, by their status.", statuses, "status")
    connected = sum(switch.connected for switch in switches)
    there = {"connected": float(connected), "away": float(len(switches) - connected)}
    yield Sample("controller_switches", "Switches, connected or not.", there, "state")
    entries = {switch.dpid: float(switch.entries.used) for switch in switches}
    yield Sample("controller_flow_entries", "Flow entries that OFMs use, by switch.", entries, "switch")
    room = {switch.dpid: float(switch.entries.budget) for switch in switches}
    yield Sample("controller_flow_budget", "Flow entries that OFMs may use, by switch.", room, "switch")
    buckets = {switch.dpid: float(switch.buckets.used) for switch in switches}
    yield Sample("controller_buckets", "Group buckets that OFMs use, by switch.", buckets, "switch")
