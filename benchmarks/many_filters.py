"""Clients subscribe to very many filters at once, beside a pair that talks: ``python -m benchmarks.many_filters``.

A mesh of brokers on loopback, the clients at the brokers in turn, each with its filters in SUBSCRIBE packets of up to
10,000 (load `mixed`: with and without wildcards). Measured is the time to each SUBACK, and meanwhile the latency of a
witness: 100 publications a second with QoS 0, from a client of the second broker to one of the last. `calm` is the same
witness before that.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import uvloop

from benchmarks import packets
from benchmarks.devices import connected
from benchmarks.peers import Saps
from benchmarks.probes import cpu_seconds, family, resident_bytes
from benchmarks.processes import Place
from benchmarks.progress import shown
from benchmarks.registrations import filters_of
from benchmarks.section import PAGE, update_page

ROWS = ("5:1:10000", "10:100:1000000")
TOGETHER = 10_000
"""Most filters in one SUBSCRIBE."""
RATE = 100.0
"""Publications of the witness a second."""
CALM = 5.0
"""Seconds for which the witness is measured before, and the mesh rests after."""
WITNESS = "witness/topic"
LONG = 600.0
"""Limit in seconds for a SUBACK."""


class Point(msgspec.Struct, frozen=True):
    """One number of brokers, clients and filters."""

    brokers: int
    clients: int
    filters: int
    """Of all clients together."""
    suback: float
    """Seconds until the last SUBACK."""
    processor: float
    """Processor seconds of all brokers for a filter."""
    memory: float
    """Resident bytes for a filter, at all brokers together."""
    calm: list[float]
    """Latencies of the witness before, in seconds: median, 99 %, longest."""
    busy: list[float]
    """The same while the clients subscribe."""
    lost: int
    """Publications of the witness that did not arrive."""


class Witness:
    """Two clients, the one of which publishes the time at a fixed rate to the other."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self.latencies: list[float] = []

    async def start(self, publish_port: int, subscribe_port: int) -> None:
        """Connect both, and begin. Raises `OSError`."""
        self._reader, self._listening, _ = await connected("witness-to", subscribe_port)
        self._listening.write(packets.subscribe(WITNESS, 0))
        await self._reader.readexactly(packets.SUBACK_BYTES)
        _, self._writer, _ = await connected("witness-from", publish_port)
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._listen())]

    def taken(self) -> list[float]:
        """Return median, 99 % and the longest of the latencies so far, and begin anew."""
        ordered, self.latencies = sorted(self.latencies), []
        return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99, 1.0)]

    async def stop(self) -> int:
        """End both. Return how many publications have not arrived within a second."""
        publishing, listening = self._tasks
        await _ended(publishing)
        await asyncio.sleep(1.0)
        await _ended(listening)
        self._writer.close()
        self._listening.close()
        return self.sent - self.received

    async def _publish(self) -> None:
        due = time.perf_counter()
        while True:
            due += 1 / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.sent += 1
            self._writer.write(packets.publish(WITNESS, time.perf_counter_ns().to_bytes(packets.STAMP_BYTES), 0, 0))

    async def _listen(self) -> None:
        size = len(packets.publish(WITNESS, bytes(packets.STAMP_BYTES), 0, 0))
        while True:
            packet = await self._reader.readexactly(size)
            sent = int.from_bytes(packet[-packets.STAMP_BYTES :])
            self.received += 1
            self.latencies.append((time.perf_counter_ns() - sent) / 1e9)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def subscribed(number: int, port: int, filters: Sequence[str]) -> tuple[float, asyncio.StreamWriter]:
    """One client with these filters. Return when its last SUBACK came, and its connection. Raises `OSError`."""
    reader, writer, _ = await connected(f"many-{number}", port)
    for begin in range(0, len(filters), TOGETHER):
        part = filters[begin : begin + TOGETHER]
        writer.write(packets.subscribe_all(part, 0))
        head = 1 + len(packets.remaining_length(2 + len(part)))
        suback = await asyncio.wait_for(reader.readexactly(head + 2 + len(part)), LONG)
        if 0x80 in suback[head + 2 :]:
            raise ConnectionRefusedError(f"client {number}: a subscription was refused")
    return time.perf_counter(), writer


async def _measured(ports: Sequence[int], pids: list[int], clients: int, filters: Sequence[str]) -> Point:
    witness = Witness()
    await witness.start(ports[1 % len(ports)], ports[-1])
    await asyncio.sleep(1.0)
    witness.taken()
    await asyncio.sleep(CALM)
    calm, before, spent = witness.taken(), resident_bytes(pids), cpu_seconds(pids)
    share, begun = len(filters) // clients, time.perf_counter()
    done = await asyncio.gather(
        *(
            subscribed(number, ports[number % len(ports)], filters[number * share : (number + 1) * share])
            for number in range(clients)
        )
    )
    ends = [at - begun for at, _ in done]
    busy, processor = witness.taken(), (cpu_seconds(pids) - spent) / len(filters)
    await asyncio.sleep(CALM)
    memory = (resident_bytes(pids) - before) / len(filters)
    lost = await witness.stop()
    for _, writer in done:
        writer.close()
    return Point(len(ports), clients, len(filters), max(ends), processor, memory, calm, busy, lost)


def measured(brokers: int, clients: int, filters: int) -> Point:
    """One mesh. Raises `OSError` and `StartError`."""
    with Place(None) as place:
        ports = Saps().launch_mesh(place, brokers, ["limits.subscribe_rate=0"] if clients > 1 else [])
        return uvloop.run(_measured(ports, family(place.pids), clients, filters_of(filters)))


HEADERS = ("brokers", "clients", "filters", "SUBACK", "a second", "each", "each", "before", "meanwhile", "lost")


def _times(latencies: Sequence[float]) -> str:
    return "/".join(f"{each * 1000:.1f}" for each in latencies) + " ms"


def cells(point: Point) -> tuple[str, ...]:
    """One row."""
    return (
        f"{point.brokers}",
        f"{point.clients:,}",
        f"{point.filters:,}",
        f"{point.suback:.1f} s",
        f"{point.filters / point.suback:,.0f}",
        f"{point.processor * 1e6:,.0f} µs",
        f"{point.memory / 1000:.1f} kB",
        _times(point.calm),
        _times(point.busy),
        f"{point.lost}",
    )


def markdown(points: Sequence[Point], command: str) -> str:
    """The section of docs/performance.md."""
    return "\n".join(
        [
            f"`{command}`, {os.cpu_count()} processors: to the last SUBACK;",
            "processor time and memory of a filter; latency of another pair meanwhile (median/99 %/longest).",
            "",
            "| " + " | ".join(HEADERS) + " |",
            "|" + "---:|" * len(HEADERS),
            *("| " + " | ".join(cells(point)) + " |" for point in points),
        ]
    )


def _row(text: str) -> tuple[int, int, int]:
    brokers, clients, filters = map(int, text.split(":"))
    if not (brokers >= 2 and 1 <= clients <= filters):
        raise ValueError(text)
    return brokers, clients, filters


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_filters", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=_row, nargs="+", metavar="BROKERS:CLIENTS:FILTERS", help=f"default: {' '.join(ROWS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/performance.md")
    chosen = parser.parse_args()
    rows = chosen.rows or [_row(each) for each in ROWS]
    points = shown((measured(*row) for row in rows), HEADERS, cells)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(points)))
    if chosen.markdown:
        named = " --rows " + " ".join(":".join(map(str, row)) for row in rows) if chosen.rows else ""
        update_page(PAGE, "many-filters", markdown(points, f"python -m benchmarks.many_filters{named}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
