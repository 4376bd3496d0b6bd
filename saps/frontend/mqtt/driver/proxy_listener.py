"""Listens for load balancers, whose connections begin with a header of the PROXY protocol.

The listener reads the header before a transport takes the socket, so that TLS may follow the header.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

from saps.frontend.mqtt.access.options import ProxyOptions
from saps.frontend.mqtt.access.proxy_header import (
    BEGINNING,
    FIXED,
    MOST_TEXT,
    SIGNATURE,
    Proxied,
    ProxyError,
    binary_header,
    binary_size,
    text_header,
)
from saps.frontend.mqtt.driver.tls_listener import BACKLOG
from saps.routing.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

MOST_BEGINNING = 1024
"""Most connections with an incomplete header or TLS handshake; further connections are cut off."""
PAUSE = 0.5
"""Seconds until the next attempt to accept after an error, as without free file descriptors."""
LINES, LINES_AT_ONCE = 0.2, 10.0
"""Rate (lines a second) and size of the token bucket for log lines about connections that are cut off."""


class ProxyListener:
    """Listens on one address."""

    def __init__(
        self,
        factory: Callable[[Proxied], asyncio.Protocol],
        options: ProxyOptions,
        context: Callable[[], ssl.SSLContext | None],
        timeout: float,
    ) -> None:
        """Make a listener; then call `open`.

        `factory` makes the protocol of a connection from its header. `context` returns the TLS context for the next
        connection. `timeout` is the limit of the header, and of the TLS handshake, in seconds each.
        """
        self._factory = factory
        self._context = context if options.tls else lambda: None
        self._trusted = [ip_network(text) for text in options.trusted]
        self._certificates = options.certificates
        self._timeout = timeout
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines = TokenBucket(LINES, LINES_AT_ONCE)
        self.address: tuple[str, int] = ("", 0)
        """Host and port of the listener, once opened."""

    async def open(self, host: str, port: int) -> None:
        """Listen on an address. Raises `OSError` if the address is not available."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, place in dict.fromkeys(found):
            listening = socket.create_server(place[:2], family=family, backlog=BACKLOG)
            listening.setblocking(False)
            self._sockets.append(listening)
        self.address = self._sockets[0].getsockname()[:2]
        for listening in self._sockets:
            self._do(self._accept(listening))

    def close(self) -> None:
        """Accept no new connections, and cut off those with an incomplete header or handshake."""
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()

    def _do(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, peer = await loop.sock_accept(listening)
            except OSError as error:
                logger.warning("proxy.listen: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            if len(self._tasks) - len(self._sockets) >= MOST_BEGINNING:  # each socket has a task that accepts
                sock.close()
            else:
                sock.setblocking(False)
                self._do(self._begin(sock, str(peer[0])))

    async def _begin(self, sock: socket.socket, balancer: str) -> None:
        """Read the header of one connection, and hand the socket to its protocol."""
        loop = asyncio.get_running_loop()
        handed = False
        try:
            async with asyncio.timeout(self._timeout):
                if not self._trusts(balancer):
                    raise ProxyError("it is not of proxy.trusted")
                said = await _header(sock)
            proxied = said if self._certificates else said._replace(common_name=None)
            context, timeout = self._context(), self._timeout
            handed = True
            await loop.connect_accepted_socket(
                lambda: self._factory(proxied),
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else timeout,
            )
        except ProxyError as error:
            self._warn(balancer, str(error))
        except TimeoutError:
            self._warn(balancer, "no header in time")
        except (OSError, EOFError):
            pass  # the peer has closed, or does not speak TLS
        finally:
            if not handed:
                sock.close()

    def _trusts(self, balancer: str) -> bool:
        address = ip_address(balancer.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trusted)

    def _warn(self, balancer: str, text: str) -> None:
        if self._lines.take(asyncio.get_running_loop().time()):
            logger.warning("connection of load balancer %s closed: %s", balancer, text)


async def _header(sock: socket.socket) -> Proxied:
    """Read the header, and no byte beyond it. Raises `ProxyError`, `EOFError` and `OSError`."""
    start = await _exactly(sock, BEGINNING)
    if start == SIGNATURE:
        start += await _exactly(sock, FIXED - BEGINNING)
        return binary_header(start + await _exactly(sock, binary_size(start) - FIXED))
    if not start.startswith(b"PROXY "):
        raise ProxyError(f"no header of the PROXY protocol: {start!r}")
    while not start.endswith(b"\n") and len(start) < MOST_TEXT:
        start += await _exactly(sock, _line_left(sock, MOST_TEXT - len(start)))
    return text_header(start)


def _line_left(sock: socket.socket, most: int) -> int:
    """Return how many received bytes belong to the line, at least 1. So the caller need not read single bytes."""
    try:
        there = sock.recv(most, socket.MSG_PEEK)
    except BlockingIOError:
        return 1
    end = there.find(b"\n") + 1
    return end or max(1, len(there))


async def _exactly(sock: socket.socket, size: int) -> bytes:
    """Read `size` bytes. Raises `EOFError` if the peer closes before, and `OSError`."""
    loop = asyncio.get_running_loop()
    found = b""
    while len(found) < size:
        data = await loop.sock_recv(sock, size - len(found))
        if not data:
            raise EOFError
        found += data
    return found
