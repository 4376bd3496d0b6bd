"""What two publishers and two subscribers do, drawn from a seed: well-formed packets, and mutated ones. Pure."""

from __future__ import annotations

import random
from enum import StrEnum

import msgspec

from saps.frontend.mqtt.codec import packets as mqtt
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, PacketType
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.wire import encode_varint, fixed_header

PUBLISHERS, SUBSCRIBERS = ("p0", "p1"), ("s0", "s1")
CLIENTS = (*PUBLISHERS, *SUBSCRIBERS)
STEPS = 12
"""Of one script."""
MUTATED = 0.3
"""Share of the packets that are."""
KEEP_ALIVE = 600
"""Seconds: rumqttd takes no 0, which is none (3.1.2.10)."""
LEVELS = ("a", "b", "", "é")
PAYLOADS = (b"", b"1", b"hello", bytes(200), "ü".encode(), b"\xff\xfe")


class Act(StrEnum):
    """What a client does in a step."""

    SEND = "send"
    CLOSE = "close"
    """Without DISCONNECT (3.1.2.5: its will is published)."""
    CONNECT = "connect"
    """Once more, with another CONNECT."""


class Step(msgspec.Struct, frozen=True):
    """One client's turn. If it is not connected, it sends its first CONNECT before."""

    client: str
    act: Act
    data: bytes = b""
    mutated: bool = False


class Script(msgspec.Struct, frozen=True):
    """One run of four clients. Topics begin with `prefix`, client identifiers end with it."""

    seed: int
    version: int
    prefix: str
    connects: dict[str, bytes]
    steps: list[Step]


def script(seed: int, attempt: int = 0) -> Script:
    """The script of a seed; another attempt at it has other topics and identifiers, as long."""
    rng = random.Random(seed)
    version = rng.choice((V311, V5))
    return _Draw(rng, version, f"{'defgh'[attempt]}{seed}").script(seed)


