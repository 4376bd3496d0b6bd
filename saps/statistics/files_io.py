"""Writes a broker's counts as Parquet files, atomically one for each interval, or publishes them as messages.

The event loop only copies counters, in small pieces; a thread of its own encodes and writes them. A file's name has
broker, incarnation and start of the interval, so that two files never contain the same counts:
``2026-11-21/b1-1795257960000-1795257990000.parquet``.
"""

from __future__ import annotations

import asyncio
import datetime
import io
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_type_hints

from saps.runtime.atomic_file import replacing
from saps.statistics import REST, SCHEMA_VERSION, Row, Statistics, TopicCount, row

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

VERSION_KEY = b"saps.statistics.version"
"""Key of the schema version in a file's metadata."""
ROWS_AT_ONCE = 2000
"""Most rows in one message, about 20 to 50 KiB."""
WAITING = 60
"""Most intervals kept in memory while the directory cannot be written; older ones are dropped and logged."""


def arrow_schema() -> pa.Schema:
    """Return the schema of a file, with the columns of `saps.statistics.Row`."""
    import pyarrow as pa

    kinds: dict[Any, pa.DataType] = {
        str: pa.string(),
        int: pa.int64(),
        float: pa.float64(),
        list[int]: pa.list_(pa.int64()),
    }
    hints = get_type_hints(Row)
    fields = [pa.field(name, kinds[hints[name]], nullable=False) for name in Row._fields]
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write a file of rows atomically. Raises `OSError`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as out:
        _encode(rows, out)


def encoded(rows: Sequence[Row]) -> bytes:
    """Return a Parquet file of rows as bytes, for a message."""
    out = io.BytesIO()
    _encode(rows, out)
    return out.getvalue()


def _encode(rows: Sequence[Row], out: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = list(zip(*rows, strict=True)) or [()] * len(Row._fields)
    schema = arrow_schema()
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
    pq.write_table(table, out, compression="zstd")


def file_of(directory: Path, broker: str, incarnation: int, start: int) -> Path:
    """Return the path of the file for a broker's interval that starts at `start` (ms since 1970)."""
    day = datetime.datetime.fromtimestamp(start / 1000, datetime.UTC).strftime("%Y-%m-%d")
    return directory / day / f"{broker}-{incarnation}-{start}.parquet"


def left(begun: float, now: float, interval: float) -> float:
    """Return the seconds until the interval that started at `begun` ends.

    Intervals end at multiples of their length, so that those of all brokers coincide. An interval lasts at least half
    its length: if a timer has woken slightly early, the time left to the multiple does not become an interval of its
    own. A clock that is set back does not lengthen the interval."""
    rest = interval - begun % interval
    length = rest if 2 * rest >= interval else rest + interval
    return min(max(begun + length - now, 0.0), length)


class StatisticsFiles:
    """Drains a broker's counters each interval and writes or publishes them, from `start` (on the loop) to `stop`."""

    def __init__(
        self,
        statistics: Statistics,
        directory: Path | None,
        interval: float,
        keep: float,
        me: tuple[str, int, str],
        brokers: Callable[[str], int],
        priority: Callable[[str], int] = lambda topic: 0,
        clock: Callable[[], float] = time.time,
        publish: Callable[[bytes], None] | None = None,
    ) -> None:
        """`directory` is where files go, None for no files; `publish` is called on the loop with each message.
        `interval` is the length of an interval and `keep` how long own files stay, both in seconds. `me` is broker,
        incarnation and cluster. `brokers` returns how many other brokers a publication to a topic reaches, `priority`
        the topic's priority. Raises `ImportError` without pyarrow."""
        import pyarrow.parquet  # noqa: F401  # now, not in the middle of the traffic

        self._statistics = statistics
        self._directory = directory
        self._interval = interval
        self._keep = keep
        self._me = me
        self._told = brokers, priority
        self._clock = clock
        self._publish = publish
        self._begun = clock()
        self._waiting: deque[tuple[int, list[Row]]] = deque()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="statistics")
        self._task: asyncio.Task[None] | None = None
        self._failed = False
        self.latest: list[Row] = []
        """The rows of the last complete interval."""
        self.written = 0
        """Files written since the start."""

    def start(self) -> None:
        """Start the first interval."""
        self._begun = self._clock()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write what has been counted so far, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.roll()
        self._writer.shutdown()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(left(self._begun, self._clock(), self._interval))
            await self.roll()

    async def roll(self) -> None:
        """End the interval now. Returns when its file has been written or has failed."""
        begun, self._begun = self._begun, self._clock()
        rows: list[Row] = []
        brokers, priority = self._told
        for piece in self._statistics.drain():
            rows += [
                row(past, *self._me, int(begun * 1000), self._begun - begun, brokers(topic), priority(topic))
                for _, past in piece
                for topic in (past.topic,)
            ]
            await asyncio.sleep(0)
        if not rows:  # time has passed nevertheless: what went on before has ended
            rows = [row(TopicCount(REST), *self._me, int(begun * 1000), self._begun - begun, 0)]
        self.latest = rows
        loop = asyncio.get_running_loop()
        if self._publish is not None:
            pieces = [rows[begin : begin + ROWS_AT_ONCE] for begin in range(0, len(rows), ROWS_AT_ONCE)]
            for part in pieces:
                self._publish(await loop.run_in_executor(self._writer, encoded, part))
        if self._directory is not None:
            self._waiting.append((int(begun * 1000), rows))
            await loop.run_in_executor(self._writer, self._write, self._directory)

    def _write(self, directory: Path) -> None:
        """Write all waiting intervals, oldest first, on the writer's thread."""
        while self._waiting:
            start, rows = self._waiting[0]
            try:
                write_rows(file_of(directory, self._me[0], self._me[1], start), rows)
            except OSError as error:
                self._say(error)
                break
            self._waiting.popleft()
            self.written += 1
            self._say(None)
        while len(self._waiting) > WAITING:
            start, rows = self._waiting.popleft()
            logger.error("statistics: %d rows of the interval at %d are dropped", len(rows), start)
        self._tidy(directory)

    def _tidy(self, directory: Path) -> None:
        """Delete own files that are older than `keep`."""
        oldest = (self._clock() - self._keep) * 1000
        for file in directory.glob(f"*/{self._me[0]}-*-*.parquet"):
            incarnation, _, start = file.stem.removeprefix(self._me[0] + "-").partition("-")
            if incarnation.isdecimal() and start.isdecimal() and int(start) < oldest:
                file.unlink(missing_ok=True)

    def _say(self, error: OSError | None) -> None:
        """Log one line when the directory cannot be written, and one when it can again."""
        if (error is not None) != self._failed:
            self._failed = error is not None
            if error is not None:
                logger.error("cannot write statistics to %s, keeping them: %s", self._directory, error)
            else:
                logger.info("statistics are written to %s again", self._directory)
