"""From a wish for an OFM to the plan that it heads for: its address, its tree, and whether the switches have room.

What there is already is kept as far as it can be: the tree in force is grown and mended (`growth`), and after a restart
of the controller the one that the switches hold is taken over (`adopt`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saps.ofm.addresses import AddressPool, OfmAddress, PoolExhaustedError
from saps.ofm.adopt import recovered
from saps.ofm.barriers import BarredError, Barriers
from saps.ofm.budget import Budget, Ledger, OverBudgetError
from saps.ofm.events import Wish
from saps.ofm.growth import grown, reachable
from saps.ofm.mirror import Part
from saps.ofm.network import Network
from saps.ofm.openflow.base import BASE_FLOWS
from saps.ofm.plan import GROUPS, Loopback, Ofm, Plan, Service, baseline, plan
from saps.ofm.record import Record
from saps.ofm.tables import Tables
from saps.ofm.topology import Topology
from saps.ofm.tree import Planners, SharedTree, Tree


@dataclass(frozen=True, slots=True)
class Rules:
    """What the controller goes by."""

    pool: str
    """The range of OFM addresses."""
    loopback: Loopback
    budget: Budget
    budgets: dict[int, Budget] = field(default_factory=dict)
    """Of switches that have one of their own."""
    per_port: bool = True
    """See `plan.Ofm`."""


class NotAdmittedError(Exception):
    """A wish cannot be fulfilled now, for the reason given: no address is free, a switch has no room, or a broker's
    address is of another IP version."""


def service_of(priority: int | None) -> Service:
    """How the network treats a priority: the class selector of that number (RFC 2474, 4.2.2), and the queue."""
    return Service() if priority is None else Service(dscp=8 * priority, queue=priority)


class Admission:
    """Addresses and budgets, and who has what of them."""

    def __init__(self, rules: Rules, planner: Planners | None = None) -> None:
        """Raises `ValueError` for a range that cannot be used."""
        self.rules = rules
        self.pool = AddressPool.parse(rules.pool)
        self.ledger = Ledger(rules.budget, rules.budgets)
        self.barriers = Barriers()
        self._planner = planner or SharedTree()
        self._topics: dict[Part, str] = {}

    def baseline(self) -> Tables:
        """What every switch shall hold beside the base flows: the guard of the range."""
        base = {flow.name for flow in BASE_FLOWS}
        guards = baseline([self.pool.range.network])
        return Tables({name: flow for name, flow in guards.flows.items() if name not in base})

    def topic(self, part: Part) -> str | None:
        """Whose entries these are."""
        return self._topics.get(part)

    def part(self, record: Record) -> Part:
        """The entries of an OFM that has an address."""
        assert record.address is not None
        return GROUPS | self.pool.number(record.address)

    def choose(self, record: Record, wish: Wish, network: Network) -> Plan | None:
        """The plan that an OFM heads for, admitted to the ledger; it must not be busy. None: there is nothing better
        than what it has, or it is too early to tell. A plan that is found in the switches becomes the record's, as if
        it had been in force all the time. Raises `NotAdmittedError`."""
        # Until all has been seen, what it had before a restart is better than a part of it, or than another tree over
        # what is found so far; and hosts may seem to be behind a port whose link is not found yet.
        early = record.plan is None and not network.settled
        try:
            ofm = self._ofm(record, wish)
            held = network.found(ofm.group) if early else {}
            before = record.plan or (recovered(ofm, network.topology, held) if held else None)
            planner = self._planner.for_topic(record.topic)
            topology = self.barriers.around(record.topic, network.topology)
            self.barriers.check(record.topic, network.topology, wish.members)
            tree = grown(planner, topology, before.tree if before else Tree(), wish.members)
            record.lost = tuple(sorted(wish.members - reachable(topology, wish.members)))
            if early and (record.lost or not network.all_read or (held and before is None)):
                return None
            silent = (wish.senders - wish.brokers) & tree.brokers.keys()
            if before and record.plan and (before.ofm, before.tree, before.silent) == (ofm, tree, silent):
                return None
            made = plan(ofm, tree, silent)
            self.ledger.admit(made, both=True)
            self._planner.adopted(record.topic, tree)
        except (OverBudgetError, BarredError) as error:
            if early:
                return None
            raise NotAdmittedError(str(error)) from None
        except (PoolExhaustedError, ValueError) as error:
            raise NotAdmittedError(str(error)) from None
        if held:
            record.plan, record.held = before, held
        return made

    def stands(self, record: Record, topology: Topology) -> bool:
        """Can the tree in force carry packets, and may it?"""
        assert record.plan is not None
        try:
            return record.plan.tree.intact(self.barriers.around(record.topic, topology))
        except ValueError:
            return False

    def resume(self, record: Record, wish: Wish, address: OfmAddress, tree: Tree) -> None:
        """Takes over the plan of an earlier run, unless its address is not ours any more or there is no room."""
        try:
            self.pool.reserve(record.topic, address)
            record.address = address
            made = plan(self._ofm(record, wish), tree, wish.senders - wish.brokers)
            self.ledger.admit(made)
            self._planner.adopted(record.topic, tree)
        except (ValueError, OverBudgetError):
            return
        record.plan, record.held = made, dict(made.tables)

    def release(self, record: Record) -> bool:
        """Nothing of an OFM is left anywhere: its address and its room are free. Says whether it had any room."""
        self._planner.adopted(record.topic, None)
        if record.address is None:
            return False
        had = self.ledger.plan_of(record.address) is not None
        self.ledger.release(record.address)
        self._topics.pop(self.part(record), None)
        self.pool.release(record.topic)
        record.address = None
        return had

    def _ofm(self, record: Record, wish: Wish) -> Ofm:
        """What the OFM's flows have in common; it gets an address if it has none. Raises `PoolExhaustedError`."""
        if record.address is None:
            record.address = self.pool.allocate(record.topic)
        self._topics[self.part(record)] = record.topic
        number = self.pool.number(record.address)
        return Ofm(record.address, number, self.rules.loopback, service_of(wish.priority), self.rules.per_port)
