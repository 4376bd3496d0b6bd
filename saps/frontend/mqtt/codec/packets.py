"""Defines the control packets of MQTT 3.1.1 and 5.0 as values (MQTT 5.0, chapter 3).

`properties` is empty in 3.1.1. Reasons are plain integers, so that a decoder can hold any code that a peer sends.
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
    """The packet type in the upper four bits of the first byte (2.1.2)."""

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
    """The message that the broker publishes when it loses the client (3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: PropertyMap = {}


class Connect(msgspec.Struct):
    """A client's request for a connection (3.1)."""

    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive: int = 0
    """Keep alive in seconds; 0 turns it off."""
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: PropertyMap = {}


class Connack(msgspec.Struct):
    """The broker's answer to a CONNECT (3.2)."""

    session_present: bool = False
    reason: int = 0
    """Reason code; the return code in 3.1.1."""
    properties: PropertyMap = {}


class Publish(msgspec.Struct):
    """One publication (3.3)."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None
    """Packet identifier, 1 to 65,535; None with QoS 0."""
    properties: PropertyMap = {}


class Ack(msgspec.Struct):
    """A PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7). The four packets have the same fields."""

    type: PacketType
    packet_id: int
    reason: int = 0
    properties: PropertyMap = {}


class SubscribeEntry(msgspec.Struct):
    """One topic filter of a SUBSCRIBE with its subscription options (3.8.3.1)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """0: send retained messages; 1: only for a new subscription; 2: never."""


class Subscribe(msgspec.Struct):
    """A request to subscribe (3.8)."""

    packet_id: int
    entries: list[SubscribeEntry]
    properties: PropertyMap = {}


class Suback(msgspec.Struct):
    """The answer to a SUBSCRIBE (3.9)."""

    packet_id: int
    reasons: list[int]
    """One reason code for each topic filter, in the order of the SUBSCRIBE."""
    properties: PropertyMap = {}


class Unsubscribe(msgspec.Struct):
    """A request to unsubscribe (3.10)."""

    packet_id: int
    filters: list[str]
    properties: PropertyMap = {}


class Unsuback(msgspec.Struct):
    """The answer to an UNSUBSCRIBE (3.11)."""

    packet_id: int
    reasons: list[int]
    """One reason code for each topic filter, in the order of the UNSUBSCRIBE; empty in 3.1.1."""
    properties: PropertyMap = {}


class Pingreq(msgspec.Struct):
    pass


class Pingresp(msgspec.Struct):
    pass


class Disconnect(msgspec.Struct):
    """The last packet of a connection (3.14). Only in 5.0 the server sends it, and it carries a reason."""

    reason: int = 0
    properties: PropertyMap = {}


class Auth(msgspec.Struct):
    """One step of an enhanced authentication (3.15, 4.12). MQTT 5.0 only."""

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
