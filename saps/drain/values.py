"""What is said about a drain: how it is to go, how far it is, what other brokers offer, and what they are offered."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from saps.messages import Message
from saps.overlay.ring.keys import BrokerRef


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a drain is to go."""

    rate: float = 100.0
    """Clients a second that are sent away. Each connects to another broker, which takes its session over."""
    grace: float = 5.0
    """Seconds for which a client that was sent away may ask for its session elsewhere before it is given away."""
    timeout: float = 300.0
    """Seconds after which the broker leaves with the sessions that nobody takes, if they are stored; and else stays,
    drained as far as it went."""
    moved: bool = False
    """The broker will not come back: clients are told "server moved" (0x9D) in place of "use another server"."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator wants of a broker; what is not said goes as the settings have it."""

    cancel: bool = False
    """End the drain: the broker serves again."""
    rate: float | None = None
    grace: float | None = None
    timeout: float | None = None
    moved: bool = False

    def options(self, default: Options) -> Options:
        """The drain that is meant."""
        said = {name: getattr(self, name) for name in ("rate", "grace", "timeout")}
        given = {name: value for name, value in said.items() if value is not None}
        return msgspec.structs.replace(default, **given, moved=self.moved)

    def fault(self) -> str | None:
        """The name of a number that cannot be used, or None."""
        for name in ("rate", "grace", "timeout"):
            value = getattr(self, name)
            if value is not None and not (0 <= value < 1e9 and (value or name != "rate")):
                return name
        return None


class Stage(StrEnum):
    """How far a drain is."""

    SERVING = "serving"
    """There is none."""
    DRAINING = "draining"
    STUCK = "stuck"
    """Its time is over, and there are sessions that nobody takes. It goes on trying."""
    LEAVING = "leaving"
    """All clients and sessions have gone; the broker leaves the mesh."""
    LEFT = "left"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to do yet."""

    broker: str
    stage: Stage
    seconds: float = 0.0
    """Since it began."""
    clients: int = 0
    """Connected."""
    clients_before: int = 0
    sessions: int = 0
    """Here, of clients that are connected or away."""
    sessions_before: int = 0
    moving: int = 0
    """Of these, offered to another broker or on the way to it."""
    staying: bool = False
    """No other broker can take sessions: those that are stored will be here when this broker comes back."""
    keys: int = 0
    """In the overlay."""
    keys_before: int = 0
    hosts: list[str] = []
    """Brokers that take sessions."""


class Drained(Progress, frozen=True, kw_only=True):
    """The JSON of ``/v1/drain``."""

    at: float
    """Seconds since 1970."""


class Host(msgspec.Struct, frozen=True, array_like=True):
    """What a broker says that may take clients and sessions of others."""

    broker: str
    cluster: str
    mqtt: str
    """Where clients reach it, for a Server Reference; empty: nowhere that it knows of."""
    mqtts: str
    """The same with TLS."""
    sessions: int
    """How many it has."""
    room: int
    """How many more it takes; 0: it cannot take over any."""


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """A session that another broker is to have."""

    client: str
    user: str | None
    source: BrokerRef
    stamp: int
    """Of the source's claim."""
    remaining: float
    """Seconds until it ends."""
    queued: int
    """Messages that wait."""
    bytes: int
    """Of these."""
    will: Message | None = None
    """The client's, which waits for its delay."""
    will_in: float = 0.0
    """Seconds."""


Kind = Literal["mqtt", "mqtts", ""]
"""How a client is connected; empty: by something that a Server Reference does not name (WebSocket, HTTP)."""
