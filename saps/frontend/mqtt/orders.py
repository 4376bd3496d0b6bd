"""Holds the operators' orders for a frontend: redirection, bans, and reports of logins and packets.

Server redirection (MQTT 5.0, section 4.11): a broker that admits no clients tells them which other brokers to use.
CONNACK and DISCONNECT have the reason "use another server" (0x9C, temporary) or "server moved" (0x9D, permanent). They
may have a Server Reference: addresses of other brokers, separated by spaces. MQTT 3.1.1 has no such reasons: the broker
answers a CONNECT with "server unavailable" (3), and closes connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.client_connection import ClientConnection

ELSEWHERE = frozenset((Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED))
"""Reason codes that may have a Server Reference (3.2.2.3.16, 3.14.2.2.5)."""


class Redirect(NamedTuple):
    """The answers to clients while the broker admits none."""

    refusal: Reason
    """Reason code of a CONNACK."""
    leave_ack: Reason
    """Reason code of a DISCONNECT."""
    reference: Callable[[ClientConnection], str]
    """Returns the Server Reference for a client; empty: none."""


class Witness(Protocol):
    """Records logins (`saps.operations.audit`)."""

    def entered(self, connection: ClientConnection) -> None:
        """Record that a client has entered its session."""

    def refused(
        self, connection: ClientConnection, client_id: str, user: str | None, reason: Reason, text: str
    ) -> None:
        """Record that the CONNECT of a client was refused. `text` may be empty."""


class Bouncer(Protocol):
    """Knows the banned clients (`saps.operations.bans`)."""

    def banned(self, client: str, user: str | None, address: str) -> str | None:
        """Return why the client is banned, or None if it is not. `address` is its IP address."""


class Orders:
    """The orders for one frontend."""

    __slots__ = ("bouncer", "redirect", "witness")

    def __init__(self) -> None:
        self.redirect: Redirect | None = None
        """Redirects all clients (`saps.drain`); None while the broker admits clients."""
        self.bouncer: Bouncer | None = None
        self.witness: Witness | None = None

    def elsewhere(self, connection: ClientConnection, reason: Reason) -> PropertyMap:
        """Return the properties for a reason code: the Server Reference of the redirect, if there is one."""
        if self.redirect is None or reason not in ELSEWHERE:
            return {}
        reference = self.redirect.reference(connection)
        return {Property.SERVER_REFERENCE: reference} if reference else {}
