"""Connections without sockets, on an event loop of which nothing is left when an input has been tried."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any

from saps.runtime.logs import is_our_affair

TURNS = 12
"""Turns of the loop after which what a piece of input sets off is over, unless it waits for something."""


class _Socket:
    """What a protocol wants of a transport's socket."""

    def setsockopt(self, *_: int) -> None:
        pass


class Pipe(asyncio.Transport):
    """One end of a connection: what the protocol writes is kept, what the other end says is fed by hand."""

    def __init__(self, protocol: asyncio.Protocol, *, socket: bool = False) -> None:
        """`socket`: the protocol sets socket options."""
        extra = {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}
        super().__init__(extra | ({"socket": _Socket()} if socket else {}))
        self._protocol: Any = protocol
        self.written = bytearray()
        self.closed = False
        self._waiting: deque[bytes] = deque()
        self._paused = False
        protocol.connection_made(self)

    def feed(self, data: bytes) -> None:
        """The other end has sent this."""
        self._waiting.append(data)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and not self._paused and not self.closed:
            self._protocol.data_received(self._waiting.popleft())

    def taken(self) -> bytes:
        """What has been written since the last time."""
        taken = bytes(self.written)
        self.written.clear()
        return taken

    # ---- the protocol's side

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        if not self.closed:
            self.written += data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        asyncio.get_running_loop().call_soon(self._pass_on)

    def is_reading(self) -> bool:
        return not self._paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        found: asyncio.BaseProtocol = self._protocol
        return found

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


class _Faults(logging.Handler):
    """Exceptions that somebody has logged for want of a better idea."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_our_affair(record):
            self.found.append(error)


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run a scene on a loop of its own, and end what it has left. Raises what it raises, and what was only logged."""
    faults, root = _Faults(), logging.getLogger()
    loop = asyncio.new_event_loop()
    root.addHandler(faults)
    try:
        try:
            loop.run_until_complete(scene)
        except AssertionError as noticed:
            raise (faults.found or [noticed])[0] from noticed
        loop.run_until_complete(_end_all())
    finally:
        loop.close()
        root.removeHandler(faults)
    for error in faults.found:
        raise error


async def _end_all() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def settle(turns: int = TURNS) -> None:
    """Let what can go on go on."""
    for _ in range(turns):
        await asyncio.sleep(0)
