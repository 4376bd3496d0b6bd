"""Accepts TLS links: no byte of a connection reaches the broker before TLS has verified the peer's certificate.

Each connection uses the TLS context in force when it arrives. At most `HANDSHAKES` handshakes run at once, a quarter of
them with one address, so strangers can delay new links but disturb neither existing links nor the broker.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable

logger = logging.getLogger(__name__)

HANDSHAKES = 256
"""Most handshakes at once. Each takes about 50 KiB, so a flood of connections takes at most 12.5 MiB."""
_BACKLOG = 256
_PAUSE = 0.1
"""Seconds to wait before accepting again when the process has run out of file descriptors."""
_QUIET = 5.0
"""Least seconds between two log lines about refused connections."""


class SealedListener:
    """A listening TLS server for links, from `open` to `close`."""

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], context: Callable[[], ssl.SSLContext], timeout: float
    ) -> None:
        """`factory` makes the protocol of a verified connection, `context` returns the TLS context for the next one,
        and `timeout` is the limit of a handshake in seconds."""
        self._factory = factory
        self._context = context
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._accepting: list[asyncio.Task[None]] = []
        self._shaking: set[asyncio.Task[None]] = set()
        self._by_host: Counter[str] = Counter()
        self._refused = 0
        self._spoke = -_QUIET

    async def open(self, host: str, port: int) -> int:
        """Listen at all addresses of a host and return the port. Raises `OSError` if an address is not available."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, where in dict.fromkeys(found):
                made = socket.socket(family, kind, protocol)
                sockets.append(made)
                made.setblocking(False)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind((where[0], port, *where[2:]))
                made.listen(_BACKLOG)
                port = made.getsockname()[1]
        except OSError:
            for made in sockets:
                made.close()
            raise
        self._accepting = [self._loop.create_task(self._accept(made)) for made in sockets]
        return port

    def close(self) -> None:
        """Accept no more connections and abort pending handshakes."""
        for task in (*self._accepting, *self._shaking):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all pending handshakes have ended after `close`."""
        await asyncio.gather(*self._accepting, *self._shaking, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        with listening:
            while True:
                try:
                    made, where = await self._loop.sock_accept(listening)
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                        raise
                    await asyncio.sleep(_PAUSE)
                    continue
                host = str(where[0]) if where else ""
                if len(self._shaking) >= HANDSHAKES or self._by_host[host] >= HANDSHAKES // 4:
                    made.close()
                    self._refuse(host, "too many handshakes at once")
                else:
                    self._by_host[host] += 1
                    task = self._loop.create_task(self._shake(made, host))
                    self._shaking.add(task)
                    task.add_done_callback(self._shaking.discard)

    async def _shake(self, made: socket.socket, host: str) -> None:
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self._factory, made, ssl=self._context(), ssl_handshake_timeout=self._timeout
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._refuse(host, fault_of(error))
        finally:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def _refuse(self, host: str, why: str) -> None:
        """Log a refused connection, at most one line in `_QUIET` seconds: strangers must not fill the disk."""
        self._refused += 1
        if self._loop.time() - self._spoke >= _QUIET:
            self._spoke = self._loop.time()
            more = f" ({self._refused} since the last such line)" if self._refused > 1 else ""
            logger.warning("link from %s refused: %s%s", host, why, more)
            self._refused = 0


def fault_of(error: BaseException) -> str:
    """Return the reason of a failed handshake as a phrase for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {str(error.reason or error).replace('_', ' ').lower()}"
    return str(error) or "the handshake was broken off"
