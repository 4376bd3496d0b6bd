"""Copies of sessions, as frames carry them to the brokers that hold replicas."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from saps.messages import Message
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import Delay, Moment, Number, Quality, Stamp
from saps.routing.batch import Origin

LONG_AGO = 1e8
"""Seconds that stand for a time before all that counts."""


class Heirloom(msgspec.Struct, frozen=True, array_like=True):
    """A former broker of a session, for which brokers beyond a cut may have publications that it has missed."""

    owner: BrokerRef
    age: Delay
    """Seconds since the session left it; `LONG_AGO` and the seconds since the copy had all that it had got, for a
    broker that was taken for dead."""
    answered: list[str] = []
    """Names of the brokers that have sent what it had missed."""
    came: Delay = LONG_AGO
    """Seconds since the session first came to it; very many if it began there."""


class SessionCopy(msgspec.Struct, frozen=True, array_like=True):
    """A session that outlives its connection."""

    number: Number
    """Number of the session at its owner."""
    client: str
    user: str | None
    expiry: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
    """Session expiry interval in seconds."""
    ends: Moment | None
    """When the session expires, in seconds since the epoch; None while its client is connected."""
    birth: Number
    """The session's own name, which it keeps when it moves."""
    stamp: Stamp
    """Stamp of the owner's lease."""
    at: Moment = 0.0
    """When the holder got this copy, by its own clock, in seconds since the epoch: the owner's may be wrong."""
    heritage: list[Heirloom] = []
    """If the session was elsewhere before: its former brokers, and the owner, at that time."""


class SubscriptionCopy(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of a session, with MQTT 5.0's options (3.8.3.1)."""

    session: Number
    filter: str
    qos: Quality
    no_local: bool
    retain_as_published: bool
    retain_handling: Quality
    identifier: Annotated[int, Meta(ge=1, le=268_435_455)] | None


class MessageCopy(msgspec.Struct, frozen=True, array_like=True):
    """A message that sessions of one owner must deliver."""

    number: Number
    message: Message
    expires: Moment | None
    """Expiry in seconds since the epoch; None for never."""
    origin: Origin | None


class QueuedCopy(msgspec.Struct, frozen=True, array_like=True):
    """A message in the queue of a session."""

    serial: Number
    """Number of the queue entry; ascends in the order of delivery."""
    session: Number
    message: Number
    packet_id: Annotated[int, Meta(ge=0, le=0xFFFF)]
    """Packet identifier; 0 if the message has not been sent yet."""
    qos: Quality
    retain: bool
    identifiers: tuple[Annotated[int, Meta(ge=1, le=268_435_455)], ...] = ()


PacketId = Annotated[int, Meta(ge=0, le=0xFFFF)]


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """The changes of an owner's sessions in one commit. The lists `no_...` name removed items."""

    sessions: list[SessionCopy] = []
    subscriptions: list[SubscriptionCopy] = []
    messages: list[MessageCopy] = []
    copies: list[QueuedCopy] = []
    releases: list[tuple[Number, Number, PacketId]] = []
    """Serial, session and packet identifier of deliveries with QoS 2 for which a PUBREL is due."""
    incoming: list[tuple[Number, PacketId, Annotated[int, Meta(ge=-(1 << 40), le=1 << 40)]]] = []
    """Session, packet identifier and subscribers reached of QoS 2 publications that the client has not released."""
    no_sessions: list[Number] = []
    no_subscriptions: list[tuple[Number, str]] = []
    no_messages: list[Number] = []
    no_copies: list[Number] = []
    no_releases: list[Number] = []
    no_incoming: list[tuple[Number, PacketId]] = []
    """Session and packet identifier of incoming publications that are released."""
    had: list[tuple[Number, list[bytes]]] = []
    """Session, and the publications that it had so far, as `saps.storage.past.pack` returns them."""

    def shift(self, seconds: float, came: float | None = None) -> None:
        """Convert all times to a clock that is so much ahead. `came`: when the holder got the changes, by that clock;
        None: the holder's own clock has jumped since then."""
        for place, each in enumerate(self.sessions):
            ends = None if each.ends is None else max(0.0, each.ends + seconds)
            at = max(0.0, each.at + seconds if came is None else came)
            self.sessions[place] = msgspec.structs.replace(each, ends=ends, at=at)
        for place, message in enumerate(self.messages):
            if message.expires is not None:
                expires = max(0.0, message.expires + seconds)
                self.messages[place] = msgspec.structs.replace(message, expires=expires)
