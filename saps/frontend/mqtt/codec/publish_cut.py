"""From bytes to batches: the PUBLISH packets at the head of a read (MQTT 5.0, section 3.3).

Packets of one QoS and retain flag that follow each other become one `Batch`, whatever their topics and properties.
Each is looked at once: length, topic, packet identifier, properties. Topics and properties that have been seen before
are known by their bytes. With QoS 0 the packets are kept beside the batch as they came, as what its encoder would make
of them for subscribers of the same protocol version; so they are passed through without being encoded again.
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
from saps.local.batch import MOST, Batch
from saps.messages import Properties
from saps.topics import topic_fault

MAX_NAMES = 65_536
"""Topics known by their bytes, for all connections together (about 0.2 KiB each); beyond it that begins anew."""
LONGEST_NAME = 512
"""Bytes of the longest topic that is."""
LONGEST_PROPERTIES = 512
"""Bytes of the longest properties that are known by their bytes."""

Cut = tuple[Batch, Sequence[bytes], int]
"""A batch, the packet identifier of each publication (QoS 1 and 2; two bytes), and where the next packet begins."""


class _Part:
    """What is found of a batch."""

    __slots__ = ("ends", "packet_ids", "properties", "starts", "topics", "which")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.which: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.packet_ids: list[bytes] = []
        self.properties: list[Properties | None] = []
        """Of all publications, if any has some."""


class Cutter:
    """Cuts the publications of one connection."""

    __slots__ = ("_aliases", "_limit", "_most_aliases", "_most_levels", "_names", "_version")

    def __init__(
        self,
        version: int,
        maximum_packet_size: int,
        topic_alias_maximum: int,
        maximum_levels: int,
        names: dict[bytes, str],
    ) -> None:
        """`names`: the valid topics met so far, by their bytes; shared by all connections with the same limits."""
        self._version = version
        self._limit = maximum_packet_size
        self._most_aliases = topic_alias_maximum
        self._most_levels = maximum_levels
        self._names = names
        self._aliases: dict[int, bytes] | None = None

    def cut(self, data: bytes, pos: int, most: int = MOST) -> Cut | None:
        """The publications from `pos` on, where a PUBLISH begins, up to `most`; None if the first is not complete.

        Raises `MqttError` if the first is faulty; a later one that is ends the batch.
        """
        qos = check_publish_flags(data[pos])
        part = _Part()
        ends, verbatim = part.ends, False
        try:
            verbatim = self._scan(data, pos, most, qos, part)
        except MqttError:
            if not ends:
                raise
            del part.packet_ids[len(ends) :]
        if not ends:
            return None
        seen = (data, part.starts, ends)
        batch = Batch(part.topics, part.which, None, qos, bool(data[pos] & 1), part.properties or None, seen)
        if verbatim:
            pass_through(batch, self._version, data[pos : ends[-1]])
        return batch, part.packet_ids, ends[-1]

    def _scan(self, data: bytes, pos: int, most: int, qos: int, part: _Part) -> bool:
        """Fills in the part. True if the packets are, as they came, what an encoder would make of them; raises as
        `cut`, with the part filled up to the fault."""
        topics, which, starts, ends = part.topics, part.which, part.starts, part.ends
        packet_ids, properties = part.packet_ids, part.properties
        like, mask = (data[pos] & 0xF7, 0xF7) if qos else (data[pos], 0xFF)  # a duplicate is a publication, too
        has_properties, limit, size, verbatim = self._version == V5, self._limit, len(data), qos == 0
        names: dict[bytes, int] = {}
        field, number, some = b"", 0, False
        while pos + 1 < size and data[pos] & mask == like and len(ends) < most:
            at, end = pos + 2, pos + 2 + data[pos + 1]
            if data[pos + 1] > 0x7F:
                bounds = fixed_header(data, pos)
                if bounds is None:
                    break
                at, end = bounds
            if end - pos > limit:
                raise ProtocolError(f"a packet of {end - pos} bytes", Reason.PACKET_TOO_LARGE)
            if end > size:
                break
            body = at
            name_end = at = at + 2 + (data[at] << 8 | data[at + 1]) if end - at > 1 else end + 1
            if at > end:
                raise MalformedPacket("PUBLISH ends within the topic")
            if qos:
                packet_id = data[at : at + 2]
                at += 2
                if at > end or packet_id == b"\0\0":
                    raise MalformedPacket("PUBLISH without a packet identifier")
                packet_ids.append(packet_id)
            found: Properties | None = None
            alias = 0
            if has_properties:
                if at < end and not data[at]:
                    at += 1
                else:
                    at, found, alias = _read_properties(data, at, end)
            if alias or not field or not (name_end - body == len(field) and data.startswith(field, body)):
                name = data[body + 2 : name_end]
                field = b"" if alias else data[body:name_end]
                if alias:
                    name, verbatim = self._unaliased(name, alias), False
                known = names.get(name)
                if known is None:
                    topics.append(self._names.get(name) or self._new_topic(name))
                    known = names[name] = len(topics) - 1
                number = known
            if found is not None:
                verbatim = verbatim and found.message_expiry is None
                if not some:
                    some = True
                    properties.extend([None] * len(ends))
            which.append(number)
            starts.append(at)
            ends.append(end)
            if some:
                properties.append(found)
            pos = end
        return verbatim

    def _unaliased(self, name: bytes, alias: int) -> bytes:
        """The topic that the alias stands for from now on (3.3.2.3.4)."""
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
        """The topic of these bytes, which is checked here, once."""
        if not name and self._version == V5:
            raise ProtocolError("PUBLISH without a topic and without a topic alias")
        topic = decode_string(name)
        fault = topic_fault(topic)
        if fault is not None:
            raise ProtocolError(fault, Reason.TOPIC_NAME_INVALID)
        if topic.count("/") >= self._most_levels:
            raise ProtocolError("a topic of too many levels", Reason.TOPIC_NAME_INVALID)
        if len(name) <= LONGEST_NAME:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[name] = topic
        return topic


def _read_properties(data: bytes, at: int, end: int) -> tuple[int, Properties | None, int]:
    """The properties of a PUBLISH that stand at `at`: where they end, what subscribers get of them, the topic alias (0
    for none)."""
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
    """What subscribers get of the properties of a PUBLISH, given without their length, and the topic alias."""
    found = read_properties(raw, 0, len(raw), PacketType.PUBLISH)
    if Property.SUBSCRIPTION_IDENTIFIER in found:
        raise ProtocolError("PUBLISH from a client with a subscription identifier")
    alias: int = found.get(Property.TOPIC_ALIAS, 0)
    return received_properties(found), alias


_known_properties = lru_cache(maxsize=4096)(_parse_properties)


def received_properties(found: PropertyMap) -> Properties | None:
    """What a publisher's properties say to the subscribers. Raises `ProtocolError`."""
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
