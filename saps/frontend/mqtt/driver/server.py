"""Drives the MQTT frontend with asyncio: listeners, clients, timers, access and storage."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from random import Random
from typing import Literal, cast

from saps.frontend.mqtt.access.guard import Guard
from saps.frontend.mqtt.access.guarded import GuardedAuthorizer
from saps.frontend.mqtt.access.options import ProxyOptions
from saps.frontend.mqtt.access.proxy_header import Proxied
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.connection.held import HeldOutput, reason_of
from saps.frontend.mqtt.connection.output import Port
from saps.frontend.mqtt.driver.access_control import AccessControl, obey, obey_for
from saps.frontend.mqtt.driver.proxy_listener import ProxyListener
from saps.frontend.mqtt.driver.sockets import Client, LoopTimer, Sockets
from saps.frontend.mqtt.driver.tcp_client import TcpClient
from saps.frontend.mqtt.driver.tls_listener import TlsListener
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.migration import SessionMigration
from saps.frontend.mqtt.session.restore import restore
from saps.frontend.mqtt.session.session import Session
from saps.frontend.mqtt.systree import Source, SysTree, Value
from saps.mesh import Sessions
from saps.routing.hub import Hub
from saps.storage.driver.store import Store
from saps.storage.error import StorageFault
from saps.version import __version__

logger = logging.getLogger(__name__)


class MqttServer:
    """Serves MQTT clients of one broker's hub, from `start` to `stop`."""

    def __init__(
        self,
        hub: Hub,
        limits: Limits | None = None,
        rng: Random | None = None,
        access: AccessControl | None = None,
        sys_interval: float = 10.0,
    ) -> None:
        """Make a server that does not listen yet.

        `access` decides logins and rights; None: every client has all rights. `sys_interval` is the interval of the
        ``$SYS`` tree in seconds; 0: no tree.
        """
        self.hub = hub
        self.sources: list[Source] = [self._describe_sockets]
        """Further sources of the ``$SYS`` tree, beside the frontend. Add to them before `start`."""
        self._sys_interval = sys_interval
        self.sockets = Sockets()
        self.store: Store | None = None
        """The store that keeps sessions over restarts; None without one. Set it before `start`."""
        self.sessions: Sessions | None = None
        """Locates the clients' sessions in the mesh for session migration; None without it. Set it before `start`."""
        self.limits = limits or Limits()
        self.address: tuple[str, int] = ("", 0)
        """Host and port of the TCP listener, once started."""
        self.on_renewed: list[Callable[[ssl.SSLContext], Awaitable[None]]] = []
        """Called with the TLS context of a renewed certificate; other listeners then use it for new connections."""
        self._access = access
        hub.routes.restricted = self._guard is not None and self._guard.restricts
        self._listeners: list[TlsListener | ProxyListener] = []
        """The listeners beside the one for plain TCP."""
        self._rng = rng or Random()
        self._frontend: Frontend | None = None
        self._listener: asyncio.Server | None = None
        self._timer: LoopTimer | None = None

    @property
    def frontend(self) -> Frontend:
        """The protocol machine behind the sockets. Raises `RuntimeError` before `start`."""
        if self._frontend is None:
            raise RuntimeError("the server has not been started")
        return self._frontend

    @property
    def _guard(self) -> Guard | None:
        """Decides logins and rights; None if every client has all rights."""
        return self._access.guard if self._access is not None else None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Start the frontend and listen for TCP. Raises `OSError` if the address is not available."""
        loop = asyncio.get_running_loop()
        self.hub.clock = loop.time
        timer = self._timer = LoopTimer(loop, lambda: frontend.timers)
        frontend = self._frontend = Frontend(self.hub, self.limits, loop.time, self._rng, timer.arm)
        frontend.turn.call_soon = loop.call_soon
        if self.sessions is not None:
            frontend.sessions.migration = self.sessions.host = SessionMigration(
                frontend, frontend.sessions, self.sessions, self.admit_session
            )
        if self._sys_interval:
            frontend.status = SysTree(frontend, self._sys_interval, __version__, self.sources)
        if self.store is not None:
            self._restore(self.store)
        if self._access is not None:
            self._access.start()
        self._listener = (
            await loop.create_server(  # set before it listens, so that `stop` closes it even if `start` is cancelled
                lambda: cast(asyncio.Protocol, TcpClient(self)),
                host,
                port,
                backlog=1024,
                start_serving=False,
            )
        )
        self.address = self._listener.sockets[0].getsockname()[:2]
        await self._listener.start_serving()

    async def start_tls(self, host: str, port: int = 0) -> None:
        """Listen for TLS, too. Raises `OSError` as `start` does, and `RuntimeError` without a certificate."""
        context = self.tls_context
        if context is None:
            raise RuntimeError("there is no certificate")
        listener = TlsListener(lambda: cast(asyncio.Protocol, TcpClient(self)), self.limits.connect_timeout)
        self._listeners.append(listener)
        await listener.open(host, port, context)

    async def start_proxy(self, host: str, port: int, options: ProxyOptions) -> None:
        """Listen for load balancers, too. Raises `OSError` as `start` does."""
        listener = ProxyListener(
            lambda proxied: cast(asyncio.Protocol, TcpClient(self, proxied)),
            options,
            lambda: self.tls_context,
            self.limits.connect_timeout,
        )
        self._listeners.append(listener)
        await listener.open(host, port)

    @property
    def tls_addresses(self) -> list[tuple[str, int]]:
        """Host and port of each TLS listener."""
        return [listener.address for listener in self._listeners if isinstance(listener, TlsListener)]

    @property
    def proxy_addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listener for load balancers."""
        return [listener.address for listener in self._listeners if isinstance(listener, ProxyListener)]

    def _restore(self, store: Store) -> None:
        """Restore the stored sessions, and store all sessions from now on."""
        frontend, journal = self.frontend, store.journal
        frontend.storage.journal = journal
        held = HeldOutput(store.commits)

        def pending(changed: bool) -> None:
            frontend.turn.held = held if changed else None

        store.commits.watch(pending)
        store.commits.held.append(held)
        store.on_storage_fault.append(self._set_storage_fault)
        if journal.disk:
            self.sources.append(lambda: {"saps/storage/damaged": store.quarantined})
        restore(frontend, journal, store.saved, store.with_wills)
        if self.sessions is not None:
            self.sessions.restored(frontend.sessions)
        if self._guard is not None:
            obey(self._guard, frontend)

    def _set_storage_fault(self, storage_fault: StorageFault | None) -> None:
        self.frontend.storage.refusal = None if storage_fault is None else reason_of(storage_fault)
        self.frontend.storage.broken = storage_fault is not None and storage_fault.broken

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for new connections; None without a certificate."""
        return self._access.context if self._access is not None else None

    def reload(self) -> asyncio.Task[bool] | None:
        """Start a reload of the access files. Returns its task (`AccessControl.reload`), or None without files."""
        if self._access is None or self._frontend is None:
            return None
        return self._access.reload(self._frontend, self._renew_tls)

    async def stop(self, reason: Reason = Reason.SERVER_SHUTTING_DOWN) -> None:
        """Close the listeners and every connection, then end the sessions. MQTT 5.0 clients get `reason`.

        Returns when the connections are closed, at the latest after `Limits.linger` seconds. If the caller cancels it,
        it aborts the connections.
        """
        if self._listener is None:
            self._stop_timer()
            return
        if self._access is not None:
            self._access.stop()
        self.frontend.sessions.leaving = True
        self._listener.close()
        for listener in self._listeners:
            listener.close()
        for connection in list(self.frontend.connections):
            connection.close(reason)
        self.frontend.turn.flush()
        try:
            await self.sockets.emptied()
        finally:
            await self._end(self._listener)

    async def _end(self, listener: asyncio.Server) -> None:
        """Abort the remaining connections, and end the sessions."""
        self.sockets.cut()
        await self.sockets.emptied()
        self.frontend.sessions.close()
        await listener.wait_closed()
        self._stop_timer()
        if self._access is not None:
            await self._access.close()
        self._listener = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()

    def pause_publishers(self) -> None:
        """Stop reading publishing clients, because the links to other brokers are congested."""
        self.frontend.pause_publishers(True)

    def resume_publishers(self) -> None:
        """Resume reading publishing clients."""
        self.frontend.pause_publishers(False)

    def describe(self) -> dict[str, int]:
        """Return counts of clients, sessions and refusals for status pages and logs."""
        frontend, guard = self.frontend, self._guard
        refused = {} if guard is None else {f"refused_{name}": n for name, n in asdict(guard.counts).items()}
        return {
            **refused,
            "accepted": self.sockets.accepted,
            "connections": len(frontend.connections),
            "sessions": len(frontend.sessions),
            "dropped": sum(session.dropped for session in frontend.sessions.values()),
        }

    def _describe_sockets(self) -> dict[str, Value]:
        """Return the server's part of the ``$SYS`` tree."""
        received, sent = self.sockets.traffic()
        frontend, guard = self.frontend, self._guard
        refused = {} if guard is None else {f"saps/refused/{name}": n for name, n in asdict(guard.counts).items()}
        return {
            "broker/bytes/received": received,
            "broker/bytes/sent": sent,
            "saps/sockets/accepted": self.sockets.accepted,
            "saps/sockets/open": len(self.sockets.clients),
            "saps/clients/refused": frontend.counts.refused,
            "saps/clients/unfinished": frontend.counts.unfinished,
            "saps/sessions/evicted": frontend.counts.evicted,
            "saps/log/left out": frontend.counts.unlogged,
            "saps/unfinished/bytes": frontend.fairness.unfinished.used,
            "saps/clients/too slow": frontend.counts.too_slow,
            "saps/queued/bytes": frontend.queued.used,
            "saps/mesh/messages/received": self.hub.received,
            **refused,
        }

    async def _renew_tls(self, context: ssl.SSLContext) -> None:
        own = [listener.renew for listener in self._listeners if isinstance(listener, TlsListener)]
        for renew in (*own, *self.on_renewed):
            await renew(context)

    def kind_of(self, connection: ClientConnection) -> Literal["mqtt", "mqtts", ""]:
        """Return how a client is connected: "mqtt" over TCP, "mqtts" over TLS, empty otherwise."""
        port = connection.port
        if not isinstance(port, TcpClient) or port.transport is None:
            return ""
        return "mqtts" if port.transport.get_extra_info("ssl_object") is not None else "mqtt"

    def admit_session(self, session: Session) -> None:
        """Give the rights of its user to a session that has migrated here without its client."""
        if self._guard is not None:
            obey_for(self._guard, session)
            self.hub.forget_agent_routes(session)

    # ---- called by the clients' protocols

    def connection_for(
        self, port: Port, transport: asyncio.BaseTransport, proxied: Proxied | None = None
    ) -> Connection:
        """Make the protocol machine of a client that has connected over `transport`.

        `proxied` is the header of the client's load balancer, if any.
        """
        peer, guard = transport.get_extra_info("peername"), self._guard
        if proxied is not None and proxied.host is not None:
            peer = (proxied.host, proxied.port)
        label = f"{peer[0]}:{peer[1]}" if peer else "?"
        if guard is None or self._access is None:
            return Connection(self.frontend, port, label)
        return Connection(
            self.frontend, port, label, GuardedAuthorizer(guard, self._access.origin(transport.get_extra_info, proxied))
        )

    @property
    def full(self) -> bool:
        """Whether there are so many connections that a new one is aborted without an answer."""
        limit = self.limits.maximum_connections
        return len(self.sockets.clients) > limit + limit // 8

    def connected(self, client: Client) -> None:
        """Add a client that has connected."""
        self.sockets.opened(client)

    def disconnected(self, client: Client) -> None:
        """Remove a client whose connection is lost."""
        self.sockets.closed(client)
