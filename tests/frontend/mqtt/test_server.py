"""The asyncio driver on real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.driver.tcp_client import TcpClient
from saps.frontend.mqtt.limits import Limits
from saps.mesh import TopicRoute
from saps.routing.hub import Hub
from tests.routing.meshes import DelayingMesh

SMALL = Limits(write_high_water=1 << 16, maximum_queued=10, publisher_wait=0.01, linger=0.1)


@pytest.fixture
async def server() -> AsyncIterator[MqttServer]:
    server = MqttServer(Hub(), SMALL)
    await server.start("127.0.0.1", 0)
    yield server
    await server.stop()


class Peer:
    """A client on a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._packets: list[Packet] = []
        self._decoder = PacketReader(V5)

    @classmethod
    async def connect(cls, server: MqttServer, client_id: str, keep_alive: int = 0) -> Peer:
        peer = cls(*await asyncio.open_connection(*server.address))
        peer.send(Connect(client_id, keep_alive=keep_alive))
        assert isinstance(await peer.next(), Connack)
        return peer

    def send(self, packet: Packet | bytes) -> None:
        self._writer.write(packet if isinstance(packet, bytes) else encode(packet, V5))

    async def subscribe(self, topic_filter: str) -> None:
        self.send(Subscribe(1, [SubscribeEntry(topic_filter)]))
        assert isinstance(await self.next(), Suback)

    async def next(self) -> Packet | None:
        """The next packet, None at the end of the stream."""
        while not self._packets:
            data = await self._reader.read(1 << 16)
            if not data:
                return None
            self._packets += self._decoder.feed(data)
        return self._packets.pop(0)

    async def ping(self) -> None:
        """Returns when everything sent so far has been handled."""
        self.send(Pingreq())
        assert isinstance(await self.next(), Pingresp)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def test_publications_pass_between_sockets(server: MqttServer) -> None:
    publisher, subscriber = await Peer.connect(server, "p"), await Peer.connect(server, "s")
    await subscriber.subscribe("a/#")
    for number in range(3):
        publisher.send(Publish("a/b", b"%d" % number))
    assert [await subscriber.next() for _ in range(3)] == [Publish("a/b", b"%d" % n) for n in range(3)]
    assert server.describe() == {"accepted": 2, "connections": 2, "sessions": 2, "dropped": 0}
    await publisher.close()
    await subscriber.close()


async def test_small_packets_are_not_delayed_by_the_kernel(server: MqttServer) -> None:
    peer = await Peer.connect(server, "p")
    (client,) = server.sockets.clients
    assert client.transport is not None
    sock = client.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await peer.close()


class Writes:
    """A transport that notes what is written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.made: list[bytes] = []
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.made.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_what_one_turn_of_the_loop_reads_is_written_to_each_client_at_once(server: MqttServer) -> None:
    """After a turn that has brought nothing else the first read is not kept waiting."""
    subscriber = await Peer.connect(server, "s")
    await subscriber.subscribe("#")
    publishers = [await Peer.connect(server, f"p{number}") for number in range(5)]
    await asyncio.sleep(0.01)
    connection = server.frontend.sessions["s"].connection
    assert connection is not None
    port = cast(Any, connection.port)
    port.transport = writes = Writes(port.transport)
    packet = Publish("a", b"x")
    size = len(encode(packet, V5))
    for turn in ([1, 4], [5], [5]):
        for publisher in publishers:
            publisher.send(packet)  # asyncio writes to the socket without a turn of its own
        for _ in publishers:
            assert await subscriber.next() == packet
        assert [len(data) // size for data in writes.made] == turn
        writes.made.clear()
    for peer in (subscriber, *publishers):
        await peer.close()


async def test_stop_tells_every_client_and_ends_the_sessions(server: MqttServer) -> None:
    peers = [await Peer.connect(server, f"c{i}") for i in range(3)]
    await peers[0].subscribe("a")
    stopping = asyncio.create_task(server.stop())
    for peer in peers:
        assert await peer.next() == Disconnect(Reason.SERVER_SHUTTING_DOWN)
        assert await peer.next() is None
        await peer.close()
    await stopping
    assert server.hub.agents == {}
    assert not list(server.hub.index.filters)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*server.address)
    await server.stop()


async def test_stop_does_not_wait_for_a_client_that_reads_nothing(server: MqttServer) -> None:
    slow, publisher = await Peer.connect(server, "s"), await Peer.connect(server, "p")
    await slow.subscribe("a")
    await flood(publisher)
    await server.stop()
    assert server.describe()["connections"] == 0


async def flood(publisher: Peer) -> None:
    """More than the sockets' buffers hold, to a subscriber that reads nothing."""
    for _ in range(64):
        publisher.send(Publish("a", bytes(250_000)))
        await publisher.ping()


