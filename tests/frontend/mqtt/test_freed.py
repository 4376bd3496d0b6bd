"""A connection that is over is freed at once, by reference counts: there may be no search for circles for hours."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientSession

from saps.frontend.mqtt.access.options import AuthOptions, TlsOptions
from saps.frontend.mqtt.codec.packets import V5, Disconnect, Publish
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.session.session import Session
from saps.frontend.mqtt.timers import FEW
from saps.frontend.web.clients.mqtt_socket import MqttSockets
from saps.frontend.web.http.application import WebServer
from saps.routing.hub import Hub
from tests.frontend.mqtt.bench import Bench, Client, a_will, puback, pubcomp, pubrec, pubrel
from tests.frontend.mqtt.conformance.raw import connect, publish, subscribe
from tests.routing.meshes import DelayingMesh

KEPT = {"clean_start": False, "properties": {Property.SESSION_EXPIRY: 0xFFFFFFFF}}
ENDED = {"properties": {Property.RECEIVE_MAXIMUM: 10}}


@pytest.fixture(autouse=True)
def no_search_for_circles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def lose(client: Client) -> None:
    client.lose()


def disconnect(client: Client) -> None:
    client.send(Disconnect())
    client.lose()


def break_protocol(client: Client) -> None:
    client.send_bytes(b"\0\0")
    client.lose()


def use(bench: Bench, client: Client, other: Client) -> None:
    """All kinds of packets, in both directions; some remain without answer."""
    client.subscribe("a", "$share/g/b", "c/#", qos=2)
    for qos in (0, 1, 2):
        client.publish("a", b"x", qos=qos, packet_id=qos + 1)
        other.publish("a", b"x", qos=qos, packet_id=qos + 1, retain=True)
        other.publish("b", b"x", qos=qos, packet_id=qos + 11)
    client.send(pubrel(3))
    came = [packet for packet in client.take() if isinstance(packet, Publish) and packet.packet_id is not None]
    for packet in came[:4]:
        assert packet.packet_id is not None
        if packet.qos == 1:
            client.send(puback(packet.packet_id))
        else:
            client.send(pubrec(packet.packet_id), pubcomp(packet.packet_id))
    bench.advance(1)
    client.connection.pause_writing()
    other.publish("a", bytes(100))
    client.connection.resume_writing()
    bench.flush()


@pytest.mark.parametrize("end", [lose, disconnect, break_protocol])
@pytest.mark.parametrize("fields", [KEPT, ENDED])
@pytest.mark.one_broker("it looks into it")
def test_nothing_refers_to_a_connection_that_is_over(end: Callable[[Client], None], fields: dict[str, Any]) -> None:
    bench = Bench()
    other = bench.client("other")
    client = bench.client("c", keep_alive=0xFFFF, will=a_will(), **fields)
    use(bench, client, other)
    connection: weakref.ref[Connection] = weakref.ref(client.connection)
    session: weakref.ref[Session] = weakref.ref(bench.frontend.sessions["c"])
    end(client)
    del client
    assert connection() is None, gc.get_referrers(connection())
    assert (session() is None) == (fields is ENDED)


@pytest.mark.one_broker("it looks into it")
def test_what_the_mesh_confirms_after_the_end_holds_the_connection_no_longer_than_that() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    client = bench.client("c")
    for qos in (1, 2):
        client.publish("a", b"x", qos=qos, packet_id=qos)
    connection = weakref.ref(client.connection)
    client.lose()
    del client
    assert connection() is None
    mesh.complete_publications()
    assert not bench.connections


@pytest.mark.one_broker("it looks into it")
def test_timers_of_connections_and_sessions_that_are_over_are_dropped() -> None:
    bench = Bench()
    for number in range(1000):
        bench.client(f"c{number}", keep_alive=0xFFFF).lose()
        bench.client("returns", keep_alive=0xFFFF, will=a_will(), **KEPT).lose()
    assert len(bench.frontend.timers._heap) <= 2 * FEW + 2


@asynccontextmanager
async def over_tcp(server: MqttServer) -> AsyncIterator[Callable[[bytes], Any]]:
    _, writer = await asyncio.open_connection(*server.address)
    yield writer.write
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def over_tls(server: MqttServer) -> AsyncIterator[Callable[[bytes], Any]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(*server.tls_addresses[0], ssl=context)
    yield writer.write
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def over_websocket(server: MqttServer) -> AsyncIterator[Callable[[bytes], Any]]:
    web = WebServer(10)
    web.add("/mqtt", MqttSockets(server, web.origins).handle)
    await web.listen("127.0.0.1", 0, None)
    host, port = web.addresses[0]
    async with ClientSession() as session:
        async with session.ws_connect(f"ws://{host}:{port}/mqtt", protocols=("mqtt",)) as socket:
            yield lambda data: asyncio.ensure_future(socket.send_bytes(data))
        await web.close()


@pytest.mark.parametrize("over", [over_tcp, over_tls, over_websocket])
@pytest.mark.parametrize("expiry", [0, 600])
@pytest.mark.one_broker("it looks into it")
async def test_a_connection_is_freed_whatever_carries_it(
    over: Callable[[MqttServer], Any], expiry: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = MqttServer(Hub(), access=AccessControl(AuthOptions(), certificate(tmp_path), exposed=False))
    await server.start("127.0.0.1", 0)
    await server.start_tls("127.0.0.1", 0)
    try:
        async with over(server) as send:
            send(connect(V5, properties=b"\5\x11" + expiry.to_bytes(4), keep_alive=0xFFFF))
            send(subscribe(V5, b"a", 1) + publish(V5, b"a", b"x", 2) + publish(V5, b"a", b"x", 4, packet_id=2))
            await until(lambda: any(session.window.inflight for session in server.frontend.sessions.values()))
            (connection,) = [weakref.ref(each) for each in server.frontend.connections]
            (session,) = [weakref.ref(each) for each in server.frontend.sessions.values()]
        await until(lambda: connection() is None)
        assert (session() is None) == (expiry == 0)
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
    finally:
        await server.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def certificate(folder: Path) -> TlsOptions:
    pem = folder / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    return TlsOptions(certificate=str(pem))
