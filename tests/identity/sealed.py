"""Links with an identity, a clock that tests move, and someone in the middle."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from saps.identity.credentials import Credentials, FileSet, contexts, from_files
from saps.identity.live import LinkIdentity
from saps.identity.names import Identity
from tests.identity.authorities import Town
from tests.links.test_links import End


class Clock:
    """The real one, moved ahead by `ahead` seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def identity(town: Town, name: str, *, seconds: float = 3600.0, grace: float = 0.0, clock: Clock) -> LinkIdentity:
    """An identity of cluster c, from files in the town's folder."""
    files = FileSet(str(town.issue(name, "c", seconds)), "", str(town.folder.certificate), str(town.folder.revoked))
    return LinkIdentity(lambda: from_files(files), files.paths, Identity("c", name), grace, clock)


def credentials_of(town: Town, certificate: Path) -> Credentials:
    """What the holder of a certificate's file can use, whatever is in it."""
    return from_files(FileSet(str(certificate), "", str(town.folder.certificate), ""))


@asynccontextmanager
async def sealed(town: Town, *names: str, clock: Clock | None = None, grace: float = 0.0) -> AsyncIterator[list[End]]:
    """Ends that listen, each with an identity; closed at the end."""
    listening = []
    try:
        for name in names:
            end = End(name)
            end.links.side.identity = identity(town, name, grace=grace, clock=clock or Clock())
            listening.append(end)
            await end.listen()
        yield listening
    finally:
        for end in listening:
            await end.links.close()


def stranger_context(own: bytes, authorities: bytes) -> ssl.SSLContext:
    """For connecting with this key and chain (none if empty), believing anybody."""
    context = contexts(own, authorities)[1] if own else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def impostor_context(own: bytes) -> ssl.SSLContext:
    """For accepting with this key and chain, whoever calls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(own)
        file.flush()
        context.load_cert_chain(file.name)
    return context


class Middle:
    """Passes bytes between whoever connects and a target, and keeps what the connecting side sent."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.sent: list[bytes] = []
        self.alter: Callable[[bytes], bytes] = bytes
        """What becomes of bytes that the connecting side sends."""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Middle:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, thither = await asyncio.open_connection(*self.target)
        for source, sink, kept in ((reader, thither, self.sent), (there, writer, None)):
            task = asyncio.create_task(self._pass(source, sink, kept))
            self._tasks.add(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: list[bytes] | None) -> None:
        with suppress(ConnectionError):
            while chunk := await source.read(1 << 16):
                if kept is not None:
                    kept.append(chunk)
                    chunk = self.alter(chunk)
                sink.write(chunk)
        sink.close()
