"""The OFC as a machine: wishes for OFMs and news of the network in, changes of switches and states of OFMs out.

For each OFM one plan at a time comes into force, stage by stage (`record`); each switch is brought to what all OFMs
want there (`mirror`), so that a switch that comes back, empty or not, is an ordinary case. What goes wrong is told in
the OFM's state; only what the network cannot do for lack of a path or a budget stays undone, until it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace as with_

from saps.ofm.addresses import AddressPool, OfmAddress, PoolExhaustedError
from saps.ofm.adopt import recovered
from saps.ofm.budget import Budget, Ledger, OverBudgetError
from saps.ofm.events import (
    Applied,
    Apply,
    Effect,
    Event,
    Failed,
    HostMoved,
    LinkChanged,
    PortChanged,
    Read,
    Settled,
    SwitchDown,
    SwitchGone,
    SwitchUp,
    TablesRead,
    Told,
    Wish,
    Wished,
)
from saps.ofm.growth import grown, largest, reachable
from saps.ofm.mirror import BASE, Mirror, Part, part_of
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.openflow.base import BASE_FLOWS
from saps.ofm.plan import GROUPS, Loopback, Ofm, Service, baseline, plan
from saps.ofm.record import Record
from saps.ofm.tables import Tables
from saps.ofm.topology import BrokerAddress, Port, Topology
from saps.ofm.tree import Planner, SharedTree, Tree

_NOTHING = Tables()


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


def service_of(priority: int | None) -> Service:
    """How the network treats a priority: the class selector of that number (RFC 2474, 4.2.2), and the queue."""
    return Service() if priority is None else Service(dscp=8 * priority, queue=priority)


class Controller:
    """The machine; `handle` is all that changes it."""

    def __init__(self, rules: Rules, planner: Planner | None = None) -> None:
        self.rules = rules
        self.topology = Topology()
        self.pool = AddressPool.parse(rules.pool)
        self.ledger = Ledger(rules.budget, rules.budgets)
        self.settled = False
        """The network has had its time to show itself: whoever is not seen is not there."""
        self._planner = planner or SharedTree()
        base = {flow.name for flow in BASE_FLOWS}
        guards = baseline([self.pool.range.network])
        self._baseline = Tables({name: flow for name, flow in guards.flows.items() if name not in base})
        self.records: dict[str, Record] = {}
        self.parts: dict[Part, str] = {}
        """Topics by group id."""
        self.mirrors: dict[int, Mirror] = {}
        self.hosts: dict[str, Port] = {}
        """Where MAC addresses were seen."""
        self._stale: dict[str, None] = {}
        """OFMs that something has happened to, in that order."""
        self._effects: list[Effect] = []
        self.version = 0
        """Of the latest state told."""

    # -- what is asked

    def state(self, topic: str) -> OfmState:
        """The state of an OFM."""
        record = self.records.get(topic)
        return record.state if record is not None else OfmState(topic=topic, status=Status.NONE)

    @property
    def missing(self) -> list[BrokerAddress]:
        """Brokers that are wished for and have not been seen anywhere."""
        return sorted(broker for broker in self._wished_for() if self.topology.where(broker) is None)

    # -- what happens

    def handle(self, event: Event) -> list[Effect]:
        """Takes an event in. Gives what is to be done now, in this order."""
        match event:
            case Wished(topic, wish):
                self._wished(topic, wish)
            case TablesRead(dpid, tables):
                self._read(dpid, tables)
            case Applied(dpid):
                self._applied(dpid)
            case Failed():
                self._failed(event)
            case _:
                self._network(event)
        self._run()
        effects, self._effects = self._effects, []
        return effects

    def _wished(self, topic: str, wish: Wish | None) -> None:
        record = self.records.get(topic)
        if record is None:
            if wish is None:
                return
            record = self.records[topic] = Record(topic, state=OfmState(topic=topic, status=Status.NONE))
        if record.wish == wish and record.refusal is None:
            return
        gone = record.wish.members if record.wish is not None else frozenset()
        record.wish, record.refusal, record.blocked = wish, None, False
        for broker in wish.members if wish is not None else ():
            if (place := self.hosts.get(broker.mac)) is not None:
                self.topology.attach(broker, *place)
        for broker in gone - self._wished_for():
            self.topology.detach(broker)
        self._stale[topic] = None

    def _wished_for(self) -> set[BrokerAddress]:
        return {broker for record in self.records.values() if record.wish for broker in record.wish.members}

    def _network(self, event: Event) -> None:
        """News of the network: every OFM may be concerned."""
        topology, before = self.topology, self.topology.version
        match event:
            case SwitchUp(dpid, ports):
                topology.switch_up(dpid, [port for port, up in ports.items() if up])
                for port in [port for port, up in ports.items() if not up]:
                    topology.port_status(dpid, port, up=False)
                self._mirror(dpid).lost()
                self._effects.append(Read(dpid))
            case SwitchDown(dpid):
                if dpid in self.mirrors:
                    self.mirrors[dpid].lost()
            case SwitchGone(dpid):
                self._gone(dpid)
            case PortChanged(at, up):
                topology.port_status(*at, up=up)
            case LinkChanged(link, up):
                (topology.link_up if up else topology.link_down)(*link)
            case HostMoved(mac, at):
                self._moved(mac, at)
            case Settled(switches, links):
                self.settled = True
                for dpid in [dpid for dpid in topology.switches if dpid not in switches]:
                    self._gone(dpid)
                for link in [link for link in topology.links if link not in links]:
                    topology.link_down(*link)
                self._evict(self.mirrors)
        if topology.version != before or isinstance(event, SwitchDown | SwitchUp | Settled):
            self._stale |= dict.fromkeys(self.records)

    def _mirror(self, dpid: int) -> Mirror:
        """A switch's tables. Of a switch that is new, a link may have been known, and trees may lead through it."""
        mirror = self.mirrors.get(dpid)
        if mirror is None:
            mirror = self.mirrors[dpid] = Mirror(self._baseline)
            for record in self.records.values():
                if dpid in record.held:
                    mirror.want(self._part(record), record.held[dpid])
        return mirror

    def _gone(self, dpid: int) -> None:
        self.topology.switch_down(dpid)
        self.mirrors.pop(dpid, None)
        for record in self.records.values():
            record.held.pop(dpid, None)

    def _moved(self, mac: str, at: Port | None) -> None:
        if at is None:
            self.hosts.pop(mac, None)
        else:
            self.hosts[mac] = at
        for broker in [broker for broker in self._wished_for() if broker.mac == mac]:
            if at is None:
                self.topology.detach(broker)
            else:
                self.topology.attach(broker, *at)

    # -- switches

    def _read(self, dpid: int, tables: Tables) -> None:
        if (mirror := self.mirrors.get(dpid)) is None:
            return
        mirror.read(tables)
        if self.settled:
            self._evict([dpid])
        self._stale |= dict.fromkeys(self.records)

    def _evict(self, dpids: Iterable[int]) -> None:
        """Takes away what belongs to no OFM."""
        for dpid in dpids:
            for part in self.mirrors[dpid].strangers:
                self.mirrors[dpid].want(part, _NOTHING)

    def _applied(self, dpid: int) -> None:
        if (mirror := self.mirrors.get(dpid)) is not None:
            self._touch(mirror.done())

    def _touch(self, parts: Iterable[Part]) -> None:
        self._stale |= dict.fromkeys(self.parts[part] for part in parts if part in self.parts)

    def _failed(self, event: Failed) -> None:
        if (mirror := self.mirrors.get(event.dpid)) is None:
            return
        mirror.lost()
        self._effects.append(Read(event.dpid, again=True))
        part = part_of(event.change)
        if part is not None and (topic := self.parts.get(part)) is not None:
            record = self.records[topic]
            if record.plan is not None:
                record.abandon()
                record.refusal, record.blocked = event.why, True
                self._stale[topic] = None

    # -- OFMs

    def _run(self) -> None:
        """Does all that can be done now: stages, plans, and the batches they come to."""
        for dpid in self.mirrors:
            self._start(dpid)
        concerned: dict[str, None] = {}
        while self._stale:
            topic = next(iter(self._stale))
            del self._stale[topic]
            concerned[topic] = None
            if topic in self.records:
                self._advance(self.records[topic])
        for topic in concerned:
            if topic in self.records:
                self._tell(self.records[topic])

    def _start(self, dpid: int) -> None:
        """Starts the next batch at a switch, if it is idle and has something to do."""
        changes, settled = self.mirrors[dpid].batch()
        if changes:
            self._effects.append(Apply(dpid, tuple(changes)))
        self._touch(settled)

    def _advance(self, record: Record) -> None:
        """Goes on with an OFM as far as it can go without an answer."""
        while True:
            record.waiting = frozenset(dpid for dpid in record.waiting if not self._confirmed(record, dpid))
            if record.waiting:
                return
            if record.stages:
                self._enter(record)
            elif not self._finish(record):
                return

    def _enter(self, record: Record) -> None:
        """The next stage of an OFM begins."""
        stage = record.stages.popleft()
        for dpid, tables in stage.items():
            record.held[dpid] = tables
            mirror = self.mirrors.get(dpid)
            if mirror is not None and mirror.want(self._part(record), tables):
                self._start(dpid)
        record.waiting = frozenset(stage)

    def _confirmed(self, record: Record, dpid: int) -> bool:
        """Has a switch done its part of the stage? One that is away and has no link left can do no harm."""
        mirror = self.mirrors.get(dpid)
        if mirror is None or mirror.settled(self._part(record)):
            return True
        return not mirror.known and not any(self.topology.neighbours(dpid))

    def _finish(self, record: Record) -> bool:
        """An OFM has come to rest: what next? Says whether there is something."""
        record.former = None
        record.held = {dpid: tables for dpid, tables in record.held.items() if tables != _NOTHING}
        if record.plan is not None and self.ledger.settle(record.plan.ofm.address):
            self._retry()
        if record.wish is None or record.blocked:
            if record.plan is not None:
                record.head_for(None)
                return True
            self._release(record)
            return False
        return self._replan(record, record.wish)

    def _release(self, record: Record) -> None:
        """Nothing of an OFM is left anywhere."""
        if record.address is not None:
            if self.ledger.plan_of(record.address) is not None:
                self._retry()
            self.ledger.release(record.address)
            self.parts.pop(self._part(record), None)
            self.pool.release(record.topic)
            record.address = None
        if record.wish is None:
            del self.records[record.topic]
            self._told(record, OfmState(topic=record.topic, status=Status.NONE))

    def _retry(self) -> None:
        """Something is free again: there may be room for what was refused."""
        self._stale |= {topic: None for topic, record in self.records.items() if record.refusal and not record.blocked}

    def _part(self, record: Record) -> Part:
        assert record.address is not None
        return GROUPS | self.pool.number(record.address)

    # -- plans

    def _replan(self, record: Record, wish: Wish) -> bool:
        """Heads for the best plan for a wish, if that is another one. Says whether it does."""
        try:
            ofm = self._ofm(record, wish)
            held = self._found(ofm) if record.plan is None else {}
            before = record.plan or (recovered(ofm, self.topology, held) if held else None)
            tree = grown(self._planner, self.topology, before.tree if before else Tree(), wish.members)
            record.lost = tuple(sorted(wish.members - reachable(self.topology, wish.members)))
            if record.plan is None and not self.settled:
                # What it had before a restart is better than a part of it, or another tree over what is found so far.
                if record.lost or not self._all_read() or (held and before is None):
                    return False
                record.held = held
            silent = (wish.senders - wish.brokers) & tree.brokers.keys()
            if (now := record.plan) is not None and now.ofm == ofm and now.tree == tree and now.silent == silent:
                record.refusal = None
                return False
            made = plan(ofm, tree, silent)
            self.ledger.admit(made, both=True)
        except (OverBudgetError, PoolExhaustedError, ValueError) as error:
            if record.plan is None and not self.settled and isinstance(error, OverBudgetError):
                return False  # hosts may seem to be behind a port whose link is not found yet: wait and see
            return self._refuse(record, str(error))
        record.refusal = None
        record.plan = before
        record.head_for(made)
        return True

    def _all_read(self) -> bool:
        """It is known what all switches hold that were heard of."""
        known = {dpid for dpid, mirror in self.mirrors.items() if mirror.known}
        return known.issuperset(self.topology.switches)

    def _refuse(self, record: Record, why: str) -> bool:
        """Nothing better can be had. What there is stays if it is whole."""
        record.refusal = why
        if record.plan is not None and not record.plan.tree.intact(self.topology):
            record.head_for(None)
            return True
        if record.plan is None:
            self._release(record)
        return False

    def _ofm(self, record: Record, wish: Wish) -> Ofm:
        """What the OFM's flows have in common; it gets an address if it has none. Raises `PoolExhaustedError`."""
        if record.address is None:
            record.address = self.pool.allocate(record.topic)
            self.parts[self._part(record)] = record.topic
        number = self.pool.number(record.address)
        return Ofm(
            record.address,
            number,
            self.rules.loopback,
            service_of(wish.priority),
            self.rules.per_port,
        )

    def _found(self, ofm: Ofm) -> dict[int, Tables]:
        """What switches hold of an OFM that is new to this run, left by an earlier one."""
        if self.settled:
            return {}
        held = {dpid: mirror.holds(ofm.group) for dpid, mirror in self.mirrors.items()}
        return {dpid: tables for dpid, tables in held.items() if tables != _NOTHING}

    # -- restart

    def resume(
        self, topic: str, wish: Wish, address: OfmAddress | None, tree: Tree | None, *, complete: bool, version: int
    ) -> None:
        """Takes over an OFM from an earlier run; before any event, and after the topology is filled. Without a tree,
        or with an address that is not ours any more, only the wish is taken over."""
        status = Status.UPDATING if complete else Status.CONSTRUCTING
        state = OfmState(topic=topic, status=status, version=version)
        record = self.records[topic] = Record(topic, wish, complete=complete, state=state)
        self._stale[topic] = None
        if address is None or tree is None:
            return
        try:
            self.pool.reserve(topic, address)
            record.address = address
            self.parts[self._part(record)] = topic
            made = plan(self._ofm(record, wish), tree, wish.senders - wish.brokers)
            self.ledger.admit(made)
        except (ValueError, OverBudgetError):
            return
        record.plan, record.held = made, dict(made.tables)
        for dpid, tables in made.tables.items():
            self._mirror(dpid).want(self._part(record), tables)

    # -- states

    def _tell(self, record: Record) -> None:
        """Makes the state of an OFM known if it has changed."""
        connected: Iterable[BrokerAddress] = ()
        pending: set[int] = set(record.waiting)
        if record.plan is not None:
            pending |= {dpid for dpid in record.plan.tables if not self._known(record, dpid, Mirror.settled)}
            connected = largest(record.stable(), lambda dpid: self._known(record, dpid, Mirror.assured))
        state = record.describe(connected, not pending, self._reason(record, pending))
        record.complete |= state.status is Status.CONSTRUCTED
        if state != record.state:
            self._told(record, state)

    def _told(self, record: Record, state: OfmState) -> None:
        self.version += 1
        record.state = with_(state, version=self.version)
        self._effects.append(Told(record.state))

    def _known(self, record: Record, dpid: int, how: Callable[[Mirror, Part], bool]) -> bool:
        """Is a switch known to be well, with regard to an OFM?"""
        mirror = self.mirrors.get(dpid)
        return mirror is not None and how(mirror, self._part(record)) and how(mirror, BASE)

    def _reason(self, record: Record, pending: set[int]) -> str | None:
        """What an OFM waits for."""
        unseen = [broker.mac for broker in record.lost if self.topology.where(broker) is None]
        if unseen:
            return f"waiting for {', '.join(sorted(set(unseen)))}"
        if record.lost:
            return f"no path to {', '.join(sorted({broker.mac for broker in record.lost}))}"
        away = sorted(dpid for dpid in pending if not (dpid in self.mirrors and self.mirrors[dpid].known))
        return f"waiting for switch {', '.join(f'{dpid:016x}' for dpid in away)}" if away else None
