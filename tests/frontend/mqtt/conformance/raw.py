"""MQTT packets as bytes, right and wrong ones."""

from __future__ import annotations

from saps.frontend.mqtt.codec.packets import V5, V311
from saps.frontend.mqtt.codec.wire import encode_varint
from tests.frontend.mqtt.bench import Bench, Client

BOTH = (V311, V5)


def packet(first: int, *parts: bytes) -> bytes:
    """A packet with this first byte and body."""
    body = b"".join(parts)
    return bytes((first,)) + encode_varint(len(body)) + body


def field(value: bytes) -> bytes:
    """A string or binary data."""
    return len(value).to_bytes(2) + value


def bare(version: int) -> bytes:
    """No properties."""
    return b"\0" if version == V5 else b""


def connect(
    version: int = V5,
    *payload: bytes,
    flags: int = 0x02,
    name: bytes = b"MQTT",
    level: int | None = None,
    keep_alive: int = 0,
    properties: bytes | None = None,
) -> bytes:
    """A CONNECT; without a payload, of the client "c"."""
    head = field(name) + bytes((version if level is None else level, flags)) + keep_alive.to_bytes(2)
    return packet(0x10, head, bare(version) if properties is None else properties, *(payload or (field(b"c"),)))


def publish(version: int, topic: bytes, payload: bytes = b"", flags: int = 0, packet_id: int = 1) -> bytes:
    """A PUBLISH without properties; `flags` are the lower four bits of its first byte."""
    number = packet_id.to_bytes(2) if flags & 6 else b""
    return packet(0x30 | flags, field(topic), number, bare(version), payload)


def subscribe(version: int, topic_filter: bytes, options: int = 0, first: int = 0x82, packet_id: int = 1) -> bytes:
    return packet(first, packet_id.to_bytes(2), bare(version), field(topic_filter), bytes((options,)))


def unsubscribe(version: int, topic_filter: bytes, first: int = 0xA2, packet_id: int = 1) -> bytes:
    return packet(first, packet_id.to_bytes(2), bare(version), field(topic_filter))


def fresh(version: int = V5) -> tuple[Bench, Client]:
    """A broker, and a client that has not sent anything."""
    bench = Bench()
    return bench, Client(bench, version)


def connected(version: int = V5) -> tuple[Bench, Client]:
    """A broker, and a client "c" that is connected and has read all it was sent."""
    bench = Bench()
    client = bench.client("c", version=version)
    client.raw = b""
    return bench, client
