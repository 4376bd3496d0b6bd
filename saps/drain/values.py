"""Values of a drain: options, an operator's order, progress, the room of other brokers, and offered sessions."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from saps.messages import Message
from saps.overlay.ring.keys import BrokerRef


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a drain."""

    rate: float = 100.0
    """Clients redirected per second. Each connects to another broker, to which its session migrates."""
    grace: float = 5.0
    """Seconds that a redirected client has to fetch its session elsewhere before the session is offered."""
    timeout: float = 300.0
    """Seconds after which the broker leaves with the sessions that no broker takes, if they are stored; else it stays,
    drained as far as possible."""
    moved: bool = False
    """Whether the broker will not come back: clients are told "server moved" (0x9D) instead of "use another server"."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator's order. The settings apply to what is None."""

    cancel: bool = False
    """Cancel the drain: the broker serves again."""
    rate: float | None = None
    grace: float | None = None
    timeout: float | None = None
    moved: bool = False

    def options(self, default: Options) -> Options:
        """Return the options of the ordered drain."""
        said = {name: getattr(self, name) for name in ("rate", "grace", "timeout")}
        given = {name: value for name, value in said.items() if value is not None}
        return msgspec.structs.replace(default, **given, moved=self.moved)

    def fault(self) -> str | None:
        """Return the name of an invalid number, or None."""
        for name in ("rate", "grace", "timeout"):
            value = getattr(self, name)
            if value is not None and not (0 <= value < 1e9 and (value or name != "rate")):
                return name
        return None


class Stage(StrEnum):
    """The stage of a drain."""

    SERVING = "serving"
    """No drain."""
    DRAINING = "draining"
    STUCK = "stuck"
    """The time-out is over, and no broker takes the remaining sessions. The drain keeps trying."""
    LEAVING = "leaving"
    """All clients and sessions have moved; the broker leaves the mesh."""
    LEFT = "left"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a drain: what is left, and how much there was."""

    broker: str
    stage: Stage
    seconds: float = 0.0
    """Seconds since the start of the drain."""
    clients: int = 0
    """Connected clients."""
    clients_before: int = 0
    sessions: int = 0
    """Sessions here, of clients that are connected or away."""
    sessions_before: int = 0
    moving: int = 0
    """Sessions offered to another broker or on their way to it."""
    staying: bool = False
    """Whether no other broker has room: stored sessions stay until this broker comes back."""
    keys: int = 0
    """This broker's keys in the overlay."""
    keys_before: int = 0
    hosts: list[str] = []
    """Names of the brokers that take sessions."""


class Drained(Progress, frozen=True, kw_only=True):
    """The JSON of ``/v1/drain``."""

    at: float
    """Seconds since 1970."""


class Host(msgspec.Struct, frozen=True, array_like=True):
    """A broker that may take clients and sessions, as it describes itself."""

    broker: str
    cluster: str
    mqtt: str
    """Address for clients, for a Server Reference; empty if it knows none."""
    mqtts: str
    """Address for clients that use TLS."""
    sessions: int
    """Sessions that it has."""
    room: int
    """Sessions that it can take in addition."""


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """A session offered to another broker."""

    client: str
    user: str | None
    source: BrokerRef
    stamp: int
    """Time stamp of the source's claim to the client."""
    remaining: float
    """Seconds until the session expires."""
    queued: int
    """Queued messages."""
    bytes: int
    """Bytes of the queued messages."""
    will: Message | None = None
    """The client's will, waiting for its delay."""
    will_in: float = 0.0
    """Seconds until the will is due."""


Kind = Literal["mqtt", "mqtts", ""]
"""How a client is connected; empty for a transport that a Server Reference cannot name (WebSocket, HTTP)."""
