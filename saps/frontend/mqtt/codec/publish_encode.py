"""Encodes batches into the PUBLISH packets for subscribers (MQTT 5.0, section 3.3).

The batch caches the packets for all subscribers with the same protocol version and `Form`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from saps.frontend.mqtt.codec.packets import V5
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.wire import encode_binary, encode_string, encode_varint
from saps.messages import Properties
from saps.routing.batch import Batch, Form
from saps.routing.batch import form as form_of
from saps.routing.subscriptions import Target

PIECES = 5
"""Number of pieces in a packet: first byte and remaining length, topic, packet identifier, properties, payload."""

LONGEST_KEPT = 512
"""Longest topic in the cache of encoded topics, in characters."""

Lifetimes = tuple[int | None, ...]
"""For each publication, the whole seconds until it expires, or None if it never expires."""


def form_for(batch: Batch, target: Target) -> Form:
    """Return the form in which the target gets the batch: the lower QoS, the retain flag, subscription identifiers."""
    qos = batch.qos if batch.qos < target.qos else target.qos
    return form_of(qos, batch.replayed or (batch.retain and target.retain_as_published), target.identifiers)


def encode(batch: Batch, form: Form, version: int, now: float) -> bytes:
    """Return the packets of a batch with QoS 0, concatenated. `now` is in seconds on the hub's clock."""
    key, lifetimes = _key(batch, form, version, now)
    found: bytes | None = batch.encoded.get(key)
    if found is None:
        found = batch.encoded[key] = b"".join(_pieces(batch, form, version, lifetimes))
    return found


def pass_through(batch: Batch, version: int, packets: bytes) -> None:
    """Cache `packets` as the encoding of a batch with QoS 0 for subscribers with this protocol version.

    The packets carry the retain flag as published.
    """
    batch.encoded[version << 3 | batch.retain] = packets


def encode_numbered(batch: Batch, form: Form, version: int, now: float, packet_ids: Sequence[int]) -> bytes:
    """Return the packets of a batch with QoS 1 or 2, concatenated.

    `packet_ids` has one packet identifier for each publication. Subscribers of the same topics tend to reach the same
    identifiers, so the batch caches the last packets.
    """
    key, lifetimes = _key(batch, form, version, now)
    found: _Numbered | None = batch.encoded.get(key)
    if found is None:
        found = batch.encoded[key] = _Numbered(_pieces(batch, form, version, lifetimes))
    if found.packet_ids != packet_ids:
        found.packet_ids = packet_ids
        found.pieces[2::PIECES] = [packet_id.to_bytes(2) for packet_id in packet_ids]
        found.packets = b"".join(found.pieces)
    return found.packets


class _Numbered:
    """The pieces of a batch's packets, and the packets with the last packet identifiers."""

    __slots__ = ("packet_ids", "packets", "pieces")

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.packet_ids: Sequence[int] | None = None
        self.packets = b""


def encode_duplicate(single: Batch, form: Form, version: int, now: float, packet_id: int) -> bytes:
    """Return the packet of a batch of one publication with the DUP flag, for retransmission (4.4)."""
    packet = encode_numbered(single, form, version, now, (packet_id,))
    return bytes((packet[0] | 0x08,)) + packet[1:]


def encode_aliased(single: Batch, form: Form, now: float, alias: int, known: bool, packet_id: int) -> bytes:
    """Return the packet of a batch of one publication with a topic alias, for one client (3.3.2.3.4).

    The packet omits the topic if the client has `known` the alias. `packet_id` is 0 with QoS 0.
    """
    lifetimes = _lifetimes(single, now)
    properties = bytes((Property.TOPIC_ALIAS,)) + alias.to_bytes(2)
    properties += _encode_properties(
        None if single.properties is None else single.properties[0],
        form.identifiers,
        None if lifetimes is None else lifetimes[0],
    )
    topic = b"\0\0" if known else encode_string(single.topic)
    body = topic + (packet_id.to_bytes(2) if packet_id else b"") + encode_varint(len(properties)) + properties
    body += single.payload
    return bytes((0x30 | form.qos << 1 | form.retain,)) + encode_varint(len(body)) + body


def packet_sizes(batch: Batch, form: Form, version: int, now: float) -> list[int]:
    """Return the size of each packet in bytes."""
    pieces = _pieces(batch, form, version, _lifetimes(batch, now))
    head = 2 if form.qos else 0
    return [head + sum(map(len, pieces[begin : begin + PIECES])) for begin in range(0, len(pieces), PIECES)]


