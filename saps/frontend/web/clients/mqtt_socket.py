"""MQTT over WebSocket (MQTT 5.0, chapter 6): the same connection machine as over TCP, behind binary frames.

Packets may span frames, and a frame may hold several packets. While the machine pauses reading, frames wait in the
kernel, as with TCP. While the WebSocket is slow, output waits here, up to `Limits.write_high_water` bytes; beyond that
the machine queues and drops messages, as for any slow client.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError
from aiohttp.http import WSCloseCode, WSMsgType

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.driver.traffic import Bytes, taken
from saps.frontend.web.http.origins import Origins

logger = logging.getLogger(__name__)

SUBPROTOCOL = "mqtt"
"""The WebSocket subprotocol of MQTT (MQTT 5.0, 6.0)."""

FRAME_HEADROOM = 1 << 20
"""Bytes by which a WebSocket message may exceed the largest packet, as it may hold several packets."""


class MqttSockets:
    """Handles requests for MQTT WebSockets to one MQTT server."""

    def __init__(self, server: MqttServer, origins: Origins) -> None:
        """`origins`: checks which pages may connect."""
        self._server = server
        self._origins = origins

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one client, from its request to the end of the connection."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        limits = self._server.limits
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            timeout=limits.linger,
            compress=False,  # a client could make us decompress far more than it sends
            max_msg_size=limits.maximum_packet_size + FRAME_HEADROOM,
        )
        await socket.prepare(request)
        if request.transport is not None:
            await _Client(self._server, socket, request.transport).run()
        return socket

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer that refuses a request, or None if the request may become an MQTT connection."""
        offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return web.Response(status=426, headers={"Upgrade": "websocket"}, text="MQTT over WebSocket only\n")
        if SUBPROTOCOL not in offered:
            return web.Response(status=400, text="the WebSocket subprotocol must be mqtt\n")
        if not self._origins.allows(request.headers.get("Origin"), request.host):
            return web.Response(status=403, text="pages of this origin may not attach (web.origins)\n")
        if self._server.full:
            self._server.frontend.counts.refused += 1
            return web.Response(status=503, text="too many connections\n")
        return None


class _Client:
    """One client's WebSocket. Implements `saps.frontend.mqtt.connection.output.Port` and
    `saps.frontend.mqtt.driver.server.Client`."""

    def __init__(self, server: MqttServer, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self._server = server
        self._socket = socket
        self.transport = transport
        self._reading = asyncio.Event()
        self._reading.set()
        self._wake = asyncio.Event()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        """Bytes in `_pending` and in the frame being sent."""
        self._full = False
        self._lingering: asyncio.TimerHandle | None = None
        """Aborts the connection if closing takes too long."""
        self._received = self._sent = 0
        """Bytes of MQTT packets, without WebSocket framing."""
        self._connection = server.connection_for(self, transport)

    def traffic(self) -> Bytes:
        """Return the bytes of MQTT packets from and to the client."""
        return Bytes(self._received, self._sent)

    async def run(self) -> None:
        """Serve the connection until it ends."""
        self._server.connected(self)
        sending = asyncio.create_task(self._send())
        try:
            await self._receive()
        except ClientConnectionResetError:
            pass
        finally:
            self._connection.lost()
            self._wake.set()
            self._server.disconnected(self)
            await sending
            if self._lingering is not None:
                self._lingering.cancel()

    # ---- the port

    def pause_reading(self) -> None:
        """Receive no further frames until `resume_reading`."""
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def taken(self) -> int:
        return taken(self.transport)

    def write(self, data: bytes) -> None:
        """Queue output for the WebSocket; pause the machine above `Limits.write_high_water` bytes."""
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._wake.set()
        if not self._full and self._pending_bytes > self._server.limits.write_high_water:
            self._full = True
            self._connection.pause_writing()

    def flush(self) -> None:
        """Take the machine's output. If the machine closes the connection, allow `Limits.linger` seconds to send it."""
        connection = self._connection
        if connection.output.out:
            self.write(connection.output.take())
        if connection.closing:
            self._reading.set()
            self._wake.set()
            if self._lingering is None:  # the client may never read the rest of the output
                linger = self._server.limits.linger
                self._lingering = asyncio.get_running_loop().call_later(linger, self.transport.abort)

    # ---- the two directions

    async def _receive(self) -> None:
        connection = self._connection
        while not connection.closing:
            await self._reading.wait()
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                self._received += len(message.data)
                if not connection.closing:
                    connection.receive(bytes(message.data))
                    self._server.frontend.turn.has_read()
            elif message.type is WSMsgType.TEXT:
                logger.warning("MQTT client at %s closed: a WebSocket text frame", connection.peer)
                connection.lost()
                await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA)
            else:
                return

    async def _send(self) -> None:
        """Write the pending output as fast as the WebSocket accepts it; close the WebSocket when the machine closes."""
        connection = self._connection
        try:
            while not connection.closing or self._pending:
                if not self._pending:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                data = b"".join(self._pending)
                self._pending.clear()
                await self._socket.send_bytes(data)
                self._pending_bytes -= len(data)
                self._sent += len(data)
                self._drained()
            await self._socket.close()
        except (ClientConnectionResetError, ConnectionError):
            self.transport.abort()
            self._reading.set()  # also a client that is not read has ended

    def _drained(self) -> None:
        if self._full and self._pending_bytes <= self._server.limits.write_high_water // 4:
            self._full = False
            if not self._connection.closing:
                self._connection.resume_writing()
