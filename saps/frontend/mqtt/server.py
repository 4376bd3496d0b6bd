"""The asyncio driver of the MQTT frontend: sockets, timers, and one joined write per connection and loop tick."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import asdict
from random import Random
from typing import cast

from saps.frontend.mqtt.auth.connection import AuthorisedConnection, GuardedConnection
from saps.frontend.mqtt.auth.control import AccessControl
from saps.frontend.mqtt.auth.listener import TlsListener
from saps.frontend.mqtt.auth.origin import origin_of
from saps.frontend.mqtt.auth.readers import ReadableSubscriptions
from saps.frontend.mqtt.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.reasons import Reason
from saps.frontend.mqtt.sender import Port
from saps.hub import Hub

logger = logging.getLogger(__name__)


class MqttServer:
    """An MQTT listener for one broker's hub."""

    def __init__(
        self, hub: Hub, limits: Limits | None = None, rng: Random | None = None, access: AccessControl | None = None
    ) -> None:
        """`access`: who may attach and do what; None: everyone, everything."""
        self.hub = hub
        self.limits = limits or Limits()
        self.address: tuple[str, int] = ("", 0)
        """Where it listens, once started."""
        self.tls_addresses: list[tuple[str, int]] = []
        """Where it listens for TLS."""
        self._access = access
        self._guard = access.guard if access is not None else None
        if self._guard is not None and self._guard.access.policy is not None:
            assert not len(hub.index), "the rules are to be known before the first subscription"
            hub.index = ReadableSubscriptions()
        self._tls_listeners: list[TlsListener] = []
        self._rng = rng or Random()
        self._frontend: Frontend | None = None
        self._listener: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._clients: set[_Client] = set()
        self._all_closed: asyncio.Event = asyncio.Event()
        self._receiving = False
        self._accepted = 0

    @property
    def frontend(self) -> Frontend:
        """The protocol machine behind the sockets. Only once started."""
        assert self._frontend is not None, "the server has not been started"
        return self._frontend

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises `OSError` if the address cannot be had."""
        loop = self._loop = asyncio.get_running_loop()
        self.hub.clock = loop.time
        self._frontend = Frontend(self.hub, self.limits, loop.time, self._rng, self._schedule_flush, self._arm_timer)
        self._listener = await loop.create_server(lambda: _Client(self), host, port, backlog=1024)
        self.address = self._listener.sockets[0].getsockname()[:2]

    async def start_tls(self, host: str, port: int = 0) -> None:
        """Listen for TLS, too. Raises `OSError` if the address cannot be had."""
        assert self._access is not None
        assert self._access.context is not None
        listener = TlsListener(lambda: _Client(self), self.limits.connect_timeout)
        await listener.open(host, port, self._access.context)
        self._tls_listeners.append(listener)
        self.tls_addresses.append(listener.address)

    def reload(self) -> asyncio.Task[bool] | None:
        """Have the access files read again; the task says whether they were taken. None if there are none."""
        if self._access is None or self._frontend is None:
            return None
        return self._access.reload(self._frontend, self._renew_tls)

    async def stop(self, reason: Reason = Reason.SERVER_SHUTTING_DOWN) -> None:
        """Close the listener and every connection (MQTT 5 clients learn `reason`), end the sessions.

        Returns when the connections are closed, at the latest after `Limits.linger` seconds.
        """
        if self._frontend is None or self._listener is None:
            return
        if self._access is not None:
            self._access.stop()
        self._listener.close()
        for listener in self._tls_listeners:
            listener.close()
        for connection in list(self._frontend.connections):
            connection.close(reason)
        self.flush()
        if self._clients:
            self._all_closed.clear()
            await self._all_closed.wait()
        for session in list(self._frontend.sessions.values()):
            session.will = None
            self._frontend.end(session)
        await self._listener.wait_closed()
        if self._timer is not None:
            self._timer.cancel()
        if self._access is not None:
            await self._access.close()
        self._listener = None

    def pause_publishers(self) -> None:
        """Stop reading the clients that publish: the links to other brokers are congested."""
        self.frontend.pause_publishers(True)

    def resume_publishers(self) -> None:
        """Read them again."""
        self.frontend.pause_publishers(False)

    def describe(self) -> dict[str, int]:
        """Counts, for status pages and logs."""
        frontend, guard = self.frontend, self._guard
        refused = {} if guard is None else {f"refused_{name}": n for name, n in asdict(guard.counts).items()}
        return {
            **refused,
            "accepted": self._accepted,
            "connections": len(frontend.connections),
            "sessions": len(frontend.sessions),
            "dropped": sum(session.dropped for session in frontend.sessions.values()),
        }

    async def _renew_tls(self, context: ssl.SSLContext) -> None:
        for listener in self._tls_listeners:
            await listener.renew(context)

    # ---- called by the clients' protocols

    def connection_for(self, port: Port, transport: asyncio.BaseTransport) -> Connection:
        """The protocol machine for a client that has just arrived on this transport."""
        peer, guard = transport.get_extra_info("peername"), self._guard
        label = f"{peer[0]}:{peer[1]}" if peer else "?"
        if guard is None or self._access is None:
            return Connection(self.frontend, port, label)
        origin = origin_of(peer, transport.get_extra_info("peercert"), self._access.user_from)
        kind = GuardedConnection if guard.access.policy is None else AuthorisedConnection
        return kind(self.frontend, port, label, guard, origin)

    def connected(self, client: _Client) -> None:
        self._accepted += 1
        self._clients.add(client)

    def disconnected(self, client: _Client) -> None:
        self._clients.discard(client)
        if not self._clients:
            self._all_closed.set()

    def received(self, connection: Connection, data: bytes) -> None:
        """Input of one connection; what it leads to, for any connection, is written before this returns."""
        self._receiving = True
        try:
            connection.receive(data)
        except Exception:  # a fault of ours must not take down the other clients
            logger.exception("MQTT client at %s closed after an internal error", connection.peer)
            connection.close(Reason.IMPLEMENTATION_SPECIFIC_ERROR)
        finally:
            self._receiving = False
            self.flush()

    def flush(self) -> None:
        """Write what the connections have to send."""
        dirty = self.frontend.dirty
        for connection in dirty:
            connection.port.flush()
        dirty.clear()

    def _schedule_flush(self) -> None:
        if not self._receiving:
            assert self._loop is not None
            self._loop.call_soon(self.flush)

    def _arm_timer(self, when: float) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._run_timers)

    def _run_timers(self) -> None:
        assert self._loop is not None
        self._timer = None
        timers = self.frontend.timers
        timers.run(self._loop.time())
        if timers.next is not None:
            self._arm_timer(timers.next)


class _Client(asyncio.Protocol):
    """One client's socket. Implements `saps.frontend.mqtt.sender.Port`."""

    __slots__ = ("_connection", "_server", "_transport", "write")

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._transport = transport
        self.write = transport.write
        transport.set_write_buffer_limits(high=server.limits.write_high_water)
        self._connection = server.connection_for(self, transport)
        server.connected(self)

    def data_received(self, data: bytes) -> None:
        assert self._connection is not None
        if not self._connection.closing:
            self._server.received(self._connection, data)

    def pause_writing(self) -> None:
        assert self._connection is not None
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        assert self._connection is not None
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._connection is not None
        self._connection.lost()
        self._transport = None
        self._server.disconnected(self)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write the connection's output as one piece, and close if that was the last."""
        connection, transport = self._connection, self._transport
        assert connection is not None
        out = connection.out
        if transport is None:
            out.clear()
            return
        if out:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()
        if connection.closing and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(self._server.limits.linger, transport.abort)
