"""Messages as Web clients see them: in JSON (events, WebSocket text) and MessagePack (WebSocket binary).

A payload that is UTF-8 is ``payload``, any other is ``data``: base64 in JSON, binary in MessagePack.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from saps.frontend.mqtt.codec.packets import Publish
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.web.http.problems import ProblemError

Qos = Annotated[int, msgspec.Meta(ge=0, le=2)]
Pairs = tuple[tuple[str, str], ...]


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a publisher says of a message, and every subscriber gets."""

    payload: str | None = None
    data: bytes | None = None
    retain: bool = False
    expiry: Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)] | None = None
    """Seconds after which it is not delivered any more."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None
    properties: Pairs = ()
    """User properties: pairs of name and value, in the publisher's order."""

    @property
    def body(self) -> bytes:
        """The payload. Raises `ProblemError` if it is given twice."""
        if self.payload is not None and self.data is not None:
            raise ProblemError(400, "Bad message", "give payload or data, not both", field="data")
        return self.payload.encode() if self.payload is not None else self.data or b""


class Message(Content, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="message"):
    """A message for a subscriber."""

    topic: str
    qos: Qos = 0
    message: int | None = None
    """With QoS 1: what the acknowledgement is to name."""
    again: bool = False
    """It may have come before."""


def message_of(packet: Publish) -> Message:
    """A PUBLISH as a message."""
    properties = packet.properties
    payload, data = _text(packet.payload)
    return Message(
        topic=packet.topic,
        payload=payload,
        data=data,
        qos=packet.qos,
        retain=packet.retain,
        expiry=properties.get(Property.MESSAGE_EXPIRY),
        content_type=properties.get(Property.CONTENT_TYPE),
        response_topic=properties.get(Property.RESPONSE_TOPIC),
        correlation=properties.get(Property.CORRELATION_DATA),
        properties=properties.get(Property.USER_PROPERTY, ()),
        message=packet.packet_id if packet.qos else None,
        again=packet.dup,
    )


def publish_of(topic: str, qos: int, content: Content) -> Publish:
    """A message as a PUBLISH. Raises `ProblemError`."""
    optional = {
        Property.MESSAGE_EXPIRY: content.expiry,
        Property.CONTENT_TYPE: content.content_type,
        Property.RESPONSE_TOPIC: content.response_topic,
        Property.CORRELATION_DATA: content.correlation,
        Property.USER_PROPERTY: content.properties or None,
    }
    properties: PropertyMap = {int(name): value for name, value in optional.items() if value is not None}
    return Publish(topic, content.body, qos, content.retain, properties=properties)


def _text(payload: bytes) -> tuple[str | None, bytes | None]:
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return None, payload


# ---- over a WebSocket: what the client says


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One subscription."""

    filter: str
    qos: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    no_local: bool = False
    """Without what this client publishes itself."""
    retain_as_published: bool = False
    retained: Literal["send", "new", "never"] = "send"
    """Are retained messages sent at once: always, if the subscription is new, never?"""


class SubscribeOp(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="subscribe", forbid_unknown_fields=True
):
    """Answered by `Subscribed`."""

    id: int = 0
    filters: Annotated[list[Wanted], msgspec.Meta(min_length=1)]


class UnsubscribeOp(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="unsubscribe", forbid_unknown_fields=True
):
    """Answered by `Unsubscribed`."""

    id: int = 0
    filters: Annotated[list[str], msgspec.Meta(min_length=1)]


class PublishOp(Content, frozen=True, kw_only=True, tag_field="op", tag="publish", forbid_unknown_fields=True):
    """Answered by `Published`; with QoS 0 as soon as it is taken."""

    id: int = 0
    topic: str
    qos: Qos = 0


class AckOp(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="ack", forbid_unknown_fields=True):
    """The client has a message with QoS 1. Not answered."""

    message: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]


Op = SubscribeOp | UnsubscribeOp | PublishOp | AckOp

# ---- and what it is told


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="welcome"):
    """The first of all: the client is in."""

    client: str
    session: bool
    """It goes on with a session that was there."""
    maximum_packet_size: int


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one filter."""

    filter: str
    qos: int | None = None
    refused: str | None = None


class Subscribed(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="subscribed"):
    """From now on nothing that is published, anywhere, is missed."""

    id: int
    granted: list[Grant]


class Unsubscribed(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="unsubscribed"):
    """Which of the filters there were subscriptions with."""

    id: int
    existed: list[bool]


class Published(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="published"):
    """A publication was taken. With QoS 1 and 2 all brokers with subscribers have it; whom it reached is told."""

    topic: str
    qos: int
    id: int | None = None
    reason: str | None = None
    """``success``, or ``no matching subscribers``; None with QoS 0."""
    subscribers: int | None = None
    """In the whole mesh; a group that shares counts as one."""
    brokers: int | None = None
    """Other brokers that have it."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="problem"):
    """What was asked for is not done."""

    title: str
    id: int | None = None
    detail: str | None = None
    field: str | None = None
    reason: int | None = None


Told = Welcome | Message | Subscribed | Unsubscribed | Published | Fault

RETAINED = {"send": 0, "new": 1, "never": 2}
"""`Wanted.retained` as a retain handling (MQTT 5.0, 3.8.3.1)."""


def reason_text(reason: int) -> str:
    """The reason of a publication that was taken."""
    return "no matching subscribers" if reason == Reason.NO_MATCHING_SUBSCRIBERS else "success"
