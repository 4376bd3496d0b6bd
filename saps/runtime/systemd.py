"""Notifies the service manager that has started the program: sd_notify(3) over its socket, without its library.

Without `NOTIFY_SOCKET` it does nothing. The event loop feeds the watchdog, so that a hanging loop is noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

from saps.runtime.process import say

logger = logging.getLogger(__name__)

_attending: set[asyncio.Task[None]] = set()


class ServiceManager:
    """The service manager behind `NOTIFY_SOCKET`."""

    def __init__(self, address: str, interval: float | None) -> None:
        """`address` is the path of its socket; a leading ``@`` means the abstract namespace. `interval`: seconds
        between two signs of life, None without a watchdog."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.interval = interval

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager | None:
        """Return the service manager that these environment variables name, or None."""
        address = environ.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return None
        microseconds, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        watched = microseconds.isdecimal() and process in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 2e6 or None if watched else None)

    def tell(self, *states: str) -> None:
        """Send states such as ``READY=1``. Logs a warning if that fails."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto("\n".join(states).encode(), self._address)
        except OSError as error:
            logger.warning("cannot notify the service manager of %s: %s", states[0], error)

    async def attend(self, stop: asyncio.Event) -> None:
        """Feed the watchdog until the event loop ends, and report the stop."""
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
    """Report that the program serves now: print a line, notify the service manager, and feed its watchdog until the
    program has stopped."""
    say(line)
    manager = ServiceManager.of(os.environ)
    if manager is None:
        return
    manager.tell("READY=1", f"STATUS={line}")
    task = asyncio.get_running_loop().create_task(manager.attend(stop))
    _attending.add(task)
    task.add_done_callback(_attending.discard)


def announce_status(text: str) -> None:
    """Set the status text that the service manager shows."""
    manager = ServiceManager.of(os.environ)
    if manager is not None:
        manager.tell(f"STATUS={text}")
