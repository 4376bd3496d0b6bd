"""One broker's part of the overlay: the machines put together behind one clock, one outbox and one door for frames.

Pure: the driver (`saps.broker.broker`, or the simulator) gives it a clock, calls the methods, sends what is in the
outbox and comes back at `deadline`. Frames of one link session must be handed in in order; `session_started` goes
before the first of a new session from a broker, `link_down` after a link to a broker broke (what was sent may be lost).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from saps.local.batch import Batch
from saps.mesh import Arrival, Done, Local, Recalled, SessionHost, TopicRoute
from saps.messages import Message, Properties
from saps.overlay.delivery.broadcast import Broadcaster
from saps.overlay.delivery.multicast import Multicast
from saps.overlay.delivery.ofm_members import Trees
from saps.overlay.delivery.order import SWEEP, Inbox
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import (
    Absent,
    AgentCall,
    Announce,
    AnnounceTree,
    Answer,
    Body,
    Claim,
    Collect,
    DesignPart,
    Gone,
    Here,
    Inherit,
    Keep,
    Missing,
    Orphans,
    Outstanding,
    Recall,
    Result,
    Roster,
    Survey,
    Surveyed,
    Unsettled,
)
from saps.overlay.frames.ring import (
    Check,
    Forgot,
    Found,
    Heal,
    Inserted,
    Leave,
    LeaveAck,
    Level,
    Ping,
    Pong,
    RingSplit,
    Seek,
    SetLeft,
)
from saps.overlay.groups import Sharing
from saps.overlay.membership.clocks import COMPARE, Clocks
from saps.overlay.membership.failure_detector import Detector, DetectorSettings
from saps.overlay.membership.leave import Leaving
from saps.overlay.membership.members import Members
from saps.overlay.missed.catchup import CatchUp
from saps.overlay.port import Handlers
from saps.overlay.rendezvous.designed import Designs
from saps.overlay.rendezvous.designer import Designer, DesignSettings
from saps.overlay.rendezvous.publisher_registry import Phase, PublisherRegistry, Stream
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.retained.publisher import RetainedPublisher
from saps.overlay.retained.store import CENSUS, ReplicatedStore
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef, Key, KeyOrder, attribute_key, broker_key, holders, one_broker
from saps.overlay.ring.rejoin import Rejoin
from saps.overlay.ring.ring import CHECK_EVERY
from saps.overlay.ring.ring_probe import RING_PROBE, RingProbe
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.sessions.directory import Directory
from saps.overlay.sessions.migration.migration import Migrations
from saps.overlay.sessions.replicas.holders import Replicas
from saps.overlay.sessions.replicas.source import Source
from saps.overlay.sessions.sessions import Sessions
from saps.overlay.wills import LOOK, Wills
from saps.policy.model import Policy
from saps.topics import matches

NOT_FOLLOWED = frozenset({Ping, Pong, Seek, Level, Gone, Check, RingSplit, SetLeft, LeaveAck})
"""Nobody is watched because such a frame was sent: if one is lost, what it was about is looked at again, or waits for
nobody for long."""
CLOSE_IDLE_EVERY = 5.0
CALL_ATTEMPTS = 4

CallAgents = Callable[[AgentCall, bool], list[Answer]]
"""Runs a call at the broker's agents; True: at its user agent of that name."""


