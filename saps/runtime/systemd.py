"""What a program tells the service manager that has started it: sd_notify(3), by its socket, without its library.

Without `NOTIFY_SOCKET` nothing is told. The watchdog is fed from the event loop, so that a loop that hangs is noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

logger = logging.getLogger(__name__)

_attending: set[asyncio.Task[None]] = set()


class ServiceManager:
    """Whoever has started this process with `NOTIFY_SOCKET`."""

    def __init__(self, address: str, interval: float | None) -> None:
        """`address`: of its socket; ``@`` begins one in the abstract namespace. `interval`: seconds from feed to feed,
        None without a watchdog."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.interval = interval

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager | None:
        """The one that these variables name."""
        address = environ.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return None
        microseconds, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        watched = microseconds.isdecimal() and process in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 2e6 or None if watched else None)

    def tell(self, *states: str) -> None:
        """Tell it: ``READY=1``. That it does not listen is no fault of ours: it is logged."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto("\n".join(states).encode(), self._address)
        except OSError as error:
            logger.warning("cannot notify the service manager of %s: %s", states[0], error)

    async def attend(self, stop: asyncio.Event) -> None:
        """Feed the watchdog to the end of the event loop, and tell of the stop."""
        told = False
        while True:
            if self.interval is not None:
                self.tell("WATCHDOG=1")
            if stop.is_set() and not told:
                told = True
                self.tell("STOPPING=1")
            if told and self.interval is None:
                return
            try:
                async with asyncio.timeout(self.interval):
                    await (asyncio.Event() if told else stop).wait()
            except TimeoutError:
                pass


def announce(line: str, stop: asyncio.Event) -> None:
    """The program serves from now on, until `stop`: a line on standard output, and the service manager is told."""
    print(line, flush=True)
    manager = ServiceManager.of(os.environ)
    if manager is None:
        return
    manager.tell("READY=1", f"STATUS={line}")
    task = asyncio.get_running_loop().create_task(manager.attend(stop))
    _attending.add(task)
    task.add_done_callback(_attending.discard)


def announce_status(text: str) -> None:
    """What the program does now, for the service manager to show."""
    manager = ServiceManager.of(os.environ)
    if manager is not None:
        manager.tell(f"STATUS={text}")
