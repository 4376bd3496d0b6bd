"""Publications as PUBLISH packets, encoded once for all subscribers that take the same form."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from saps.frontend.mqtt.packets import V5
from saps.frontend.mqtt.properties import Property, PropertyMap
from saps.frontend.mqtt.reasons import ProtocolError
from saps.frontend.mqtt.wire import encode_binary, encode_string, encode_varint
from saps.messages import Message, Properties
from saps.publication import Burst, Publication
from saps.subscriptions import Target
from saps.topics import topic_fault


class Form(NamedTuple):
    """What can differ between the copies of one publication."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


class Copy:
    """A publication with QoS 1 or 2 in one form, encoded but for its packet identifier; shared by subscribers.

    Subscribers that follow the same topics tend to be at the same packet identifier, so the last one is kept.
    """

    __slots__ = ("_head", "_id", "_packet", "_publication", "_tail", "form")

    def __init__(self, publication: Publication, form: Form, head: bytes, tail: bytes) -> None:
        self.form = form
        self._publication: Publication | None = publication
        self._head = head
        self._tail = tail
        self._id = 0
        self._packet = b""

    @property
    def publication(self) -> Publication:
        """What is sent."""
        assert self._publication is not None
        return self._publication

    @property
    def size(self) -> int:
        """Bytes of the packet."""
        return len(self._head) + 2 + len(self._tail)

    def parts(self, packet_id: int) -> tuple[bytes, bytes, bytes]:
        """The packet in pieces, for a larger join."""
        return self._head, packet_id.to_bytes(2), self._tail

    def with_id(self, packet_id: int) -> bytes:
        """The packet."""
        if packet_id != self._id:
            self._id = packet_id
            self._packet = self._head + packet_id.to_bytes(2) + self._tail
        return self._packet

    def duplicate(self, packet_id: int) -> bytes:
        """The packet with the DUP flag, for retransmission."""
        return bytes((self._head[0] | 0x08,)) + self._head[1:] + packet_id.to_bytes(2) + self._tail


_PLAIN_FORMS = [Form(qos, retain, ()) for qos in (0, 1, 2) for retain in (False, True)]
_PLAIN_QOS_1 = _PLAIN_FORMS[1 << 1]


class Relayed(Copy):
    """A plain publication that is passed on unopened, but for its packet identifier.

    The message is only taken out of it if it must wait or is sent again, perhaps in another form.
    """

    __slots__ = ("_ahead", "_qos", "_topic")

    def __init__(
        self, topic: str, head: bytes, tail: bytes, ahead: int, form: Form = _PLAIN_QOS_1, qos: int = 1
    ) -> None:
        """`head` and `tail`: what stands before and behind the packet identifier; in the tail so many bytes `ahead` of
        the payload. `qos`: that of the message."""
        self.form = form
        self._publication = None
        self._head = head
        self._tail = tail
        self._id = 0
        self._packet = b""
        self._topic = topic
        self._ahead = ahead
        self._qos = qos

    @property
    def publication(self) -> Publication:
        if self._publication is None:
            self._publication = Publication(Message(self._topic, self._tail[self._ahead :], self._qos))
        return self._publication


def form_for(publication: Publication, target: Target) -> Form:
    """The form in which the target gets the publication."""
    message = publication.message
    qos = message.qos if message.qos < target.qos else target.qos
    retain = publication.retained or (message.retain and target.retain_as_published)
    if target.identifiers:
        return Form(qos, retain, target.identifiers)
    return _PLAIN_FORMS[qos << 1 | retain]


def form_for_burst(burst: Burst, target: Target) -> Form:
    """The form in which the target gets all of the burst."""
    qos = burst.qos if burst.qos < target.qos else target.qos
    return Form(qos, False, target.identifiers) if target.identifiers else _PLAIN_FORMS[qos << 1]


def copy(publication: Publication, form: Form, version: int, now: float) -> Copy:
    """The copy with QoS 1 or 2, from the publication's cache or encoded now."""
    lifetime = None if publication.expires is None else _lifetime(publication.expires, now)
    key = (version, form, lifetime)
    packets = publication.packets
    if packets is None:
        packets = publication.packets = {}
    found: Copy | None = packets.get(key)
    if found is None:
        first, topic, tail = _parts(publication, form, version, lifetime)
        found = packets[key] = Copy(publication, form, _head(first, len(topic) + 2 + len(tail), topic), tail)
    return found


def plain(publication: Publication, form: Form, version: int, now: float) -> bytes:
    """The packet of QoS 0, from the publication's cache or encoded now."""
    lifetime = None if publication.expires is None else _lifetime(publication.expires, now)
    key = (version, form, lifetime)
    packets = publication.packets
    if packets is None:
        packets = publication.packets = {}
    found: bytes | None = packets.get(key)
    if found is None:
        first, topic, tail = _parts(publication, form, version, lifetime)
        found = packets[key] = _head(first, len(topic) + len(tail), topic) + tail
    return found


