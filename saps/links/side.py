"""This broker's side of all its links: who it says it is, what it demands of the others, and who is told of them."""

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
    """How far this broker's start is."""

    def probed(self, probe: StartProbe) -> There:
        """The answer for a broker that is starting as well."""


class Side:
    """Read by every link when it is made."""

    def __init__(self, me: BrokerRef, order: str, user: LinkUser | None = None, *, dscp: int = 0) -> None:
        """`dscp`: differentiated services code point of the express lane's packets."""
        self.me = me
        self.order = order
        self.dscp = dscp
        self.user: LinkUser = user or Nobody()
        """Is told what the links bring."""
        self.start: Starting | None = None
        """Answers brokers that are starting; None: this one has started."""
        self.hidden = False
        """This broker is not in a mesh yet: it answers brokers that start, and nobody else hears who it is."""
        self.identity: LinkIdentity | None = None
        """What is shown to other brokers and demanded of them; None: links are plain."""
        self.speaks = VERSION
        """Highest version of the protocol."""
        self.closing = False

    @property
    def shown(self) -> BrokerRef:
        """Who this broker says to be to those that connect."""
        return GUEST if self.hidden else self.me

    def sealing(self) -> dict[str, Any]:
        """What `create_connection` needs to know beside the address."""
        return self.identity.dial() if self.identity is not None else {}

    def admit(self, transport: asyncio.BaseTransport | None, peer: BrokerRef) -> Presented | None:
        """What a peer has shown that says to be this broker; None if links are plain. Raises `WireError` if it may not
        be that one."""
        if self.identity is None:
            return None
        if transport is None:
            raise WireError("the connection is gone")
        return self.identity.admit(transport, peer.name, peer.cluster)

    def probed(self, probe: StartProbe) -> There:
        """How far this broker's start is, for one that is starting as well."""
        return There(self.me, 2, 0.0) if self.start is None else self.start.probed(probe)
