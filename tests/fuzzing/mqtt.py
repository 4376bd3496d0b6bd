"""MQTT: the codec, and the session machine with clients that do anything (targets ``mqtt-codec``, ``mqtt-session``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from hypothesis import Phase, given, settings

from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Connect, Packet, Pingreq, Pingresp, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import MqttError
from saps.frontend.mqtt.codec.wire import Framer, fixed_header
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client
from tests.frontend.mqtt.strategies import packets
from tests.fuzzing.target import Target

LIMITS = Limits(
    maximum_packet_size=2000,
    maximum_connections=20,
    maximum_sessions=20,
    maximum_subscriptions=20,
    maximum_topic_levels=20,
    maximum_queued=8,
    maximum_queued_bytes=4000,
    maximum_queued_total=10_000,
    receive_maximum=8,
    send_maximum=8,
    topic_alias_maximum=4,
    outgoing_topic_aliases=4,
    write_high_water=4000,
    publisher_wait=0.1,
)
"""Small, so that a short input reaches them."""

MAX_INPUT = 4096
"""Bytes of one input that are used."""


class Peer(Client):
    """A client that does not look at what it gets: it may have agreed on either version."""

    def write(self, data: bytes) -> None:
        pass


def fuzz_codec(data: bytes) -> None:
    """Decode a stream in both versions; what can be decoded and written means the same when it is read again."""
    for version in (V311, V5):
        framer, pos = Framer(), 0
        rest = framer.feed(data)
        try:
            while (bounds := fixed_header(rest, pos)) is not None and bounds[1] <= len(rest):
                packet = decode(rest[pos], rest, *bounds, version)
                level = packet.version if isinstance(packet, Connect) else version
                again = encode(packet, level)
                body = fixed_header(again, 0)
                assert body is not None
                assert decode(again[0], again, *body, level) == packet, packet
                pos = bounds[1]
            framer.keep(rest, pos)
        except MqttError:
            pass


def fuzz_machine(data: bytes) -> None:
    """Clients that do anything to one broker. The bytes are a list of actions, of which most are input of a client.

    Raises `AssertionError` if something grows beyond its limit, or another client notices.
    """
    bench = Bench(LIMITS)
    other = bench.client("other")
    other.send(Subscribe(1, [SubscribeEntry("#", 1), SubscribeEntry("$SYS/#", 2)]))
    clients: list[Client] = [Peer(bench, V5)]
    for action, argument, chunk in _actions(data[:MAX_INPUT]):
        _ACTIONS[action % len(_ACTIONS)](bench, clients, argument, chunk)
        check_frontend(bench.frontend)
        other.take()
    if not other.closed:
        other.connection.resume_writing()
        bench.flush()
        other.take()
        other.send(Pingreq())
        assert Pingresp() in other.take()
    for client in clients:
        client.lose()
    bench.advance(LIMITS.maximum_session_expiry + 1)
    check_frontend(bench.frontend)
    assert set(bench.frontend.sessions) <= {"other"}


def check_frontend(frontend: Frontend) -> None:
    """Everything is within its limits."""
    assert len(frontend.sessions) <= LIMITS.maximum_sessions
    kept = 0
    for session in frontend.sessions.values():
        queue = session.queue.copies or ()
        assert len(queue) <= LIMITS.maximum_queued
        assert session.queue.bytes == sum(single.size for single, _ in queue) <= LIMITS.maximum_queued_bytes
        assert len(session.window.inflight) <= LIMITS.send_maximum
        assert len(session.incoming or ()) <= LIMITS.receive_maximum
        assert len(session.subscriptions) <= LIMITS.maximum_subscriptions
        kept += session.queue.bytes
    for connection in frontend.connections:
        assert isinstance(connection, Connection)
        cutter = connection.publishes._cutter
        assert cutter is None or len(cutter._aliases or ()) <= LIMITS.topic_alias_maximum
        assert connection.outbound._held_count <= LIMITS.maximum_queued
        assert len(connection._framer._partial or b"") <= LIMITS.maximum_packet_size + 5
        kept += connection.outbound._held_bytes
    assert kept <= frontend.queued.used <= LIMITS.maximum_queued_total


def _actions(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(action, argument, bytes): two bytes of head, of which the second says how many bytes follow, too."""
    pos = 0
    while pos + 2 <= len(data):
        action, argument = data[pos], data[pos + 1]
        size = argument if action < 0xE0 else 0
        yield (0 if action < 0xE0 else action - 0xDF), argument, data[pos + 2 : pos + 2 + size]
        pos += 2 + size


def _input(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    client = clients[-1]
    if client.connection.closing:
        clients.append(client := Peer(bench, client.version))
    client.send_bytes(chunk)


def _new_client(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    """A connection that is let in, so that fuzzing need not find out how to write CONNECT first."""
    version = V5 if argument & 1 else V311
    client = Peer(bench, version)
    clients.append(client)
    properties: PropertyMap = {}
    if version == V5 and argument & 2:
        properties = {Property.SESSION_EXPIRY: 5, Property.TOPIC_ALIAS_MAXIMUM: 2, Property.RECEIVE_MAXIMUM: 3}
    client.send(
        Connect(f"c{argument >> 5}", version, bool(argument & 4), argument & 0x18, None, None, None, properties)
    )


def _turn(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    clients.append(clients.pop(argument % len(clients)))


def _lose(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    clients[-1].lose()


def _pause(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    clients[-1].connection.pause_writing()


def _resume(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    clients[-1].connection.resume_writing()
    bench.flush()


def _advance(bench: Bench, clients: list[Client], argument: int, chunk: bytes) -> None:
    bench.advance(argument / 8)


_ACTIONS: list[Callable[[Bench, list[Client], int, bytes], None]] = [
    *(_input, _new_client, _turn, _lose, _pause, _resume, _advance)
]


def seeds(count: int = 300) -> list[bytes]:
    """Well-formed packets."""
    found: list[bytes] = []
    for version in (V311, V5):

        @settings(max_examples=count // 2, phases=[Phase.generate], database=None, deadline=None, derandomize=True)
        @given(packets(version))
        def draw(packet: Packet) -> None:
            found.append(encode(packet, version))  # noqa: B023 - called right here

        draw()
    return found


def session_seeds() -> list[bytes]:
    """The same as actions of clients that have been let in."""
    found, rng = seeds(), Random(1)
    begin = [b"\xe0\x03", b"\xe0\x27", b"\xe0\x44", b"\xe0\x6f"]
    return [
        rng.choice(begin)
        + b"".join(bytes((0, len(data))) + data for data in rng.choices(found, k=4) if len(data) < 256)
        + bytes((rng.randrange(0xE0, 0xE7), rng.randrange(256)))
        for _ in found
    ]


TARGETS = [
    Target("mqtt-codec", "a client, as packets", fuzz_codec, seeds),
    Target("mqtt-session", "clients, as actions", fuzz_machine, session_seeds, MAX_INPUT),
]
