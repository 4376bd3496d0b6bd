"""The OFC as a machine: intents for OFMs and news of the network in, changes of switches and states of OFMs out.

For each OFM one plan at a time comes into force (`admission` chooses it), stage by stage (`record`); each switch is
brought to what all OFMs want there (`network`), so that a switch that comes back, empty or not, is an ordinary case.
What goes wrong is told in the OFM's state; only what the network cannot do for lack of a path or a budget stays undone,
until it can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from msgspec.structs import replace as with_

from saps.ofm.controller.addresses import AddressPool, OfmAddress
from saps.ofm.controller.admission import Admission, NotAdmittedError, Rules
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
from saps.ofm.flows.budget import Ledger
from saps.ofm.flows.plan import PLANES, ours
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
    """The machine; `handle` is all that changes it."""

    def __init__(self, rules: Rules, planner: Planners | None = None, traffic: Traffic | None = None) -> None:
        self.admission = Admission(rules, planner, traffic)
        self.network = Network(self.admission.baseline(), self.admission.switch_state)
        self.records: dict[str, Record] = {}
        """OFMs that are wished for, or not yet gone, by topic."""
        self.moves = Moves(self.admission, self.network, rules.move_share, rules.move_overlap)
        self.planes = Planes(self.network, self.admission.ledger, rules)
        """Of stateless delivery."""
        self.version = 0
        """Of the latest state told."""
        self._full: dict[int, Room] = {}
        """Switches that have refused something for lack of room, and are to be read."""
        self._stale: dict[str, None] = {}
        """OFMs that something has happened to, in that order."""
        self._asked: dict[str, None] = {}
        """Those of them that somebody waits for, or that a switch has refused: they come first."""
        self._concerns = Concerns()
        self.touched: dict[str, None] = {}
        """OFMs that may be otherwise than when somebody emptied this last; all others are as they were."""
        self._effects: list[Effect] = []

    # -- what is asked

    def state(self, topic: str) -> OfmState:
        """The state of an OFM."""
        if topic == EVERY_TOPIC:
            return self.planes.state
        record = self.records.get(topic)
        return record.state if record is not None else OfmState(topic=topic, status=Status.NONE)

    @property
    def missing(self) -> list[BrokerAddress]:
        """Brokers that are wished for and have not been seen anywhere."""
        return self.network.missing

    @property
    def topology(self) -> Topology:
        """The network as it is known."""
        return self.network.topology

    @property
    def pool(self) -> AddressPool | CodedPool:
        """The OFM addresses."""
        return self.admission.pool

    @property
    def ledger(self) -> Ledger:
        """The use of budgets."""
        return self.admission.ledger

    # -- what happens

    @property
    def behind(self) -> bool:
        """OFMs are left that something has happened to: `GoneOn` is due."""
        return bool(self._stale)

    def handle(self, event: Event, most: int | None = None) -> list[Effect]:
        """Takes an event in. Gives what is to be done now, in this order. `most`: OFMs that are gone on with, beside
        those that somebody waits for; the others are left for `GoneOn`. None: all."""
        match event:
            case Intended(topic, intent) if topic == EVERY_TOPIC:
                self.planes.wish(None if intent is None else intent.members)
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
            case PolicyChanged(policy):
                self.admission.barriers.policy = policy
                self._all_stale()
            case GoneOn():
                pass
            case Settled():
                self._run()  # what switches hold of OFMs that wait for their slice is adopted before strangers go
                self._news(event)
            case _:
                self._news(event)
        if isinstance(event, TablesRead | Applied | Failed) and isinstance(self.pool, AddressPool):
            self._start(event.dpid)
        elif isinstance(event, Settled) or isinstance(self.pool, CodedPool):
            for dpid in self.network.switch_states:
                self._start(dpid)
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
        """Has the network keep the places of the brokers that an OFM is concerned with."""
        now, before = record.concerned, record.watched
        self.network.expect(now - before)
        self.network.dismiss(before - now)
        record.watched = now

    def _news(self, news: News) -> None:
        """Something has happened to the network."""
        self.admission.traffic.hear(news)
        network, switches = self.network, self.topology.switches
        before = self._concerns.about(news, network.topology, network.known)
        if network.hear(news):
            after = self._concerns.about(news, network.topology, network.known)
            self._stale |= dict.fromkeys([*before, *after])
            if self.admission.barriers.policy is not None and switches != self.topology.switches:
                self._all_stale()  # what a policy says of clusters is about other switches now
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
        if PLANES in refused and event.short is not Room.METERS:
            self.planes.refuse(event.why)
        given_up = [self._give_up(topic, event) for topic in map(self.admission.topic, refused) if topic is not None]
        self._effects.append(Read(event.dpid, again=not any(given_up)))

    def _give_up(self, topic: str, event: Failed) -> bool:
        """A switch has refused something of an OFM: it goes. Says whether it was there."""
        if (second := self.moves.record(topic)) is not None:
            self._asked |= {self.moves.failed(second, self.records): None, topic: None}
            return True
        record = self.records[topic]
        if record.plan is None and not record.busy:
            return False
        record.abandon()  # also on its way out: a stage that cannot be had must not be waited for
        record.refusal, record.blocked = event.why, event.short in (None, Room.METERS)
        self._asked[topic] = None  # before the switch is read: else it is asked for the same again
        return True

    def _read(self, dpid: int, tables: Tables) -> None:
        """A switch holds this. If it has refused more, that is all it has room for."""
        other = self.network.read(dpid, tables)
        if BASE in other:
            self._stale |= dict.fromkeys(self._concerns.at(dpid))
        self._touch(other)
        if not self.network.settled and self.network.all_read:
            self._stale |= dict.fromkeys(self._concerns.wanting)
        if (room := self._full.pop(dpid, None)) is not None:
            strangers = self.network.switch_state(dpid).strangers  # no plan counts them: they are no room for one
            full = Tables.merged(held for part, held in split(ours(tables)).items() if part not in strangers)
            self.ledger.learn(dpid, room, full, self.network.baseline)
            self._stale |= dict.fromkeys(self._concerns.at(dpid))

    def _all_stale(self) -> None:
        self._stale |= dict.fromkeys([*self.records, *self.moves.owners])

    def _touch(self, parts: Iterable[Part], at: int | None = None) -> None:
        """Something has happened to these parts. `at`: a batch of this switch is in effect; OFMs whose stage is not
        over yet have nothing to do."""
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
        """Does what can be done now: stages, plans, and the batches they come to."""
        while touched := self.planes.run():
            for dpid in touched:
                self._start(dpid)
        if (planes := self.planes.describe()) != self.planes.state:
            self._told(self.planes, planes)
        concerned: dict[str, None] = {}
        left = sys.maxsize if most is None else most
        while self._asked or (self._stale and left > 0):
            left -= not self._asked
            topic = next(iter(self._asked or self._stale))
            self._asked.pop(topic, None)
            self._stale.pop(topic, None)
            concerned[topic] = None
            record = self.records.get(topic) or self.moves.record(topic)
            if record is not None:
                self._advance(record)
            self._concerns.update(topic, self.records.get(topic) or self.moves.record(topic))
        for topic in concerned:
            if topic in self.records:
                self._tell(self.records[topic])
        self.touched |= concerned

    def _start(self, dpid: int) -> None:
        """Starts the next batch at a switch, if it is idle and has something to do."""
        changes, settled = self.network.switch_state(dpid).batch()
        if changes:
            self._effects.append(Apply(dpid, tuple(changes)))
        self._touch(settled)

    def _advance(self, record: Record) -> None:
        """Goes on with an OFM as far as it can go without an answer."""
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
        """The next stage of an OFM begins."""
        stage = record.stages.popleft()
        for dpid, tables in stage.items():
            record.held[dpid] = tables
            if self.network.want(dpid, self.admission.part(record), tables):
                self._start(dpid)
        record.waiting = frozenset(stage)

    def _finish(self, record: Record) -> bool:
        """An OFM has come to rest: what next? Says whether there is something."""
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
        """A second tree has come to rest. Says whether there is something next."""
        more, touched = self.moves.rest(second, self.records)
        self._stale |= dict.fromkeys(touched)
        if not more and self.moves.record(second.topic) is None:
            self._retry()
        return more

    def _replan(self, record: Record, intent: Intent) -> bool:
        """Heads for the best plan for an intent, if that is another one. Says whether it does."""
        try:
            chosen = self.admission.choose(record, intent, self.network)
        except NotAdmittedError as refusal:
            return self._refuse(record, str(refusal))
        record.refusal = None
        if chosen is not None:
            record.head_for(chosen, self.admission.informed(record, self.network))
        return chosen is not None

    def _refuse(self, record: Record, why: str) -> bool:
        """Nothing better can be had. What there is stays if it is whole."""
        record.refusal = why
        if record.plan is not None and not self.admission.stands(record, self.topology):
            record.head_for(None)
            return True
        if record.plan is None:
            self._release(record)
        return False

    def _release(self, record: Record) -> None:
        """Nothing of an OFM is left anywhere."""
        if self.admission.release(record):
            self._retry()
        if record.intent is None:
            del self.records[record.topic]
            self._told(record, OfmState(topic=record.topic, status=Status.NONE))

    def _retry(self) -> None:
        """Something is free again: there may be room for what was refused."""
        self.planes.retry()
        for topic in self._concerns.wanting:
            if (record := self.records.get(topic)) is not None and record.refusal and not record.blocked:
                self._stale[topic] = None

    # -- restart

    def resume(
        self, topic: str, intent: Intent, address: OfmAddress | None, tree: Tree | None, *, complete: bool, version: int
    ) -> None:
        """Takes over an OFM from an earlier run; before any event, and after the topology is filled. Without a tree,
        or with an address that is not ours any more, only the intent is taken over."""
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
        """Makes the state of an OFM known if it has changed."""
        network = self.network
        joined: Iterable[BrokerAddress] = ()
        pending: set[int] = set(record.waiting)
        if record.plan is not None:
            part = self.admission.part(record)
            pending |= {dpid for dpid in record.plan.tables if not network.holds(dpid, part)}
            if pending or record.busy or not record.plan.tree.intact(network.topology):
                joined = connected(record.stable(), network.topology, lambda dpid: network.assured(dpid, part))
            else:
                joined = record.plan.tree.brokers
        state = record.describe(joined, not pending, self._reason(record, pending), self.moves.former(record.topic))
        record.complete |= state.status is Status.CONSTRUCTED
        record.asked &= record.busy
        if state != record.state:
            self._told(record, state)

    def _told(self, record: Record | Planes, state: OfmState) -> None:
        self.version += 1
        record.state = with_(state, version=self.version)
        self._effects.append(Told(record.state))

    def _reason(self, record: Record, pending: set[int]) -> str | None:
        """What an OFM waits for."""
        unseen = {broker.mac for broker in record.lost if self.topology.where(broker) is None}
        if unseen:
            return f"waiting for {', '.join(sorted(unseen))}"
        if record.lost:
            return f"no path to {', '.join(sorted({broker.mac for broker in record.lost}))}"
        away = [f"{dpid:016x}" for dpid in sorted(pending) if not self.network.known(dpid)]
        return f"waiting for switch {', '.join(away)}" if away else None
