"""Decodes and encodes the properties of MQTT 5.0 (section 2.2.2) by one table of rules."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from saps.frontend.mqtt.codec.reasons import MalformedPacket, ProtocolError, Reason
from saps.frontend.mqtt.codec.wire import Reader, decode_string, encode_binary, encode_string, encode_varint


class Property(IntEnum):
    """Property identifiers (Table 2-4)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


PropertyMap = dict[int, Any]
"""By property identifier: the value, an `int`, `str` or `bytes`. User properties are a tuple of pairs of strings,
subscription identifiers a tuple of integers, as both may occur several times."""


class Kind(IntEnum):
    """The encoding of a property's value. `BYTE`, `TWO` and `FOUR` are integers of 1, 2 and 4 bytes."""

    FLAG = 0
    BYTE = 1
    TWO = 2
    FOUR = 4
    VARINTS = 5
    STRING = 6
    BINARY = 7
    PAIRS = 8


WILL = 0
"""Stands for the will properties of a CONNECT where the table lists packet types."""


class Rule(NamedTuple):
    """The rules for one property (Table 2-4)."""

    name: str
    kind: Kind
    packets: frozenset[int]
    """Packet types that may carry the property, and `WILL` for will properties."""
    positive: bool = False
    """Whether the value 0 is a protocol error."""


def _rule(kind: Kind, *packets: int, positive: bool = False) -> Rule:
    return Rule("", kind, frozenset(packets), positive)


_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _DISCONNECT, _AUTH = 1, 2, 3, 8, 14, 15
_ANSWERS = (_CONNACK, 4, 5, 6, 7, 9, 11, _DISCONNECT, _AUTH)

RULES: dict[int, Rule] = {
    Property.PAYLOAD_FORMAT: _rule(Kind.FLAG, _PUBLISH, WILL),
    Property.MESSAGE_EXPIRY: _rule(Kind.FOUR, _PUBLISH, WILL),
    Property.CONTENT_TYPE: _rule(Kind.STRING, _PUBLISH, WILL),
    Property.RESPONSE_TOPIC: _rule(Kind.STRING, _PUBLISH, WILL),
    Property.CORRELATION_DATA: _rule(Kind.BINARY, _PUBLISH, WILL),
    Property.SUBSCRIPTION_IDENTIFIER: _rule(Kind.VARINTS, _PUBLISH, _SUBSCRIBE, positive=True),
    Property.SESSION_EXPIRY: _rule(Kind.FOUR, _CONNECT, _CONNACK, _DISCONNECT),
    Property.ASSIGNED_CLIENT_IDENTIFIER: _rule(Kind.STRING, _CONNACK),
    Property.SERVER_KEEP_ALIVE: _rule(Kind.TWO, _CONNACK),
    Property.AUTHENTICATION_METHOD: _rule(Kind.STRING, _CONNECT, _CONNACK, _AUTH),
    Property.AUTHENTICATION_DATA: _rule(Kind.BINARY, _CONNECT, _CONNACK, _AUTH),
    Property.REQUEST_PROBLEM_INFORMATION: _rule(Kind.FLAG, _CONNECT),
    Property.WILL_DELAY: _rule(Kind.FOUR, WILL),
    Property.REQUEST_RESPONSE_INFORMATION: _rule(Kind.FLAG, _CONNECT),
    Property.RESPONSE_INFORMATION: _rule(Kind.STRING, _CONNACK),
    Property.SERVER_REFERENCE: _rule(Kind.STRING, _CONNACK, _DISCONNECT),
    Property.REASON_STRING: _rule(Kind.STRING, *_ANSWERS),
    Property.RECEIVE_MAXIMUM: _rule(Kind.TWO, _CONNECT, _CONNACK, positive=True),
    Property.TOPIC_ALIAS_MAXIMUM: _rule(Kind.TWO, _CONNECT, _CONNACK),
    Property.TOPIC_ALIAS: _rule(Kind.TWO, _PUBLISH),
    Property.MAXIMUM_QOS: _rule(Kind.FLAG, _CONNACK),
    Property.RETAIN_AVAILABLE: _rule(Kind.FLAG, _CONNACK),
    Property.USER_PROPERTY: _rule(Kind.PAIRS, WILL, *range(1, 12), _DISCONNECT, _AUTH),
    Property.MAXIMUM_PACKET_SIZE: _rule(Kind.FOUR, _CONNECT, _CONNACK, positive=True),
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: _rule(Kind.FLAG, _CONNACK),
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: _rule(Kind.FLAG, _CONNACK),
    Property.SHARED_SUBSCRIPTION_AVAILABLE: _rule(Kind.FLAG, _CONNACK),
}


