"""Runs intake, job and sink in the process of `saps monitor`, until the files (`--once`) or the process end."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.counts.intake import Intake
from monitoring.counts.sources import Access, source_of
from monitoring.decisions.sink import Identity, Sink
from monitoring.decisions.store import Store
from monitoring.decisions.tables_io import Tables, lake_of
from monitoring.files import first_line
from monitoring.selection.budgets import Budgets
from monitoring.settings import Rules
from saps.config import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from monitoring.job.event_log import Compaction
    from monitoring.job.job import Job
    from monitoring.job.progress import Progress

logger = logging.getLogger(__name__)

LOOK = 1
"""Seconds between two attempts to send decisions, and least seconds between two looks at the source."""
LOOKS = 4
"""Looks at the source within an interval, if `LOOK` allows. More looks make more files in the inbox, and Spark notes
each for ever."""
REMIND = 30.0
"""Seconds after which OFGate gets the newest table once more, because it may have restarted."""
AGAIN = 3
"""Retries of a failed query before the job gives up."""
BUSY = "failed to connect back"
"""What Spark says of a Python that it started but that was not ready within 10 s. To load pyspark's libraries takes it
1 s of processor time, which a busy machine may not have. Executors fork theirs; a server of Spark Connect does not."""
AGAIN_BUSY = 50
"""Retries for that reason."""


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters of a run."""

    source: str | Path
    state: str | Path
    """Where the job keeps its state; like `source`, a path or URI."""
    ofgates: list[str] = field(default_factory=list)
    token: str | None = None
    interval: float | None = 60.0
    """Seconds between two batches; None: process the present files once."""
    timeout: float = 60.0
    """Most seconds to wait at the end for OFGate to take the decisions."""
    rules: Rules = field(default_factory=Rules)
    budgets: Budgets | None = None
    """Source of the switches' budgets; None: those of the rules."""
    identity: Identity | None = None
    """Certificate for OFGates with ``https`` addresses."""
    metrics: Address | None = None
    """Address that serves ``GET /metrics``; None: no address."""
    access: Access = field(default_factory=Access)
    """Credentials for sources that are streams."""
    tables: str = ""
    """Place for windows and decisions as tables (`monitoring.decisions.tables_io.lake_of`); empty: no tables."""


def run(spark: SparkSession, order: Order, stop: threading.Event | None = None) -> int:
    """Run the job until its files end or `stop` is set; None: until SIGTERM or SIGINT.

    Returns the exit status: 0, or 1 if OFGate has not got all decisions or the query fails too often. Raises
    OSError if the metrics address, the source or the state cannot be used, ValueError for a malformed URI, and
    ImportError without the library of a source or of tables."""
    from monitoring.job.event_log import Compaction  # here: they need pyspark
    from monitoring.job.job import Job
    from monitoring.job.progress import Progress
    from monitoring.job.spark import ship

    ending = stop or _until_signalled()
    store = Store(order.state)
    with ExitStack() as stack:
        source = stack.enter_context(closing(source_of(order.source, store, order.access)))
        intake = Intake(source, store)
        progress = Progress(store, order.rules, intake)
        if order.metrics is not None:
            stack.enter_context(progress.served(*order.metrics))
        spark.streams.addListener(progress.listener)
        stack.callback(spark.streams.removeListener, progress.listener)
        ship(spark)
        tables = Tables(lake_of(order.tables), store) if order.tables else None
        sink = Sink(order.ofgates, store, order.token, order.identity, progress.told)
        job = Job(store, order.rules, order.budgets, tables)
        return _Run(spark, job, order, intake, progress, Outlets(sink, tables), Compaction(spark), ending).status()


class Outlets:
    """Sends decisions to OFGate and adds them to the tables."""

    def __init__(self, sink: Sink, tables: Tables | None) -> None:
        self._sink = sink
        self._tables = tables
        self._fault = ""

    def flush(self) -> bool:
        """Send new decisions to OFGate and add them to the tables. Returns True if nothing is left to do."""
        sent = self._sink.flush()
        if self._tables is None:
            return sent
        try:
            self._tables.flush()
        except Exception as error:  # the formats' libraries share no class of exceptions
            if str(error) != self._fault:
                logger.error("decisions are not added to the tables, trying again: %s", error)
            self._fault = str(error)
            return False
        self._fault = ""
        return sent

    def remind(self) -> None:
        """Send OFGate the newest table once more, because it may have restarted."""
        self._sink.remind()


@dataclass(frozen=True, slots=True)
class _Run:
    """The parts of a run."""

    spark: SparkSession
    job: Job
    order: Order
    intake: Intake
    progress: Progress
    outlets: Outlets
    compaction: Compaction
    ending: threading.Event

    def status(self) -> int:
        """Run to the end, and return the exit status."""
        if self.order.interval is None:
            self.intake.take_all()
        failures = 0
        while (error := self._query()) is not None:
            failures += 1
            most = AGAIN_BUSY if BUSY in error else AGAIN
            logger.error("%s (attempt %d of %d)", error, failures, most + 1)
            if failures > most or self.ending.wait(LOOK):
                return 1
        return 0 if self._sent() else 1

    def _query(self) -> str | None:
        """Run a query until it ends. Returns why it did not start or failed, or None."""
        from pyspark.errors import PySparkException

        try:
            query = self.job.start(self.spark, self.order.interval)
        except PySparkException as error:
            return f"the batches did not start: {first_line(error)}"
        fault = self._watch(query)
        return None if fault is None else f"a batch failed: {fault}"

    def _watch(self, query: StreamingQuery) -> str | None:
        """Take in files and send decisions until the query ends or `ending` is set.

        Returns the first line of the error with which the query failed, or None."""
        from pyspark.errors import StreamingQueryException

        interval = self.order.interval
        reminded, looked = time.monotonic(), -math.inf
        try:
            while not query.awaitTermination(LOOK):
                if self.ending.is_set():
                    query.stop()
                    return None
                if self.progress.listener.news.is_set():
                    self.progress.listener.news.clear()
                    self.progress.follow()
                self.outlets.flush()
                if interval is not None and time.monotonic() - looked >= interval / LOOKS:
                    looked = time.monotonic()
                    self.intake.take()
                if time.monotonic() - reminded >= REMIND:
                    self.outlets.remind()
                    self.compaction.run()
                    reminded = time.monotonic()
        except StreamingQueryException as error:
            return first_line(error)
        finally:
            self.progress.follow()
        return None

    def _sent(self) -> bool:
        """Return whether all decisions were delivered within `Order.timeout` seconds. Setting `ending` stops the
        wait."""
        give_up = time.monotonic() + self.order.timeout
        while not self.outlets.flush():
            if time.monotonic() >= give_up or self.ending.wait(LOOK):
                logger.error("OFGate has not got all decisions: the next run sends them")
                return False
        return True


def _until_signalled() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    return ending
