"""The job: from files of counts to tables of decisions, batch by batch, each exactly once.

Spark's checkpoint says which files belong to which batch, and says the same again after a crash; `store` says which
batches have happened. A batch sums its rows and those kept of open windows, closes the windows that the brokers' clocks
have passed, takes every topic's model over them, and decides. Only candidates, never all topics, come to the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from monitoring.counts.sums import NEEDED, ROWS, WINDOWS, windows
from monitoring.decisions.decider import Clock, Skew, bound_of, machine_clock
from monitoring.decisions.store import Commit, Store
from monitoring.decisions.table import Judged, Table, decide
from monitoring.decisions.tables_io import Tables
from monitoring.forecasts.vector import JUDGED, TOPICS, epoch_of
from monitoring.job.progress import Batch
from monitoring.selection.budgets import Budgets
from monitoring.selection.selection import Held
from monitoring.settings import Rules
from saps.statistics import REST

logger = logging.getLogger(__name__)

FILES_AT_ONCE = 200
"""Files of the inbox in one batch at most; the intake puts 100,000 rows or more into one while there is a backlog."""
NAMED = 10
"""Brokers named in one line of the log at most."""


class _Seen(NamedTuple):
    """What a batch has from one broker."""

    end: int | None
    """Of its last interval that is not ahead of this machine's clock."""
    ahead: int | None
    """Of its last interval that is."""
    late: int
    """Rows of windows that are closed."""
    files: list[str]
    rows: int


