"""MQTT over WebSocket (chapter 6 of both standards), on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.conformance.conforms import mqtt5, mqtt311
from tests.frontend.mqtt.conformance.raw import BOTH, connect, packet, publish, subscribe
from tests.frontend.mqtt.peers import running
from tests.frontend.mqtt.websockets import web_server


@asynccontextmanager
async def attached(limits: Limits | None = None, **options: Any) -> AsyncIterator[tuple[Any, MqttServer]]:
    """A function that opens a WebSocket, and the server."""
    async with running(limits) as server, web_server(server) as site, ClientSession() as session:
        host, port = site.addresses[0]

        def opened(**given: Any) -> Any:
            return session.ws_connect(f"ws://{host}:{port}/mqtt", **{"protocols": ("mqtt",), **options, **given})

        yield opened, server


async def read(socket: ClientWebSocketResponse, size: int) -> bytes:
    """So many bytes, in however many frames they come."""
    data = b""
    while len(data) < size:
        message = await socket.receive()
        assert message.type is WSMsgType.BINARY, message
        data += message.data
    return data


@pytest.mark.parametrize("version", BOTH)
@mqtt5("6.0.0-2", "6.0.0-4", "4.2.0-1")
@mqtt311("6.0.0-2", "6.0.0-4", "7.1.1-1")
async def test_packets_may_span_frames_and_share_them(version: int) -> None:
    async with attached() as (opened, _), opened(protocols=("x", "mqtt")) as socket:
        assert socket.protocol == "mqtt"
        whole = connect(version) + subscribe(version, b"a") + publish(version, b"a", b"x") + b"\xc0\0"
        await socket.send_bytes(whole[:5])
        for byte in whole[5:12]:
            await socket.send_bytes(bytes((byte,)))
        await socket.send_bytes(whole[12:])
        await socket.send_bytes(b"")
        got = b""
        while not got.endswith(b"\xd0\0"):
            got += await read(socket, 1)
        assert packet(0x30, b"\0\1a", b"\0" if version == 5 else b"", b"x") in got


@mqtt5("6.0.0-1")
@mqtt311("6.0.0-1")
async def test_a_text_frame_ends_the_connection() -> None:
    async with attached() as (opened, server), opened() as socket:
        await socket.send_bytes(connect())
        await read(socket, 4)
        await socket.send_str("\xc0\0")
        while (message := await socket.receive()).type is WSMsgType.BINARY:
            pass
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        assert socket.close_code == 1003
        assert not server.frontend.connections


@mqtt5("6.0.0-3")
@mqtt311("6.0.0-3")
@pytest.mark.parametrize("offered", [(), ("mqttv3.1", "x")])
async def test_who_does_not_offer_mqtt_is_refused(offered: tuple[str, ...]) -> None:
    async with attached() as (opened, _):
        with pytest.raises(WSServerHandshakeError) as caught:
            await opened(protocols=offered)
        assert caught.value.status == 400


@mqtt5("3.14.4-2")
async def test_after_disconnect_the_server_closes_the_websocket() -> None:
    async with attached() as (opened, _), opened() as socket:
        await socket.send_bytes(connect() + b"\xe0\0")
        while (message := await socket.receive()).type is WSMsgType.BINARY:
            pass
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        assert socket.close_code == 1000
