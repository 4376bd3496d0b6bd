"""The messages of Web clients, in JSON (events, WebSocket text) and MessagePack (WebSocket binary).

A UTF-8 payload is in ``payload``. Any other payload is in ``data``, as base64 in JSON and binary in MessagePack.
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
    """The content of a message, which a publisher gives and every subscriber receives."""

    payload: str | None = None
    data: bytes | None = None
    retain: bool = False
    expiry: Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)] | None = None
    """Message Expiry Interval in seconds."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None
    properties: Pairs = ()
    """User properties: pairs of name and value, in the publisher's order."""

    @property
    def body(self) -> bytes:
        """The payload as bytes. Raises `ProblemError` if both `payload` and `data` are given."""
        if self.payload is not None and self.data is not None:
            raise ProblemError(400, "Bad message", "give payload or data, not both", field="data")
        return self.payload.encode() if self.payload is not None else self.data or b""


class Message(Content, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="message"):
    """A message for a subscriber."""

    topic: str
    qos: Qos = 0
    message: int | None = None
    """Identifier to acknowledge a QoS 1 message with; None with QoS 0."""
    again: bool = False
    """Whether the message may have been sent before (DUP)."""


def message_of(packet: Publish) -> Message:
    """Return a PUBLISH as a message."""
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
    """Return a message as a PUBLISH. Raises `ProblemError` if the payload is given twice."""
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


# ---- over a WebSocket: requests of the client


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A subscription that a client requests."""

    filter: str
    qos: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    no_local: bool = False
    """Whether to leave out this client's own publications."""
    retain_as_published: bool = False
    retained: Literal["send", "new", "never"] = "send"
    """Whether retained messages are sent at once: always, only if the subscription is new, or never."""


class SubscribeOp(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="subscribe", forbid_unknown_fields=True
):
    """Subscribes to topic filters. Answered by `Subscribed`."""

    id: int = 0
    filters: Annotated[list[Wanted], msgspec.Meta(min_length=1)]


class UnsubscribeOp(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="unsubscribe", forbid_unknown_fields=True
):
    """Unsubscribes from topic filters. Answered by `Unsubscribed`."""

    id: int = 0
    filters: Annotated[list[str], msgspec.Meta(min_length=1)]


class PublishOp(Content, frozen=True, kw_only=True, tag_field="op", tag="publish", forbid_unknown_fields=True):
    """Publishes a message. Answered by `Published`; with QoS 0 as soon as the broker has taken the message."""

    id: int = 0
    topic: str
    qos: Qos = 0


class AckOp(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="ack", forbid_unknown_fields=True):
    """Acknowledges a QoS 1 message. Not answered."""

    message: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]


Op = SubscribeOp | UnsubscribeOp | PublishOp | AckOp

# ---- over a WebSocket: answers of the broker


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="welcome"):
    """The first message: the client is connected."""

    client: str
    """Client identifier, as given or assigned."""
    session: bool
    """Whether the client continues an earlier session."""
    maximum_packet_size: int
    """Bytes of the largest packet that the broker accepts."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer for one filter: the QoS granted, or the reason for refusing it."""

    filter: str
    qos: int | None = None
    refused: str | None = None


class Subscribed(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="subscribed"):
    """The subscriptions hold: the client receives all publications from now on, from any broker."""

    id: int
    granted: list[Grant]


class Unsubscribed(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="unsubscribed"):
    """For each filter, whether there was a subscription."""

    id: int
    existed: list[bool]


class Published(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="published"):
    """A publication was accepted. With QoS 1 and 2, all brokers with subscribers have it, and the numbers reached are
    given."""

    topic: str
    qos: int
    id: int | None = None
    reason: str | None = None
    """``success`` or ``no matching subscribers``; None with QoS 0."""
    subscribers: int | None = None
    """Subscribers in the whole mesh; the members of a shared subscription count as one."""
    brokers: int | None = None
    """Other brokers that have the publication."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="problem"):
    """A request failed. The fields are those of a problem (RFC 9457)."""

    title: str
    id: int | None = None
    detail: str | None = None
    field: str | None = None
    reason: int | None = None


Told = Welcome | Message | Subscribed | Unsubscribed | Published | Fault

RETAINED = {"send": 0, "new": 1, "never": 2}
"""Retain Handling (MQTT 5.0, 3.8.3.1) by the value of `Wanted.retained`."""


def reason_text(reason: int) -> str:
    """Return the text for the reason of an accepted publication."""
    return "no matching subscribers" if reason == Reason.NO_MATCHING_SUBSCRIBERS else "success"
