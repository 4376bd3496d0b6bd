"""All clients come back after a restart, and what a flood leaves behind: ``python -m benchmarks.returning``.

*Restart*: one of two brokers has clients of 10 filters each from 250 addresses, is killed, and starts again; all of
them connect at once. With `storage.file` their sessions are there; without they subscribe anew. Measured is the time
from the first CONNECT to the last CONNACK or SUBACK, and the brokers' processor time. *Flood*: strangers send
unfinished CONNECTs and anonymous clients subscribe to thousands of filters that begin with a wildcard, then all go;
measured is the broker's resident memory before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks import packets
from benchmarks.devices import connected
from benchmarks.peers import Saps
from benchmarks.probes import cpu_seconds, family, resident_bytes
from benchmarks.processes import Place, free_port
from saps.runtime.process import allow_many_files

FILTERS = 10
"""Of each client."""
AT_ONCE = 1000
"""Clients that are about to connect at the same time."""
GOAL, GROWTH = 15.0, 1.2
"""Seconds in which 10,000 clients are back, and times the resident memory may be after a flood."""
START = 120.0
"""Seconds a broker may take to be ready again: the mesh has to bury its former life."""
STRANGERS, UNFINISHED = 400, 1_000_000
"""Connections with an unfinished CONNECT, and the size that it says it has."""
WILDCARDS = 8192
"""Filters of one flooding client."""
FLOODERS = 3
SETTLED = 12.0
"""Seconds after a flood until it is measured: `limits.connect_timeout` and more."""


class Device:
    """A client with its filters."""

    def __init__(self, number: int, port: int, *, lasting: bool) -> None:
        self._number, self._port, self._lasting = number, port, lasting
        self._writer: asyncio.StreamWriter | None = None

    async def come(self) -> bool:
        """Connect, and subscribe unless the session is there. Says whether it was. Raises `OSError`."""
        name = f"back-{self._number:05}"
        reader, self._writer, present = await connected(name, self._port, self._lasting, self._number)
        if not present:
            entries = (f"site/{self._number}/{each}" for each in range(FILTERS))
            self._writer.write(packets.subscribe_all(entries, 1))
            suback = await reader.readexactly(4 + FILTERS)
            if 0x80 in suback[4:]:
                raise ConnectionRefusedError(f"client {self._number}: {suback.hex()}")
        return present

    def go(self) -> None:
        """Without a word."""
        if self._writer is not None:
            self._writer.close()


async def all_come(devices: Sequence[Device]) -> int:
    """All of them, as fast as they can. Gives how many had their session. Raises `OSError`."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(device: Device) -> bool:
        async with turn:
            return await device.come()

    return sum(await asyncio.gather(*(one(device) for device in devices)))


class Brokers(Saps):
    """Two of a mesh; the first one is killed and starts again."""

    def __init__(self, stack: ExitStack, storage: Path | None) -> None:
        super().__init__()
        self._stack, self._storage = stack, storage
        self.port, self._overlay, self._other = free_port(), free_port(), free_port()
        second = stack.enter_context(Place(None))
        self._start(second, "other", free_port(), self._other, None)
        self.pids = second.pids
        self._place: Place | None = None

    def start(self) -> None:
        """The first one, again after its last life was killed. Raises `StartError`."""
        if self._place is not None:
            self._place.kill()
        self._place = self._stack.enter_context(Place(None))
        argv = [*self._command(), "broker", "--name", "first", "--cluster", "bench"]
        argv += ["--mqtt", f"127.0.0.1:{self.port}", "--overlay", f"127.0.0.1:{self._overlay}"]
        argv += ["--join", f"127.0.0.1:{self._other}"]
        argv += [] if self._storage is None else ["--set", f"storage.file={self._storage / 'first.db'}"]
        log = self._place.start(argv)
        self._place.wait_until(lambda: "ready name=" in log.read_text(), START)

    @property
    def seconds(self) -> float:
        """Processor time of both, with their children."""
        assert self._place is not None
        return cpu_seconds(family(self.pids + self._place.pids))


class Return(NamedTuple):
    """How it went."""

    sessions: int
    """Clients that had their session again."""
    ready: float
    """Seconds from the end of the broker until it was ready again."""
    back: float
    """Seconds from then until all clients were."""
    used: float
    """Processor seconds of the brokers meanwhile."""


def restarted(clients: int, *, stored: bool) -> Return:
    """Raises `StartError` or `OSError`."""
    with ExitStack() as stack:
        folder = stack.enter_context(Place(None)).folder
        brokers = Brokers(stack, folder if stored else None)
        brokers.start()
        first = [Device(number, brokers.port, lasting=stored) for number in range(clients)]

        async def measure() -> Return:
            await all_come(first)
            ended = time.monotonic()
            await asyncio.to_thread(brokers.start)
            for device in first:
                device.go()
            begun, used = time.monotonic(), brokers.seconds
            again = [Device(number, brokers.port, lasting=stored) for number in range(clients)]
            found = await all_come(again)
            seconds, used = time.monotonic() - begun, brokers.seconds - used
            for device in again:
                device.go()
            return Return(found, begun - ended, seconds, used)

        return uvloop.run(measure())


def flooded() -> tuple[int, int]:
    """The resident bytes of a broker before a flood, and after it. Raises `StartError` or `OSError`."""
    with Place(None) as place:
        port = Saps().launch(place, "throughput").publish_port
        uvloop.run(_warm(port))
        before = resident_bytes(family(place.pids))
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(STRANGERS)]
        for stranger in strangers:
            stranger.settimeout(5)
            try:
                stranger.sendall(b"\x10" + packets.remaining_length(UNFINISHED) + bytes(UNFINISHED // 2))
            except OSError:  # refused as soon as its size was known
                continue
        uvloop.run(_subscribe(port))
        for stranger in strangers:
            stranger.close()
        time.sleep(SETTLED)
        return before, resident_bytes(family(place.pids))


async def _warm(port: int) -> None:
    """So many clients that what a broker needs once is there."""
    devices = [Device(number, port, lasting=False) for number in range(1000)]
    await all_come(devices)
    for device in devices:
        device.go()


async def _subscribe(port: int) -> None:
    """Clients with thousands of filters that begin with a wildcard."""

    async def one(number: int) -> None:
        reader, writer, _ = await connected(f"flood-{number}", port)
        names = (f"+/{number}/{each}".encode() for each in range(WILDCARDS))
        body = b"\0\1" + b"".join(len(name).to_bytes(2) + name + b"\1" for name in names)
        writer.write(b"\x82" + packets.remaining_length(len(body)) + body)
        head = len(packets.remaining_length(2 + WILDCARDS))
        await reader.readexactly(1 + head + 2 + WILDCARDS)
        writer.close()

    await asyncio.gather(*(one(number) for number in range(FLOODERS)))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.returning", description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000, metavar="N", help="default: %(default)s")
    clients = parser.parse_args(arguments).clients
    allow_many_files()
    good = True
    for stored in (True, False):
        found = restarted(clients, stored=stored)
        good = good and found.back <= GOAL
        print(
            f"restart, sessions {'stored' if stored else 'gone'}: {clients:,} clients with {FILTERS} filters are back"
            f" {found.back:.1f} s after the broker was ready (goal: {GOAL:.0f}), {found.sessions:,} with their session;"
            f" {found.used:.1f} s of the processor; ready after {found.ready:.1f} s",
            flush=True,
        )
    before, after = flooded()
    print(f"flood: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} after: {after / before:.2f} times ({GROWTH})")
    return 0 if good and after <= GROWTH * before else 1


if __name__ == "__main__":
    sys.exit(main())
