"""The receiving half of a broker's links: accepted connections, and the sessions on them."""

from __future__ import annotations

from saps.links.inbound import Inbound
from saps.links.side import Side
from saps.overlay.delivery.express import Endings, ends_a_link
from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.overlay.validation.senders import check_sender


class Receiver:
    """Checks arriving frames and passes them on (`LinkUser.receive`)."""

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
        """Handle the hello of a broker."""
        inbound.lane.peer = peer
        self._deliver(self._endings.released())

    def arrived(self, inbound: Inbound, peer: BrokerRef, frames: list[Frame]) -> None:
        """Handle frames of a broker. Raises `ProtocolError` for content that this sender may not send."""
        check_sender(peer, frames, self._keys)
        if not inbound.begun:
            self._begin(inbound, peer)
        if any(map(ends_a_link, frames)):
            frames = self._endings.passed(inbound.lane, frames)
        if frames:
            self._side.user.receive(peer, frames)

    def _begin(self, inbound: Inbound, peer: BrokerRef) -> None:
        """Begin a new session with the first frames of a connection. A hello alone does not begin one, as it may come
        from a broker that looks for another incarnation of this one.

        The sender has given up its earlier sessions and takes what it sent over them for lost. The network may still
        deliver some of it (a cut that heals), which would be decoded with the link ids of the new session. So earlier
        sessions end here."""
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
