"""``kill -9`` of a broker with storage under traffic, again and again: ``python -m benchmarks.durability --kills 50``.

Publishers and subscribers with sessions that last keep their side of QoS 1 and 2 (`benchmarks.durable_clients`). The
broker is killed after a random number of acknowledgements and started again on the same file. In the end every number
that was acknowledged must have come to every subscriber, those of QoS 2 once; and the last retained one must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.durable_clients import DurableClient, Publisher, Subscriber
from benchmarks.processes import free_port

TIMEOUT = 120.0
"""Seconds to wait for anything that must come."""
ACKNOWLEDGEMENTS = (1, 300)
"""How many a broker gets out before it is killed, drawn at random."""
AWAY = 0.02
"""Seconds between two moments at which a subscriber may lose its connection."""


class Outcome(msgspec.Struct):
    """What came of it."""

    kills: int
    sync: str
    seconds: float
    acknowledged_1: int
    acknowledged_2: int
    lost_1: int
    lost_2: int
    repeated_1: int
    """Allowed: at least once."""
    repeated_2: int
    retained_lost: int
    sessions_lost: int
    connections: int

    @property
    def good(self) -> bool:
        """Nothing is lost, nothing of QoS 2 repeated, and the run has shown something."""
        faults = self.lost_1 + self.lost_2 + self.repeated_2 + self.retained_lost + self.sessions_lost
        return not faults and self.acknowledged_1 > self.kills and self.acknowledged_2 > self.kills


class Process:
    """The broker: one life after the other, on the same file and ports."""

    def __init__(self, folder: Path, sync: str, url: str = "") -> None:
        """`url`: of a database, in place of a file."""
        self.port = free_port()
        self.file = folder / "broker.db"
        saps = Path(sys.executable).parent / "saps"
        self._command = [str(saps), "broker", "--name", "durable", "--mqtt", f"127.0.0.1:{self.port}"]
        self._command += ["--overlay", f"127.0.0.1:{free_port()}", "--log-level", "warning"]
        place = f"storage.url={url}" if url else f"storage.file={self.file}"
        for setting in (place, f"storage.sync={sync}", "limits.maximum_queued=1000000"):
            self._command += ["--set", setting]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """A new life. Returns when it is ready; raises `RuntimeError` if it ends first."""
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), TIMEOUT)
        if not line.startswith(b"ready"):
            raise RuntimeError(f"the broker ended with status {await self._process.wait()}")

    async def end(self, number: signal.Signals) -> None:
        """Send it a signal, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            await process.wait()


async def run(kills: int, seed: int, sync: str, folder: Path, url: str = "") -> Outcome:
    """The whole of it, with a file in the folder, or a database. Raises `TimeoutError` if something never comes."""
    rng, begun = random.Random(seed), time.monotonic()
    broker = Process(folder, sync, url)
    await broker.start()
    publishers = [Publisher(broker.port, f"p{number}") for number in range(2)]
    subscribers = [Subscriber(broker.port, f"s{number}") for number in range(3)]
    try:
        async with _living(subscribers):
            for subscriber in subscribers:
                await asyncio.wait_for(subscriber.subscribed.wait(), TIMEOUT)
            async with _living(publishers), _restless(subscribers[-1], rng):
                for _ in range(kills):
                    await _more(publishers, rng.randint(*ACKNOWLEDGEMENTS))
                    await broker.end(signal.SIGKILL)
                    await broker.start()
                await _more(publishers, ACKNOWLEDGEMENTS[1])
                for publisher in publishers:
                    publisher.stop()
                await _until(lambda: all(publisher.finished for publisher in publishers), publishers)
            await _settle(broker.port, subscribers)
        retained_lost = await _retained_lost(broker.port, publishers)
    finally:
        await broker.end(signal.SIGTERM)
    return _judge(kills, sync, time.monotonic() - begun, publishers, subscribers, retained_lost)


@contextlib.asynccontextmanager
async def _living(clients: Sequence[DurableClient]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(client.run()) for client in clients]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _restless(subscriber: Subscriber, rng: random.Random) -> AsyncIterator[None]:
    """A subscriber that loses its connection at random, so that messages wait for it."""

    async def lose() -> None:
        while True:
            await asyncio.sleep(rng.uniform(0, 2 * AWAY))
            subscriber.drop()

    task = asyncio.create_task(lose())
    try:
        yield
    finally:
        task.cancel()


async def _until(condition: object, clients: Sequence[DurableClient]) -> None:
    """Wait for a condition that changes as something comes for one of the clients."""
    assert callable(condition)
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            waiting = [asyncio.create_task(client.changed.wait()) for client in clients]
            await asyncio.wait(waiting, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            for client in clients:
                client.changed.clear()


async def _more(publishers: Sequence[Publisher], count: int) -> None:
    """Wait for so many acknowledgements more."""
    wanted = sum(len(publisher.acknowledged) for publisher in publishers) + count
    await _until(lambda: sum(len(publisher.acknowledged) for publisher in publishers) >= wanted, publishers)


async def _settle(port: int, subscribers: Sequence[Subscriber]) -> None:
    """Wait until everything has come: each session is a queue, so what is published last comes last."""
    end = Publisher(port, "end", window=1)
    end.last = 4
    async with _living([end]):
        await _until(lambda: all(len(s.received.get("end", {})) == end.last for s in subscribers), [*subscribers, end])


async def _retained_lost(port: int, publishers: Sequence[Publisher]) -> int:
    """How many publishers' last retained message a new subscriber does not get."""
    fresh = Subscriber(port, "fresh", "durable/+/kept")
    names = {publisher.client_id for publisher in publishers}
    async with _living([fresh]):
        with contextlib.suppress(TimeoutError):
            await _until(lambda: names <= fresh.received.keys(), [fresh])
    return sum(fresh.received.get(p.client_id, Counter()).get(p.retained) != 1 for p in publishers)


def _judge(
    kills: int,
    sync: str,
    seconds: float,
    publishers: Sequence[Publisher],
    subscribers: Sequence[Subscriber],
    retained_lost: int,
) -> Outcome:
    lost, repeated = [0, 0], [0, 0]
    for publisher in publishers:
        for subscriber in subscribers:
            received = subscriber.received.get(publisher.client_id, Counter())
            for number in publisher.acknowledged:
                lost[number % 2] += number not in received
            for number, times in received.items():
                repeated[number % 2] += times > 1
    numbers = [number for publisher in publishers for number in publisher.acknowledged]
    clients = [*publishers, *subscribers]
    return Outcome(
        kills=kills,
        sync=sync,
        seconds=round(seconds, 1),
        acknowledged_1=sum(number % 2 for number in numbers),
        acknowledged_2=sum(1 - number % 2 for number in numbers),
        lost_1=lost[1],
        lost_2=lost[0],
        repeated_1=repeated[1],
        repeated_2=repeated[0],
        retained_lost=retained_lost,
        sessions_lost=sum(len(client.sessions_lost) for client in clients),
        connections=sum(client.connections for client in clients),
    )


def main() -> int:
    """The command. Exit status 1 if anything was lost or, with QoS 2, repeated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durability", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--sync", choices=("full", "normal", "off"), default="full")
    parser.add_argument("--folder", type=Path, help="where the file is to be; a temporary folder by default")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saps-durability-", dir=chosen.folder) as folder:
        outcome = asyncio.run(run(chosen.kills, chosen.seed, chosen.sync, Path(folder)))
    print(f"seed {chosen.seed}")
    for name, value in msgspec.structs.asdict(outcome).items():
        print(f"{name:16} {value}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