class Job:
    """The steps of one batch. `finished` is called with the names of files that are not needed any more."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        rules: Rules,
        finished: Callable[[list[str]], None] = lambda names: None,
        budgets: Budgets | None = None,
        done: Callable[[Batch], None] = lambda batch: None,
        tables: Tables | None = None,
    ) -> None:
        """`budgets`: of the switches, as they are at each epoch; None: as `rules` say. `done` is called with each batch
        that was committed. `tables`: for the windows, beside the state."""
        self._spark = spark
        self._store = store
        self._rules = rules
        self._finished = finished
        self._budgets = budgets
        self._done = done
        self._tables = tables
        self._partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 4)
        self._rows_type = from_arrow_schema(ROWS)
        self._open_type = from_arrow_schema(pa.schema([ROWS.field(name) for name in NEEDED]))
        self._topics_type = from_arrow_schema(TOPICS)
        self._result_type = from_arrow_schema(_joined())

    def start(self, interval: float | None) -> StreamingQuery:
        """Begin to read the inbox: what is there now (None), or what comes, each `interval` seconds."""
        self._store.folder.write("inbox/.keep", b"")  # Spark wants a directory to be there, and passes over this
        rows = (
            self._spark.readStream.schema(self._rows_type)
            .option("maxFilesPerTrigger", FILES_AT_ONCE)
            .option("ignoreMissingFiles", "true")  # what is put into quarantine
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
        """Do one batch, unless it has been done."""
        last = self._store.last()
        self._finished(last.files)
        if number <= last.batch:
            return
        commit, batch = self._compute(rows, number, last)
        self._store.commit(commit)
        self._done(batch._replace(money=commit.money()))

    def _compute(self, rows: DataFrame, number: int, last: Commit) -> tuple[Commit, Batch]:
        clock, now = Clock(last.closed, dict(last.heard)), machine_clock()
        bound = bound_of(self._rules, now)
        seen = self._seen(rows, last.closed, bound)
        ends = ((broker, end) for broker, it in seen.items() for end in (it.end, it.ahead) if end is not None)
        skew, late = clock.seen(ends, self._rules, now), {name: it.late for name, it in seen.items() if it.late}
        self._say(skew, late)
        batch = Batch(sum(it.rows for it in seen.values()), late, skew, clock.closed, None)
        end = window_of(self._rules.pace.window) + self._rules.pace.window
        new = rows.select(*NEEDED).where((F.col("topic") != REST) & (end > last.closed) & (end_of() <= bound))
        waiting = new.unionByName(self._read(last.open, self._open_type)) if last.open else new
        directory = self._store.fresh(number)
        waiting.where(end > clock.closed).write.parquet(self._uri(f"{directory}/open"))
        commit = last._replace(
            batch=number,
            closed=clock.closed,
            open=f"{directory}/open",
            epoch=0,
            digest="",
            files=sorted({name for found in seen.values() for name in found.files}),
            heard=clock.heard,
        )
        if clock.closed == last.closed:
            return commit, batch
        topics = f"{directory}/topics"
        self._advance(waiting.where(end <= clock.closed), last, clock.closed, topics)
        table = self._decide(topics, last.held, clock.closed)
        self._store.keep(table)
        commit = commit._replace(
            topics=topics,
            held=table.held(last.held, self._rules.calm),
            epoch=table.epoch,
            digest=table.digest,
            ended=table.ended(last.ended),
        )
        return commit, batch._replace(table=table)

    def _seen(self, rows: DataFrame, closed: int, bound: int) -> dict[str, _Seen]:
        """What came from each broker; rows that end after `bound` are ahead of this machine's clock."""
        sane = end_of() <= bound
        ended = window_of(self._rules.pace.window) + self._rules.pace.window <= closed
        each = (
            rows.groupBy("broker", "file")
            .agg(
                F.max(F.when(sane, end_of())),
                F.max(F.when(~sane, end_of())),
                F.sum((ended & (F.col("topic") != REST)).cast("long")),
                F.count("*"),
            )
            .collect()
        )
        found = dict[str, _Seen]()
        for broker, file, end, ahead, late, count in each:
            before = found.get(broker, _Seen(None, None, 0, [], 0))
            found[broker] = _Seen(
                _later(before.end, end), _later(before.ahead, ahead), before.late + late, [*before.files, file],
                before.rows + count,
            )  # fmt: skip
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

    def _read(self, name: str, schema: object) -> DataFrame:
        return self._spark.read.schema(schema).parquet(self._uri(name))  # type: ignore[arg-type]

    def _advance(self, closed: DataFrame, last: Commit, now: int, out: str) -> None:
        """Take all topics over the closed windows, and judge them."""
        length, step = self._rules.pace.window, epoch_of(self._rules, now)
        part = F.pmod(F.xxhash64("topic"), F.lit(self._partitions)).alias("part")
        if self._tables is not None:
            seen = closed.groupBy(part).applyInArrow(lambda rows: windows(rows, length), from_arrow_schema(WINDOWS))
            closed = self._tables.keep(seen, last.closed, now, length)
        else:
            step = _summed(step, length)
        models = (
            self._read(last.topics, self._topics_type)
            if last.topics
            else self._spark.createDataFrame([], self._topics_type)
        )
        grouped = closed.groupBy(part).cogroup(models.groupBy(part))
        # A model is noise to the last bit: what compresses it takes time, and hardly any room less.
        grouped.applyInArrow(step, self._result_type).write.parquet(self._uri(out), compression="lz4")

    def _decide(self, topics: str, held: Mapping[str, Held], epoch: int) -> Table:
        judged = self.candidates(topics, held)
        network = self._rules.network if self._budgets is None else self._budgets.network(judged, held)
        return decide(judged, held, network, epoch, self._rules.calm)

    def candidates(self, topics: str, held: Mapping[str, Held]) -> list[Judged]:
        """As `Decider._candidates`: the topics worth a tree, the best for their room, and those that were decided
        about before."""
        judged = self._read(topics, self._result_type)
        columns = list(Judged._fields)
        found = []
        worth = judged.where(F.col("saving") > F.col("cost"))
        if held:
            names = self._spark.createDataFrame([(topic,) for topic in sorted(held)], "topic string")
            names = F.broadcast(names)
            found += judged.join(names, "topic", "left_semi").select(columns).collect()
            worth = worth.join(names, "topic", "left_anti")
        found += worth.orderBy(F.desc("density"), "topic").limit(self._rules.most).select(columns).collect()
        return [Judged(*row) for row in found]


def window_of(length: int) -> Column:
    """`features.window_of` of a row."""
    middle = F.col("start") + (F.col("seconds") * 500).cast("long")
    return middle - F.pmod(middle, F.lit(length))


def end_of() -> Column:
    """When a row's interval ended, ms since 1970."""
    return F.col("start") + (F.col("seconds") * 1000).cast("long")


def _later(one: int | None, other: int | None) -> int | None:
    return max((end for end in (one, other) if end is not None), default=None)


def _summed(step: Callable[[pa.Table, pa.Table], pa.Table], length: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """`step` for rows, not windows."""

    def run(rows: pa.Table, kept: pa.Table) -> pa.Table:
        return step(windows(rows, length), kept)

    return run


def _joined() -> pa.Schema:
    return pa.schema([*TOPICS, *JUDGED])
