"""The Web port: who is let in, back-pressure both ways, TLS, silent connections."""

from __future__ import annotations

import asyncio
import base64
import ssl

import pytest
import trustme
from aiohttp import ClientSession, TCPConnector, WSServerHandshakeError

from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from saps.frontend.web.http.origins import origin_allowed
from saps.messages import Message
from saps.routing.batch import Batch
from tests.frontend.mqtt.peers import running
from tests.frontend.mqtt.test_freed import until
from tests.frontend.mqtt.websockets import web_server

TIMEOUT = 30.0


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "broker.example:8080", True),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("http://localhost:8080", "localhost:8080", True),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", False),
        ("http://evil.example", "127.0.0.1:8080", False),
        ("http://evil.example:8080", "evil.example:8080", False),
        ("https://page.example", "127.0.0.1:8080", True),
        ("http://page.example", "127.0.0.1:8080", False),
        ("null", "127.0.0.1:8080", False),
    ],
)
def test_pages_of_other_origins_may_not_attach_unless_named(origin: str | None, host: str, allowed: bool) -> None:
    assert origin_allowed(origin, host, ("https://page.example",)) == allowed
    assert origin_allowed(origin, host, ("*",))


async def test_a_page_of_a_foreign_origin_is_refused_and_a_plain_request_told_what_this_is() -> None:
    async with running() as server, web_server(server) as site, ClientSession() as session:
        host, port = site.addresses[0]
        with pytest.raises(WSServerHandshakeError) as caught:
            await session.ws_connect(f"ws://{host}:{port}/mqtt", protocols=("mqtt",), origin="http://evil.example")
        assert caught.value.status == 403
        async with session.get(f"http://{host}:{port}/mqtt") as response:
            assert response.status == 426
        async with session.get(f"http://{host}:{port}/other") as response:
            assert response.status == 404
        assert not server.frontend.connections


async def test_a_connection_without_a_request_is_closed() -> None:
    async with running() as server, web_server(server, seconds=0.1) as site:
        reader, writer = await asyncio.open_connection(*site.addresses[0])
        writer.write(b"GET /mqtt HTTP/1.1\r\n")
        async with asyncio.timeout(TIMEOUT):
            while await reader.read(100):
                pass
        writer.close()


async def test_over_tls() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with running() as server, web_server(server, context=context) as site:
        host, port = site.addresses[0]
        async with (
            ClientSession(connector=TCPConnector(ssl=trusting)) as session,
            session.ws_connect(f"wss://{host}:{port}/mqtt", protocols=("mqtt",)) as socket,
        ):
            await socket.send_bytes(encode(Connect("c"), V5))
            (connack,) = PacketReader(V5).feed((await socket.receive()).data)
            assert isinstance(connack, Connack)


async def test_a_client_that_does_not_read_is_held_to_the_limits_and_does_not_slow_others() -> None:
    """Its queue fills, it is disconnected; who publishes and who reads notice nothing."""
    limits = Limits(
        write_high_water=1 << 16, maximum_queued=20, maximum_queued_bytes=1 << 20, publisher_wait=0.01, linger=0.2
    )
    async with running(limits) as server, web_server(server) as site, ClientSession() as session:
        host, port = site.addresses[0]
        url = f"ws://{host}:{port}/mqtt"
        async with (
            session.ws_connect(url, protocols=("mqtt",)) as slow,
            session.ws_connect(url, protocols=("mqtt",)) as fast,
        ):
            reader = PacketReader(V5)

            async def packets(count: int) -> list[Packet]:
                found: list[Packet] = []
                while len(found) < count:
                    found += reader.feed((await fast.receive()).data)
                return found

            await slow.send_bytes(encode(Connect("slow"), V5) + encode(Subscribe(1, [SubscribeEntry("a", 1)]), V5))
            await fast.send_bytes(encode(Connect("fast"), V5) + encode(Subscribe(1, [SubscribeEntry("b")]), V5))
            assert [type(packet) for packet in await packets(2)] == [Connack, Suback]
            payload = bytes(100_000)
            async with asyncio.timeout(TIMEOUT):
                for number in range(1, 60_000):
                    await fast.send_bytes(encode(Publish("a", payload, 1, packet_id=number), V5))
                    await fast.send_bytes(encode(Publish("b", b"%d" % number), V5))
                    got = await packets(2)
                    assert Publish("b", b"%d" % number) in got
                    if server.frontend.counts.too_slow:
                        break
                while "slow" in server.frontend.sessions:
                    await fast.send_bytes(b"\xc0\0")
                    await packets(1)
            assert server.frontend.queued.used == 0


