"""From an intent for an OFM to the plan that it heads for: its address, its tree, and whether the switches have room.

What there is already is kept as far as it can be: the tree in force is grown and mended (`growth`), and after a restart
of the controller the one that the switches hold is taken over (`adopt`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from saps.ofm.controller.addresses import AddressPool, OfmAddress, PoolExhaustedError
from saps.ofm.controller.coded_pool import CodedPool, Coding
from saps.ofm.controller.events import Intent
from saps.ofm.controller.record import Record
from saps.ofm.flows.budget import Budget, Ledger, OverBudgetError
from saps.ofm.flows.plan import GROUPS, Loopback, Ofm, Plan, Service, baseline, plan, replanned
from saps.ofm.flows.shared_budget import SharedLedger
from saps.ofm.flows.shared_switch_state import SharedSwitchState
from saps.ofm.flows.switch_state import Part, SwitchState
from saps.ofm.flows.tables import Tables
from saps.ofm.network.network import AnySwitchState, Network
from saps.ofm.network.parallel import narrowed, weights, widened
from saps.ofm.network.topology import Topology
from saps.ofm.network.traffic import Traffic
from saps.ofm.openflow.base import BASE_FLOWS
from saps.ofm.topics.registry import TopicRefusedError
from saps.ofm.trees.adopt import recovered
from saps.ofm.trees.barriers import BarredError, Barriers
from saps.ofm.trees.growth import grown, reachable
from saps.ofm.trees.tree import Planners, SharedTree, Tree

SHARE = 0.1
"""Of all trees, how many may move in a minute. More: sooner even, more changes of tables."""
OVERLAP = 30.0
"""Seconds for which a former tree stays. More: entries are used longer; it must be more than OFGate's lease."""


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
    limit: int = 0
    """See `plan.Ofm`. Not with `coding`."""
    coding: Coding | None = None
    """Addresses are the codes of topics, and entries serve many of them; `pool` and `per_port` mean nothing then. None:
    each OFM has an address of the pool."""
    spread: bool = False
    """One topic's traffic is spread over parallel links (`parallel`). Not with `coding`, nor without `per_port`."""
    failover: bool = False
    """With `spread`: it is not spread, but takes the first of them that is up."""
    move_share: float = SHARE
    """Of all trees, how many may move in a minute (`moves`)."""
    move_overlap: float = OVERLAP
    """Seconds for which a former tree stays."""
    planes: int = 4
    """Of stateless delivery, at most; 0: there is none. Not with `coding`."""


class NotAdmittedError(Exception):
    """An intent cannot be fulfilled now, for the reason given: no address is free, a switch has no room, or a broker's
    address is of another IP version."""


def service_of(priority: int | None) -> Service:
    """How the network treats a priority: the class selector of that number (RFC 2474, 4.2.2), and the queue."""
    return Service() if priority is None else Service(dscp=8 * priority, queue=priority)


