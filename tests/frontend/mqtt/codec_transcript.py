"""What the MQTT codec makes of random input: one line for each case, the same whether it is compiled or not.

    PYTHONPATH=FOLDER python tests/frontend/mqtt/codec_transcript.py SEED CASES

The first line says which codec it was. A result is its `repr`, an error its type, its text and its reason code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from random import Random

from saps import plain
from saps.compiled import codec
from saps.frontend.mqtt import outgoing, wire
from saps.frontend.mqtt.decode import PacketReader
from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.packets import (
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
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
)
from saps.frontend.mqtt.properties import Property, PropertyMap
from saps.messages import Message, MessageRun, Properties
from saps.publication import Burst, Publication

SHOWN = 1000
"""Characters of a line that are always shown."""
ALL: PropertyMap = {
    Property.PAYLOAD_FORMAT: 1,
    Property.MESSAGE_EXPIRY: 60,
    Property.CONTENT_TYPE: "text/plain",
    Property.RESPONSE_TOPIC: "an/swer",
    Property.CORRELATION_DATA: b"\0\1",
    Property.USER_PROPERTY: (("a", "b"), ("a", "ü")),
}
STOCK: list[tuple[Packet, int]] = [
    (Connect("c", V311, True, 60, Will("w", b"gone", 1, True), "user", b"secret"), V311),
    (Connect("c", V5, False, 60, Will("w", b"gone", 2, False, ALL), "user", None, {Property.SESSION_EXPIRY: 9}), V5),
    (Connack(True, 0, {Property.RECEIVE_MAXIMUM: 10, Property.ASSIGNED_CLIENT_IDENTIFIER: "x"}), V5),
    (Publish("a/b", b"x" * 200, 1, True, True, 7), V311),
    (Publish("a/b", b"x" * 20, 2, False, False, 8, {**ALL, Property.TOPIC_ALIAS: 3}), V5),
    (Ack(PacketType.PUBACK, 7), V311),
    (Ack(PacketType.PUBREC, 7, 0x10, {Property.REASON_STRING: "nobody"}), V5),
    (Ack(PacketType.PUBREL, 7), V5),
    (Subscribe(1, [SubscribeEntry("a/+", 1, True, True, 2), SubscribeEntry("$share/g/#")], {}), V5),
    (Suback(1, [0, 0x80], {}), V5),
    (Unsubscribe(2, ["a/+", "ä"], {}), V311),
    (Unsuback(2, [0x11], {}), V5),
    (Pingreq(), V311),
    (Disconnect(4, {Property.SESSION_EXPIRY: 1}), V5),
    (Auth(0x18, {Property.AUTHENTICATION_METHOD: "m"}), V5),
]


def attempt(what: Callable[[], object]) -> str:
    """The result, or the error."""
    try:
        return repr(what())
    except Exception as error:
        return f"{type(error).__name__} {error} {getattr(error, 'reason', '')!r}"


def spoil(data: bytes, rng: Random) -> bytes:
    """The data, as often as not with some bytes that are others, too many, or missing."""
    changed = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(changed)


def stream(rng: Random) -> str:
    """Packets of all kinds in one stream, which comes in pieces; and what is understood is written again."""
    chosen = [rng.choice(STOCK) for _ in range(rng.randrange(1, 4))]
    data, version = spoil(b"".join(encode(packet, version) for packet, version in chosen), rng), rng.choice((V311, V5))
    cut = rng.randrange(len(data) + 1)
    reader = PacketReader(version, rng.choice((100, 1 << 28)))

    def read() -> list[object]:
        packets = reader.feed(data[:cut]) + reader.feed(data[cut:])
        return [packets, [attempt(partial(encode, packet, reader.version)) for packet in packets]]

    return attempt(read)


def run(rng: Random) -> str:
    """Publications that follow each other, by all that takes them without looking into each."""
    version, qos, topics = rng.choice((V311, V5)), rng.choice((0, 0, 1, 1, 2)), rng.choice((["t"], ["t", "ü/b"]))
    size = rng.choice((0, 5, 120, 130, 20_000))
    packets = [
        Publish(rng.choice(topics), rng.randbytes(rng.choice((size, size + 1))), qos, packet_id=number if qos else None)
        for number in range(1, rng.randrange(2, 9))
    ]
    data = spoil(b"".join(encode(packet, version) for packet in packets), rng)
    limit = rng.choice((150, 1 << 28))
    known = {topic.encode(): number for number, topic in enumerate(topics[:1] if rng.random() < 0.2 else topics)}
    first = attempt(lambda: plain.first_packet(data, 0))
    lone = attempt(lambda: plain.lone_publication(data, version))
    end = attempt(lambda: plain.packet_end(data, rng.randrange(len(data) + 1)))
    several = attempt(lambda: plain.plain_stretch(data, 0, version, limit, known.get))

    def of_one_topic() -> object:
        found = plain.first_packet(data, 0)
        if found is None:
            return None
        ends = plain.plain_run(data, 0, found, version, limit)
        return ends, plain.plain_payloads(data, 0, found.end - found.topic + 2 * bool(qos) + (version == V5), ends)

    def crossed() -> object:
        names = list(dict.fromkeys(packet.topic for packet in packets))
        which = [names.index(packet.topic) for packet in packets] if len(names) > 1 else []
        found = plain.encoded(version, data, names, [len(encode(packet, version)) for packet in packets], which)
        if found is None:
            return None
        return found.ends, found.counts, found.bytes_by_topic, [(run.topic, run.payloads) for run in found.runs()]

    return " ".join((first, lone, end, several, attempt(of_one_topic), attempt(crossed)))


def out(rng: Random) -> str:
    """A publication, and a burst of plain ones, as some subscriber gets them."""
    version, qos, now = rng.choice((V311, V5)), rng.randrange(3), rng.choice((1.0, 11.0))
    form = outgoing.Form(qos, rng.random() < 0.5, rng.choice(((), (5, 300))))
    properties = rng.choice((None, Properties(1, 60, "text", "answer", b"\1", (("a", "b"),)), Properties(None, 60)))
    topic = rng.choice(("a/b", "ü", "long" * 20_000, "\ud800"))
    message = Message(topic, rng.randbytes(rng.choice((0, 100, 130, 17_000))), qos, False, properties)
    publication = Publication(message, rng.choice((None, 10.5)))
    burst = Burst([MessageRun("a/b", qos, [rng.randbytes(rng.randrange(200)) for _ in range(3)])])
    packet_id = rng.randrange(1, 70_000)

    def alone() -> object:
        if not qos:
            return outgoing.plain(publication, form, version, now)
        made = outgoing.copy(publication, form, version, now)
        same = made.publication is publication and made is outgoing.copy(publication, form, version, now)
        return same, made.size, made.with_id(packet_id), made.duplicate(packet_id), made.parts(packet_id)

    def several() -> object:
        if not qos:
            return outgoing.plain_burst(burst, form, version)
        encoded, made = outgoing.numbered_burst(burst, form, version, packet_id)
        return encoded, [(each.with_id(packet_id), each.publication.message) for each in made]

    def aliased() -> object:
        packet = outgoing.aliased(publication, form, now, packet_id, rng.random() < 0.5)
        return packet if isinstance(packet, bytes) else packet.with_id(1)

    return " ".join(map(attempt, (alone, several, aliased)))


def number(rng: Random) -> str:
    """A variable byte integer, perhaps one that does not fit."""
    return attempt(partial(wire.encode_varint, rng.randrange(1 << rng.randrange(1, 34))))


def transcript(seed: int, cases: int) -> Iterator[str]:
    """One line for each case; of a long one the beginning, and the digest of the whole."""
    rng = Random(seed)
    for _ in range(cases):
        case = rng.choice((stream, run, out, number))
        line = f"{case.__name__} {case(rng)}".encode("unicode_escape")
        yield (line if len(line) <= SHOWN else line[:SHOWN] + sha256(line).hexdigest().encode()).decode()


if __name__ == "__main__":
    print(codec())
    for line in transcript(int(sys.argv[1]), int(sys.argv[2])):
        print(line)
