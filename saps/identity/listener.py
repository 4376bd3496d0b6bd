"""Accepts sealed connections: nothing of a connection reaches the broker before TLS has verified its certificate.

Each connection takes the context that is in force when it comes. So many handshakes go on at once at most, a quarter of
them with one address: strangers can hold up new links, but neither those that stand nor the broker.
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
"""Handshakes at once at most. More costs memory, about 50 KiB each, while strangers hammer at the door."""
_BACKLOG = 256
_PAUSE = 0.1
"""Seconds to wait when the process has no file descriptors left."""
_QUIET = 5.0
"""Seconds between two log lines about connections that were refused."""


class SealedListener:
    """Listens from `open` to `close`."""

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], context: Callable[[], ssl.SSLContext], timeout: float
    ) -> None:
        """`timeout`: seconds that a handshake may take."""
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
        """Listen at all addresses of a host. Returns the port. Raises OSError if one cannot be had."""
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
        """Take no new connections, and give up those that are not established."""
        for task in (*self._accepting, *self._shaking):
            task.cancel()

    async def wait_closed(self) -> None:
        """Returns when it is."""
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
        """One line, unless there was one just now: whoever knocks may not fill the disk."""
        self._refused += 1
        if self._loop.time() - self._spoke >= _QUIET:
            self._spoke = self._loop.time()
            more = f" ({self._refused} since the last such line)" if self._refused > 1 else ""
            logger.warning("link from %s refused: %s%s", host, why, more)
            self._refused = 0


def fault_of(error: BaseException) -> str:
    """What a failed handshake says, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {str(error.reason or error).replace('_', ' ').lower()}"
    return str(error) or "the handshake was broken off"
