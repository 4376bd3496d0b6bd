"""What sealing costs a link between two brokers: ``python -m benchmarks.sealed_links``.

Two processes on this machine, with nothing but `saps.links` in them: one sends publications as fast as the other takes
them, plain and by TLS in turn. Beside the messages a second it counts the processor time of both, which other load on
the machine disturbs least. Best of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

from saps.identity.credentials import FileSet, from_files
from saps.identity.folder import Folder
from saps.identity.live import LinkIdentity
from saps.identity.names import Identity
from saps.links import Links
from saps.links.user import Nobody
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.frames.ring import Pong
from saps.overlay.ring.keys import BrokerRef

BATCH = 64
"""Publications that leave in one turn of the event loop."""
HOUR = 3600.0


class Result(NamedTuple):
    """Of one run."""

    rate: float
    """Messages a second."""
    cost: float
    """Microseconds of processor time a message, sender and receiver together."""


class End(Nobody):
    """One side: its links, and the frames that have come."""

    def __init__(self, name: str, folder: Path | None) -> None:
        self.got = 0
        self.last: Frame | None = None
        self.changed = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.links = Links(
            BrokerRef(name, 1, "", "c"),
            "cluster",
            self,
            on_congestion=self._congestion,
        )
        if folder is not None:
            ca = Folder(folder)
            files = FileSet(str(folder / "issued" / f"{name}.pem"), "", str(ca.certificate), str(ca.revoked))
            self.links.side.identity = LinkIdentity(lambda: from_files(files), (), Identity("c", name), 60.0)

    async def listen(self) -> BrokerRef:
        port = await self.links.listen("127.0.0.1", 0)
        self.links.side.me = BrokerRef(self.links.side.me.name, 1, f"127.0.0.1:{port}", "c")
        return self.links.side.me

    def receive(self, sender: BrokerRef, frames: list[Frame]) -> None:
        self.got += len(frames)
        if frames:
            self.last = frames[-1]
        if isinstance(self.last, Pong):
            self.links.send(sender, self.last)
            self.links.flush()
            self.changed.set()

    def _congestion(self, held: bool) -> None:
        (self.go.clear if held else self.go.set)()


async def receive(folder: Path | None) -> None:
    """The other process: says where it listens; ends with a line on standard input."""
    end = End("b", folder)
    print((await end.listen()).address, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await end.links.close()


def _publication(topic: str, number: int, payload: bytes) -> Publish:
    return Publish(1, 0, 0, 0, False, [Part(topic, number - 1)], [0], [number], [payload])


async def send(folder: Path | None, address: str, count: int, size: int) -> float:
    """Send so many publications; the seconds until the other side has told that it has all."""
    end = End("a", folder)
    await end.listen()
    to, payload = BrokerRef("b", 1, address, "c"), bytes(size)
    end.links.send(to, _publication("a/b", 1, payload))
    end.links.flush()
    await asyncio.sleep(0.5)  # connected, and at rest
    started = time.perf_counter()
    for first in range(0, count, BATCH):
        for number in range(first, first + BATCH):
            end.links.send(to, _publication("city/ward/7", 1 + number, payload))
        end.links.flush()
        await asyncio.sleep(0)
        await end.go.wait()
    end.links.send(to, Pong())
    end.links.flush()
    await end.changed.wait()
    took = time.perf_counter() - started
    await end.links.close()
    return took


def run(folder: Path | None, count: int, size: int) -> Result:
    """One run, with a receiver of its own."""
    command = [sys.executable, "-m", "benchmarks.sealed_links", "--receive", *([str(folder)] if folder else [""])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        address = other.stdout.readline().strip()
        idle = _cpu()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            took = runner.run(send(folder, address, count, size))
        spent = _cpu() - idle
        other.communicate("end\n")
    return Result(count / took, spent / count * 1e6)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receive", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=200, help="payload of a run, at most 200,000 messages")
    options = parser.parse_args()
    if options.receive is not None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(receive(Path(options.receive) if options.receive else None))
        return
    with tempfile.TemporaryDirectory() as directory:
        ca, now = Folder(Path(directory)), time.time()
        ca.create("benchmark", now + 24 * HOUR, now)
        for name in "ab":
            ca.issue(Identity("c", name), now + HOUR, now)
        print("| payload | link | messages/s | MB/s | sender, us a message |\n| --- | --- | --- | --- | --- |")
        for size in (64, 1024, 16384):
            count = min(200_000, options.megabytes * 1_000_000 // size) // BATCH * BATCH
            runs: dict[str, list[Result]] = {"plain": [], "TLS 1.3": []}
            for _ in range(options.rounds):
                runs["plain"].append(run(None, count, size))
                runs["TLS 1.3"].append(run(ca.directory, count, size))
            for name, results in runs.items():
                rate, cost = max(r.rate for r in results), min(r.cost for r in results)
                print(f"| {size} B | {name} | {rate:,.0f} | {rate * size / 1e6:,.0f} | {cost:.2f} |")


if __name__ == "__main__":
    main()