class Admission:
    """Addresses and budgets, and who has what of them."""

    def __init__(self, rules: Rules, planner: Planners | None = None, traffic: Traffic | None = None) -> None:
        """Raises `ValueError` for a range that cannot be used."""
        self.rules = rules
        self.traffic = traffic or Traffic()
        """What the planner, if it cares, goes by."""
        self.pool: AddressPool | CodedPool
        if rules.coding is None:
            self.pool = AddressPool.parse(rules.pool)
            self.ledger = Ledger(rules.budget, rules.budgets)
        else:
            self.pool = pool = CodedPool(rules.coding)
            self.ledger = SharedLedger(rules.budget, rules.budgets, pool.words)
        self.barriers = Barriers()
        self.planner: Planners = planner or SharedTree()
        self._topics: dict[Part, str] = {}

    def baseline(self) -> Tables:
        """What every switch shall hold beside the base flows: the guard of the range."""
        base = {flow.name for flow in BASE_FLOWS}
        guards = baseline([self.pool.range.network])
        return Tables({name: flow for name, flow in guards.flows.items() if name not in base})

    def switch_state(self, baseline: Tables) -> AnySwitchState:
        """What keeps one switch's tables."""
        return SharedSwitchState(baseline, self.pool) if isinstance(self.pool, CodedPool) else SwitchState(baseline)

    def informed(self, record: Record, network: Network) -> list[int]:
        """The switches that must know of an OFM before its tree is made: where addresses are codes, all. An entry for
        topics beside it may be for it as well, as long as nobody says that it is there."""
        return sorted(network.switch_states) if isinstance(self.pool, CodedPool) and not record.held else []

    def topic(self, part: Part) -> str | None:
        """Whose entries these are."""
        return self._topics.get(part)

    def part(self, record: Record) -> Part:
        """The entries of an OFM that has an address."""
        assert record.address is not None
        return GROUPS | self.pool.number(record.address)

    def choose(self, record: Record, intent: Intent, network: Network) -> Plan | None:
        """The plan that an OFM heads for, admitted to the ledger; it must not be busy. None: there is nothing better
        than what it has, or it is too early to tell. A plan that is found in the switches becomes the record's, as if
        it had been in force all the time. Raises `NotAdmittedError`."""
        # Until all has been seen, what it had before a restart is better than a part of it, or than another tree over
        # what is found so far; and hosts may seem to be behind a port whose link is not found yet.
        early = record.plan is None and not network.settled
        if early and not network.all_read:
            record.lost = tuple(sorted(intent.members - reachable(network.topology, intent.members)))
            return None
        try:
            if self._as_wished(record, intent, network.topology):
                record.lost = ()
                return None
            ofm = self._ofm(record, intent)
            held = network.found(ofm.group) if early else {}
            before = record.plan or (recovered(self._guessed(ofm, network), network.topology, held) if held else None)
            planner = self.planner.for_topic(record.topic)
            topology = self.barriers.around(record.topic, network.topology)
            self.barriers.check(record.topic, network.topology, intent.members)
            former = before.tree if before else Tree()
            tree = grown(planner, topology, narrowed(topology, former), intent.members)
            tree = self._widened(topology, tree, former)
            ofm = self._weighed(ofm, tree)
            record.lost = tuple(sorted(intent.members - reachable(topology, intent.members)))
            if early and (record.lost or (held and before is None)):
                return None
            silent = (intent.senders - intent.brokers) & tree.brokers.keys()
            if before and record.plan and (before.ofm, before.tree, before.silent) == (ofm, tree, silent):
                return None
            made = replanned(record.plan, ofm, tree, silent)
            self.ledger.admit(made, both=True)
            self.planner.adopted(record.topic, tree)
        except (OverBudgetError, BarredError) as error:
            if early:
                return None
            raise NotAdmittedError(str(error)) from None
        except (PoolExhaustedError, TopicRefusedError, ValueError) as error:
            raise NotAdmittedError(str(error)) from None
        if held:
            record.plan, record.held = before, held
        return made

    def _as_wished(self, record: Record, intent: Intent, topology: Topology) -> bool:
        """Is the plan in force that of the intent, along links that are whole? Where traffic is spread over parallel
        links, there may be more of them than are used."""
        plan = record.plan
        return (
            plan is not None
            and not plan.tree.spread
            and plan.tree.brokers.keys() == intent.members
            and plan.silent == intent.senders - intent.brokers
            and plan.ofm.service == service_of(intent.priority)
            and plan.tree.intact(self.barriers.around(record.topic, topology))
        )

    def stands(self, record: Record, topology: Topology) -> bool:
        """Can the tree in force carry packets, and may it?"""
        assert record.plan is not None
        try:
            return record.plan.tree.intact(self.barriers.around(record.topic, topology))
        except ValueError:
            return False

    def resume(self, record: Record, intent: Intent, address: OfmAddress, tree: Tree) -> None:
        """Takes over the plan of an earlier run, unless its address is not ours any more or there is no room."""
        try:
            self.pool.reserve(record.topic, address)
            record.address = address
            made = plan(self._weighed(self._ofm(record, intent), tree), tree, intent.senders - intent.brokers)
            self.ledger.admit(made)
            self.planner.adopted(record.topic, tree)
        except (ValueError, OverBudgetError, TopicRefusedError):
            return
        record.plan, record.held = made, dict(made.tables)

    def beside(self, record: Record, second: Record, tree: Tree, topology: Topology) -> Plan:
        """The plan of a second tree for an OFM, under an address of its own, admitted to the ledger; from now on the
        planner goes by this tree. `topology`: what may carry it. Raises `NotAdmittedError`: nothing has changed."""
        assert record.intent is not None
        assert record.plan is not None
        try:
            tree = self._widened(topology, tree)
            made = plan(self._weighed(self._ofm(second, record.intent), tree), tree, record.plan.silent)
            self.ledger.admit(made)
        except (OverBudgetError, PoolExhaustedError, TopicRefusedError, ValueError) as error:
            self.release(second)
            raise NotAdmittedError(str(error)) from None
        self.planner.adopted(record.topic, tree)
        return made

    def exchange(self, record: Record, second: Record) -> None:
        """The second tree of an OFM is the first from now on, and the other way round."""
        self.pool.exchange(record.topic, second.topic)
        record.address, second.address = second.address, record.address
        record.plan, second.plan = second.plan, record.plan
        record.held, second.held = second.held, record.held
        for each in (record, second):
            self._topics[self.part(each)] = each.topic

    def release(self, record: Record) -> bool:
        """Nothing of an OFM is left anywhere: its address and its room are free. Says whether it had any room."""
        self.planner.adopted(record.topic, None)
        if record.address is None:
            return False
        had = self.ledger.plan_of(record.address) is not None
        self.ledger.release(record.address)
        self._topics.pop(self.part(record), None)
        self.pool.release(record.topic)
        record.address = None
        return had

    def _widened(self, topology: Topology, tree: Tree, former: Tree | None = None) -> Tree:
        """The tree over parallel links, if that is wanted."""
        return widened(topology, tree, former) if self.rules.spread and self.rules.per_port else tree

    def _weighed(self, ofm: Ofm, tree: Tree) -> Ofm:
        """The same, with the weights of the links over which a tree's traffic is spread."""
        if not tree.spread or ofm.failover:
            return ofm
        return replace(ofm, weights=weights(tree, self.traffic.capacity))

    def _guessed(self, ofm: Ofm, network: Network) -> Ofm:
        """The same, with the weights that any links may have over which an earlier run has spread traffic."""
        links = frozenset(network.topology.links) if self.rules.spread else frozenset()
        return self._weighed(ofm, Tree(links, spread=links))

    def _ofm(self, record: Record, intent: Intent) -> Ofm:
        """What the OFM's flows have in common; it gets an address if it has none. Raises `PoolExhaustedError`."""
        if record.address is None:
            record.address = self.pool.allocate(record.topic)
        self._topics[self.part(record)] = record.topic
        number = self.pool.number(record.address)
        rules = self.rules
        service, failover = service_of(intent.priority), rules.failover
        return Ofm(record.address, number, rules.loopback, service, rules.per_port, rules.limit, failover=failover)
