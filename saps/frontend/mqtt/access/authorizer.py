"""Who a client is and what it may do: asked by each connection, answered here by "anybody, everything".

Brokers with access rules put `saps.frontend.mqtt.access.guarded` in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from saps.agents.user import Rights
from saps.frontend.mqtt.codec.packets import Connect

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


class Authorizer(Protocol):
    """Asked by one connection. The rights it gives are obeyed by the hub."""

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Callable[[bool], None]) -> bool | None:
        """Is it whom it says to be? None if that takes a while: `found` is called then, while the client is `wanted`.
        Raises `ProtocolError` for a client that is refused at once."""

    def refusal(self, packet: Connect) -> Exception:
        """What to raise for a client that is not whom it says to be."""

    @property
    def user(self) -> str | None:
        """The user, once identified; None: anonymous."""

    def authorise(self, connection: Connection, client_id: str, packet: Connect) -> Rights | None:
        """The client's rights; None: everything. Raises `ProtocolError` if it may not have this session."""

    def refused(self, connection: Connection, topics: list[str]) -> None:
        """The client has published to these topics without the right to."""


class Anybody:
    """Lets everybody in, as nobody in particular. (An `Authorizer`.)"""

    user: str | None = None

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Callable[[bool], None]) -> bool | None:
        return True

    def refusal(self, packet: Connect) -> Exception:
        raise NotImplementedError("nobody is refused")

    def authorise(self, connection: Connection, client_id: str, packet: Connect) -> Rights | None:
        return None

    def refused(self, connection: Connection, topics: list[str]) -> None:
        """They are topics of the broker's own."""


ANYBODY = Anybody()
