"""Decodes packets. Any bytes give a packet or raise one `MqttError` with the reason code for closing (4.13)."""

from __future__ import annotations

from collections.abc import Callable

from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
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
    Will,
)
from saps.frontend.mqtt.codec.properties import WILL, PropertyMap, decode_properties
from saps.frontend.mqtt.codec.reasons import (
    ACK_REASONS,
    AUTH_REASONS,
    DISCONNECT_REASONS,
    MalformedPacket,
    ProtocolError,
    Reason,
)
from saps.frontend.mqtt.codec.wire import Framer, Reader, fixed_header
from saps.topics import SHARE, subscription_fault

_FLAGS = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
"""By packet type: the fixed lower four bits of the first byte, where they are not 0 (Table 2-2)."""

MAX_FILTERS = 20_000
"""Most topic filters in one SUBSCRIBE or UNSUBSCRIBE. The limit bounds the time of one packet."""


def decode(first: int, data: bytes, pos: int, end: int, version: int) -> Packet:
    """Return the packet with the first byte `first` and the body `data[pos:end]`.

    `version` is the protocol level of the connection; a CONNECT carries its own level and ignores `version`.
    Raises `MqttError`.
    """
    kind = first >> 4
    if not kind:
        raise MalformedPacket("packet type 0 is reserved")
    if kind != PacketType.PUBLISH and first & 0x0F != _FLAGS.get(PacketType(kind), 0):
        raise MalformedPacket(f"wrong flags in the header of {PacketType(kind).name}")
    return _DECODERS[kind](first, Reader(data, pos, end), version)


class PacketReader:
    """Decodes a byte stream incrementally: `feed` takes chunks of any size and returns the complete packets.

    `feed` raises `MqttError` at the first fault. The caller must not feed the reader after that.
    """

    def __init__(self, version: int = V5, maximum_packet_size: int = 1 << 28) -> None:
        self.version = version
        """Protocol level of the connection; a decoded CONNECT sets it."""
        self._maximum = maximum_packet_size
        self._framer = Framer()

    def feed(self, chunk: bytes) -> list[Packet]:
        data = self._framer.feed(chunk)
        packets: list[Packet] = []
        pos = 0
        while (bounds := fixed_header(data, pos)) is not None:
            body, end = bounds
            if end - pos > self._maximum:
                raise ProtocolError(f"a packet of {end - pos} bytes", Reason.PACKET_TOO_LARGE)
            if end > len(data):
                break
            packet = decode(data[pos], data, body, end, self.version)
            if isinstance(packet, Connect):
                self.version = packet.version
            packets.append(packet)
            pos = end
        self._framer.keep(data, pos)
        return packets


def _properties(reader: Reader, packet: int, version: int) -> PropertyMap:
    return decode_properties(reader, packet) if version == V5 else {}


def _connect(first: int, reader: Reader, version: int) -> Connect:
    name = reader.string()
    level = reader.integer(1)
    if name != "MQTT" or level not in (V311, V5):
        raise ProtocolError(f"protocol {name!r} level {level}", Reason.UNSUPPORTED_PROTOCOL_VERSION)
    flags = reader.integer(1)
    if flags & 0x01:
        raise MalformedPacket("the reserved flag of CONNECT is set")
    will_flag, will_qos, will_retain = bool(flags & 0x04), flags >> 3 & 0x03, bool(flags & 0x20)
    if will_qos == 3 or (not will_flag and (will_qos or will_retain)):
        raise MalformedPacket("the will flags of CONNECT contradict each other")
    if level == V311 and flags & 0x40 and not flags & 0x80:
        raise MalformedPacket("a password without a user name")
    keep_alive = reader.integer(2)
    properties = _properties(reader, PacketType.CONNECT, level)
    client_id = reader.string()
    will = None
    if will_flag:
        will_properties = _properties(reader, WILL, level)
        will = Will(reader.string(), reader.binary(), will_qos, will_retain, will_properties)
    username = reader.string() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    reader.finish()
    return Connect(client_id, level, bool(flags & 0x02), keep_alive, will, username, password, properties)


def _connack(first: int, reader: Reader, version: int) -> Connack:
    flags = reader.integer(1)
    if flags > 1:
        raise MalformedPacket("reserved flags of CONNACK are set")
    reason = reader.integer(1)
    properties = _properties(reader, PacketType.CONNACK, version)
    reader.finish()
    return Connack(bool(flags), reason, properties)


def _publish(first: int, reader: Reader, version: int) -> Publish:
    qos = check_publish_flags(first)
    topic = reader.string()
    packet_id = reader.packet_id() if qos else None
    properties = _properties(reader, PacketType.PUBLISH, version)
    payload = reader.take(reader.left)
    return Publish(topic, payload, qos, bool(first & 0x01), bool(first & 0x08), packet_id, properties)


def check_publish_flags(first: int) -> int:
    """Return the QoS in the first byte of a PUBLISH.

    Raises `MalformedPacket` for QoS 3, and for the DUP flag with QoS 0 (3.3.1).
    """
    qos = first >> 1 & 0x03
    if qos == 3:
        raise MalformedPacket("PUBLISH with QoS 3")
    if not qos and first & 0x08:
        raise MalformedPacket("PUBLISH with QoS 0 marked as a duplicate")
    return qos


