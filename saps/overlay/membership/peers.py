"""Passes changes of other brokers (heard, back, dead, left) to the machines of one broker that they concern."""

from __future__ import annotations

from saps.overlay.delivery.delivery import Delivery
from saps.overlay.frames.ring import Leave, LeaveAck
from saps.overlay.membership.detours import Detours
from saps.overlay.membership.leave import Leaving
from saps.overlay.missed.alarm import Alarm
from saps.overlay.node_port import Driver, NodePort
from saps.overlay.port import Handlers
from saps.overlay.rendezvous.rendezvous import Rendezvous
from saps.overlay.retained.publisher import RetainedPublisher
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.rejoin import Rejoin
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.sessions.replicas.holders import Replicas
from saps.overlay.sessions.sessions import Sessions
from saps.overlay.wills import Wills


class Peers:
    """Passes changes of other brokers to the machines of one broker."""

    def __init__(
        self,
        port: NodePort,
        driver: Driver,
        graph: SkipGraph,
        rejoin: Rejoin,
        rendezvous: Rendezvous,
        delivery: Delivery,
        retained: RetainedPublisher,
        sessions: Sessions,
        replicas: Replicas,
        wills: Wills,
        leaving: Leaving,
    ) -> None:
        """The creator sets `detours`."""
        self._port = port
        self._driver = driver
        self._graph = graph
        self._rejoin = rejoin
        self._rendezvous = rendezvous
        self._delivery = delivery
        self._retained = retained
        self._sessions = sessions
        self._replicas = replicas
        self._wills = wills
        self._leaving = leaving
        self.detours: Detours
        self.alarm = Alarm(port, graph.linked_brokers, delivery.catch_up)

    @property
    def handlers(self) -> Handlers:
        return {Leave: self._on_leave, **self.alarm.handlers}

    def met(self, broker: BrokerRef) -> None:
        """Take note of a broker found at the address of another one, or of its earlier incarnation."""
        if not self._port.detector.stale_incarnation(broker) and (was := self._port.detector.heard(broker)) is not None:
            self.back(was, broker)

    def discovered(self, broker: BrokerRef) -> None:
        """Check a broker found in a mesh, which may be another one: then the two are merged."""
        self.met(broker)
        if not self._port.detector.stale_incarnation(broker):
            self._rejoin.ring_probe.know(broker)
            self._rejoin.suspect(broker)

    def told_of(self, broker: BrokerRef) -> None:
        """Take note of a broker whose frame others have forwarded."""
        self._rejoin.ring_probe.know(broker)
        self._rejoin.told_of(broker)

    def session_started(self, sender: BrokerRef) -> None:
        """Handle a new link session from a broker."""
        self.detours.session_started(sender)
        self._delivery.session_started(sender)
        self.alarm.greet(sender)

    def path_started(self, sender: BrokerRef) -> None:
        """Handle a new path from a broker: a session with new link ids for all lanes."""
        self._delivery.multicast.forwarder.express_started(sender)
        self._delivery.session_started(sender)
        self.alarm.greet(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """Handle a link to a broker that broke or could not be made."""
        if self.detours.link_down(peer):
            return
        first = self._port.reachable(peer)
        self._port.detector.broke(peer)
        self._delivery.link_down(peer)
        if first:  # and not whenever it cannot be made again
            self._delivery.catch_up.sending.link_broke(peer)
        self._wills.link_down(peer)
        self._leaving.link_down(peer)
        self.detours.seek(peer)

    def path_changed(self, peer: BrokerRef) -> None:
        """Count frames to a broker as lost that may be under way: it is reached in another way."""
        self._delivery.link_down(peer)
        self._delivery.catch_up.sending.link_broke(peer)
        self._wills.link_down(peer)

    def watch(self) -> None:
        """Check the brokers that this one depends on, once in a heartbeat."""
        needed = self._graph.neighbours() | self._delivery.awaited() | self._wills.watched()
        needed |= self._sessions.migrations.awaited() | self._replicas.watched()
        self._port.watch(needed | self.detours.relays())
        self.detours.watch(self._port.detector.silent())

    def probe(self) -> None:
        """Look for a broker that was declared dead: it may be alive beyond a cut."""
        for broker in self._port.detector.probe():
            self.detours.seek(broker)

    def back(self, was: BrokerRef, broker: BrokerRef) -> None:
        """Handle a broker that was declared dead as `was` and is heard again, perhaps in another incarnation."""
        self._delivery.catch_up.back(broker)
        if was.incarnation == broker.incarnation:
            self._replicas.back(broker)
        self._rejoin.back(was, broker)

    def died(self, broker: BrokerRef) -> None:
        """Handle a broker that was declared dead."""
        self._driver.given_up(broker)
        self.detours.forget(broker)
        neighbour = broker.name in self._graph.neighbours()
        if self._port.detector.is_hearsay(broker):
            self._disbelieve(broker)
        else:
            over = self._port.detector.stale_incarnation(broker)
            self._delivery.catch_up.lost(broker, over)
            if not over:
                self.alarm.lost(broker)
            self._forget(broker)
            self._wills.died(broker)
            self._replicas.died(broker)
        if neighbour:
            self._rejoin.ring_probe.neighbour_died()
            for other in self._graph.linked_brokers():  # where there is a cut it is not the only one
                self._port.follow(other)

    def _on_leave(self, sender: BrokerRef, frame: Leave) -> None:
        self._port.detector.left(sender)
        self.detours.forget(sender)
        self._delivery.catch_up.left(sender, frame.owed)
        self._forget(sender)
        self._wills.left(sender)
        self._replicas.died(sender, left=True)
        self._port.send(sender, LeaveAck())

    def _disbelieve(self, broker: BrokerRef) -> None:
        """Forget a later incarnation of a broker that only others have reported; an earlier one may well be alive."""
        self._delivery.catch_up.lost(broker, over=False, hearsay=True)
        self._graph.forget(broker)
        self._rendezvous.forget(broker, exactly=True)
        self._delivery.multicast.link_down(broker)

    def _forget(self, broker: BrokerRef) -> None:
        """Forget a broker that is dead or has left: nothing may depend on it any more."""
        self._port.unfollow(broker)
        self._graph.forget(broker)
        self._rendezvous.forget(broker)
        self._delivery.forget(broker, self._port.detector.stale_incarnation(broker))
        self._sessions.forget(broker)
        self._retained.forget(broker)
        self._leaving.parted(broker)