def plain_burst(burst: Burst, form: Form, version: int) -> bytes:
    """The packets of a burst of QoS 0, one after the other."""
    key = (version, form)
    found: bytes | None = burst.packets.get(key)
    if found is None:
        first, before = _burst_parts(form, version)
        starts, parts = _starts(first), list[bytes]()
        for run in burst.runs:
            topic, payloads = _topic_field(run.topic) + before, run.payloads
            ahead = len(topic)
            packets = [topic] * (3 * len(payloads))
            packets[::3] = [starts[ahead + len(payload)] for payload in payloads]
            packets[2::3] = payloads
            parts += packets
        found = burst.packets[key] = b"".join(parts)
    return found


def numbered_burst(burst: Burst, form: Form, version: int, packet_id: int) -> tuple[bytes, list[Copy]]:
    """The packets of a burst of QoS 1 or 2 with packet identifiers from `packet_id` on, and their copies."""
    key = (version, form)
    copies, encoded_from, encoded = burst.packets.get(key, (None, 0, b""))
    if encoded_from != packet_id:
        if copies is None:
            copies = _burst_copies(burst, form, version)
        encoded = b"".join([part for number, item in enumerate(copies, packet_id) for part in item.parts(number)])
        burst.packets[key] = copies, packet_id, encoded
    return encoded, copies


def _burst_copies(burst: Burst, form: Form, version: int) -> list[Copy]:
    """A copy of each publication of a burst; what they share is encoded once."""
    first, before = _burst_parts(form, version)
    starts, qos, ahead = _starts(first), burst.qos, len(before)
    copies: list[Copy] = []
    for run in burst.runs:
        name, topic = run.topic, _topic_field(run.topic)
        around = len(topic) + 2 + ahead
        copies += [
            Relayed(name, starts[around + len(payload)] + topic, before + payload, ahead, form, qos)
            for payload in run.payloads
        ]
    return copies


def _burst_parts(form: Form, version: int) -> tuple[int, bytes]:
    """What the packets of a burst share: first byte, and what stands before the payload."""
    first = 0x30 | form.qos << 1 | form.retain
    if version != V5:
        return first, b""
    properties = sent_properties(None, form.identifiers, None)
    return first, encode_varint(len(properties)) + properties


def aliased(publication: Publication, form: Form, now: float, alias: int, known: bool) -> Copy | bytes:
    """The packet for one client, with a topic alias. A client that has `known` it is not sent the topic (3.3.2.3.4).

    QoS 0: the whole packet; QoS 1 and 2: a copy.
    """
    first = 0x30 | form.qos << 1 | form.retain
    topic = b"\0\0" if known else encode_string(publication.message.topic)
    lifetime = None if publication.expires is None else _lifetime(publication.expires, now)
    properties = bytes((Property.TOPIC_ALIAS,)) + alias.to_bytes(2)
    properties += sent_properties(publication.message.properties, form.identifiers, lifetime)
    tail = encode_varint(len(properties)) + properties + publication.message.payload
    if not form.qos:
        return bytes((first,)) + encode_varint(len(topic) + len(tail)) + topic + tail
    head = bytes((first,)) + encode_varint(len(topic) + 2 + len(tail)) + topic
    return Copy(publication, form, head, tail)


@lru_cache(maxsize=4096)
def _head(first: int, length: int, topic: bytes) -> bytes:
    """A packet's first byte, its remaining length, and its topic field."""
    return bytes((first,)) + encode_varint(length) + topic


class _Starts(dict[int, bytes]):
    """By remaining length: how packets with one first byte begin. Those of at most two bytes of length are kept."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def __missing__(self, length: int) -> bytes:
        start = bytes((self._first,)) + encode_varint(length)
        if length < 1 << 14:
            self[length] = start
        return start


_starts = lru_cache(maxsize=None)(_Starts)
"""One for each first byte of a PUBLISH: there are six that a burst can have."""


@lru_cache(maxsize=4096)
def _topic_field(topic: str) -> bytes:
    return encode_string(topic)


def _lifetime(expires: float, now: float) -> int:
    """Whole seconds left of a message's life (3.3.2.3.3)."""
    return max(0, ceil(expires - now - 1e-6))


def _parts(publication: Publication, form: Form, version: int, lifetime: int | None) -> tuple[int, bytes, bytes]:
    """The packet's first byte, its topic field, and what follows the packet identifier."""
    message = publication.message
    first = 0x30 | form.qos << 1 | form.retain
    topic = _topic_field(message.topic)
    if version != V5:
        return first, topic, message.payload
    properties = sent_properties(message.properties, form.identifiers, lifetime)
    return first, topic, encode_varint(len(properties)) + properties + message.payload


def sent_properties(properties: Properties | None, identifiers: tuple[int, ...], lifetime: int | None) -> bytes:
    """The properties of a PUBLISH to a subscriber, without their length."""
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
