"""One broker's part of the overlay: all state machines, wired to one clock, one outbox and one table of frames.

Pure: a driver (`saps.broker.node_driver`, or the simulator) runs it. The driver

1. provides a clock and calls the methods;
2. sends the frames that `take` returns in the way that `Detours.way` names, and calls `wake` at the `deadline` of the
   timers;
3. hands in the frames of each link session in order, with `session_started` before the first of a new session;
4. calls `link_down` after a link to a broker broke (frames sent on it may be lost).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from saps.mesh import Done, Local
from saps.overlay.agent_calls import AgentCalls, Run
from saps.overlay.delivery.delivery import Delivery
from saps.overlay.delivery.order import SWEEP, Inbox
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Announce, Orphans, Result
from saps.overlay.frames.ring import Found, Leave
from saps.overlay.membership.clocks import COMPARE, Clocks
from saps.overlay.membership.detours import Detours
from saps.overlay.membership.failure_detector import DetectorSettings
from saps.overlay.membership.leave import Leaving
from saps.overlay.membership.members import Tell
from saps.overlay.membership.peers import Peers
from saps.overlay.mesh import OverlayMesh
from saps.overlay.missed.alarm import AGAIN
from saps.overlay.node_port import Driver, NodePort
from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.rendezvous.rendezvous import Rendezvous
from saps.overlay.retained.publisher import RetainedPublisher
from saps.overlay.retained.stamps import StampClock
from saps.overlay.retained.store import CENSUS, ReplicatedStore
from saps.overlay.ring.checks import CHECK_EVERY
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, broker_key
from saps.overlay.ring.rejoin import Rejoin
from saps.overlay.ring.ring_probe import RING_PROBE
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.sessions.directory import Directory
from saps.overlay.sessions.migration.migration import Migrations
from saps.overlay.sessions.owner import SessionOwner
from saps.overlay.sessions.replicas.holders import CONFIRM, Replicas
from saps.overlay.sessions.replicas.source import Source
from saps.overlay.sessions.sessions import Sessions
from saps.overlay.wills import LOOK, Wills
from saps.routing.batch import Batch

CLOSE_IDLE_EVERY = 5.0


class OverlayNode:
    """A broker in the overlay."""

    def __init__(
        self,
        me: BrokerRef,
        local: Local,
        clock: Callable[[], float],
        driver: Driver,
        *,
        order: KeyOrder = KeyOrder.CLUSTER,
        detector: DetectorSettings | None = None,
        call_agents: Run = lambda call, by_name: [],
        tell: Tell | None = None,
        leave_timeout: float = 10.0,
        design: DesignSettings | None = None,
        takeover_timeout: float = 5.0,
        copies: int = 1,
    ) -> None:
        """Wire the state machines; call `start` next.

        - `clock` returns monotonic seconds.
        - `order` is the key order, the same at all brokers of a mesh.
        - `detector` are the settings of the failure detector.
        - `call_agents` runs agent calls at this broker.
        - `tell` is called with log lines about other brokers.
        - `leave_timeout`: seconds after which a leaving broker goes even if some broker has not answered.
        - `design`: settings of a designed overlay for ALM, or None for none.
        - `takeover_timeout`: seconds for which a client's CONNECT waits for an unresponsive broker with its session.
        - `copies`: number of brokers that have each durable session.
        """
        self.joined = False
        settings = detector or DetectorSettings()
        port = self.port = NodePort(me, order, clock, driver, settings, tell, self._detour, self._died)
        wall = port.timers.wall
        graph = self.graph = SkipGraph(port, port.dispatch, self._key_again)
        self.rejoin = Rejoin(port, graph, port.detector, self._say_again)
        calls = RangeCalls(port, graph, self.rejoin.ring_probe.calm, self._told_of)
        rendezvous = self.rendezvous = Rendezvous(port, graph, calls, self._publish, design)
        stamps = StampClock(me.name, wall)
        inbox = Inbox(port, local.deliver, rendezvous.subscriptions.baseline, local.matching, stamps.observed)
        store = ReplicatedStore(port, graph, calls, self.acquaintances, wall)
        retained = self.retained = RetainedPublisher(
            port, calls, store, inbox, rendezvous.subscriptions, stamps, wall, local.kept
        )
        self.delivery = Delivery(port, rendezvous, inbox, local, retained.keep)
        self.clocks = Clocks(port, wall, self.acquaintances, tell)
        self.wills = Wills(port, calls, self._guardians, local)
        self.sessions, self.replicas = self._sessions(calls, stamps, takeover_timeout, copies)
        self.agents = AgentCalls(port, graph, calls, call_agents)
        self.leaving = Leaving(port, graph, self._settled, self._owed, self._withdraw, leave_timeout)
        self.mesh = OverlayMesh(port, rendezvous, self.delivery, retained, self.wills)
        self.peers = Peers(
            port, driver, graph, self.rejoin, rendezvous, self.delivery, retained, self.sessions, self.replicas,
            self.wills, self.leaving,
        )  # fmt: skip
        self.peers.detours = Detours(port, driver, self.peers, self.receive, self.acquaintances)
        self._fill_tables()

    def _sessions(
        self, calls: RangeCalls, stamps: StampClock, timeout: float, copies: int
    ) -> tuple[Sessions, Replicas]:
        port, delivery = self.port, self.delivery
        directory = Directory(port, self.graph, calls)
        settings = port.detector.settings
        sessions = Sessions(
            port, calls, directory, stamps.later, lambda: self.joined, self._alone, timeout,
            settings.suspect_after - settings.heartbeat, copies,
        )  # fmt: skip
        sessions.migrations = Migrations(port, calls, sessions, delivery)
        source = Source(port, self.acquaintances, SessionOwner(sessions), copies, port.timers.wall)
        replicas = Replicas(port, calls, sessions, source, delivery, port.timers.wall)
        sessions.copied = replicas
        delivery.catch_up.returned.heritage = sessions.migrations.heritage
        return sessions, replicas

    def _fill_tables(self) -> None:
        """Register the handler of each type of frame, and of each type of range-call body."""
        for machine in (
            self.graph, self.rejoin, self.rendezvous.calls, self.delivery, self.retained.store, self.wills,
            self.sessions.migrations, self.replicas, self.clocks, self.leaving, self.peers, self.peers.detours,
        ):  # fmt: skip
            self.port.handlers |= machine.handlers
        bodies = self.rendezvous.calls.bodies
        for answers in (self.rendezvous, self.delivery, self.retained.store, self.wills, self.sessions, self.agents):
            bodies |= answers.bodies
        bodies[Announce] = self._announced
        bodies[Orphans] = lambda body, keys: [self.replicas.restored.known(body)]

    def start(
        self,
        contact: BrokerRef | None,
        joined: Callable[[], None],
        ready: Callable[[], None] = lambda: None,
        former: Collection[str] = (),
    ) -> None:
        """Join the mesh of `contact`, or begin a new one if it is None. `former` are the names of the other members
        when the last incarnation of this broker ended, as far as it has remembered them.

        `joined` runs when this broker is in the mesh. `ready` runs when the mesh also knows its sessions, at most
        `takeover_timeout` seconds later.
        """
        key = broker_key(self.port.me.name)

        def linked() -> None:
            self.joined = True
            joined()
            self.replicas.restored.begin(former)
            self.delivery.catch_up.begin(former, self.replicas.young)
            self.sessions.begin(ready)

        if contact is None:
            self.graph.start_alone(key)
            linked()
        else:
            self.graph.contact = contact
            self.rejoin.ring_probe.know(contact)
            self.graph.insert(key, linked)
        for interval, action in self._rounds():
            self.port.timers.every(interval, action)

    def _rounds(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """Yield the periodic actions, each with its interval in seconds."""
        detector = self.port.detector
        heartbeat = detector.settings.heartbeat
        yield CHECK_EVERY * heartbeat, self.graph.checks.next_round
        yield heartbeat, self.peers.watch
        yield heartbeat, self.sessions.doubts.look
        yield detector.settings.probe, self.peers.probe
        yield CLOSE_IDLE_EVERY, self.rendezvous.close_idle
        yield SWEEP, self.delivery.inbox.sweep
        yield CENSUS, self.retained.store.check
        yield LOOK, self.wills.look
        yield CONFIRM, self.replicas.confirm
        yield RING_PROBE * heartbeat, self.rejoin.ring_probe.call
        yield AGAIN, self.peers.alarm.again
        yield COMPARE, self.clocks.compare
        if (designer := self.rendezvous.designer) is not None:
            yield designer.settings.interval, designer.tick

    def redirect(self, contact: BrokerRef | None) -> None:
        """Join through another `contact`, or begin a new mesh if it is None, as the first contact refused. Does nothing
        once this broker has joined."""
        if self.joined:
            return
        if contact is None:
            self.graph.close_alone(broker_key(self.port.me.name))
        else:
            self.graph.contact = contact
            self.rejoin.ring_probe.know(contact)

    def receive(self, sender: BrokerRef, frames: Iterable[Frame]) -> None:
        """Handle frames that arrived together from another broker. Ignores those of stale incarnations, and those
        behind its `Leave`. Raises `ProtocolError` if the sender violates the protocol; then close the link."""
        port, ring_probe, stranger = self.port, self.rejoin.ring_probe, False
        if self.leaving.correspondents.get(sender.name) is not sender:  # the same object was checked before
            if port.detector.stale_incarnation(sender):
                return
            stranger = self.leaving.heard(sender)
        if ring_probe.known.get(sender.name) is not sender:
            ring_probe.know(sender)
        if (was := port.detector.heard(sender)) is not None:
            self.peers.back(was, sender)
        for frame in frames:
            kind = type(frame)
            handler = port.handlers.get(kind)
            if handler is not None:
                handler(sender, frame)
            if port.own:
                port.run_own()
            if kind is Leave:  # frames behind it would bring back what has been forgotten of the sender
                return
        if stranger:
            self.leaving.tell(sender)

    def answered_for(self, peer: BrokerRef, frame: Frame) -> None:
        """Handle an answer that this broker's link gave in place of `peer`, which does not know the question. It is no
        sign of life of `peer`."""
        self.port.dispatch(peer, frame)

    def receive_datagrams(self, raws: Iterable[bytes]) -> None:
        """Handle datagrams from OpenFlow trees, this broker's own loopback packets included."""
        tree_path = self.delivery.multicast.tree_path
        if tree_path is not None:
            tree_path.receive(raws)

    def knows(self, address: str) -> bool:
        """Return whether a known broker that is not declared dead has this address (``host:port``)."""
        return any(broker.address == address and not self.port.lost(broker) for broker in self.acquaintances())

    def session_started(self, sender: BrokerRef) -> None:
        """Handle the start of a new link session from a broker. Call this before its first frame is handed in."""
        self.peers.session_started(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """Handle a link to a broker that broke or could not be opened."""
        self.peers.link_down(peer)

    def whois(self, name: str, found: Callable[[BrokerRef | None], None]) -> None:
        """Search for the broker of a name in the mesh. `found` gets it, or None; the broker may have crashed just now.
        `found` may never run if a broker fails during the search."""
        key = broker_key(name)

        def answer(at: Found) -> None:
            found(at.right.broker if at.right is not None and at.right.key == key else None)

        self.graph.find(key, answer)

    def wake(self) -> None:
        """Run the timers that are due."""
        for action in self.port.timers.due():
            action()
            self.port.run_own()

    def take(self) -> list[tuple[BrokerRef, Frame]]:
        """Return the frames to send now, with their receivers, and empty the outbox. Handles this broker's frames to
        itself first."""
        port = self.port
        if port.own:
            port.run_own()
        if self.delivery.multicast.open:
            self.delivery.multicast.flush()
        out, port.outbox = port.outbox, []
        return out

    def leave(self, left: Callable[[], None]) -> None:
        """Leave the mesh in order (`saps.overlay.membership.leave`). `left` runs when nothing more can arrive, or after
        `leave_timeout` seconds."""
        self.rejoin.ring_probe.stop()
        self.port.members.stop_telling()
        self.leaving.begin(left)

    def acquaintances(self) -> list[BrokerRef]:
        """Return the brokers that this one is linked to or has heard of; some may occur twice."""
        return [*self.graph.linked_brokers(), *self.rejoin.ring_probe.acquaintances]

    # --- callbacks of machines that are created before the machines that they concern

    def _detour(self, broker: BrokerRef) -> bool:
        return self.peers.detours.take(broker)

    def _died(self, broker: BrokerRef) -> None:
        self.peers.died(broker)

    def _told_of(self, broker: BrokerRef) -> None:
        self.peers.told_of(broker)

    def _publish(self, batch: Batch, done: Done | None) -> None:
        self.delivery.publish_waiting(batch, done)

    def _guardians(self) -> list[BrokerRef]:
        return [*self.graph.neighbours().values(), *self.acquaintances()]

    def _announced(self, body: Announce, keys: list[Key]) -> list[Result]:
        told = self.retained.pending([each.topic_filter for each in body.filters]) if body.present else []
        return [*self.rendezvous.publishers.announced(body), *told]

    def _key_again(self, key: Key) -> None:
        """Restore the state of a key that was out of the ring for a while."""
        self.rendezvous.key_again(key)
        self.retained.store.key_again(key)
        self.sessions.directory.key_again(key)

    def _say_again(self) -> None:
        """Exchange state with others again after a rejoin: announcements in either direction may have been lost."""
        self.rendezvous.rejoined()
        self.retained.rejoined()
        self.sessions.rejoined()
        self.wills.send_all()
        self.delivery.catch_up.rejoined()

    def _alone(self) -> bool:
        """Return whether no other broker is in the mesh."""
        return self.joined and not self.leaving.correspondents

    def _settled(self) -> bool:
        """Return whether no publication of this broker is under way, no session is moving to another broker or being
        adopted here, and no heir may still ask for what a broker that has just died had missed."""
        moving = self.sessions.migrations.source.leaving or self.replicas.adoptions
        awaited = self.sessions.replicated and self.delivery.catch_up.heirs.awaited
        return self.delivery.settled and self.retained.settled and not (moving or awaited)

    def _owed(self) -> bool:
        """Return whether a session here continues elsewhere when this broker has left."""
        host = self.sessions.host
        return host is not None and any(map(self.sessions.goes_on, host.clients()))

    def _withdraw(self, owed: bool, done: Callable[[], None]) -> None:
        """Withdraw from the mesh: retained partitions, publisher keys and tree memberships. Withdraws the filters, too,
        unless a session continues elsewhere (`owed`): then all log for it. `done` runs when all concerned know."""
        if owed:
            self.peers.alarm.leaves()
        missing = 2

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        self.retained.store.leave(one_done)
        self.rendezvous.withdraw(owed, one_done)

    def validate(self) -> None:
        """Raise AssertionError if an invariant of this broker's state does not hold."""
        self.graph.validate()
