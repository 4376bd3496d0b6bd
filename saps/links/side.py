"""What all links of a broker share: its identity, its demands on peers, and the receiver of frames."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from saps.links.questions import GUEST
from saps.links.user import LinkUser, Nobody
from saps.overlay.frames.framing import VERSION, WireError
from saps.overlay.frames.ring import StartProbe, There
from saps.overlay.ring.keys import BrokerRef

if TYPE_CHECKING:
    from saps.identity.live import LinkIdentity
    from saps.identity.verdict import Presented


class Starting(Protocol):
    """The start of this broker."""

    def probed(self, probe: StartProbe) -> There:
        """Answer a broker that is starting as well."""


class Side:
    """The configuration that every link reads."""

    def __init__(self, me: BrokerRef, order: str, user: LinkUser | None = None, *, dscp: int = 0) -> None:
        """`dscp`: differentiated services code point of the express lane's packets."""
        self.me = me
        self.order = order
        self.dscp = dscp
        self.user: LinkUser = user or Nobody()
        """Receives what the links bring."""
        self.start: Starting | None = None
        """Answers brokers that are starting; None once this broker has started."""
        self.hidden = False
        """Whether this broker is not in a mesh yet: it then answers only brokers that are starting."""
        self.identity: LinkIdentity | None = None
        """The certificates to show and to demand; None: links are plain."""
        self.speaks = VERSION
        """Highest protocol version."""
        self.closing = False

    @property
    def shown(self) -> BrokerRef:
        """The reference that this broker's hello shows."""
        return GUEST if self.hidden else self.me

    def sealing(self) -> dict[str, Any]:
        """Return the TLS arguments for `create_connection`; none on plain links."""
        return self.identity.dial() if self.identity is not None else {}

    def admit(self, transport: asyncio.BaseTransport | None, peer: BrokerRef) -> Presented | None:
        """Return the certificate of a peer that claims to be this broker; None on plain links. Raises `WireError` if
        the certificate does not permit it."""
        if self.identity is None:
            return None
        if transport is None:
            raise WireError("the connection is gone")
        return self.identity.admit(transport, peer.name, peer.cluster)

    def probed(self, probe: StartProbe) -> There:
        """Return the stage of this broker's start, for a broker that is starting as well."""
        return There(self.me, 2, 0.0) if self.start is None else self.start.probed(probe)
