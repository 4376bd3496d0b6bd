"""A mesh of `saps broker` processes for an example: started together, watched, ended in order."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import saps
from examples.common.program import Program
from examples.smart_city.processes import BrokerError, BrokerProcess, free_ports, saps_broker, stop_all

STARTING = 180.0
"""Seconds that a broker may take to be ready, on a machine that is busy."""
LEAVING = 30.0
"""Seconds that all brokers together may take to leave, likewise."""

Address = tuple[str, int]


class Mesh:
    """Brokers b1, b2, ..., one for each name in `clusters`, which is its cluster. (An async context manager.)

    A broker that ends unasked is trouble for the program.
    """

    def __init__(self, program: Program, clusters: Sequence[str], *, web: bool = False) -> None:
        """`web`: every broker has a Web port, too."""
        self._program = program
        count = len(clusters)
        ports = free_ports(3 * count, random.Random())
        mqtt, overlay, webs = ports[:count], ports[count : 2 * count], ports[2 * count :]
        self.names = [f"b{n}" for n in range(1, count + 1)]
        self.clusters = dict(zip(self.names, clusters, strict=True))
        self.addresses: dict[str, Address] = {
            name: ("127.0.0.1", port) for name, port in zip(self.names, mqtt, strict=True)
        }
        """Where MQTT clients attach, by the broker's name."""
        self.overlays = [f"127.0.0.1:{port}" for port in overlay]
        """Where brokers join."""
        self.webs = {name: f"http://127.0.0.1:{port}" for name, port in zip(self.names, webs, strict=True)}
        """The brokers' Web ports, if they have any."""
        self._processes: dict[str, BrokerProcess] = {}
        for name, port, at, page in zip(self.names, mqtt, self.overlays, webs, strict=True):
            settings = {"web.listen": f"127.0.0.1:{page}"} if web else {}
            join = [other for other in self.overlays[:2] if other != at] if self._processes else []
            self._processes[name] = saps_broker(name, self.clusters[name], f"127.0.0.1:{port}", at, join, settings)
        self._watchers: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        """Start the first broker, then the others at once. Raises `BrokerError`; then none is left."""
        first, *others = self._processes.values()
        self._program.tell(f"{len(self._processes)} brokers start")
        try:
            await first.start(STARTING)
            outcomes = await asyncio.gather(*(each.start(STARTING) for each in others), return_exceptions=True)
            failed = [str(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
            if failed:
                raise BrokerError("\n".join(failed))
        except BaseException:
            await stop_all(list(self._processes.values()), LEAVING)
            raise
        self._watchers = {name: asyncio.create_task(self._watch(each)) for name, each in self._processes.items()}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watcher in self._watchers.values():
            watcher.cancel()
        living = [each for each in self._processes.values() if each.running]
        self._program.troubles += await stop_all(living, LEAVING)

    async def kill(self, name: str) -> None:
        """End a broker without warning, as a power cut does."""
        self._watchers[name].cancel()
        process = self._processes[name]
        process.signal(signal.SIGKILL)
        await process.ended_unasked()

    def alive(self, name: str) -> bool:
        """The broker runs."""
        return self._processes[name].running

    async def _watch(self, process: BrokerProcess) -> None:
        self._program.storage_fault(str(await process.ended_unasked()))


@asynccontextmanager
async def embedded(broker: saps.Broker) -> AsyncIterator[saps.Broker]:
    """A broker in this program, from joining the mesh to leaving it. Raises `BrokerError` if it cannot join."""
    try:
        async with asyncio.timeout(STARTING):
            await broker.start()
    except TimeoutError:
        raise BrokerError(f"the broker in this program has not joined the mesh in {STARTING:g} s") from None
    try:
        yield broker
    finally:
        await broker.stop()
