"""Who a client is and what it may do: asked by each connection, answered here by "anybody, everything".

Brokers with access rules put `saps.frontend.mqtt.access.guarded` in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saps.agents.user import Rights
from saps.frontend.mqtt.codec.packets import Connect
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


Found = Callable[[ProtocolError | None], None]
"""Told why a client is not let in, or None: it is."""


class Proof(NamedTuple):
    """A step of an authentication by AUTH (4.12)."""

    data: bytes
    """What to answer."""
    done: bool
    """The client has proven who it is."""


class Authorizer(Protocol):
    """Asked by one connection. The rights it gives are obeyed by the hub."""

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Found) -> bool:
        """True: it is whom it says to be. False: that takes a while, and `found` is called then, while the client is
        `wanted`. Raises `ProtocolError` for a client that is refused at once."""

    @property
    def method(self) -> str | None:
        """By which the client proves who it is, in AUTH; None: it does not."""

    def prove(self, method: str, data: bytes, named: str | None, first: bool) -> Proof:
        """The client proves by a method of its own who it is; `identify` is to be called then. `named`: the user name
        of CONNECT. `first`: it begins, for the first time or again. Raises `ProtocolError`, also for a method that is
        not there."""

    @property
    def user(self) -> str | None:
        """The user, once identified; None: anonymous."""

    @property
    def left(self) -> float:
        """Seconds for which the client may stay."""

    def authorise(self, connection: Connection, client_id: str) -> Rights | None:
        """The client's rights; None: everything. Raises `ProtocolError` if it may not have this session."""

    def refused(self, connection: Connection, topics: list[str]) -> None:
        """The client has published to these topics without the right to."""


class Anybody:
    """Lets everybody in, as nobody in particular. (An `Authorizer`.)"""

    user: str | None = None

    left = inf

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Found) -> bool:
        return True

    method: str | None = None

    def prove(self, method: str, data: bytes, named: str | None, first: bool) -> Proof:
        raise ProtocolError(f"there is no authentication method {method!r}", Reason.BAD_AUTHENTICATION_METHOD)

    def authorise(self, connection: Connection, client_id: str) -> Rights | None:
        return None

    def refused(self, connection: Connection, topics: list[str]) -> None:
        """They are topics of the broker's own."""


ANYBODY = Anybody()
