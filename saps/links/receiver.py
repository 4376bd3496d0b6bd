"""The receiving half of a broker's links: the connections that other brokers have made, and the sessions on them."""

from __future__ import annotations

from saps.links.inbound import Inbound
from saps.links.side import Side
from saps.overlay.delivery.express import Endings, ends_a_link
from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.overlay.validation.senders import check_sender


class Receiver:
    """Checks what comes and passes it on (`LinkUser.receive`)."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._keys = KeyOrder(side.order)
        self.connections: set[Inbound] = set()
        self._endings = Endings()

    def opened(self, inbound: Inbound) -> None:
        self.connections.add(inbound)
        self._endings.opened(inbound.lane)

    def closed(self, inbound: Inbound) -> None:
        self.connections.discard(inbound)
        self._deliver(self._endings.closed(inbound.lane))

    def greeted(self, inbound: Inbound, peer: BrokerRef) -> None:
        """A broker that has connected has said who it is."""
        inbound.lane.peer = peer
        self._deliver(self._endings.released())

    def arrived(self, inbound: Inbound, peer: BrokerRef, frames: list[Frame]) -> None:
        """Frames from a broker. Raises `ProtocolError` if they say what it cannot say."""
        check_sender(peer, frames, self._keys)
        if not inbound.begun:
            self._begin(inbound, peer)
        if any(map(ends_a_link, frames)):
            frames = self._endings.passed(inbound.lane, frames)
        if frames:
            self._side.user.receive(peer, frames)

    def _begin(self, inbound: Inbound, peer: BrokerRef) -> None:
        """The first frames have come by a connection: a new session. Not so with its hello, which also comes from who
        looks for another life of this broker, and then goes.

        The sender has given up the sessions before, and takes what it sent by them for lost. The network may still hold
        some of it (a cut, then a heal): it would be read by the numbers of the new session, so it must not count."""
        inbound.begun = True
        for other in self.connections:
            if other is not inbound and other.begun and other.lane.peer == peer and other.express is inbound.express:
                other.end()
        user = self._side.user
        (user.express_started if inbound.express else user.session_started)(peer)

    def _deliver(self, ends: list[tuple[BrokerRef, Frame]]) -> None:
        for peer, frame in ends:
            if not self._side.closing:
                self._side.user.receive(peer, [frame])