def _ack(first: int, reader: Reader, version: int) -> Ack:
    kind = PacketType(first >> 4)
    packet_id = reader.packet_id()
    reason, properties = 0, PropertyMap()
    if version == V5 and reader.left:
        reason = reader.integer(1)
        if reason not in ACK_REASONS[kind]:
            raise ProtocolError(f"reason 0x{reason:02x} in {kind.name}")
        if reader.left:
            properties = decode_properties(reader, kind)
    reader.finish()
    return Ack(kind, packet_id, reason, properties)


def _subscribe(first: int, reader: Reader, version: int) -> Subscribe:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.SUBSCRIBE, version)
    entries: list[SubscribeEntry] = []
    while reader.left:
        _bound(len(entries))
        topic_filter = _filter(reader)
        entries.append(_subscribe_entry(topic_filter, reader.integer(1), version))
    if not entries:
        raise ProtocolError("SUBSCRIBE without a topic filter")
    return Subscribe(packet_id, entries, properties)


def _filter(reader: Reader) -> str:
    """Read a topic filter. Raises `MalformedPacket` if it is not valid for a subscription (4.7, 4.8.2)."""
    topic_filter = reader.string()
    fault = subscription_fault(topic_filter)
    if fault is not None:
        raise MalformedPacket(fault)
    return topic_filter


def _bound(filters: int) -> None:
    """Check that a packet with `filters` topic filters may have another. Raises `ProtocolError` if not."""
    if filters >= MAX_FILTERS:
        raise ProtocolError(f"more than {MAX_FILTERS} topic filters in a packet", Reason.QUOTA_EXCEEDED)


def _subscribe_entry(topic_filter: str, options: int, version: int) -> SubscribeEntry:
    if options & 0x03 == 3 or options & (0xC0 if version == V5 else 0xFC):
        raise MalformedPacket(f"subscription options 0x{options:02x}")
    if options & 0x30 == 0x30:
        raise ProtocolError("retain handling 3")
    if options & 0x04 and topic_filter.startswith(SHARE):
        raise ProtocolError("no local in a shared subscription (MQTT-3.8.3-4)")
    return SubscribeEntry(topic_filter, options & 0x03, bool(options & 0x04), bool(options & 0x08), options >> 4 & 0x03)


def _suback(first: int, reader: Reader, version: int) -> Suback:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.SUBACK, version)
    return Suback(packet_id, list(reader.take(reader.left)), properties)


def _unsubscribe(first: int, reader: Reader, version: int) -> Unsubscribe:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.UNSUBSCRIBE, version)
    filters: list[str] = []
    while reader.left:
        _bound(len(filters))
        filters.append(_filter(reader))
    if not filters:
        raise ProtocolError("UNSUBSCRIBE without a topic filter")
    return Unsubscribe(packet_id, filters, properties)


def _unsuback(first: int, reader: Reader, version: int) -> Unsuback:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.UNSUBACK, version)
    reasons = list(reader.take(reader.left)) if version == V5 else []
    reader.finish()
    return Unsuback(packet_id, reasons, properties)


def _pingreq(first: int, reader: Reader, version: int) -> Pingreq:
    reader.finish()
    return Pingreq()


def _pingresp(first: int, reader: Reader, version: int) -> Pingresp:
    reader.finish()
    return Pingresp()


def _disconnect(first: int, reader: Reader, version: int) -> Disconnect:
    reason, properties = _reason_and_properties(reader, PacketType.DISCONNECT, version)
    if reason not in DISCONNECT_REASONS and reason != Reason.DISCONNECT_WITH_WILL:
        raise ProtocolError(f"reason 0x{reason:02x} in DISCONNECT")
    return Disconnect(reason, properties)


def _auth(first: int, reader: Reader, version: int) -> Auth:
    if version != V5:
        raise MalformedPacket("packet type 15 is reserved in MQTT 3.1.1")
    reason, properties = _reason_and_properties(reader, PacketType.AUTH, version)
    if reason not in AUTH_REASONS:
        raise ProtocolError(f"reason 0x{reason:02x} in AUTH")
    return Auth(reason, properties)


def _reason_and_properties(reader: Reader, packet: PacketType, version: int) -> tuple[int, PropertyMap]:
    """Read the whole body of a DISCONNECT or AUTH. The sender may omit both parts (3.14.2)."""
    reason, properties = 0, PropertyMap()
    if version == V5 and reader.left:
        reason = reader.integer(1)
        if reader.left:
            properties = decode_properties(reader, packet)
    reader.finish()
    return reason, properties


_DECODERS: dict[int, Callable[[int, Reader, int], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _ack,
    PacketType.PUBREC: _ack,
    PacketType.PUBREL: _ack,
    PacketType.PUBCOMP: _ack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: _pingreq,
    PacketType.PINGRESP: _pingresp,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