async def test_slow_subscriber_costs_bounded_memory_and_others_go_on(server: MqttServer) -> None:
    slow, publisher, quick = [await Peer.connect(server, name) for name in ("s", "p", "q")]
    await slow.subscribe("a")
    await quick.subscribe("b")
    await flood(publisher)
    waiting = sum(c.transport.get_write_buffer_size() for c in server.sockets.clients if c.transport is not None)
    assert waiting <= SMALL.write_high_water + 250_100
    assert server.describe()["dropped"] > 0
    publisher.send(Publish("b", b"still here"))
    assert await quick.next() == Publish("b", b"still here")
    received = 0
    publisher.send(Publish("a", b"last"))
    await publisher.ping()
    session = server.frontend.sessions["s"]
    while received + session.dropped < 65:
        assert isinstance(await slow.next(), Publish)
        received += 1
    assert received + session.dropped == 65
    for peer in (slow, publisher, quick):
        await peer.close()


async def test_malformed_input_closes_its_connection_and_leaves_one_log_line(
    server: MqttServer, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = await Peer.connect(server, "bad"), await Peer.connect(server, "good")
    bad.send(b"\x36\0")
    assert await bad.next() == Disconnect(Reason.MALFORMED_PACKET)
    assert await bad.next() is None
    await good.ping()
    assert [r.levelno for r in caplog.records if r.name.startswith("saps")] == [logging.WARNING]
    assert "'bad'" in caplog.text
    await bad.close()
    await good.close()


async def test_a_fault_of_ours_closes_one_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenMesh(DelayingMesh):
        def route(self, topic: str) -> TopicRoute:
            raise RuntimeError("broken on purpose")

    server = MqttServer(Hub(BrokenMesh()), SMALL)
    await server.start()
    unlucky, other = await Peer.connect(server, "u"), await Peer.connect(server, "o")
    unlucky.send(Publish("a"))
    assert await unlucky.next() == Disconnect(Reason.IMPLEMENTATION_SPECIFIC_ERROR)
    await other.ping()
    assert "broken on purpose" in caplog.text
    await unlucky.close()
    await other.close()
    await server.stop()


async def test_answers_of_the_mesh_are_sent_when_they_come() -> None:
    mesh = DelayingMesh()
    server = MqttServer(Hub(mesh), SMALL)
    await server.start()
    peer = await Peer.connect(server, "c")
    peer.send(Subscribe(1, [SubscribeEntry("a")]))
    await peer.ping()
    mesh.complete_subscriptions()
    assert isinstance(await peer.next(), Suback)
    await peer.close()
    await server.stop()


async def test_keep_alive_runs_on_the_loop(server: MqttServer) -> None:
    peer = await Peer.connect(server, "c", keep_alive=1)
    assert await peer.next() == Disconnect(Reason.KEEP_ALIVE_TIMEOUT)
    assert await peer.next() is None
    await peer.close()


async def test_paused_publishers_are_not_read_until_resumed(server: MqttServer) -> None:
    publisher, subscriber = await Peer.connect(server, "p"), await Peer.connect(server, "s")
    await subscriber.subscribe("a")
    publisher.send(Publish("a", b"1"))
    assert await subscriber.next() == Publish("a", b"1")
    server.pause_publishers()
    publisher.send(Publish("a", b"2"))
    await subscriber.ping()
    await subscriber.ping()
    server.resume_publishers()
    assert await subscriber.next() == Publish("a", b"2")
    await publisher.close()
    await subscriber.close()


async def test_a_port_in_use_is_an_os_error(server: MqttServer) -> None:
    with pytest.raises(OSError):
        await MqttServer(Hub()).start(*server.address)


async def test_a_client_that_breaks_off_is_forgotten(server: MqttServer) -> None:
    peer, watcher = await Peer.connect(server, "c"), await Peer.connect(server, "w")
    await peer.subscribe("a")
    connection = server.frontend.sessions["c"].connection
    assert connection is not None
    assert isinstance(connection.port, TcpClient)
    client = connection.port
    assert client.transport is not None
    client.transport.abort()
    assert await peer.next() is None
    await watcher.ping()
    assert set(server.frontend.sessions) == {"w"}
    await peer.close()
    await watcher.close()
