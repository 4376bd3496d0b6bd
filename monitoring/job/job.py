"""Turns files of counts into tables of decisions, batch by batch, each exactly once.

Spark's checkpoint records which files belong to which batch, so a crash does not change a batch. `store` records which
batches were committed. A batch takes these steps:

1. It joins its rows with the rows kept of open windows.
2. It closes the windows that the brokers' clocks have passed, and sums their rows.
3. It advances every topic's model over the closed windows.
4. It decides.

Only candidates come to the driver, never all topics.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from monitoring.counts.packing import PACKED, pack, unpacked
from monitoring.counts.sums import NEEDED, ROWS, WINDOWS, windows
from monitoring.decisions.decider import Clock, Skew, bound_of, machine_clock
from monitoring.decisions.store import Commit, Store
from monitoring.decisions.table import Judged, Table, decide
from monitoring.decisions.tables_io import Tables
from monitoring.forecasts.vector import JUDGED, TOPICS, epoch_of
from monitoring.selection.budgets import Budgets
from monitoring.selection.selection import Held
from monitoring.settings import Rules
from saps.statistics import REST

logger = logging.getLogger(__name__)

FILES_AT_ONCE = 200
"""Most files of the inbox in one batch. During a backlog the intake puts 100,000 rows or more into a file."""
NAMED = 10
"""Most brokers named in one log line."""


class _Seen(NamedTuple):
    """What a batch holds from one broker."""

    end: int | None
    """End of the last interval within the bound of this machine's clock, in ms since 1970."""
    ahead: int | None
    """End of the last interval beyond that bound, in ms since 1970."""
    late: int
    """Rows of windows that were closed before the batch."""
    files: list[str]
    rows: int
    longest: float
    """Length of the longest interval in seconds."""