RULES = {identifier: rule._replace(name=Property(identifier).name) for identifier, rule in RULES.items()}

_REPEATED = {identifier for identifier, rule in RULES.items() if rule.kind in (Kind.PAIRS, Kind.VARINTS)}
"""Properties that may occur several times. The decoder collects their values in lists, in linear time."""

MAX_REPEATED = 10_000
"""Most values of one repeated property in a packet. The limit bounds the time of one packet (about 5 microseconds a
value)."""


def decode_properties(reader: Reader, packet: int) -> PropertyMap:
    """Read the property length and the properties of a packet of type `packet` (or `WILL`). Raises `MqttError`."""
    size = reader.varint()
    if not size:
        return {}
    if size > reader.left:
        raise MalformedPacket("the properties are longer than the packet")
    begin = reader.pos
    reader.pos = begin + size
    return read_properties(reader.data, begin, begin + size, packet)


def read_properties(data: bytes, pos: int, end: int, packet: int) -> PropertyMap:
    """Return the properties `data[pos:end]` of a packet of type `packet`. Raises `MqttError`."""
    found: PropertyMap = {}
    while pos < end:
        identifier = data[pos]
        pos += 1
        rule = RULES.get(identifier)
        if rule is None:
            raise MalformedPacket(f"there is no property 0x{identifier:02x}")
        if packet not in rule.packets:
            raise ProtocolError(f"{rule.name} is not allowed in this packet")
        kind = rule.kind
        if kind >= Kind.STRING:
            first, pos = _read_field(data, pos, end)
            if kind is Kind.BINARY:
                _put(found, rule, identifier, first)
            elif kind is Kind.STRING:
                _put(found, rule, identifier, decode_string(first))
            else:
                second, pos = _read_field(data, pos, end)
                _collect(found, identifier, (decode_string(first), decode_string(second)))
        elif kind is Kind.VARINTS:
            reader = Reader(data, pos, end)
            number = reader.varint()
            pos = reader.pos
            if not number:
                raise ProtocolError(f"{rule.name} must not be 0")
            if identifier in found and packet != _PUBLISH:
                raise ProtocolError(f"{rule.name} occurs more than once")
            _collect(found, identifier, number)
        else:
            size = kind or 1
            if pos + size > end:
                raise MalformedPacket("the packet ends within a field")
            number = int.from_bytes(data[pos : pos + size])
            pos += size
            if kind is Kind.FLAG and number > 1:
                raise ProtocolError(f"{rule.name} must be 0 or 1")
            if rule.positive and not number:
                raise ProtocolError(f"{rule.name} must not be 0")
            if identifier == Property.TOPIC_ALIAS and not number:
                raise ProtocolError("TOPIC_ALIAS must not be 0", Reason.TOPIC_ALIAS_INVALID)
            _put(found, rule, identifier, number)
    for identifier in _REPEATED & found.keys():
        found[identifier] = tuple(found[identifier])
    return found


def _read_field(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Return the field at `pos`, without its two bytes of length, and the position of its end."""
    begin = pos + 2
    stop = begin + (data[pos] << 8 | data[pos + 1]) if begin <= end else end + 1
    if stop > end:
        raise MalformedPacket("the packet ends within a field")
    return data[begin:stop], stop


def _put(found: PropertyMap, rule: Rule, identifier: int, value: Any) -> None:
    if identifier in found:
        raise ProtocolError(f"{rule.name} occurs more than once")
    found[identifier] = value


def _collect(found: PropertyMap, identifier: int, value: Any) -> None:
    values = found.setdefault(identifier, [])
    if len(values) == MAX_REPEATED:
        raise ProtocolError(f"more than {MAX_REPEATED} of one property", Reason.QUOTA_EXCEEDED)
    values.append(value)


def encode_properties(properties: PropertyMap) -> bytes:
    """Return the property length and the properties. Raises `ValueError` for a string or binary value that is too
    long."""
    if not properties:
        return b"\0"
    encoded = b"".join(_encode_property(identifier, value) for identifier, value in properties.items())
    return encode_varint(len(encoded)) + encoded


def _encode_property(identifier: int, value: Any) -> bytes:
    kind = RULES[identifier].kind
    tag = bytes((identifier,))
    match kind:
        case Kind.PAIRS:
            return b"".join(tag + encode_string(name) + encode_string(text) for name, text in value)
        case Kind.VARINTS:
            return b"".join(tag + encode_varint(number) for number in value)
        case Kind.STRING:
            return tag + encode_string(value)
        case Kind.BINARY:
            return tag + encode_binary(value)
        case _:
            return tag + int(value).to_bytes(kind or 1)
