"""Defines how a connection authenticates its client and gets the client's rights, and lets everybody do everything.

Brokers with access rules use `saps.frontend.mqtt.access.guarded` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

from saps.agents.user import Rights
from saps.frontend.mqtt.codec.packets import Connect
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason

Found = Callable[[ProtocolError | None], None]
"""Callback of `Authorizer.identify`: gets the reason for refusing the client, or None if the client is let in."""


class Proof(NamedTuple):
    """The result of one step of an enhanced authentication (4.12)."""

    data: bytes
    """Authentication data for the answer to the client."""
    done: bool
    """Whether the client has proven its identity."""


class Authorizer(Protocol):
    """Authenticates the client of one connection. The hub enforces the rights that `authorise` returns."""

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Found) -> bool:
        """Authenticate the client of a CONNECT.

        Returns True if the client is authenticated. Returns False if that takes longer: `found` is then called later,
        and only matters while `wanted` returns True. Raises `ProtocolError` if the client is refused at once.
        """

    @property
    def method(self) -> str | None:
        """The client's method of enhanced authentication; None without one."""

    def prove(self, method: str, data: bytes, named: str | None, first: bool) -> Proof:
        """Take one step of an enhanced authentication. Once the proof is done, call `identify`.

        `data` is the client's authentication data, and `named` the user name of the CONNECT. `first` begins an
        authentication or a re-authentication. Raises `ProtocolError` for a wrong proof or an unknown method.
        """

    @property
    def user(self) -> str | None:
        """The authenticated user; None for an anonymous client."""

    @property
    def left(self) -> float:
        """Seconds until the client's login ends."""

    def authorise(self, client_id: str, owner: str | None) -> Rights | None:
        """Return the client's rights, or None for all rights.

        `owner`: the user of its session; its own user if it has no session. Raises `ProtocolError` if the client may
        not use the session.
        """

    def refused(self, label: str, topics: list[str]) -> None:
        """Report that the client, called `label` in log lines, has published to these topics without the right to."""


class Anybody:
    """Lets every client in as anonymous, with all rights. (An `Authorizer`.)"""

    user: str | None = None

    left = inf

    def identify(self, packet: Connect, wanted: Callable[[], bool], found: Found) -> bool:
        return True

    method: str | None = None

    def prove(self, method: str, data: bytes, named: str | None, first: bool) -> Proof:
        raise ProtocolError(f"there is no authentication method {method!r}", Reason.BAD_AUTHENTICATION_METHOD)

    def authorise(self, client_id: str, owner: str | None) -> Rights | None:
        return None

    def refused(self, label: str, topics: list[str]) -> None:
        """Ignore the refusal: without rights only topics of the broker itself are refused."""


ANYBODY = Anybody()
