"""The values that travel: a message, what its publisher learns about its delivery, and a subscription."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Properties(msgspec.Struct, frozen=True, array_like=True):
    """What an MQTT 5.0 publisher attaches to a message and every subscriber receives unaltered (3.3.2.3)."""

    payload_format: Annotated[int, Meta(ge=0, le=1)] | None = None
    """0 for unspecified bytes, 1 for UTF-8."""
    message_expiry: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)] | None = None
    """Lifetime left in seconds when the message entered this broker."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user: tuple[tuple[str, str], ...] = ()
    """User properties, in the publisher's order."""
    stamp: Annotated[int, Meta(ge=0)] | None = None
    """Of retained messages between brokers: when it was published. The greatest one of a topic is what is retained."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """One application message, independent of the protocol it came by."""

    topic: str
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)] = 0
    retain: bool = False
    """The publisher asked for the message to be retained."""
    properties: Properties | None = None


class Subscription(msgspec.Struct, frozen=True):
    """One subscription of one agent, with MQTT 5.0's subscription options (3.8.3.1)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """0: send retained messages, 1: only if the subscription is new, 2: never."""
    identifier: int | None = None


class Reached(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whom a publication reached beyond the broker it was published at."""

    brokers: int
    subscribers: int


NOBODY = Reached(0, 0)
REFUSED = Reached(-1, -1)
"""In the place of a `Reached`: it was not published, as its publisher may not publish to the topic."""

BROKER_BITS = 0xFFFF
"""The bits of a stamp that are the same in all stamps of one broker."""


def stamp_of(message: Message) -> int:
    """The message's stamp, 0 for none."""
    return stamp_in(message.properties)


def stamp_in(properties: Properties | None) -> int:
    """The stamp among these properties, 0 for none."""
    return 0 if properties is None else properties.stamp or 0