async def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    """It was being sent something when the server was told to stop."""
    async with running(Limits(linger=0.2)) as server, web_server(server) as site, ClientSession() as session:
        host, port = site.addresses[0]
        async with session.ws_connect(f"ws://{host}:{port}/mqtt", protocols=("mqtt",)) as deaf:
            await deaf.send_bytes(encode(Connect("deaf"), V5) + encode(Subscribe(1, [SubscribeEntry("a")]), V5))
            async with asyncio.timeout(TIMEOUT):
                while not server.frontend.queued.used:
                    server.hub.publish(Batch.of(Message("a", bytes(1 << 20))))
                    server.frontend.turn.flush()
                    await asyncio.sleep(0)
                await server.stop()


async def test_a_client_that_is_not_read_and_resets_is_known_to_have_gone() -> None:
    limits = Limits(write_high_water=1 << 16)
    async with asyncio.timeout(TIMEOUT), running(limits) as server, web_server(server) as site:
        host, port = site.addresses[0]
        _, deaf = await asyncio.open_connection(host, port, limit=1)
        fields = "Upgrade: websocket|Connection: Upgrade|Sec-WebSocket-Version: 13|Sec-WebSocket-Protocol: mqtt"
        key = base64.b64encode(bytes(16)).decode()
        request = ["GET /mqtt HTTP/1.1", f"Host: {host}", *fields.split("|"), f"Sec-WebSocket-Key: {key}", "", ""]
        deaf.write("\r\n".join(request).encode())
        for packet in (Connect("deaf"), Subscribe(1, [SubscribeEntry("a")])):
            deaf.write(b"\x82" + bytes([0x80 | len(encode(packet, V5))]) + bytes(4) + encode(packet, V5))
        while not server.frontend.queued.used:
            server.hub.publish(Batch.of(Message("a", bytes(1 << 20))))
            server.frontend.turn.flush()
            await asyncio.sleep(0.001)
        deaf.write(b"\x82\x82" + bytes(4) + encode(Pingreq(), V5))
        [connection] = server.frontend.connections
        await until(lambda: not connection.flow.reading)
        deaf.transport.abort()
        await until(lambda: not server.frontend.connections)


async def test_a_client_that_is_not_to_be_read_is_not_and_goes_on_where_it_was() -> None:
    async with running(Limits(message_rate=50)) as server, web_server(server) as site, ClientSession() as session:
        host, port = site.addresses[0]
        async with session.ws_connect(f"ws://{host}:{port}/mqtt", protocols=("mqtt",)) as socket:
            await socket.send_bytes(encode(Connect("c"), V5))
            for number in range(100):
                await socket.send_bytes(encode(Publish("a", b"%d" % number), V5))
            await socket.send_bytes(b"\xc0\0")
            reader, got = PacketReader(V5), list[Packet]()
            async with asyncio.timeout(TIMEOUT):
                while len(got) < 2:
                    got += reader.feed((await socket.receive()).data)
            assert server.hub.published == 100


async def test_at_the_end_of_the_server_a_websocket_client_is_told() -> None:
    async with running() as server, web_server(server) as site, ClientSession() as session:
        host, port = site.addresses[0]
        async with session.ws_connect(f"ws://{host}:{port}/mqtt", protocols=("mqtt",)) as socket:
            await socket.send_bytes(encode(Connect("c"), V5))
            await socket.receive()
            stopping = asyncio.create_task(server.stop())
            assert PacketReader(V5).feed((await socket.receive()).data) == [Disconnect(Reason.SERVER_SHUTTING_DOWN)]
            await socket.receive()
            assert socket.close_code == 1000
            await stopping