class OverlayNode:
    """A broker in the overlay. A `saps.mesh.Mesh`, a `saps.mesh.Sessions`, and the `Port` of its own machines."""

    def __init__(
        self,
        me: BrokerRef,
        local: Local,
        clock: Callable[[], float],
        *,
        order: KeyOrder = KeyOrder.CLUSTER,
        detector: DetectorSettings | None = None,
        call_agents: CallAgents | None = None,
        leave_timeout: float = 10.0,
        design: DesignSettings | None = None,
        takeover_timeout: float = 5.0,
        copies: int = 1,
    ) -> None:
        """`clock` gives seconds, monotonic. `copies`: brokers that have each session that lasts.

        `design`: ALM runs on a designed overlay, as settled there.
        `leave_timeout`: seconds after which a leaving broker goes even if not everyone has answered;
        `takeover_timeout`: for which a client's CONNECT waits for a broker that has its session and does not answer."""
        self.me = me
        self.order = order
        self._clock = clock
        self.grace = 2 * (detector or DetectorSettings()).heartbeat
        self.outbox: list[tuple[BrokerRef, Frame]] = []
        self.on_output: Callable[[], None] | None = None
        """Called when something is put into the empty outbox, or `deadline` comes nearer."""
        self.on_dead: Callable[[BrokerRef], None] | None = None
        """Called with each broker that is given up: what waits to be sent to it is of no use."""
        self.joined = False
        self.deadline = float("inf")
        """When to call `wake` at the latest."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_serial = self._serial = 0
        self._own: deque[Frame] = deque()
        self._running = False
        self._call_agents = call_agents or (lambda call, by_name: [])
        self._addressed: dict[str, tuple[BrokerRef, float]] = {}
        """Brokers that something was sent to since the last look at who must be watched, and when it was."""
        self._repaired_at = -float("inf")
        """When every neighbour of the last neighbour that died has noticed."""

        self.members = Members(self, self.wall)
        self.detector = Detector(self, detector or DetectorSettings(), self._died, self.members)
        self.graph = SkipGraph(self)
        self._leaving = Leaving(self, self.graph, self._settled, self._withdraw, leave_timeout)
        self.ring_probe = RingProbe(self, self.graph, self._merge)
        self.calls = RangeCalls(self, self.graph, self._run_body, self._told_of)
        self.subscriptions = Subscriptions(self, self.graph, self.calls)
        self.trees = Trees(self, self.graph, self.calls, self._publishes)
        self.publishers = PublisherRegistry(self, self.graph, self.calls, self.publish, self.trees)
        self.inbox = Inbox(self, local.deliver, self.subscriptions.baseline, local.matching)
        self.multicast = Multicast(self, self.publishers, self.inbox)
        self.epoch = 0.0
        """What is to be added to `now` for the seconds since the epoch; the driver sets it, by its machine's clock."""
        self.retained_store = ReplicatedStore(self, self.graph, self.calls, self._to_enlist, self.wall)
        self.clocks = Clocks(self, self.wall, self._to_enlist)
        self.retained = RetainedPublisher(
            self, self.calls, self.retained_store, self.inbox, self.subscriptions, self.wall, local.kept
        )
        self.multicast.keep = self.retained.keep
        self.rejoin = Rejoin(self, self.graph, self.detector, self.ring_probe, self._say_again)
        self.broadcaster = Broadcaster(self)
        self.wills = Wills(self, self.calls, self._guardians, local.bequeath)
        self._connected = local.connected
        self.sharing = Sharing(self, self.calls, local, self.publishers.permitted)
        self.multicast.share = self._share_publication
        CatchUp(self, self.calls, self.multicast, self.publishers, self.inbox, self.subscriptions, self.sharing.publish)
        self.inbox.retained, self.subscriptions.on_told = self.retained.observed, self.retained.told
        self.directory = Directory(self, self.graph, self.calls)
        self.sessions = Sessions(
            self,
            self.calls,
            self.directory,
            self._stamp_after,
            lambda: self.joined,
            self._alone,
            takeover_timeout,
            copies,
        )
        self.migrations = self.sessions.migrations = Migrations(
            self, self.calls, self.sessions, self._passed, self._waiting
        )
        source = Source(self, self._to_enlist, lambda client: self.sessions.leases.get(client, 0), copies)
        self.replicas = Replicas(self, self.calls, self.sessions, source, self._waiting, self.wall)
        source.on_fenced, source.rows, self.sessions.copied = self.sessions.sync, self.sessions.rows, self.replicas
        self.designer: Designer | None = None
        if design is not None:
            self.publishers.designs = Designs(self, self.publishers.divide_again)
            self.designer = Designer(self, self.graph, self.calls, self.publishers.designs, design)
        self._on: Handlers = {
            **self.multicast.handlers,
            **self.graph.handlers,
            **self.calls.handlers,
            **self.retained_store.handlers,
            **self.sharing.handlers,
            **self.wills.handlers,
            **self.broadcaster.handlers,
            **self.migrations.handlers,
            **self.replicas.handlers,
            **self.catch_up.handlers,
            Ping: lambda sender, frame: self.send(sender, self.clocks.pong(frame)),
            Pong: lambda sender, frame: self.clocks.answered(sender, frame.asked, frame.at),
            Forgot: lambda sender, frame: self.rejoin.forgotten(sender),
            Heal: self.rejoin.heal,
            Leave: self._on_leave,
            LeaveAck: lambda sender, frame: self._leaving.leave_ack(sender),
        }
        self.graph.redeliver, self.graph.on_repaired = self._dispatch, self._announce_key_again

    # --- the driver's side --------------------------------------------------------------------------------

    def start(
        self, contact: BrokerRef | None, joined: Callable[[], None], ready: Callable[[], None] = lambda: None
    ) -> None:
        """Join the mesh that `contact` belongs to, or begin a new one. `joined` runs when this broker is in it;
        `ready`, when the mesh knows which sessions it has, too, `takeover_timeout` seconds later at most."""
        key = broker_key(self.me.name)

        def linked() -> None:
            self.joined = True
            joined()
            self.replicas.restored.begin()
            self.sessions.begin(ready)

        if contact is None:
            self.graph.start_alone(key)
            linked()
        else:
            self.graph.contact = contact
            self.ring_probe.know(contact)
            self.graph.insert(key, linked)
        heartbeat = self.detector.settings.heartbeat
        self._every(CHECK_EVERY * heartbeat, self.graph.check)
        self._every(heartbeat, self._watch)
        self._every(self.detector.settings.probe, self.detector.probe)
        self._every(CLOSE_IDLE_EVERY, self.publishers.close_idle)
        self._every(SWEEP, self.inbox.sweep)
        self._every(CENSUS, self.retained_store.check)
        self._every(LOOK, self.wills.look)
        self._every(RING_PROBE * heartbeat, self.ring_probe.call)
        self._every(COMPARE, self.clocks.compare)
        if self.designer is not None:
            self._every(self.designer.settings.interval, self.designer.tick)
        self._run_own()

    def redirect(self, contact: BrokerRef | None) -> None:
        """The broker that this one was to join through does not let it in: go through another one, or begin a mesh."""
        if self.joined:
            return
        if contact is None:
            self.graph.close_alone(broker_key(self.me.name))
        else:
            self.graph.contact = contact
            self.ring_probe.know(contact)
        self._run_own()

    def receive(self, sender: BrokerRef, frames: Iterable[Frame]) -> None:
        """Frames from another broker, that have come together."""
        stranger = False
        if self._leaving.correspondents.get(sender.name) is not sender:  # else it is as before, and not superseded
            if self.detector.stale_incarnation(sender):
                return
            stranger = self._leaving.heard(sender)
        self.ring_probe.know(sender)
        if (was := self.detector.heard(sender)) is not None:
            self._back(was, sender)
        for frame in frames:
            self._on.get(type(frame), _ignore)(sender, frame)
            if self._own:
                self._run_own()
        if stranger:
            self._leaving.tell(sender)

    def answered_for(self, peer: BrokerRef, frame: Frame) -> None:
        """A question was answered in the place of a broker that does not know it: nothing was heard of that one."""
        self._dispatch(peer, frame)
        self._run_own()

    def receive_datagram(self, raw: bytes | memoryview) -> None:
        """A datagram from an OpenFlow tree (this broker's own loopback packets included)."""
        if self.multicast.tree_path is not None:
            self.multicast.tree_path.receive(raw)
            self._run_own()

    def met(self, broker: BrokerRef) -> None:
        """A broker was found at the address of another one, or of its earlier life."""
        if not self.detector.stale_incarnation(broker):
            if (was := self.detector.heard(broker)) is not None:
                self._back(was, broker)
            self._run_own()

    def discovered(self, broker: BrokerRef) -> None:
        """A broker was found that is in a mesh, perhaps in another one: then the two become one."""
        self.met(broker)
        if not self.detector.stale_incarnation(broker):
            self.ring_probe.know(broker)
            self.rejoin.suspect(broker)
            self._run_own()

    def knows(self, address: str) -> bool:
        """Is there a broker at the address that this one has heard of, and that is not dead to it?"""
        return any(broker.address == address and not self.lost(broker) for broker in self._to_enlist())

    def session_started(self, sender: BrokerRef) -> None:
        """A new link session from a broker begins."""
        self.multicast.session_started(sender)
        self.sharing.session_started(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """The link to a broker broke, or could not be made."""
        self.detector.broke(peer)
        self.multicast.link_down(peer)
        self.sharing.link_down(peer)
        self.wills.link_down(peer)
        self._leaving.link_down(peer)
        self._run_own()

    def find(self, target: Key, found: Callable[[Found], None], start: BrokerRef | None = None) -> None:
        """Search the overlay: `SkipGraph.find`."""
        self.graph.find(target, found, start)
        self._run_own()

    def whois(self, name: str, found: Callable[[BrokerRef | None], None]) -> None:
        """Which broker of the mesh has this name? It may have crashed just now. `found` may never run."""
        key = broker_key(name)

        def answer(at: Found) -> None:
            found(at.right.broker if at.right is not None and at.right.key == key else None)

        self.find(key, answer)

    def wake(self) -> None:
        """Run the timers that are due."""
        while self.deadline <= self.now:
            _, _, action = heappop(self._timers)
            self.deadline = self._timers[0][0] if self._timers else float("inf")
            action()
            self._run_own()

    def take(self) -> list[tuple[BrokerRef, Frame]]:
        """What is to be sent now."""
        self.multicast.flush()
        out, self.outbox = self.outbox, []
        return out

    def leave(self, left: Callable[[], None]) -> None:
        """Leave in order (`saps.overlay.membership.leave`). `left` runs when nothing more can arrive, or after
        `leave_timeout`
        seconds."""
        self.ring_probe.stop()
        self.members.tell = None
        self._leaving.begin(left)
        self._run_own()

    @property
    def leaving(self) -> bool:
        """It has begun to leave."""
        return self._leaving.begun

    # --- Mesh -----------------------------------------------------------------------------------------------

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        self.subscriptions.subscribe(topic_filter, done)
        self._run_own()

    def unsubscribe(self, topic_filter: str) -> None:
        self.retained.withdrawn(topic_filter)
        self.subscriptions.unsubscribe(topic_filter)
        self._run_own()

    def route(self, topic: str) -> TopicRoute:
        return self.publishers.stream(topic)

    def publish(self, batch: Batch, done: Done | None) -> None:
        self.multicast.publish(batch, done)
        if self._own:
            self._run_own()

    def expect_acknowledgement(self, client: str, will: Message | None, delay: float) -> None:
        if will is not None and not self.publishers.unrestricted(will.topic):
            will = None  # its guardians may be anywhere: this broker publishes it, or nobody does
        self.wills.expect_acknowledgement(client, will, delay)

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        stream = self.publishers.streams.get(message.topic)
        known = stream is not None and stream.phase is Phase.OPEN and stream.members is not None
        brokers = stream.groups.get(topic_filter, []) if stream is not None and known else None
        self.sharing.redeliver(topic_filter, message, settled, brokers)
        self._run_own()

    def stamp(self, properties: Properties | None) -> Properties | None:
        return self.retained.stamp(properties)

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        self.retained.recall(topic_filter, done)
        self._run_own()

    def obey(self, policy: Policy | None) -> None:
        """From now on this policy holds for what leaves this broker, and for what it keeps for others."""
        self.publishers.obey(policy)
        self.retained_store.purge(self.publishers.unrestricted)
        self._run_own()

    # --- saps.mesh.Sessions -----------------------------------------------------------------------------------

    @property
    def host(self) -> SessionHost | None:
        return self.sessions.host

    @host.setter
    def host(self, host: SessionHost | None) -> None:
        self.sessions.host = host

    def at_home(self, client: str) -> bool:
        return self.sessions.at_home(client)

    def claimed(self, client: str) -> bool:
        return self.sessions.claimed(client)

    def claim(self, client: str, user: str | None, keep: bool, arrived: Callable[[Arrival], None]) -> None:
        self.sessions.claim(client, user, keep, arrived)
        self._run_own()

    def release(self, client: str) -> None:
        self.sessions.release(client)

    def refresh(self, client: str) -> None:
        self.sessions.refresh(client)
        self._run_own()

    def restored(self, clients: Iterable[str]) -> None:
        self.sessions.restored(clients)
        self._run_own()

    # --- agents ---------------------------------------------------------------------------------------------

    def register_attribute(self, attribute: str, done: Callable[[], None]) -> None:
        """This broker now hosts an agent with the attribute."""
        self.graph.insert(attribute_key(attribute, self.me, self.order), done)
        self._run_own()

    def unregister_attribute(self, attribute: str) -> None:
        self.graph.remove(attribute_key(attribute, self.me, self.order), lambda: None)
        self._run_own()

    def call_agents(
        self,
        attribute: str,
        method: str,
        args: tuple[Any, ...],
        done: Callable[[Outcome], None],
        *,
        broker: str | None = None,
    ) -> None:
        """Call a method of all agents with an attribute, or of the agent of that name at one broker; empty: at each."""
        self._serial += 1
        wanted = holders(attribute) if broker is None else one_broker(broker) if broker else ALL_BROKERS
        self.calls.call(wanted, AgentCall(attribute, method, args, self._serial, self.me), done, CALL_ATTEMPTS)
        self._run_own()

    # --- Port -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._clock()

    def send(self, to: BrokerRef, frame: Frame) -> None:
        if to.name == self.me.name:
            if to.incarnation == self.me.incarnation and type(frame) is not Inserted:
                self._own.append(frame)
            elif to.incarnation == self.me.incarnation:  # before the next of many own keys looks for its place there
                self._own.appendleft(frame)
            return
        self.outbox.append((to, frame))
        if type(frame) not in NOT_FOLLOWED:
            self._addressed[to.name] = to, self._clock()
        if len(self.outbox) == 1 and self.on_output is not None:
            self.on_output()

    def wanted(self) -> None:
        if self.on_output is not None:
            self.on_output()

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self._timer_serial += 1
        when = self.now + delay
        heappush(self._timers, (when, self._timer_serial, action))
        if when < self.deadline:
            self.deadline = when
            if self.on_output is not None:
                self.on_output()

    def lost(self, broker: BrokerRef) -> bool:
        if broker.name == self.me.name:  # of this broker there is no other life while it is here
            return broker.incarnation != self.me.incarnation
        return self.detector.lost(broker)

    def calm(self) -> bool:
        if self.now < self._repaired_at or self.ring_probe.pending or not self.graph.settled:
            return False
        suspects = self.detector.suspects
        return not suspects or self.graph.neighbours().keys().isdisjoint(suspects)

    def reachable(self, broker: BrokerRef) -> bool:
        return self.detector.reachable(broker)

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def catch_up(self) -> CatchUp:
        """Sees to brokers that are cut off."""
        assert isinstance(self.multicast.catch_up, CatchUp)
        return self.multicast.catch_up

    def wall(self) -> float:
        """Seconds since the epoch, as far as this broker knows."""
        return self.now + self.epoch

    def _share_publication(self, stream: Stream, message: Message, done: Callable[[int], None] | None) -> None:
        """Hand a publication to the groups that have members at other brokers only."""
        wants = self.subscriptions.has
        self.sharing.publish({g: brokers for g, brokers in stream.groups.items() if not wants(g)}, message, done)

    def _alone(self) -> bool:
        """Nobody else is in the mesh."""
        return self.joined and not self._leaving.correspondents

    def _stamp_after(self, stamp: int) -> int:
        self.retained.clock.seen(stamp)
        return self.retained.clock.stamp()

    def _passed(self, origin: BrokerRef, topic: str) -> int:
        return self.publishers.seq if origin == self.me else self.inbox.delivered(origin, topic)

    def _waiting(self, topic_filters: list[str]) -> bool:
        """Something that matches has come or was published here, and has not gone on yet."""
        topics = {*self.inbox.waiting(), *(t for t, stream in self.publishers.streams.items() if stream.queue)}
        return any(matches(topic_filter, topic) for topic in topics for topic_filter in topic_filters)

    def _guardians(self) -> list[BrokerRef]:
        return [*self.graph.neighbours().values(), *self._to_enlist()]

    def _to_enlist(self) -> list[BrokerRef]:
        return [*self.graph.linked_brokers(), *self.ring_probe.acquaintances]

    def _publishes(self, topic: str) -> bool:
        return self.publishers.publishes(topic)

    def _announce_key_again(self, key: Key) -> None:
        self.subscriptions.announce_key_again(key)
        self.publishers.key_again(key)
        self.trees.announce_again(key)
        self.retained_store.key_again(key)
        self.directory.key_again(key)

    def _every(self, interval: float, action: Callable[[], None]) -> None:
        def again() -> None:
            try:
                action()
            finally:  # a fault ends this round, not all that follow
                self._every(interval, action)

        self.after(interval, again)

    def _run_own(self) -> None:
        """Handle the frames this broker sent to itself."""
        if self._running:
            return
        self._running = True
        try:
            while self._own:
                self._dispatch(self.me, self._own.popleft())
        finally:
            self._running = False

    def _dispatch(self, sender: BrokerRef, frame: Frame) -> None:
        self._on.get(type(frame), _ignore)(sender, frame)

    def _on_leave(self, sender: BrokerRef, frame: Leave) -> None:
        self.detector.left(sender)
        self._forget(sender)
        self.catch_up.left(sender)
        self.wills.left(sender)
        self.replicas.died(sender)
        self.send(sender, LeaveAck())

    def _run_body(self, body: Body, keys: list[Key]) -> list[Result]:
        """What a range call runs at this broker's keys."""
        if isinstance(body, Announce):
            told = self.retained.pending([each.topic_filter for each in body.filters]) if body.present else []
            return [*self.publishers.announced(body), *told]
        if isinstance(body, Collect):
            return [*self.subscriptions.interests(keys, body), *self.trees.members(keys)]
        if isinstance(body, AnnounceTree):
            self.trees.note(body)
            return []
        if isinstance(body, Absent):
            return [Here([client for client in body.clients if self._connected(client)])]
        if isinstance(body, Claim):
            return list(self.directory.run(body, keys))
        if isinstance(body, Roster):
            return list(self.sessions.roster(body))
        if isinstance(body, Unsettled):
            lowest = self.multicast.acknowledgements.unsettled(body.topic_filters)
            return [Outstanding(self.me.name, self.me.incarnation, self.publishers.seq, lowest)]
        if isinstance(body, Inherit):
            return [self.catch_up.bequeath(body)]
        if isinstance(body, Missing):
            return self.catch_up.returned.missing(body)
        if isinstance(body, Orphans):
            return [self.replicas.restored.known(body)]
        if isinstance(body, Keep | Recall):
            return list(self.retained_store.run(body, keys))
        if isinstance(body, Survey | DesignPart):
            return list(self._run_design(body))
        return list(self._call_agents(body, any(key == broker_key(self.me.name) for key in keys)))

    def _run_design(self, body: Survey | DesignPart) -> list[Surveyed]:
        designs = self.publishers.designs
        if designs is None:
            return []
        if isinstance(body, DesignPart):
            designs.accept(body)
            return []
        return [designs.surveyed(self.subscriptions.registrations, filter(self._publishes, self.publishers.streams))]

    def _watch(self) -> None:
        needed = self.graph.neighbours() | self.multicast.acknowledgements.awaited() | self.sharing.awaited()
        needed |= self.wills.watched() | self.migrations.awaited() | self.replicas.watched()
        addressed, self._addressed = self._addressed, {}
        self.detector.tick(needed.values(), addressed.values())

    def _died(self, broker: BrokerRef) -> None:
        if self.on_dead is not None:
            self.on_dead(broker)
        neighbour = broker.name in self.graph.neighbours()
        if self.detector.is_hearsay(broker):
            self._disbelieve(broker)
        else:
            self.catch_up.lost(broker, self.detector.stale_incarnation(broker))
            self._forget(broker)
            self.wills.died(broker)
            self.replicas.died(broker)
        if neighbour:
            self._repaired_at = self.now + self.grace
            self.ring_probe.neighbour_died()
            for other in self.graph.linked_brokers():  # where there is a cut it is not the only one
                self._addressed.setdefault(other.name, (other, self.now))

    def _disbelieve(self, broker: BrokerRef) -> None:
        """A later life of a broker that nobody but others has spoken of is not there: an earlier one may well be."""
        self.graph.forget(broker)
        self.calls.forget(broker)
        self.publishers.forget(broker, exactly=True)
        self.trees.forget(broker, exactly=True)
        self.multicast.link_down(broker)

    def _forget(self, broker: BrokerRef) -> None:
        """A broker is dead or has left: nothing may depend on it any more."""
        self._addressed.pop(broker.name, None)
        self.graph.forget(broker)
        self.calls.forget(broker)
        self.publishers.forget(broker)
        self.trees.forget(broker)
        self.multicast.forget(broker, self.detector.stale_incarnation(broker))
        self.sharing.forget(broker)
        self.directory.forget(broker)
        self.migrations.forget(broker)
        self.retained_store.forget(broker)
        self.retained.unsure()
        self._leaving.parted(broker)

    def _back(self, was: BrokerRef, broker: BrokerRef) -> None:
        """One that `was` taken for dead is there."""
        if was.incarnation == broker.incarnation:
            self.catch_up.back(broker)
            self.replicas.back(broker)
        self.rejoin.back(was, broker)

    def _told_of(self, broker: BrokerRef) -> None:
        """Others have passed on what a broker said."""
        self.ring_probe.know(broker)
        self.rejoin.told_of(broker)

    def _merge(self, contact: BrokerRef) -> None:
        self.rejoin.merge(contact)

    def _say_again(self) -> None:
        """Tell and ask the others what may not have reached them, or not come from them."""
        self.subscriptions.announce_again()
        self.trees.announce_again()
        self.publishers.collect_again()
        self.retained_store.rejoined()
        self.directory.rejoined()
        self.sessions.sync()
        self.retained.unsure()
        self.wills.send_all()
        self.catch_up.rejoined()

    def _settled(self) -> bool:
        """Nothing that was published here is under way, and no session is on its way to another broker."""
        own = self.multicast.settled and self.retained.settled and self.sharing.settled
        return own and not self.migrations.source.leaving

    def _withdraw(self, done: Callable[[], None]) -> None:
        """Give up filters, presence, trees and what is kept for the mesh; `done` runs when all concerned know."""
        filters, streams = list(self.subscriptions.registrations), list(self.publishers.streams.values())
        topics = self.trees.topics
        missing = 1 + len(filters) + len(streams) + len(topics)

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        self.retained_store.leave(one_done)
        for stream in streams:
            self.publishers.close(stream, one_done)
        for topic in topics:
            self.trees.leave(topic, one_done)
        for topic_filter in filters:
            self.subscriptions.unsubscribe(topic_filter, one_done)

    def validate(self) -> None:
        """Raise AssertionError if an invariant of this broker's state does not hold."""
        self.graph.validate()


def _ignore(sender: BrokerRef, frame: Frame) -> None:
    """What only a link has to do with."""
