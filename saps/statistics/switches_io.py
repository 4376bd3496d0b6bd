"""What the switches count, from the controller's northbound, as rolled Parquet files like the brokers'.

A row for each interval and counting place: of each tree a switch's group (packets that entered it) and a broker's flow
(what it sent); of each port what came in and what went out, trees or not. The northbound tells sums since the entries
were installed, or since the switch knows the port; a row has what came since the row before. A sum that has become less
has begun anew. Such files stand in a directory of their own.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from saps.ofm.northbound.driver.client import NorthboundError, Ports, UnreachableError
from saps.ofm.northbound.schema import OfmState, OfmStats, PortTraffic, Status
from saps.runtime.atomic_file import replacing
from saps.statistics.files_io import left

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
"""Of `SwitchRow`."""
SWITCH, SENDER = "switch", "sender"
"""Kinds of counting places of a tree."""
PORT_IN, PORT_OUT = "port in", "port out"
"""Kinds of counting places that are no tree's: their topic is empty."""


class SwitchRow(NamedTuple):
    """What one place counted for one tree in one interval."""

    start: int
    """Begin of the interval on this program's clock: ms since 1970, UTC."""
    seconds: float
    topic: str
    kind: str
    place: str
    """The switch's dpid, 16 hexadecimal digits; the sender's ``IP:port``; or a port, ``DPID/NUMBER``."""
    packets: int
    bytes: int
    """Of Ethernet frames."""


class Asked(Protocol):
    """What is needed of the northbound (`saps.ofm.northbound.driver.client.Client`)."""

    async def list(self) -> list[OfmState]: ...

    async def stats(self, topic: str) -> OfmStats: ...

    async def ports(self) -> Ports: ...


class SwitchFiles:
    """Asks, and writes, each interval. `start` on the loop, `stop` at the end."""

    def __init__(
        self, northbound: Asked, directory: Path, interval: float, name: str, clock: Callable[[], float] = time.time
    ) -> None:
        """`interval` in seconds; `name` of who asks, for the files' names."""
        self._northbound = northbound
        self._directory = directory
        self._interval = interval
        self._name = name
        self._clock = clock
        self._sums: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._begun = clock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the first interval."""
        self._begun = self._clock()
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            now = self._clock()
            await asyncio.sleep(left(now, now, self._interval))
            try:
                await self.roll()
            except (NorthboundError, UnreachableError, OSError) as error:
                logger.warning("the switches' counters of this interval are added to the next one's: %s", error)

    async def roll(self) -> list[SwitchRow]:
        """End the interval now: its rows, which have been written. Raises what the northbound raises, or OSError."""
        now, found = self._clock(), dict[tuple[str, str, str], tuple[int, int]]()
        for state in await self._northbound.list():
            if state.status in (Status.CONSTRUCTED, Status.UPDATING):
                found |= _places(await self._northbound.stats(state.topic))
        found |= _ports(await self._northbound.ports())
        rows = [
            SwitchRow(int(self._begun * 1000), now - self._begun, *place, *_since(self._sums.get(place), counts))
            for place, counts in sorted(found.items())
        ]
        rows = [row for row in rows if row.packets]
        if rows:
            await asyncio.to_thread(self._write, rows)
        self._sums, self._begun = found, now
        return rows

    def _write(self, rows: list[SwitchRow]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        day = datetime.datetime.fromtimestamp(rows[0].start / 1000, datetime.UTC).strftime("%Y-%m-%d")
        file = self._directory / day / f"{self._name}-{rows[0].start}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist([row._asdict() for row in rows])
        version = {b"saps.switches.version": str(SCHEMA_VERSION).encode()}
        with replacing(file) as out:
            pq.write_table(table.replace_schema_metadata(version), out, compression="zstd")


def _places(stats: OfmStats) -> dict[tuple[str, str, str], tuple[int, int]]:
    groups = {(stats.topic, SWITCH, count.dpid): (count.packets, count.bytes) for count in stats.switches}
    flows = {(stats.topic, SENDER, count.broker.endpoint): (count.packets, count.bytes) for count in stats.senders}
    return groups | flows


def _ports(ports: list[PortTraffic]) -> dict[tuple[str, str, str], tuple[int, int]]:
    into = {("", PORT_IN, f"{each.dpid}/{each.port}"): (each.rx_packets, each.rx_bytes) for each in ports}
    out = {("", PORT_OUT, f"{each.dpid}/{each.port}"): (each.tx_packets, each.tx_bytes) for each in ports}
    return into | out


def _since(before: tuple[int, int] | None, now: tuple[int, int]) -> tuple[int, int]:
    """What came since; everything, if counting has begun anew."""
    if before is None or now[0] < before[0] or now[1] < before[1]:
        return now
    return now[0] - before[0], now[1] - before[1]
