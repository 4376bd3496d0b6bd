"""Decodes the PUBLISH packets at the head of a read into batches (MQTT 5.0, section 3.3).

Consecutive packets with one QoS and retain flag become one `Batch`, whatever their topics and properties. The decoder
reads each packet once: length, topic, packet identifier, properties. It caches topics and properties by their bytes.
With QoS 0 it keeps the received bytes beside the batch. They equal the encoder's output for subscribers with the same
protocol version, so the broker passes them through without encoding them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from saps.frontend.mqtt.codec.decode import check_publish_flags
from saps.frontend.mqtt.codec.packets import V5, PacketType
from saps.frontend.mqtt.codec.properties import Property, PropertyMap, read_properties
from saps.frontend.mqtt.codec.publish_encode import pass_through
from saps.frontend.mqtt.codec.reasons import MalformedPacket, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.codec.wire import Reader, decode_string, fixed_header
from saps.messages import Properties
from saps.routing.batch import MOST, Batch
from saps.topics import topic_fault

MAX_NAMES = 65_536
"""Most topics in the cache that all connections share (about 0.2 KiB each). A full cache is cleared."""
LONGEST_NAME = 512
"""Longest topic in the cache, in bytes."""
LONGEST_PROPERTIES = 512
"""Longest properties of one packet in the cache, in bytes."""

Cut = tuple[Batch, Sequence[bytes], int]
"""A batch, the packet identifier of each publication (two bytes each; none with QoS 0), and the position of the next
packet."""


class Cutter:
    """Decodes the publications of one connection.

    `cut` is one loop without calls for the common packet, as a call costs as much as the rest of a packet here:

    1. *Length*: nearly all packets have one byte of length; `fixed_header` decodes longer ones. The loop compares the
       length with the limit before the packet is complete. So no client makes the broker wait for a packet that the
       broker will refuse.
    2. *Topic*: the loop compares the topic's bytes with those of the packet before, as most runs repeat one topic. It
       looks another topic up by its bytes among the valid topics, and decodes and checks only a new one.
    3. *Properties*: a single byte 0 stands for no properties. `_known_properties` caches the others by their bytes.
    4. *Payload*: the loop keeps the payload's position and does not copy it.

    A faulty packet ends the batch before it. The caller publishes that batch; its next `cut` begins at the faulty
    packet and raises.
    """

    __slots__ = ("_aliases", "_limit", "_most_aliases", "_most_levels", "_names", "_version")

    def __init__(
        self,
        version: int,
        maximum_packet_size: int,
        topic_alias_maximum: int,
        maximum_levels: int,
        names: dict[bytes, str],
    ) -> None:
        """Make the decoder of one connection.

        `maximum_packet_size` is in bytes. `topic_alias_maximum` and `maximum_levels` are the largest topic alias and
        the most levels of a topic. `names`, the cache of valid topics by their bytes, is shared by all connections with
        the same limits.
        """
        self._version = version
        self._limit = maximum_packet_size
        self._most_aliases = topic_alias_maximum
        self._most_levels = maximum_levels
        self._names = names
        self._aliases: dict[int, bytes] | None = None

    def cut(self, data: bytes, pos: int, most: int = MOST) -> Cut | None:
        """Return up to `most` publications from the PUBLISH at `pos` on, or None if the first packet is not complete.
        Raises `MqttError` if the first packet is faulty; a later faulty packet ends the batch."""
        qos = check_publish_flags(data[pos])
        like, mask = (data[pos] & 0xF7, 0xF7) if qos == 1 else (data[pos], 0xFF)  # QoS 2: DUP may repeat a packet
        has_properties, limit, size, begin, verbatim = self._version == V5, self._limit, len(data), pos, qos == 0
        names: dict[bytes, int] = {}
        topics: list[str] = []
        which: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        packet_ids: list[bytes] = []
        properties: list[Properties | None] | None = None
        found: Properties | None = None
        field, number, alias = b"", 0, 0
        try:
            while pos + 1 < size and data[pos] & mask == like and len(ends) < most:
                at, end = pos + 2, pos + 2 + data[pos + 1]
                if end - at > 0x7F:
                    at, end = fixed_header(data, pos) or (at, size + 1)
                if end - pos > limit:
                    raise ProtocolError(f"a packet of {end - pos} bytes", Reason.PACKET_TOO_LARGE)
                if end > size:
                    break
                body, name_end = at, at + 2
                if name_end > end or (name_end := name_end + (data[body] << 8 | data[body + 1])) > end:
                    raise MalformedPacket("PUBLISH ends within the topic")
                at = name_end + 2 if qos else name_end
                if qos and (at > end or data[name_end:at] == b"\0\0"):
                    raise MalformedPacket("PUBLISH without a packet identifier")
                if has_properties and at < end and not data[at]:
                    at, found, alias = at + 1, None, 0
                elif has_properties:
                    at, found, alias = _read_properties(data, at, end)
                    if found is not None:
                        properties = properties or [None] * len(ends)
                        verbatim = verbatim and found.message_expiry is None
                if alias or not field or not (name_end - body == len(field) and data.startswith(field, body)):
                    name, field = data[body + 2 : name_end], data[body:name_end]
                    if alias:
                        name, field, verbatim = self._unaliased(name, alias), b"", False
                    number = names.get(name, -1)
                    if number < 0:
                        topics.append(self._names.get(name) or self._new_topic(name))
                        number = names[name] = len(topics) - 1
                which.append(number)
                starts.append(at)
                ends.append(end)
                if qos:
                    packet_ids.append(data[name_end : name_end + 2])
                if properties is not None:
                    properties.append(found)
                pos = end
        except MqttError:
            if not ends:
                raise
        batch = Batch(topics, which, None, qos, bool(like & 1), properties, (data, starts, ends))
        if verbatim and ends:
            pass_through(batch, self._version, data[begin:pos])
        return (batch, packet_ids, pos) if ends else None

    def _unaliased(self, name: bytes, alias: int) -> bytes:
        """Return the topic of a packet with an alias, and set the alias if the packet has a topic (3.3.2.3.4).

        The first alias creates the dictionary, as most clients use no aliases. Raises `ProtocolError` for an alias
        above the maximum, and for an alias that is not set in a packet without a topic.
        """
        if alias > self._most_aliases:
            raise ProtocolError(f"topic alias {alias}", Reason.TOPIC_ALIAS_INVALID)
        aliases = self._aliases
        if aliases is None:
            aliases = self._aliases = {}
        if name:
            aliases[alias] = name
            return name
        known = aliases.get(alias)
        if known is None:
            raise ProtocolError(f"topic alias {alias} is not set")
        return known

    def _new_topic(self, name: bytes) -> str:
        """Decode and check a topic that is not in the cache, and cache it.

        Raises `MalformedPacket` for bytes that are no MQTT string. Raises `ProtocolError` for an invalid topic, and for
        an empty topic without an alias.
        """
        if not name and self._version == V5:
            raise ProtocolError("PUBLISH without a topic and without a topic alias")
        topic = decode_string(name)
        fault = topic_fault(topic)
        if fault is not None:
            raise ProtocolError(fault, Reason.TOPIC_NAME_INVALID)
        if topic.count("/") >= self._most_levels:
            raise ProtocolError("a topic of too many levels", Reason.TOPIC_NAME_INVALID)
        if len(name) <= LONGEST_NAME:  # longer topics would let a client fill the memory that all connections share
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[name] = topic
        return topic


def _read_properties(data: bytes, at: int, end: int) -> tuple[int, Properties | None, int]:
    """Read the properties of a PUBLISH at `at`.

    Returns the position of their end, the properties for subscribers, and the topic alias (0 for none). Raises
    `MalformedPacket` and `ProtocolError`.

    Most publishers repeat their properties from one message to the next. So one cache for all connections keeps parsed
    properties of up to `LONGEST_PROPERTIES` bytes. The size of the cache bounds the memory that hostile clients can
    take.
    """
    size = data[at] if at < end else 0x80
    if size > 0x7F:
        reader = Reader(data, at, end)
        size = reader.varint()
        at = reader.pos - 1
    begin = at + 1
    if begin + size > end:
        raise MalformedPacket("the properties are longer than the packet")
    raw = data[begin : begin + size]
    found, alias = _known_properties(raw) if size <= LONGEST_PROPERTIES else _parse_properties(raw)
    return begin + size, found, alias


def _parse_properties(raw: bytes) -> tuple[Properties | None, int]:
    """Return the properties for subscribers and the topic alias (0 for none) of a PUBLISH.

    `raw` are the properties without their length. Raises `MalformedPacket` and `ProtocolError`.
    """
    found = read_properties(raw, 0, len(raw), PacketType.PUBLISH)
    if Property.SUBSCRIPTION_IDENTIFIER in found:
        raise ProtocolError("PUBLISH from a client with a subscription identifier")
    alias: int = found.get(Property.TOPIC_ALIAS, 0)
    return received_properties(found), alias


_known_properties = lru_cache(maxsize=4096)(_parse_properties)


def received_properties(found: PropertyMap) -> Properties | None:
    """Return the publisher's properties that go on to subscribers, or None if there are none.

    Raises `ProtocolError` if the response topic is not a valid topic.
    """
    response_topic = found.get(Property.RESPONSE_TOPIC)
    if response_topic is not None and (fault := topic_fault(response_topic)) is not None:
        raise ProtocolError(f"response topic: {fault}")
    properties = Properties(
        found.get(Property.PAYLOAD_FORMAT),
        found.get(Property.MESSAGE_EXPIRY),
        found.get(Property.CONTENT_TYPE),
        response_topic,
        found.get(Property.CORRELATION_DATA),
        found.get(Property.USER_PROPERTY, ()),
    )
    return properties if properties != _NONE else None


_NONE = Properties()
