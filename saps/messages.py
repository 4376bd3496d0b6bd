"""The values that travel: messages, reports of their delivery, and subscriptions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Properties(msgspec.Struct, frozen=True, array_like=True):
    """The properties that an MQTT 5.0 publisher attaches to a message; each subscriber gets them unaltered
    (3.3.2.3)."""

    payload_format: Annotated[int, Meta(ge=0, le=1)] | None = None
    """Format of the payload: 0 for unspecified bytes, 1 for UTF-8."""
    message_expiry: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)] | None = None
    """Rest of the lifetime in seconds when the message entered this broker."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user: tuple[tuple[str, str], ...] = ()
    """User properties, in the publisher's order."""
    stamp: Annotated[int, Meta(ge=0)] | None = None
    """Stamp of a retained message between brokers. The message of a topic with the greatest stamp is the one
    retained."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """One application message, independent of its publisher's protocol."""

    topic: str
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)] = 0
    retain: bool = False
    """Whether the publisher asked for the message to be retained."""
    properties: Properties | None = None


class Subscription(msgspec.Struct, frozen=True):
    """One subscription of one agent, with MQTT 5.0's subscription options (3.8.3.1)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """When retained messages are sent. 0: at each subscribe; 1: only if the subscription is new; 2: never."""
    identifier: int | None = None


class Reached(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The number of brokers and subscribers that a publication reached beyond its own broker."""

    brokers: int
    subscribers: int


NOBODY = Reached(0, 0)
REFUSED = Reached(-1, -1)
"""Stands for the `Reached` of a publication that was refused, since its publisher may not publish to the topic."""

BROKER_BITS = 0xFFFF
"""The bits of a stamp that are the same in all stamps of one broker."""


def size_of(message: Message) -> int:
    """Return about the number of bytes of the message in a frame."""
    size, properties = 64 + len(message.topic) + len(message.payload), message.properties
    if properties is not None:
        size += sum(len(name) + len(value) for name, value in properties.user)
        size += len(properties.content_type or "") + len(properties.response_topic or "")
        size += len(properties.correlation_data or b"")
    return size


def stamp_of(message: Message) -> int:
    """Return the message's stamp, or 0 without one."""
    return stamp_in(message.properties)


def stamp_in(properties: Properties | None) -> int:
    """Return the stamp among these properties, or 0 without one."""
    return 0 if properties is None else properties.stamp or 0