class _Draw:
    def __init__(self, rng: random.Random, version: int, prefix: str) -> None:
        self._rng, self._version, self._prefix = rng, version, prefix

    def script(self, seed: int) -> Script:
        connects = {client: self._written(self._connect(client)) for client in CLIENTS}
        steps = [Step(client, Act.SEND, self._written(self._subscribe(0.9))) for client in SUBSCRIBERS]
        steps += [self._step() for _ in range(STEPS)]
        return Script(seed, self._version, self._prefix, connects, steps)

    def _step(self) -> Step:
        rng = self._rng
        client = rng.choice(CLIENTS)
        if rng.random() < 0.06:
            return Step(client, Act.CLOSE)
        act = Act.CONNECT if rng.random() < 0.12 else Act.SEND
        if act is Act.CONNECT:
            packet: mqtt.Packet = self._connect(client)
        elif rng.random() < 0.12:
            packet = self._other()
        elif client in PUBLISHERS:
            packet = self._publish()
        else:
            packet = self._subscribe(0.8)
        data = self._written(packet)
        if rng.random() >= MUTATED:
            return Step(client, act, data)
        return Step(client, act, mutated(data, rng), mutated=True)

    def _written(self, packet: mqtt.Packet) -> bytes:
        return encode(packet, self._version)

    def _topic(self) -> str:
        return "/".join([self._prefix, *self._rng.choices(LEVELS, k=self._rng.randint(1, 3))])

    def _filter(self) -> str:
        rng = self._rng
        levels = [self._prefix, *rng.choices((*LEVELS, "+", "+"), k=rng.randint(0, 3))]
        if rng.random() < 0.1:
            levels[0] = "+"
        if rng.random() < 0.4:
            levels.append("#")
        name = "/".join(levels)
        return f"$share/g/{name}" if self._version == V5 and rng.random() < 0.1 else name

    def _identifier(self) -> int:
        return self._rng.randint(1, 4)

    def _connect(self, client: str) -> mqtt.Connect:
        rng = self._rng
        properties: PropertyMap = {}
        if self._version == V5 and rng.random() < 0.5:
            properties = {Property.SESSION_EXPIRY: rng.choice((0, 60))}
        if self._version == V5 and rng.random() < 0.1:
            properties = {**properties, Property.RECEIVE_MAXIMUM: rng.choice((1, 2, 10))}
        will = None
        if rng.random() < 0.3:
            will = mqtt.Will(self._topic(), rng.choice(PAYLOADS), rng.randint(0, 2), rng.random() < 0.3)
        clean = rng.random() < 0.5
        return mqtt.Connect(f"{client}{self._prefix}", self._version, clean, KEEP_ALIVE, will, None, None, properties)

    def _publish(self) -> mqtt.Publish:
        rng = self._rng
        qos = rng.randint(0, 2)
        properties: PropertyMap = {}
        if self._version == V5 and rng.random() < 0.5:
            properties = self._properties()
        return mqtt.Publish(
            self._topic(),
            rng.choice(PAYLOADS),
            qos,
            rng.random() < 0.3,
            bool(qos) and rng.random() < 0.1,
            self._identifier() if qos else None,
            properties,
        )

    def _properties(self) -> PropertyMap:
        rng = self._rng
        drawn: PropertyMap = {
            Property.MESSAGE_EXPIRY: 1000,
            Property.CONTENT_TYPE: "text/plain",
            Property.RESPONSE_TOPIC: f"{self._prefix}/answer",
            Property.CORRELATION_DATA: b"\x00\x01",
            Property.USER_PROPERTY: (("k", "v"), ("k", "w"), ("", "")),
            Property.TOPIC_ALIAS: rng.randint(1, 3),
        }
        return {key: drawn[key] for key in rng.sample(list(drawn), rng.randint(1, 3))}

    def _subscribe(self, share: float) -> mqtt.Packet:
        rng = self._rng
        if rng.random() >= share:
            return mqtt.Unsubscribe(self._identifier(), [self._filter() for _ in range(rng.randint(1, 2))])
        properties: PropertyMap = {}
        if self._version == V5 and rng.random() < 0.3:
            properties = {Property.SUBSCRIPTION_IDENTIFIER: (rng.randint(1, 300),)}
        return mqtt.Subscribe(self._identifier(), [self._entry() for _ in range(rng.randint(1, 3))], properties)

    def _entry(self) -> mqtt.SubscribeEntry:
        rng, name = self._rng, self._filter()
        if self._version == V311:
            return mqtt.SubscribeEntry(name, rng.randint(0, 2))
        shared = name.startswith("$share")
        local, kept = rng.random() < 0.2 and not shared, rng.random() < 0.3
        return mqtt.SubscribeEntry(name, rng.randint(0, 2), local, kept, rng.choice((0, 0, 1, 2)))

    def _other(self) -> mqtt.Packet:
        rng = self._rng
        acks = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
        choices: list[mqtt.Packet] = [
            mqtt.Ack(rng.choice(acks), self._identifier()),
            mqtt.Pingreq(),
            mqtt.Disconnect(rng.choice((0, 4)) if self._version == V5 else 0),
            mqtt.Pingresp(),
            mqtt.Suback(self._identifier(), [0]),
        ]
        return rng.choice(choices)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A packet with one to three changes of its bytes; its remaining length is mostly made right again (2.1.4)."""
    bounds = fixed_header(data, 0)
    assert bounds is not None
    first, body = data[0], bytearray(data[bounds[0] :])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        match rng.choice(("flip", "flip", "set", "insert", "delete", "cut", "first")):
            case "flip" if body:
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
            case "set" if body:
                body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 0x23, 0x2B, 0x2F))
            case "insert":
                body.insert(rng.randint(0, len(body)), rng.choice((0, 1, 0x23, 0x2B, 0x2F, 0xFF)))
            case "delete" if body:
                del body[rng.randrange(len(body))]
            case "cut" if body:
                del body[rng.randrange(len(body)) :]
            case _:
                first ^= 1 << rng.randrange(8)
    length = len(body) + (rng.choice((-1, 1)) if rng.random() < 0.1 else 0)
    return bytes([first]) + encode_varint(max(0, length)) + bytes(body)
