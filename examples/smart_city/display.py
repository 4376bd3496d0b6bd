"""The process that draws the live screen: glances as JSON lines on standard input, the terminal on standard output.

Drawing takes tens of milliseconds; in the process of the devices it would show as delivery latency. The process
ends, and gives the terminal back, at the end of its input, whatever became of the sender.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console
from rich.live import Live

from examples.smart_city.glance import Glance
from examples.smart_city.screen import Screen


class Display:
    """The sender's side. (An async context manager.) A display that fails or stalls never holds up the run."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        command = (sys.executable, "-m", "examples.smart_city.display")
        self._process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    def show(self, glance: Glance) -> None:
        """Draw this glance; skipped if the previous one has not even been read."""
        assert self._process is not None
        assert self._process.stdin is not None
        transport = self._process.stdin.transport
        if not transport.is_closing() and transport.get_write_buffer_size() == 0:
            self._process.stdin.write(msgspec.json.encode(glance) + b"\n")


def main() -> None:
    """The drawing side: draws until the input ends. Ctrl-C is for the sender, which ends the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    decoder = msgspec.json.Decoder(Glance)
    with Live(console=Console(), screen=True, auto_refresh=False) as live, contextlib.suppress(BrokenPipeError):
        for line in sys.stdin.buffer:
            live.update(Screen(decoder.decode(line)), refresh=True)


if __name__ == "__main__":
    main()
