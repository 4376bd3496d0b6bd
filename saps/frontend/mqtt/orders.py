"""What operators have ordered, as far as a frontend obeys it: who is sent elsewhere, who is banned; and who is told of
logins.

Server redirection (MQTT 5.0, section 4.11): a broker that lets nobody in tells where else to go. CONNACK and DISCONNECT
say "use another server" (0x9C: for now) or "server moved" (0x9D: for good), if possible with a Server Reference:
addresses of other brokers, separated by spaces. MQTT 3.1.1 has no words for it: a CONNECT is answered with "server
unavailable" (3), a connection is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection

ELSEWHERE = frozenset((Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED))
"""The reasons that may come with a Server Reference (3.2.2.3.16, 3.14.2.2.5)."""


class Redirect(NamedTuple):
    """What clients are told while nobody is let in."""

    refusal: Reason
    """In CONNACK."""
    leave_ack: Reason
    """In DISCONNECT."""
    reference: Callable[[Connection], str]
    """The Server Reference for a client; empty: none."""


class Witness(Protocol):
    """Is told who came (`saps.operations.audit`)."""

    def entered(self, connection: Connection) -> None:
        """A client has its session."""

    def refused(self, connection: Connection, client_id: str, user: str | None, reason: Reason, text: str) -> None:
        """A client that has sent CONNECT was not let in. `text` may be empty."""


class Bouncer(Protocol):
    """Knows who is not let in (`saps.operations.bans`)."""

    def banned(self, client: str, user: str | None, address: str) -> str | None:
        """Why not, in words; None: it may come in."""


class Tap(Protocol):
    """Is told of one client's packets (`saps.operations.following`)."""

    def received(self, connection: Connection, data: bytes, pos: int, end: int) -> None:
        """Whole packets have come and were handled: `data[pos:end]`."""

    def sent(self, connection: Connection, data: bytes) -> None:
        """Whole packets are about to be written."""


class Orders:
    """Of one frontend."""

    __slots__ = ("bouncer", "redirect", "witness")

    def __init__(self) -> None:
        self.redirect: Redirect | None = None
        """Nobody is let in: clients are to go elsewhere (`saps.drain`)."""
        self.bouncer: Bouncer | None = None
        self.witness: Witness | None = None


def elsewhere(connection: Connection, reason: Reason) -> PropertyMap:
    """The properties that go with a reason: a Server Reference, where there is one to give."""
    redirect = connection.frontend.orders.redirect
    if redirect is None or reason not in ELSEWHERE:
        return {}
    reference = redirect.reference(connection)
    return {Property.SERVER_REFERENCE: reference} if reference else {}