class Job:
    """Runs the steps of each batch.

    All that a job knows can be pickled, because Spark Connect runs `batch` in a process of the server."""

    def __init__(
        self,
        store: Store,
        rules: Rules,
        budgets: Budgets | None = None,
        tables: Tables | None = None,
    ) -> None:
        """`budgets` asks for the switches' budgets at each epoch; None: those of `rules`. `tables`, if given, also gets
        the windows."""
        self._store = store
        self._rules = rules
        self._budgets = budgets
        self._tables = tables
        self._rows_type = from_arrow_schema(ROWS)
        self._open_type = from_arrow_schema(pa.schema([ROWS.field(name) for name in NEEDED]))
        self._topics_type = from_arrow_schema(TOPICS)
        self._result_type = from_arrow_schema(_joined())

    def start(self, spark: SparkSession, interval: float | None) -> StreamingQuery:
        """Start the query over the inbox: a batch every `interval` seconds, or only the files there now for None."""
        self._store.folder.write("inbox/.keep", b"")  # Spark requires the directory to exist, and skips this file
        rows = (
            spark.readStream.schema(self._rows_type)
            .option("maxFilesPerTrigger", FILES_AT_ONCE)
            .option("ignoreMissingFiles", "true")  # a batch that Spark repeats may list files deleted since
            .parquet(self._store.folder.uri("inbox"))
            .select(*NEEDED, F.col("_metadata.file_name").alias("file"))
        )
        writer = rows.writeStream.foreachBatch(self.batch).option(
            "checkpointLocation", self._store.folder.uri("checkpoint")
        )
        if interval is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(interval * 1000)} milliseconds").start()

    def batch(self, rows: DataFrame, number: int) -> None:
        """Compute and commit one batch, unless it was committed before."""
        last = self._store.last()
        self._store.forget(last.files)
        if number > last.batch:
            self._store.commit(self._compute(rows, number, last))

    def _compute(self, rows: DataFrame, number: int, last: Commit) -> Commit:
        clock, now = Clock(last.closed, dict(last.heard)), machine_clock()
        bound = bound_of(self._rules, now)
        seen = self._seen(rows, last.closed, bound)
        ends = ((broker, end) for broker, it in seen.items() for end in (it.end, it.ahead) if end is not None)
        skew, late = clock.seen(ends, self._rules, now), {name: it.late for name, it in seen.items() if it.late}
        self._say(skew, late)
        end = window_of(self._rules.pace.window) + self._rules.pace.window
        new = rows.select(*NEEDED).where((F.col("topic") != REST) & (end > last.closed) & (end_of() <= bound))
        spark = rows.sparkSession
        opened = self._read(spark, last.open, self._open_type) if last.open else None
        directory = self._store.fresh(number)
        # Spark passes over files by the extremes of `start`, but not by those of `end`, which is computed.
        longest = max((it.longest for it in seen.values()), default=0.0)
        may_stay = new.where(F.col("start") > clock.closed - int(longest * 1000))
        _both(may_stay, opened).where(end > clock.closed).write.parquet(self._uri(f"{directory}/open"))
        commit = last._replace(
            batch=number,
            closed=clock.closed,
            open=f"{directory}/open",
            epoch=0,
            digest="",
            files=sorted({name for found in seen.values() for name in found.files}),
            heard=clock.heard,
            rows=last.rows + sum(it.rows for it in seen.values()),
            late=Counter(last.late) + Counter(late),
            fast=Counter(last.fast) + Counter(list(skew.refused)),
        )
        if clock.closed == last.closed:
            return commit
        topics = f"{directory}/topics"
        may_close = new.where(F.col("start") < clock.closed)
        self._advance(_both(may_close, opened).where(end <= clock.closed), last, clock.closed, topics)
        table = self._decide(spark, topics, last.held, clock.closed)
        self._store.keep(table)
        return commit._replace(
            topics=topics,
            held=table.held(last.held, self._rules.calm),
            epoch=table.epoch,
            digest=table.digest,
            ended=table.ended(last.ended),
        )

    def _seen(self, rows: DataFrame, closed: int, bound: int) -> dict[str, _Seen]:
        """Return what came from each broker. Rows that end after `bound` are ahead of this machine's clock."""
        sane = end_of() <= bound
        ended = window_of(self._rules.pace.window) + self._rules.pace.window <= closed
        each = (
            rows.groupBy("broker", "file")
            .agg(
                F.max(F.when(sane, end_of())),
                F.max(F.when(~sane, end_of())),
                F.sum(ended.cast("long")).alias("late"),
                F.count("*"),
                F.max("seconds"),
            )
            .collect()
        )
        rest = {}
        if any(row["late"] for row in each):  # rarely, and the topics are most of what a file holds
            of_rest = rows.where(ended & (F.col("topic") == REST)).groupBy("broker", "file").count().collect()
            rest = {(broker, file): count for broker, file, count in of_rest}
        found = dict[str, _Seen]()
        for broker, file, end, ahead, late, count, longest in each:
            before = found.get(broker, _Seen(None, None, 0, [], 0, 0.0))
            found[broker] = _Seen(
                _later(before.end, end),
                _later(before.ahead, ahead),
                before.late + late - rest.get((broker, file), 0),
                [*before.files, file],
                before.rows + count,
                max(before.longest, longest),
            )
        return found

    def _say(self, skew: Skew, late: Mapping[str, int]) -> None:
        for broker, by in skew.refused.items():
            logger.warning(
                "the clock of %s is %.0f s ahead of this machine's: these rows are not counted", broker, by / 1000
            )
        for broker, by in skew.waiting.items():
            logger.warning(
                "%s is %.0f s ahead of the other brokers: its rows wait until they are as far", broker, by / 1000
            )
        if late:
            each = ", ".join(f"{broker} {count}" for broker, count in sorted(late.items())[:NAMED])
            logger.warning(
                "%d rows came after their windows were closed: they are not counted (%s%s)",
                sum(late.values()), each, ", ..." if len(late) > NAMED else "",
            )  # fmt: skip

    def _uri(self, name: str) -> str:
        return self._store.folder.uri(name)

    def _read(self, spark: SparkSession, name: str, schema: object) -> DataFrame:
        return spark.read.schema(schema).parquet(self._uri(name))  # type: ignore[arg-type]

    def _advance(self, closed: DataFrame, last: Commit, now: int, out: str) -> None:
        """Advance all topics' models over the closed windows, judge them, and write both to the directory `out`.

        `closed` has the rows of the windows that close with the epoch `now`."""
        length, step = self._rules.pace.window, epoch_of(self._rules, now)
        spark = closed.sparkSession
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 4)
        part = F.pmod(F.xxhash64("topic"), F.lit(partitions)).alias("part")
        packed = closed.select(part, *NEEDED).mapInArrow(pack, from_arrow_schema(PACKED)).groupBy("part")
        if self._tables is not None:
            seen = packed.applyInArrow(lambda rows: windows(unpacked(rows), length), from_arrow_schema(WINDOWS))
            grouped = self._tables.keep(seen, last.closed, now, length).groupBy(part)
        else:
            grouped, step = packed, _summed(step, length)
        models = (
            self._read(spark, last.topics, self._topics_type)
            if last.topics
            else spark.createDataFrame([], self._topics_type)
        )
        found = grouped.cogroup(models.groupBy(part)).applyInArrow(step, self._result_type)
        # The bits of a model are nearly random: stronger compression costs time and saves hardly any room.
        found.write.parquet(self._uri(out), compression="lz4")

    def _decide(self, spark: SparkSession, topics: str, held: Mapping[str, Held], epoch: int) -> Table:
        judged = self.candidates(spark, topics, held)
        network = self._rules.network if self._budgets is None else self._budgets.network(judged, held)
        return decide(judged, held, network, epoch, self._rules.calm)

    def candidates(self, spark: SparkSession, topics: str, held: Mapping[str, Held]) -> list[Judged]:
        """Return the topics in `held`, and at most `Rules.most` others worth a tree, those of highest density.

        `topics` is the directory of the judged topics. `Decider._candidates` does the same without Spark."""
        judged = self._read(spark, topics, self._result_type)
        columns = list(Judged._fields)
        found = []
        worth = judged.where(F.col("saving") > F.col("cost"))
        if held:
            names = spark.createDataFrame([(topic,) for topic in sorted(held)], "topic string")
            names = F.broadcast(names)
            found += judged.join(names, "topic", "left_semi").select(columns).collect()
            worth = worth.join(names, "topic", "left_anti")
        found += worth.orderBy(F.desc("density"), "topic").limit(self._rules.most).select(columns).collect()
        return [Judged(*row) for row in found]


def window_of(length: int) -> Column:
    """Return `features.window_of` of a row as a column, for windows of `length` ms."""
    middle = F.col("start") + (F.col("seconds") * 500).cast("long")
    return middle - F.pmod(middle, F.lit(length))


def end_of() -> Column:
    """Return the end of a row's interval as a column, in ms since 1970."""
    return F.col("start") + (F.col("seconds") * 1000).cast("long")


def _later(one: int | None, other: int | None) -> int | None:
    return max((end for end in (one, other) if end is not None), default=None)


def _both(rows: DataFrame, more: DataFrame | None) -> DataFrame:
    """Return the rows of both; None: there are no more."""
    return rows if more is None else rows.unionByName(more)


def _summed(step: Callable[[pa.Table, pa.Table], pa.Table], length: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Return `step` with its first argument as packed rows instead of windows of `length` ms."""

    def run(rows: pa.Table, kept: pa.Table) -> pa.Table:
        return step(windows(unpacked(rows), length), kept)

    return run


def _joined() -> pa.Schema:
    return pa.schema([*TOPICS, *JUDGED])
