"""The OFC as a machine: takes intents for OFMs and news of the network, and returns changes of switches and states of
OFMs.

For each OFM, one plan at a time comes into force, stage by stage (`record`); `admission` chooses it. Each switch is
brought to what all OFMs want there (`network`), so a switch that reconnects, empty or not, is an ordinary case.
Failures are reported in the OFM's state. An intent that lacks a path or a budget waits until it can be fulfilled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from msgspec.structs import replace as with_

from saps.ofm.controller.addresses import AddressPool, OfmAddress
from saps.ofm.controller.admission import Admission, NotAdmittedError, Rules
from saps.ofm.controller.batches import Batches
from saps.ofm.controller.coded_pool import CodedPool
from saps.ofm.controller.concerns import Concerns
from saps.ofm.controller.events import (
    Applied,
    Apply,
    Effect,
    Event,
    Failed,
    GoneOn,
    Intended,
    Intent,
    News,
    PolicyChanged,
    Read,
    Settled,
    SwitchUp,
    TablesRead,
    Tick,
    Told,
)
from saps.ofm.controller.planes import Planes
from saps.ofm.controller.record import Record
from saps.ofm.controller.spanning_tree import SpanningTree
from saps.ofm.flows.budget import Ledger
from saps.ofm.flows.plan import CLOSED, PLANES, ours
from saps.ofm.flows.switch_state import BASE, Part, split
from saps.ofm.flows.tables import Room, Tables
from saps.ofm.network.network import Network
from saps.ofm.network.topology import BrokerAddress, Topology
from saps.ofm.network.traffic import Traffic
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.ofm.trees.growth import connected
from saps.ofm.trees.moves import Moves
from saps.ofm.trees.tree import Planners, Tree


class Controller:
    """The machine of the controller; only `handle` changes it."""

    def __init__(self, rules: Rules, planner: Planners | None = None, traffic: Traffic | None = None) -> None:
        self.admission = Admission(rules, planner, traffic)
        self.network = Network(self.admission.baseline(), self.admission.switch_state)
        self.records: dict[str, Record] = {}
        """OFMs that are wanted, or not yet gone, by topic."""
        self.moves = Moves(self.admission, self.network, rules.move_share, rules.move_overlap)
        self.planes = Planes(self.network, self.admission.ledger, rules)
        """Stateless delivery."""
        self._spanning_tree = SpanningTree(self.network, rules.spanning_tree)
        self.version = 0
        """Version of the latest state told."""
        self._full: dict[int, Room] = {}
        """Switches that have refused a change for lack of room and must be read, with the resource they lack."""
        self._stale: dict[str, None] = {}
        """OFMs that something has happened to, oldest first."""
        self._asked: dict[str, None] = {}
        """OFMs that go first: a caller waits for them, or a switch has refused them."""
        self._early: dict[str, None] = {}
        """OFMs left alone until the network has settled, or the last of their switches has been read."""
        self._concerns = Concerns()
        self.touched: dict[str, None] | None = None
        """OFMs that may have changed since the reader last emptied this; all others are unchanged. None: nobody
        reads."""
        self._batches = Batches()
        self._effects: list[Effect] = []

    # -- what is asked

    def state(self, topic: str) -> OfmState:
        """Return the state of an OFM, or of stateless delivery."""
        if topic == EVERY_TOPIC:
            return self.planes.state
        record = self.records.get(topic)
        return record.state if record is not None else OfmState(topic=topic, status=Status.NONE)

    @property
    def missing(self) -> list[BrokerAddress]:
        """Wanted brokers that have not been seen anywhere."""
        return self.network.missing

    @property
    def topology(self) -> Topology:
        """The known network."""
        return self.network.topology

    @property
    def pool(self) -> AddressPool | CodedPool:
        """The OFM addresses."""
        return self.admission.pool

    @property
    def ledger(self) -> Ledger:
        """The use of budgets by plans."""
        return self.admission.ledger

    # -- what happens

    @property
    def behind(self) -> bool:
        """Whether OFMs are left that something has happened to: then `GoneOn` is due."""
        return bool(self._stale)

    def handle(self, event: Event, most: int | None = None) -> list[Effect]:
        """Take in an event. Return the effects to carry out now, in this order. `most` limits the OFMs to advance,
        beside those that a caller waits for; the others are left for `GoneOn`. None: no limit."""
        self._concerns.heard += not isinstance(event, Applied | GoneOn)
        match event:
            case Intended(topic, intent) if topic == EVERY_TOPIC:
                self.planes.reach(None if intent is None else intent.members)
            case Intended(topic, intent):
                self._intended(topic, intent)
            case TablesRead(dpid, tables):
                self._read(dpid, tables)
            case Applied(dpid):
                self._touch(self.network.switch_state(dpid).done(), dpid)
            case Failed():
                self._failed(event)
            case Tick(now):
                if self.ledger.at(now):
                    self._retry()
                self._stale |= dict.fromkeys(self.moves.at(now, self.records))
                self._spanning_tree.at(now)
            case PolicyChanged(policy):
                self.admission.barriers.policy = policy
                self._all_stale()
            case GoneOn():
                pass
            case Settled():
                self._run()  # adopt what switches hold of OFMs that wait for their slice, before strangers are evicted
                self._stale |= self._early
                self._early = {}
                self._news(event)
            case _:
                self._news(event)
        if isinstance(event, TablesRead | Applied | Failed) and isinstance(self.pool, AddressPool):
            self._batches.due([event.dpid])
        elif isinstance(event, Settled) or isinstance(self.pool, CodedPool):
            self._batches.due(self.network.switch_states)
        self._run(most)
        effects, self._effects = self._effects, []
        return effects

    def _intended(self, topic: str, intent: Intent | None) -> None:
        if self.admission.traffic.intended(topic, intent.rate if intent is not None else None):
            self.admission.planner.remeasured(topic)
        record = self.records.get(topic)
        if record is None:
            if intent is None:
                return
            record = self.records[topic] = Record(topic, state=OfmState(topic=topic, status=Status.NONE))
        if record.intent == intent and record.refusal is None:
            return
        record.intent, record.refusal, record.blocked, record.asked = intent, None, False, True
        self._watch(record)
        self._asked[topic] = None

    def _watch(self, record: Record) -> None:
        """Make the network keep the places of the brokers that an OFM depends on."""
        now, before = record.concerned, record.watched
        self.network.expect(now - before)
        self.network.dismiss(before - now)
        record.watched = now

    def _news(self, news: News) -> None:
        """Take in news of the network."""
        self.admission.traffic.hear(news)
        network, switches = self.network, self.topology.switches
        before = self._concerns.about(news, network.topology, network.known)
        if network.hear(news):
            after = self._concerns.about(news, network.topology, network.known)
            self._stale |= dict.fromkeys([*before, *after])
            if self.admission.barriers.policy is not None and switches != self.topology.switches:
                self._all_stale()  # a policy's clusters now name other switches
        if isinstance(news, SwitchUp):
            self._effects.append(Read(news.dpid))
            if self.ledger.forget(news.dpid):
                self._retry()

    def _failed(self, event: Failed) -> None:
        switch_state = self.network.switch_state(event.dpid)
        if event.change is None:
            switch_state.lost()
            self._effects.append(Read(event.dpid, again=True))
            return
        refused = switch_state.refused(event.change)
        if event.short is Room.METERS and switch_state.without_meters():
            self._effects.append(Read(event.dpid))
            return
        if event.short is not None and event.short is not Room.METERS:
            self._full[event.dpid] = event.short
        if CLOSED in refused:
            self._batches.due(self._spanning_tree.refused(event.dpid))
        if PLANES in refused and event.short is not Room.METERS:
            self.planes.refuse(event.why)
        given_up = [self._give_up(topic, event) for topic in map(self.admission.topic, refused) if topic is not None]
        self._effects.append(Read(event.dpid, again=not any(given_up)))

    def _give_up(self, topic: str, event: Failed) -> bool:
        """Give up an OFM of which a switch has refused something. Return whether it had anything to give up."""
        if (second := self.moves.record(topic)) is not None:
            self._asked |= {self.moves.failed(second, self.records): None, topic: None}
            return True
        record = self.records[topic]
        if record.plan is None and not record.busy:
            return False
        record.abandon()  # also while it is being removed: never wait for a stage that a switch refuses
        record.refusal, record.blocked = event.why, event.short in (None, Room.METERS)
        self._asked[topic] = None  # advance before the switch is read; otherwise the same change is sent again
        return True

    def _read(self, dpid: int, tables: Tables) -> None:
        """Take in a switch's content. If the switch has refused more, this content shows its limit."""
        other = self.network.read(dpid, tables)
        if BASE in other:
            self._stale |= dict.fromkeys(self._concerns.at(dpid))
        self._touch(other)
        if not self.network.settled and self.network.all_read:
            self._stale |= dict.fromkeys(self._concerns.wanting)
        if (room := self._full.pop(dpid, None)) is not None:
            # No plan counts these, so their room is not available to plans.
            uncounted = {CLOSED, *self.network.switch_state(dpid).strangers}
            full = Tables.merged(held for part, held in split(ours(tables)).items() if part not in uncounted)
            self.ledger.learn(dpid, room, full, self.network.baseline)
            self._stale |= dict.fromkeys(self._concerns.at(dpid))

    def _all_stale(self) -> None:
        self._stale |= dict.fromkeys([*self.records, *self.moves.owners])

    def _touch(self, parts: Iterable[Part], at: int | None = None) -> None:
        """Mark the OFMs of these parts as stale. `at` is a switch whose batch is in effect; OFMs that still wait for
        other switches of their stage are left alone."""
        for part in parts:
            if (topic := self.admission.topic(part)) is None:
                continue
            record = self.records.get(topic)
            if record is not None and at in record.waiting and self.network.confirmed(at, part):
                record.waiting -= {at}
                if record.waiting:
                    continue
            (self._asked if record is not None and record.asked else self._stale)[topic] = None

    # -- OFMs

    def _run(self, most: int | None = None) -> None:
        """Do what can be done now: advance stages, choose plans, and begin the resulting batches."""
        busy = self.planes.busy
        while touched := [*self._spanning_tree.run(), *self.planes.run()]:
            self._batches.due(touched, hurry=True)
            self._begin()
        if busy and not self.planes.busy:
            self._retry(planes=False)
        self._effects += self._spanning_tree.announcements()
        if (planes := self.planes.describe()) != self.planes.state:
            self._told(self.planes, planes)
        concerned: dict[str, None] = {}
        left = sys.maxsize if most is None else most
        while self._asked or (self._stale and left > 0) or self._begin():
            asked = bool(self._asked)
            topic = next(iter(self._asked or (self._stale if left > 0 else ())), None)
            if topic is None:
                continue  # nobody is concerned by what has begun
            self._batches.advanced(hurry=asked)
            self._asked.pop(topic, None)
            self._stale.pop(topic, None)
            record = self.records.get(topic) or self.moves.record(topic)
            if record is not None and not asked and _waits(record, self.network):
                self._early[topic] = None
                continue
            self._early.pop(topic, None)
            left -= not asked
            if record is not None:
                self._advance(record)
            if self._concerns.update(topic, self.records.get(topic) or self.moves.record(topic)):
                concerned[topic] = None
        for topic in concerned:
            if topic in self.records:
                self._tell(self.records[topic])
        if self.touched is not None:
            self.touched |= concerned

    def _begin(self) -> bool:
        """Begin the next batch at each switch that is due and idle. Return whether there was one."""
        due = self._batches.begin(more=bool(self._stale))
        for dpid in due:
            changes, settled = self.network.switch_state(dpid).batch()
            if changes:
                self._effects.append(Apply(dpid, tuple(changes)))
            self._touch(settled)
        return bool(due)

    def _advance(self, record: Record) -> None:
        """Advance an OFM as far as possible without an answer."""
        while True:
            if record.waiting:
                part = self.admission.part(record)
                record.waiting = frozenset(dpid for dpid in record.waiting if not self.network.confirmed(dpid, part))
            if record.waiting:
                return
            if record.stages:
                self._enter(record)
            elif not self._finish(record):
                return

    def _enter(self, record: Record) -> None:
        """Begin the next stage of an OFM."""
        stage = record.stages.popleft()
        for dpid, tables in stage.items():
            record.held[dpid] = tables
            if self.network.want(dpid, self.admission.part(record), tables):
                self._batches.due([dpid])
        record.waiting = frozenset(stage)

    def _finish(self, record: Record) -> bool:
        """Continue with an OFM that has come to rest. Return whether there is a next step."""
        record.come_to_rest()
        if self.moves.record(record.topic) is record:
            return self._rest(record)
        self._watch(record)
        if record.address is not None and self.ledger.settle(record.address, record.plan):
            self._retry()
        if record.intent is not None and not record.blocked:
            return self._replan(record, record.intent)
        if record.plan is not None:
            record.head_for(None)
            return True
        self._release(record)
        return False

    def _rest(self, second: Record) -> bool:
        """Continue with a second tree that has come to rest. Return whether there is a next step."""
        more, touched = self.moves.rest(second, self.records)
        self._stale |= dict.fromkeys(touched)
        if not more and self.moves.record(second.topic) is None:
            self._retry()
        return more

    def _replan(self, record: Record, intent: Intent) -> bool:
        """Head for the best plan for an intent. Return whether it is another plan than the present one."""
        try:
            chosen = self.admission.choose(record, intent, self.network)
        except NotAdmittedError as refusal:
            return self._refuse(record, str(refusal))
        record.refusal = None
        if chosen is not None:
            record.head_for(chosen, self.admission.informed(record, self.network))
        return chosen is not None

    def _refuse(self, record: Record, why: str) -> bool:
        """Record a refusal. A tree in force stays if it still carries packets, and is removed otherwise. Return whether
        there is a next step."""
        record.refusal = why
        if record.plan is not None and not self.admission.stands(record, self.topology):
            record.head_for(None)
            return True
        if record.plan is None:
            self._release(record)
        return False

    def _release(self, record: Record) -> None:
        """Free everything of an OFM that is gone from the switches, and drop its record if it is not wanted any
        more."""
        if self.admission.release(record):
            self._retry()
        if record.intent is None:
            del self.records[record.topic]
            self._told(record, OfmState(topic=record.topic, status=Status.NONE))

    def _retry(self, *, planes: bool = True) -> None:
        """Retry what was refused, as room has become free."""
        if planes:
            self.planes.retry()
        for topic in self._concerns.wanting:
            if (record := self.records.get(topic)) is not None and record.refusal and not record.blocked:
                self._stale[topic] = None

    # -- restart

    def resume(
        self, topic: str, intent: Intent, address: OfmAddress | None, tree: Tree | None, *, complete: bool, version: int
    ) -> None:
        """Take over an OFM from an earlier run. Call it before any event, after the topology is filled. Without a tree,
        or with an address out of the range, only the intent is taken over."""
        self.admission.traffic.intended(topic, intent.rate)
        status = Status.UPDATING if complete else Status.CONSTRUCTING
        state = OfmState(topic=topic, status=status, version=version)
        record = self.records[topic] = Record(topic, intent, complete=complete, state=state)
        if address is not None and tree is not None:
            self.admission.resume(record, intent, address, tree)
        self._watch(record)
        self._stale[topic] = None
        for dpid, tables in record.held.items():
            self.network.want(dpid, self.admission.part(record), tables)

    # -- states

    def _tell(self, record: Record) -> None:
        """Tell the state of an OFM if it has changed."""
        network = self.network
        joined: Iterable[BrokerAddress] = ()
        needed, settled = record.waiting, not record.busy
        if record.plan is not None:
            part, tree = self.admission.part(record), record.stable()
            needed |= record.plan.tables.keys()
            settled = settled and all(network.holds(dpid, part) for dpid in record.plan.tables)
            if tree.intact(network.topology) and all(network.assured(dpid, part) for dpid in tree.switches):
                joined = tree.brokers
            else:
                joined = connected(tree, network.topology, lambda dpid: network.assured(dpid, part))
        state = record.describe(joined, settled, self._reason(record, needed), self.moves.former(record.topic))
        record.complete |= state.status is Status.CONSTRUCTED
        record.asked &= record.busy
        if state != record.state:
            self._told(record, state)

    def _told(self, record: Record | Planes, state: OfmState) -> None:
        self.version += 1
        record.state = with_(state, version=self.version)
        self._effects.append(Told(record.state))

    def _reason(self, record: Record, needed: Iterable[int]) -> str | None:
        """Return what an OFM waits for, or None. `needed` are the switches it depends on."""
        unseen = {broker.mac for broker in record.lost if self.topology.where(broker) is None}
        if unseen:
            return f"waiting for {', '.join(sorted(unseen))}"
        if record.lost:
            return f"no path to {', '.join(sorted({broker.mac for broker in record.lost}))}"
        away = [f"{dpid:016x}" for dpid in sorted(needed) if not self.network.known(dpid)]
        return f"waiting for switch {', '.join(away)}" if away else None


def _waits(record: Record, network: Network) -> bool:
    """Return whether an OFM of an earlier run has said what it waits for, and still waits for a switch to be read.
    Otherwise each of its switches would cost a new plan and a new state."""
    if network.settled or record.plan is None or record.busy or record.state.reason is None:
        return False
    return not all(map(network.known, record.plan.tables))
