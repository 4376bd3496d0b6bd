"""Sessions as frames carry them to the brokers that hold copies."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from saps.local.batch import Origin
from saps.messages import Message
from saps.overlay.validation.ranges import Number, Quality, Stamp


class SessionCopy(msgspec.Struct, frozen=True, array_like=True):
    """A session that outlives its connection."""

    number: Number
    """Of the owner's."""
    client: str
    user: str | None
    expiry: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
    """Seconds."""
    ends: Annotated[float, Meta(ge=0.0, le=1e12)] | None
    """Seconds since the epoch; None: its client is connected."""
    birth: Number
    """The session's own name."""
    stamp: Stamp
    """Of the owner's lease."""


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
    """A message that sessions of one owner have to deliver."""

    number: Number
    message: Message
    expires: Annotated[float, Meta(ge=0.0, le=1e12)] | None
    """Seconds since the epoch; None: never."""
    origin: Origin | None


class QueuedCopy(msgspec.Struct, frozen=True, array_like=True):
    """A session's copy of a message."""

    serial: Number
    """Ascending in the order of delivery."""
    session: Number
    message: Number
    packet_id: Annotated[int, Meta(ge=0, le=0xFFFF)]
    """0: not sent yet."""
    qos: Quality
    retain: bool
    identifiers: tuple[Annotated[int, Meta(ge=1, le=268_435_455)], ...] = ()


PacketId = Annotated[int, Meta(ge=0, le=0xFFFF)]


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """What has changed in an owner's sessions by one commit."""

    sessions: list[SessionCopy] = []
    subscriptions: list[SubscriptionCopy] = []
    messages: list[MessageCopy] = []
    copies: list[QueuedCopy] = []
    releases: list[tuple[Number, Number, PacketId]] = []
    """Serial, session and packet identifier: PUBREL is due."""
    incoming: list[tuple[Number, PacketId, Annotated[int, Meta(ge=-(1 << 40), le=1 << 40)]]] = []
    """Session, packet identifier and subscribers reached: a QoS 2 publication that was not released."""
    no_sessions: list[Number] = []
    no_subscriptions: list[tuple[Number, str]] = []
    no_messages: list[Number] = []
    no_copies: list[Number] = []
    no_releases: list[Number] = []
    no_incoming: list[tuple[Number, PacketId]] = []
    """What is no more, by the same names."""
