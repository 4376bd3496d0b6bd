"""Connects one MQTT client's socket to its protocol machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from saps.frontend.mqtt.access.proxy_header import Proxied
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.driver.traffic import Bytes, bytes_of, taken

if TYPE_CHECKING:
    from saps.frontend.mqtt.driver.server import MqttServer

PARTING = 1.0
"""Seconds until the broker closes the connection of a redirected client that does not close it itself."""


class TcpClient:
    """One client's socket. (An `asyncio.Protocol`, and a `saps.frontend.mqtt.connection.output.Port`.)"""

    __slots__ = ("_connection", "_parted", "_proxied", "_server", "_turn", "transport")

    def __init__(self, server: MqttServer, proxied: Proxied | None = None) -> None:
        """Make the protocol of a new connection. `proxied` is the header of the client's load balancer, if any."""
        self._server = server
        self._proxied = proxied
        self._turn = server.frontend.turn
        self.transport: asyncio.Transport | None = None
        self._parted = False
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self.transport = transport
        transport.set_write_buffer_limits(high=server.limits.write_high_water)
        self._connection = server.connection_for(self, transport, self._proxied)
        server.connected(self)
        if server.frontend.sessions.leaving:  # accepted just before the listeners closed
            transport.abort()
        elif server.full:
            server.frontend.counts.refused += 1
            transport.abort()

    def traffic(self) -> Bytes:
        return bytes_of(self.transport)

    def data_received(self, data: bytes) -> None:
        assert self._connection is not None
        if not self._connection.closing:
            self._connection.receive(data)
            self._turn.has_read()

    def eof_received(self) -> None:
        """Let the transport close: the client has closed its side."""

    def pause_writing(self) -> None:
        assert self._connection is not None
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        assert self._connection is not None
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._connection is not None
        self._connection.lost()
        self._server.disconnected(self)
        self.transport = None

    def pause_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def taken(self) -> int:
        return taken(self.transport)

    def flush(self) -> None:
        """Write the connection's output at once, and close the transport if the connection is closing."""
        connection, transport = self._connection, self.transport
        assert connection is not None
        if connection.output.out:
            packets = connection.output.take()
            if transport is not None:
                transport.write(packets)
        if transport is None:
            return
        if connection.closing and not transport.is_closing():
            if self._server.frontend.orders.redirect is not None:
                self._part(transport)
                return
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(self._server.limits.linger, transport.abort)

    def _part(self, transport: asyncio.Transport) -> None:
        """Close the connection of a redirected client gracefully.

        The transport still reads the client's input. A close with unread input would reset the connection, and the
        client would lose the redirection.
        """
        if self._parted:
            return
        self._parted = True
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()
        asyncio.get_running_loop().call_later(min(PARTING, self._server.limits.linger), transport.abort)
