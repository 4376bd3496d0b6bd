"""The values that travel: a message, and what its publisher learns about its delivery."""

from __future__ import annotations

from typing import Annotated, NamedTuple

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


class MessageRun:
    """Plain messages to one topic that follow each other: of one quality of service, not retained, without properties.

    Most are passed on by their payloads alone: the messages are made when somebody asks for them.
    """

    __slots__ = ("_messages", "payloads", "qos", "topic")

    def __init__(self, topic: str, qos: int, payloads: list[bytes]) -> None:
        self.topic = topic
        self.qos = qos
        self.payloads = payloads
        self._messages: list[Message] | None = None

    @classmethod
    def of(cls, message: Message) -> MessageRun:
        """A run of this plain message alone."""
        run = cls(message.topic, message.qos, [message.payload])
        run._messages = [message]
        return run

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def messages(self) -> list[Message]:
        """One for each payload, always the same objects: who keeps one can be asked which it was."""
        if self._messages is None:
            topic, qos = self.topic, self.qos
            self._messages = [Message(topic, payload, qos) for payload in self.payloads]
        return self._messages

    def message(self, number: int) -> Message:
        """One of `messages`; if nobody has asked for these yet, one like it."""
        made = self._messages
        return Message(self.topic, self.payloads[number], self.qos) if made is None else made[number]


class Reached(NamedTuple):
    """Whom a publication reached beyond the broker it was published at."""

    brokers: int
    subscribers: int


NOBODY = Reached(0, 0)

BROKER_BITS = 0xFFFF
"""The bits of a stamp that are the same in all stamps of one broker."""


def stamp_of(message: Message) -> int:
    """The message's stamp, 0 for none."""
    properties = message.properties
    return 0 if properties is None else properties.stamp or 0
