"""The MQTT machine without sockets: a frontend with a clock set by hand, and clients made of the codec."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    Ack,
    Connack,
    Connect,
    Packet,
    PacketType,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
)
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.session import Session
from saps.mesh import Mesh
from saps.routing.hub import Hub

P = TypeVar("P")


class Dealt(Protocol):
    """The broker that a client is connected to."""

    @property
    def frontend(self) -> Frontend: ...

    def act(self, action: Callable[[], object]) -> None: ...


class Bench:
    """One broker's hub and frontend; or a mesh of them (`tests.frontend.mqtt.mesh_bench`) if the tests are run with
    ``--mesh`` and nothing else than a mesh is asked for."""

    brokers: ClassVar[int] = 1
    """How many there are."""

    def __new__(cls, *given: object, **named: object) -> Bench:
        if cls is Bench and cls.brokers > 1 and len(given) < 2 and named.get("mesh") is None:
            from tests.frontend.mqtt.mesh_bench import MeshBench

            return object.__new__(MeshBench)
        return object.__new__(cls)

    def __init__(self, limits: Limits | None = None, mesh: Mesh | None = None) -> None:
        self.now = 1000.0
        self.hub = Hub(mesh, lambda: self.now)
        self.frontend = Frontend(self.hub, limits or Limits(), lambda: self.now, Random(1))

    def deal(self) -> Dealt:
        """Where the next client connects."""
        return self

    def act(self, action: Callable[[], object]) -> None:
        """Have something done at this broker."""
        action()

    @property
    def sessions(self) -> Mapping[str, Session]:
        return self.frontend.sessions

    @property
    def connections(self) -> Collection[ClientConnection]:
        return self.frontend.connections

    def flush(self) -> None:
        """What the driver does after each input."""
        self.frontend.turn.flush()

    def await_until(self, condition: Callable[[], bool]) -> None:
        """Let the time pass that a mesh takes for an answer; a broker alone takes none."""

    def advance(self, seconds: float) -> None:
        """Let time pass, every timer running at its own time."""
        end = self.now + seconds
        timers = self.frontend.timers
        while timers.next is not None and timers.next <= end:
            self.now = max(self.now, timers.next)
            timers.run(self.now)
            self.flush()
        self.now = end

    def client(self, client_id: str = "c", **fields: Any) -> Client:
        """A connected client."""
        client = Client(self, fields.get("version", V5))
        client.connect(client_id, **fields)
        return client


class Subscriber(NamedTuple):
    """Somebody who takes what a filter matches."""

    version: int
    filter: str
    qos: int
    identifier: int
    """0: none."""


def subscribed(bench: Bench, wanted: Sequence[Subscriber]) -> list[Client]:
    """Clients that have asked for these subscriptions."""
    clients = [bench.client(f"s{number}", version=each.version) for number, each in enumerate(wanted)]
    for client, each in zip(clients, wanted, strict=True):
        named = each.identifier and each.version == V5
        properties: PropertyMap = {Property.SUBSCRIPTION_IDENTIFIER: [each.identifier]} if named else {}
        client.send(Subscribe(1, [SubscribeEntry(each.filter, each.qos)], properties))
    return clients


class Client:
    """A peer of one connection, and the connection's port."""

    def __init__(self, bench: Bench, version: int = V5) -> None:
        self.bench = bench
        self.version = version
        self.packets: list[Packet] = []
        self.raw = b""
        """Everything received."""
        self.closed = False
        self.reading = True
        self._reader = PacketReader(version)
        self.broker = bench.deal()
        self.connection = Connection(self.broker.frontend, self, "test")

    # ---- the port

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def taken(self) -> int:
        return len(self.raw)

    def write(self, data: bytes) -> None:
        self.raw += data
        self.packets += self._reader.feed(data)

    def flush(self) -> None:
        self.write(self.connection.output.take())
        self.closed = self.connection.closing

    # ---- the client

    def send_bytes(self, data: bytes) -> None:
        self.broker.act(lambda: self.connection.receive(data))
        self.bench.flush()

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def connect(self, client_id: str = "c", **fields: Any) -> Connack:
        fields.setdefault("version", self.version)
        self.send(Connect(client_id, **fields))
        self.connack = self.expect(Connack)
        return self.connack

    def subscribe(self, *entries: SubscribeEntry | str, qos: int = 0, **properties: Any) -> list[int]:
        full = [SubscribeEntry(e, qos) if isinstance(e, str) else e for e in entries]
        self.send(Subscribe(1, full, properties.get("properties", {})))
        return self.expect(Suback).reasons

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 1, **fields: Any) -> None:
        self.send(Publish(topic, payload, qos, packet_id=packet_id if qos else None, **fields))

    def lose(self) -> None:
        """The transport breaks."""
        self.broker.act(self.connection.lost)
        self.bench.flush()

    def take(self) -> list[Packet]:
        """What came since the last time."""
        packets, self.packets = self.packets, []
        return packets

    def expect(self, kind: type[P]) -> P:
        """The one packet that came, of this type; what else came before and after stays out of it."""
        self.bench.await_until(lambda: self.closed or any(isinstance(packet, kind) for packet in self.packets))
        found = [packet for packet in self.packets if isinstance(packet, kind)]
        assert len(found) == 1, self.packets
        self.packets = [packet for packet in self.packets if packet is not found[0]]
        return found[0]

    def messages(self) -> list[Publish]:
        """The PUBLISH packets that came since the last time; nothing else must have come."""
        packets = self.take()
        assert all(isinstance(packet, Publish) for packet in packets), packets
        return [packet for packet in packets if isinstance(packet, Publish)]

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages()]


def puback(packet_id: int, reason: int = 0) -> Ack:
    return Ack(PacketType.PUBACK, packet_id, reason)


def pubrec(packet_id: int, reason: int = 0) -> Ack:
    return Ack(PacketType.PUBREC, packet_id, reason)


def pubrel(packet_id: int, reason: int = 0) -> Ack:
    return Ack(PacketType.PUBREL, packet_id, reason)


def pubcomp(packet_id: int, reason: int = 0) -> Ack:
    return Ack(PacketType.PUBCOMP, packet_id, reason)


def a_will(topic: str = "will", payload: bytes = b"gone", **fields: Any) -> Will:
    return Will(topic, payload, **fields)
