"""The control packets of MQTT 3.1.1 and 5.0 as values (MQTT 5.0, chapter 3).

`properties` are empty in 3.1.1. Reasons are plain integers, so that a decoder can hold whatever a peer sent.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from saps.frontend.mqtt.codec.properties import PropertyMap

V311 = 4
"""Protocol level of MQTT 3.1.1."""
V5 = 5
"""Protocol level of MQTT 5.0."""


class PacketType(IntEnum):
    """The upper four bits of the first byte (2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Will(msgspec.Struct):
    """The message to publish when the client is lost (3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: PropertyMap = {}


class Connect(msgspec.Struct):
    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive: int = 0
    """Seconds; 0 means none."""
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: PropertyMap = {}


class Connack(msgspec.Struct):
    session_present: bool = False
    reason: int = 0
    """A return code in 3.1.1."""
    properties: PropertyMap = {}


class Publish(msgspec.Struct):
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None
    properties: PropertyMap = {}


class Ack(msgspec.Struct):
    """PUBACK, PUBREC, PUBREL or PUBCOMP: they differ in type alone."""

    type: PacketType
    packet_id: int
    reason: int = 0
    properties: PropertyMap = {}


class SubscribeEntry(msgspec.Struct):
    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct):
    packet_id: int
    entries: list[SubscribeEntry]
    properties: PropertyMap = {}


class Suback(msgspec.Struct):
    packet_id: int
    reasons: list[int]
    properties: PropertyMap = {}


class Unsubscribe(msgspec.Struct):
    packet_id: int
    filters: list[str]
    properties: PropertyMap = {}


class Unsuback(msgspec.Struct):
    packet_id: int
    reasons: list[int]
    """Empty in 3.1.1."""
    properties: PropertyMap = {}


class Pingreq(msgspec.Struct):
    pass


class Pingresp(msgspec.Struct):
    pass


class Disconnect(msgspec.Struct):
    reason: int = 0
    properties: PropertyMap = {}


class Auth(msgspec.Struct):
    reason: int = 0
    properties: PropertyMap = {}


Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
