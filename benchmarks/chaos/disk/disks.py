"""The brokers' disks: one process (`benchmarks.chaos.disk.fuse`) has them fail, be slow and lose power."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

TIMEOUT = 20.0
"""Seconds for an answer of the process."""


def possible() -> bool:
    """This machine mounts them: root, and FUSE."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class Disks:
    """A file system at each folder. Its methods raise `OSError` or `TimeoutError` if the process has ended."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def mount(self) -> None:
        """They are there."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.chaos.disk.fuse", *map(str, self._folders)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if await self._line() != "ready":
            raise OSError("the disks cannot be mounted")

    async def unmount(self) -> None:
        """They are gone, and all that they held."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    async def lose(self, folder: Path, seed: int) -> str:
        """The power fails: what was not synced is gone, or some of it. Its broker has ended. Says how much."""
        return await self._tell(folder, f"lose {seed}")

    async def fail(self, folder: Path) -> None:
        """Writes and syncs end with EIO."""
        await self._tell(folder, "fail")

    async def slow(self, folder: Path, seconds: float) -> None:
        """A sync takes so long."""
        await self._tell(folder, f"slow {seconds}")

    async def mend(self, folder: Path) -> None:
        """All is well again."""
        await self._tell(folder, "mend")

    async def _tell(self, folder: Path, words: str) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        async with self._turn:
            self._process.stdin.write(f"{self._folders.index(folder)} {words}\n".encode())
            return await self._line()

    async def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            return (await self._process.stdout.readline()).decode().strip()
