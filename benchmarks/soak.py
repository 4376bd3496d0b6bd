"""Clients that come and go for hours, and what it costs in memory: ``python -m benchmarks.soak``.

Two brokers with `storage.file`. Half of the devices have sessions that last. A device stays for a while, at either
broker, publishes with QoS 1 to its district and to another device, and leaves: in order, or without a word. It is away
for as long. Each visit brings a topic that was never used before, and each tenth a client identifier.

Printed is each minute's resident memory; the goal is that none after the first `--settled` minutes has more than 5 %
over the memory then.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import uvloop

from benchmarks import packets
from benchmarks.devices import connected
from benchmarks.peers import Saps
from benchmarks.probes import cpu_seconds, family, resident_bytes
from benchmarks.processes import Place
from benchmarks.progress import interrupt_at_termination, shown
from saps.runtime.process import allow_many_files

DISTRICT = 10
"""Devices of one district."""
PAUSE = 10.0
"""Mean seconds between two publications of a device."""
MINUTE = 60.0
GOAL = 1.05
"""Times the resident memory may grow once it has settled."""
MIB = 1 << 20


class Sample(msgspec.Struct, frozen=True):
    """The state at the end of a minute."""

    minute: int
    connected: int
    visits: int
    """Of all devices so far."""
    refused: int
    """Visits that ended as the broker did not answer as it should."""
    delivered: int
    """Publications that came to devices so far."""
    processor: float
    """Processor seconds of both brokers in this minute."""
    resident: list[int]
    """Resident bytes of each broker."""


class Crowd:
    """The devices, and what has happened to them."""

    def __init__(self, ports: Sequence[int], count: int, stay: float, seed: int) -> None:
        """`stay` is the mean time of a visit in seconds, and that between two."""
        self._ports, self._count, self._stay = ports, count, stay
        self._rng = random.Random(seed)
        self.connected = self.visits = self.refused = self.delivered = 0

    async def run(self) -> None:
        """Come and go until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._live(number))

    def _drawn(self, mean: float) -> float:
        return self._rng.expovariate(1 / mean)

    async def _live(self, number: int) -> None:
        await asyncio.sleep(self._rng.uniform(0, 2 * self._stay))
        while True:
            try:
                await self._visit(number)
            except (OSError, EOFError):
                self.refused += 1
            await asyncio.sleep(self._drawn(self._stay))

    async def _visit(self, number: int) -> None:
        """One visit of a device. Raises `OSError` and `EOFError`."""
        self.visits += 1
        fresh = self.visits % 10 == 0
        name = f"guest-{self.visits}" if fresh else f"device-{number}"
        port, lasting, hello = self._rng.choice(self._ports), number % 2 == 0 and not fresh, f"hello/{self.visits}"
        reader, writer, present = await connected(name, port, lasting, number)
        if not present:
            writer.write(packets.subscribe_all([f"city/{number // DISTRICT}/#", f"commands/{name}"], 1))
        self.connected += 1
        talking = asyncio.create_task(self._talk(number, writer, hello))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._drawn(self._stay)):
                    await self._listen(reader, writer)
        finally:
            self.connected -= 1
            talking.cancel()
            if self._rng.random() < 0.5:
                writer.write(packets.DISCONNECT)
            writer.close()

    async def _talk(self, number: int, writer: asyncio.StreamWriter, hello: str) -> None:
        """Publish to a topic of this visit, then to the district and to some device in turn."""
        payload = bytes(100)
        writer.write(packets.publish(hello, payload, 1, 1))
        packet_id = 1
        while True:
            await asyncio.sleep(self._drawn(PAUSE))
            other = self._rng.randrange(self._count)
            topic = f"city/{number // DISTRICT}/{number}" if packet_id % 2 else f"commands/device-{other}"
            packet_id += 1
            writer.write(packets.publish(topic, payload, 1, packet_id))

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take what comes, and acknowledge it. Raises `OSError` and `EOFError`."""
        while True:
            first, length = await reader.readexactly(2)
            if length & 0x80:
                length += ((await reader.readexactly(1))[0] << 7) - 0x80
            body = await reader.readexactly(length)
            if first >> 4 == 3:
                self.delivered += 1
                if first & 0x06:
                    end = 2 + int.from_bytes(body[:2])
                    writer.write(b"\x40\x02" + body[end : end + 2])


def samples(minutes: int, count: int, stay: float, seed: int) -> Iterator[Sample]:
    """Yield a sample each minute. Raises `StartError` and `OSError`."""
    with Place(None) as place, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        crowd = Crowd(Saps().launch_mesh(place, 2, stored=True), count, stay, seed)
        families = [family([pid]) for pid in place.pids]
        loop, begun, used = runner.get_loop(), time.monotonic(), 0.0
        running = loop.create_task(crowd.run())
        for minute in range(1, minutes + 1):
            runner.run(asyncio.wait([running], timeout=begun + minute * MINUTE - time.monotonic()))
            if running.done():
                running.result()
            before, used = used, sum(map(cpu_seconds, families))
            yield Sample(
                minute, crowd.connected, crowd.visits, crowd.refused, crowd.delivered, used - before,
                [*map(resident_bytes, families)],
            )  # fmt: skip


def growth(found: Sequence[Sample], settled: int) -> float:
    """Return by how many times the resident memory of both brokers has grown at most after the minute `settled`."""
    after = [sum(each.resident) for each in found if each.minute >= settled]
    return max(after) / after[0]


HEADERS = ("minute", "connected", "visits", "refused", "delivered", "processor", "resident")


def cells(sample: Sample) -> tuple[str, ...]:
    """One row."""
    resident = " + ".join(f"{each / MIB:.1f}" for each in sample.resident)
    figures = (sample.minute, sample.connected, sample.visits, sample.refused, sample.delivered)
    return *(f"{each:,}" for each in figures), f"{sample.processor / MINUTE:.0%}", f"{resident} MiB"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 if the memory has grown, or a device was refused."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=240, metavar="N", help="default: %(default)s")
    parser.add_argument("--settled", type=int, default=30, metavar="N", help="default: %(default)s")
    parser.add_argument("--clients", type=int, default=10_000, metavar="N", help="devices (default: %(default)s)")
    parser.add_argument(
        "--stay", type=float, default=100.0, metavar="S", help="mean seconds of a visit and of an absence"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    chosen = parser.parse_args(arguments)
    if chosen.minutes <= chosen.settled:
        parser.error(f"--minutes {chosen.minutes} are not more than --settled {chosen.settled}")
    interrupt_at_termination()
    allow_many_files()
    found = shown(samples(chosen.minutes, chosen.clients, chosen.stay, chosen.seed), HEADERS, cells)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    grown, refused = growth(found, chosen.settled), found[-1].refused if found else 0
    print(f"memory after minute {chosen.settled}: at most {grown:.3f} times that (goal: {GOAL}); {refused} refused")
    return 0 if grown <= GOAL and not refused else 1


if __name__ == "__main__":
    sys.exit(main())