def _key(batch: Batch, form: Form, version: int, now: float) -> tuple[object, Lifetimes | None]:
    """Return the key of the packets in the batch's cache, and the seconds until each publication expires.

    The key is a small number for nearly all packets (`pass_through`). It becomes a tuple with subscription identifiers
    or an expiry.
    """
    common = version << 3 | form.qos << 1 | form.retain
    lifetimes = None if batch.deadlines is None else _lifetimes(batch, now)
    return (common, form.identifiers, lifetimes) if form.identifiers or lifetimes is not None else common, lifetimes


def _lifetimes(batch: Batch, now: float) -> Lifetimes | None:
    """Return the seconds until each publication expires (3.3.2.3.3), or None if none expires."""
    deadlines = batch.deadlines
    if deadlines is None:
        return None
    return tuple([None if each is None else max(0, ceil(each - now - 1e-6)) for each in deadlines])


def _pieces(batch: Batch, form: Form, version: int, lifetimes: Lifetimes | None) -> list[bytes]:
    """Return the packets in pieces, `PIECES` for each. The pieces for the packet identifiers are empty yet."""
    starts = _STARTS[form.qos << 1 | form.retain]
    around = 2 if form.qos else 0
    fields = [(_kept_field if len(topic) <= LONGEST_KEPT else encode_string)(topic) for topic in batch.topics]
    payloads = batch.payloads
    described: list[bytes] | None = None
    properties = b""
    if version == V5:
        if batch.properties is not None:
            described = _property_fields(batch.properties, form, lifetimes)
        else:
            properties = _property_field(None, form.identifiers, None) if form.identifiers else b"\0"
    pieces: list[bytes] = []
    for index, number in enumerate(batch.which):
        field, payload = fields[number], payloads[index]
        if described is not None:
            properties = described[index]
        length = len(field) + around + len(properties) + len(payload)
        pieces += (starts[length], field, b"", properties, payload)
    return pieces


def _property_fields(given: Sequence[Properties | None], form: Form, lifetimes: Lifetimes | None) -> list[bytes]:
    """Return the encoded properties of each publication, with their length."""
    made: dict[tuple[int, int | None], bytes] = {}
    found: list[bytes] = []
    for index, properties in enumerate(given):
        lifetime = None if lifetimes is None else lifetimes[index]
        key = id(properties), lifetime  # publications with the same properties tend to have the same object
        field = made.get(key)
        if field is None:
            field = made[key] = _property_field(properties, form.identifiers, lifetime)
        found.append(field)
    return found


def _property_field(properties: Properties | None, identifiers: tuple[int, ...], lifetime: int | None) -> bytes:
    if properties is None and not identifiers:
        return b"\0"
    encoded = _encode_properties(properties, identifiers, lifetime)
    return encode_varint(len(encoded)) + encoded


def _encode_properties(properties: Properties | None, identifiers: tuple[int, ...], lifetime: int | None) -> bytes:
    """Return the encoded properties of a PUBLISH to a subscriber, without their length."""
    parts = [b"\x0b" + encode_varint(identifier) for identifier in identifiers]
    if properties is not None:
        if properties.payload_format is not None:
            parts.append(bytes((Property.PAYLOAD_FORMAT, properties.payload_format)))
        if lifetime is not None:
            parts.append(b"\x02" + lifetime.to_bytes(4))
        if properties.content_type is not None:
            parts.append(b"\x03" + encode_string(properties.content_type))
        if properties.response_topic is not None:
            parts.append(b"\x08" + encode_string(properties.response_topic))
        if properties.correlation_data is not None:
            parts.append(b"\x09" + encode_binary(properties.correlation_data))
        parts += [b"\x26" + encode_string(name) + encode_string(value) for name, value in properties.user]
    return b"".join(parts)


class _Starts(dict[int, bytes]):
    """By remaining length: the first byte and encoded length of a packet. Caches lengths of at most two bytes."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def __missing__(self, length: int) -> bytes:
        start = bytes((self._first,)) + encode_varint(length)
        if length < 1 << 14:
            self[length] = start
        return start


_STARTS = [_Starts(0x30 | flags) for flags in range(6)]
"""By QoS and retain flag: the beginnings of packets."""


_kept_field = lru_cache(maxsize=4096)(encode_string)
