"""Turns an intent for an OFM into its next plan: chooses its address and its tree, and checks that the switches have
room.

Existing trees are kept as far as possible. The tree in force is grown and mended (`growth`). After a restart of the
controller, the tree that the switches hold is adopted (`adopt`).
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
from saps.ofm.trees.tree import Planners, SharedTree, Tree, UnreachableError

SHARE = 0.1
"""Most trees that may move in a minute, as a share of all. A larger share balances sooner and changes more tables."""
OVERLAP = 30.0
"""Seconds for which a former tree stays, longer than OFGate's lease. A larger value uses entries for longer."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that the controller follows."""

    pool: str
    """Range of OFM addresses."""
    loopback: Loopback
    budget: Budget
    budgets: dict[int, Budget] = field(default_factory=dict)
    """Budgets of switches that differ from the default."""
    per_port: bool = True
    """See `plan.Ofm`."""
    limit: int = 0
    """See `plan.Ofm`. Not with `coding`."""
    coding: Coding | None = None
    """How topics are coded as addresses, so that entries serve many of them; then `pool` and `per_port` have no effect.
    None: each OFM has an address of the pool."""
    spread: bool = False
    """Whether one topic's traffic is spread over parallel links (`parallel`). Not with `coding`, nor without
    `per_port`."""
    failover: bool = False
    """Whether, with `spread`, all traffic takes the first parallel link that is up."""
    move_share: float = SHARE
    """Most trees that may move in a minute, as a share of all (`moves`)."""
    move_overlap: float = OVERLAP
    """Seconds for which a former tree stays."""
    planes: int = 4
    """Most planes of stateless delivery; 0: no stateless delivery. Not with `coding`."""
    spanning_tree: bool = False
    """Whether links beyond a spanning tree are closed to what switches forward by themselves (`spanning_tree`)."""


class NotAdmittedError(Exception):
    """An intent that cannot be fulfilled now. The text gives the reason: no free address, no room in a switch, a
    broker's address of another IP version, or a policy."""


def service_of(priority: int | None) -> Service:
    """Return the treatment of a priority: the class selector of that number (RFC 2474, 4.2.2), and the queue."""
    return Service() if priority is None else Service(dscp=8 * priority, queue=priority)


class Admission:
    """The addresses and budgets, and their use by OFMs."""

    def __init__(self, rules: Rules, planner: Planners | None = None, traffic: Traffic | None = None) -> None:
        """`planner` decides on trees; None: a `SharedTree`. `traffic` holds capacities and demands. Raises `ValueError`
        for an unusable range."""
        self.rules = rules
        self.traffic = traffic or Traffic()
        """Capacities and demands, for planners that consider them."""
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
        """Return what every switch shall hold beside the base flows: the guard of the range."""
        base = {flow.name for flow in BASE_FLOWS}
        guards = baseline([self.pool.range.network])
        return Tables({name: flow for name, flow in guards.flows.items() if name not in base})

    def switch_state(self, baseline: Tables) -> AnySwitchState:
        """Return the state of one switch's tables."""
        return SharedSwitchState(baseline, self.pool) if isinstance(self.pool, CodedPool) else SwitchState(baseline)

    def informed(self, record: Record, network: Network) -> list[int]:
        """Return the switches that must know of an OFM before its tree is made. With coded addresses these are all
        switches: an aggregated entry for neighbouring topics may match the OFM's packets, too, until the switch knows
        of the OFM."""
        return sorted(network.switch_states) if isinstance(self.pool, CodedPool) and not record.held else []

    def topic(self, part: Part) -> str | None:
        """Return the topic, or the owner of a second tree, that a part belongs to; None if unknown."""
        return self._topics.get(part)

    def part(self, record: Record) -> Part:
        """Return the part of an OFM that has an address."""
        assert record.address is not None
        return GROUPS | self.pool.number(record.address)

    def choose(self, record: Record, intent: Intent, network: Network) -> Plan | None:
        """Return the next plan of an OFM that is not busy, admitted to the ledger. None: nothing is better than the
        present plan, or it is too early to decide. A plan found in the switches becomes the record's, as if it had been
        in force all the time. Raises `NotAdmittedError`."""
        # Until everything has been seen, the tree from before a restart is better than a part of it, or than another
        # tree over what is found so far. Hosts may seem to be behind a port whose link is not found yet.
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
        except (OverBudgetError, BarredError, UnreachableError) as error:
            if early:
                return None
            raise NotAdmittedError(str(error)) from None
        except (PoolExhaustedError, TopicRefusedError, ValueError) as error:
            raise NotAdmittedError(str(error)) from None
        if held:
            record.plan, record.held = before, held
        return made

    def _as_wished(self, record: Record, intent: Intent, topology: Topology) -> bool:
        """Return whether the plan in force is that of the intent, along intact links. A tree that spreads its traffic
        never counts as up to date, since there may be more parallel links than it uses."""
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
        """Return whether the tree in force can and may carry packets."""
        assert record.plan is not None
        try:
            return record.plan.tree.intact(self.barriers.around(record.topic, topology))
        except ValueError:
            return False

    def resume(self, record: Record, intent: Intent, address: OfmAddress, tree: Tree) -> None:
        """Take over the plan of an earlier run, unless its address is out of the range or a switch lacks the room."""
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
        """Return the plan of a second tree for an OFM, under an address of its own, admitted to the ledger. From now on
        the planner counts this tree. `topology` is the network that may carry it. Raises `NotAdmittedError`; then
        nothing has changed."""
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
        """Exchange the first and the second tree of an OFM."""
        self.pool.exchange(record.topic, second.topic)
        record.address, second.address = second.address, record.address
        record.plan, second.plan = second.plan, record.plan
        record.held, second.held = second.held, record.held
        for each in (record, second):
            self._topics[self.part(each)] = each.topic

    def release(self, record: Record) -> bool:
        """Free the address and the room of an OFM that has left the switches. Return whether it had any room."""
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
        """Return the tree over parallel links if the rules want that."""
        return widened(topology, tree, former) if self.rules.spread and self.rules.per_port else tree

    def _weighed(self, ofm: Ofm, tree: Tree) -> Ofm:
        """Return the OFM with the weights of the links over which a tree's traffic is spread."""
        if not tree.spread or ofm.failover:
            return ofm
        return replace(ofm, weights=weights(tree, self.traffic.capacity))

    def _guessed(self, ofm: Ofm, network: Network) -> Ofm:
        """Return the OFM with the weights that any links may have over which an earlier run has spread traffic."""
        links = frozenset(network.topology.links) if self.rules.spread else frozenset()
        return self._weighed(ofm, Tree(links, spread=links))

    def _ofm(self, record: Record, intent: Intent) -> Ofm:
        """Return what the OFM's flows have in common. An OFM without an address gets one. Raises `PoolExhaustedError`
        and `TopicRefusedError`."""
        if record.address is None:
            record.address = self.pool.allocate(record.topic)
        self._topics[self.part(record)] = record.topic
        number = self.pool.number(record.address)
        rules = self.rules
        service, failover = service_of(intent.priority), rules.failover
        return Ofm(record.address, number, rules.loopback, service, rules.per_port, rules.limit, failover=failover)
