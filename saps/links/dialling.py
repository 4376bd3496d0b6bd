"""Dials other brokers: limits the number of attempts at once, and waits after failures."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Protocol, cast

from saps.links.marking import mark
from saps.links.questions import HANDSHAKE
from saps.links.side import Side
from saps.overlay.ring.keys import BrokerRef

logger = logging.getLogger(__package__)

DIALS = 256
"""Most connection attempts at once. More cost file descriptors while many brokers are unreachable."""
UNMADE = 8192
"""Most links waiting for a connection; further ones fail at once. Each takes about 4 KiB and its queued frames. A
broker never needs to start as many at once."""
BACKOFF = (0.05, 1.0)
"""Least and greatest wait in seconds before an unreachable peer is tried again; the wait doubles each time."""


class Unmade(Protocol):
    """A link that needs a connection: an `asyncio.Protocol` (`saps.links.outbound.Outbound`)."""

    to: BrokerRef
    express: bool
    over: bool

    @property
    def idle(self) -> bool:
        """Whether nothing is queued."""

    def drop(self) -> None:
        """Drop what is queued: it cannot be sent."""

    def forget(self) -> None:
        """Remove the link: nothing is queued, and the peer does not answer."""


class Dialling:
    """All links of a broker that are not up yet."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(DIALS)
        self._unmade: set[Unmade] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        """Pending connection attempts."""

    @property
    def full(self) -> bool:
        """Whether no further link may be started."""
        return len(self._unmade) >= UNMADE

    def begun(self, link: Unmade) -> None:
        self._unmade.add(link)

    def ended(self, link: Unmade) -> None:
        """Take note that a link is up, or has ended."""
        self._unmade.discard(link)

    def attempt(self, dialler: Dialler) -> asyncio.Task[None]:
        """Run a dialler as a task that `settled` waits for."""
        task = asyncio.get_running_loop().create_task(dialler.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settled(self) -> None:
        """Wait until no attempt is pending."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Dialler:
    """Connects one link, and tries until it succeeds."""

    def __init__(self, link: Unmade, side: Side, dialling: Dialling) -> None:
        self._link = link
        self._side = side
        self._slots = dialling.slots
        self._wait = BACKOFF[0]
        self._accused = False
        self._task = dialling.attempt(self)

    def stop(self) -> None:
        """Stop trying."""
        self._task.cancel()

    async def run(self) -> None:
        """Try until the link has a connection, has ended, or has nothing more to send."""
        link = self._link
        host, _, port = link.to.address.rpartition(":")
        while not link.over:
            try:
                async with self._slots, asyncio.timeout(HANDSHAKE):
                    await self._connect(host.strip("[]"), int(port))
            except (OSError, TimeoutError, ValueError, OverflowError) as error:  # the last two: it is no address
                if isinstance(error, ssl.SSLError):
                    self.accuse(error)
                link.drop()
                await asyncio.sleep(self._wait)
                self._wait = min(2 * self._wait, BACKOFF[1])
                if link.idle:
                    # Nothing was sent meanwhile: the next frame starts anew.
                    link.forget()
                    return
            else:
                return

    async def _connect(self, host: str, port: int) -> None:
        link, loop = self._link, asyncio.get_running_loop()
        protocol = cast(asyncio.Protocol, link)
        if not link.express:
            await loop.create_connection(lambda: protocol, host, port, **self._side.sealing())
            return
        family, kind, number, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        made = socket.socket(family, kind, number)
        try:
            made.setblocking(False)
            mark(made, self._side.dscp)
            await loop.sock_connect(made, address)
            await loop.create_connection(lambda: protocol, sock=made, **self._side.sealing())
        except BaseException:
            made.close()
            raise

    def accuse(self, error: ssl.SSLError) -> None:
        """Log why TLS failed, once for all attempts."""
        if not self._accused:
            to = self._link.to
            logger.warning("no link to %s at %s: TLS: %s", to.name, to.address, error.reason or error)
        self._accused = True
