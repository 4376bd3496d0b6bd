"""Encodes packets for MQTT 3.1.1 and 5.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.frontend.mqtt.codec.packets import (
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.codec.properties import PropertyMap, encode_properties
from saps.frontend.mqtt.codec.wire import encode_binary, encode_string, encode_varint


def encode(packet: Packet, version: int) -> bytes:
    """Return the packet's bytes at protocol level `version`; a CONNECT uses its own level.

    Raises `ValueError` if a string or binary field exceeds 65,535 bytes, or the packet exceeds `MAX_VARINT`.
    """
    return _ENCODERS[type(packet)](packet, version)


def framed(first: int, *parts: bytes) -> bytes:
    """Return a packet with the first byte `first`; `parts` joined are its body."""
    body = b"".join(parts)
    return bytes((first,)) + encode_varint(len(body)) + body


def _properties(properties: PropertyMap, version: int) -> bytes:
    return encode_properties(properties) if version == V5 else b""


def _connect(packet: Connect, version: int) -> bytes:
    version = packet.version
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    parts = [encode_string(packet.client_id)]
    if packet.will is not None:
        will = packet.will
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        parts += [_properties(will.properties, version), encode_string(will.topic), encode_binary(will.payload)]
    if packet.username is not None:
        parts.append(encode_string(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    head = b"\0\4MQTT" + bytes((version, flags)) + packet.keep_alive.to_bytes(2)
    return framed(0x10, head, _properties(packet.properties, version), *parts)


def _connack(packet: Connack, version: int) -> bytes:
    return framed(0x20, bytes((packet.session_present, packet.reason)), _properties(packet.properties, version))


def _publish(packet: Publish, version: int) -> bytes:
    first = 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain
    packet_id = packet.packet_id.to_bytes(2) if packet.packet_id is not None else b""
    properties = _properties(packet.properties, version)
    return framed(first, encode_string(packet.topic), packet_id, properties, packet.payload)


def _ack(packet: Ack, version: int) -> bytes:
    first = packet.type << 4 | (0x02 if packet.type == PacketType.PUBREL else 0)
    return framed(first, packet.packet_id.to_bytes(2), _optional(packet.reason, packet.properties, version))


def _optional(reason: int, properties: PropertyMap, version: int) -> bytes:
    """Return the reason code and the properties, without those that the receiver assumes by default (3.4.2.1)."""
    if version != V5 or not (reason or properties):
        return b""
    return bytes((reason,)) + (encode_properties(properties) if properties else b"")


def _entry(entry: SubscribeEntry) -> bytes:
    options = entry.qos | entry.no_local << 2 | entry.retain_as_published << 3 | entry.retain_handling << 4
    return encode_string(entry.filter) + bytes((options,))


def _subscribe(packet: Subscribe, version: int) -> bytes:
    properties = _properties(packet.properties, version)
    return framed(0x82, packet.packet_id.to_bytes(2), properties, *map(_entry, packet.entries))


def _suback(packet: Suback, version: int) -> bytes:
    return framed(0x90, packet.packet_id.to_bytes(2), _properties(packet.properties, version), bytes(packet.reasons))


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    properties = _properties(packet.properties, version)
    return framed(0xA2, packet.packet_id.to_bytes(2), properties, *map(encode_string, packet.filters))


def _unsuback(packet: Unsuback, version: int) -> bytes:
    reasons = bytes(packet.reasons) if version == V5 else b""
    return framed(0xB0, packet.packet_id.to_bytes(2), _properties(packet.properties, version), reasons)


def _pingreq(packet: Pingreq, version: int) -> bytes:
    return b"\xc0\0"


def _pingresp(packet: Pingresp, version: int) -> bytes:
    return b"\xd0\0"


def _disconnect(packet: Disconnect, version: int) -> bytes:
    return framed(0xE0, _optional(packet.reason, packet.properties, version))


def _auth(packet: Auth, version: int) -> bytes:
    return framed(0xF0, _optional(packet.reason, packet.properties, version))


_ENCODERS: dict[type, Callable[[Any, int], bytes]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Ack: _ack,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _pingreq,
    Pingresp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
