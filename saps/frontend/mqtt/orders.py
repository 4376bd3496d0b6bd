"""What operators have ordered, as far as a frontend obeys it, and who is told of logins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saps.frontend.mqtt.codec.reasons import Reason
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.connection.redirect import Redirect


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


class Orders:
    """Of one frontend."""

    __slots__ = ("bouncer", "redirect", "witness")

    def __init__(self) -> None:
        self.redirect: Redirect | None = None
        """Nobody is let in: clients are to go elsewhere (`saps.drain`)."""
        self.bouncer: Bouncer | None = None
        self.witness: Witness | None = None
