"""The process of `saps monitor`: intake, job and sink, until the end of the files (`--once`) or of the process."""

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
from monitoring.selection.budgets import Budgets
from monitoring.settings import Rules
from saps.config import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from monitoring.job.job import Job

logger = logging.getLogger(__name__)

LOOK = 1
"""Seconds between two looks at whether OFGate is there again, and at the source at least."""
LOOKS = 4
"""How often the source is looked at within an interval, if `LOOK` allows: each look with new files leaves one file in
the inbox, which Spark notes for ever."""
REMIND = 30.0
"""Seconds after which OFGate is told the newest table once more, should it have started anew."""
AGAIN = 3
"""How often a batch that fails is tried again before the job gives up."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done."""

    source: str | Path
    state: str | Path
    """Both by path or URI."""
    ofgates: list[str] = field(default_factory=list)
    token: str | None = None
    interval: float | None = 60.0
    """Seconds between two batches; None: once, what is there."""
    timeout: float = 60.0
    """With `interval` None: seconds for which OFGate is waited for."""
    rules: Rules = field(default_factory=Rules)
    budgets: Budgets | None = None
    """Of the switches; None: as the rules say."""
    identity: Identity | None = None
    """For OFGates with ``https`` addresses."""
    metrics: Address | None = None
    """Where ``GET /metrics`` is answered."""
    access: Access = field(default_factory=Access)
    """For sources that are streams."""
    tables: str = ""
    """Where windows and decisions go as tables (`monitoring.decisions.tables_io.lake_of`); empty: nowhere."""


def run(spark: SparkSession, order: Order, stop: threading.Event | None = None) -> int:
    """Do it. Returns the exit status: 0, or 1 if OFGate has not got all decisions, or batches fail again and again.
    Raises OSError if the address for metrics, the source or the state cannot be had, ValueError for a URI that is none,
    ImportError without the library of a source or of tables."""
    from monitoring.job.job import Job  # here: they need pyspark
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
        job = Job(spark, store, order.rules, intake.finished, order.budgets, progress.batch, tables)
        return _run(job, order, intake, Outlets(sink, tables), ending)


class Outlets:
    """Where decisions go."""

    def __init__(self, sink: Sink, tables: Tables | None) -> None:
        self._sink = sink
        self._tables = tables
        self._fault = ""

    def flush(self) -> bool:
        """Send and add what has happened. True if nothing is left."""
        sent = self._sink.flush()
        if self._tables is None:
            return sent
        try:
            self._tables.flush()
        except Exception as error:  # the libraries of the formats have no common one
            if str(error) != self._fault:
                logger.error("decisions are not added to the tables, trying again: %s", error)
            self._fault = str(error)
            return False
        self._fault = ""
        return sent

    def remind(self) -> None:
        """OFGate may have started anew."""
        self._sink.remind()


def _run(job: Job, order: Order, intake: Intake, outlets: Outlets, ending: threading.Event) -> int:
    if order.interval is None:
        intake.take_all()
    failures = 0
    while (error := _watch(job.start(order.interval), intake, outlets, order.interval, ending)) is not None:
        failures += 1
        logger.error("a batch failed: %s", error)
        if failures > AGAIN:
            return 1
    return 0 if _sent(outlets, order, ending) else 1


def _watch(
    query: StreamingQuery, intake: Intake, outlets: Outlets, interval: float | None, ending: threading.Event
) -> str | None:
    """Until the query ends, or is to end: take files in, and send decisions. What it failed with, if it did."""
    from pyspark.errors import StreamingQueryException

    reminded, looked = time.monotonic(), -math.inf
    try:
        while not query.awaitTermination(LOOK):
            if ending.is_set():
                query.stop()
                return None
            outlets.flush()
            if interval is not None and time.monotonic() - looked >= interval / LOOKS:
                looked = time.monotonic()
                intake.take()
            if time.monotonic() - reminded >= REMIND:
                outlets.remind()
                reminded = time.monotonic()
    except StreamingQueryException as error:
        return str(error).partition("\n")[0]
    return None


def _sent(outlets: Outlets, order: Order, ending: threading.Event) -> bool:
    """All decisions have reached OFGate; it may take a while to come back."""
    give_up = time.monotonic() + order.timeout
    while not outlets.flush():
        if time.monotonic() >= give_up or ending.wait(LOOK):
            logger.error("OFGate has not got all decisions: the next run sends them")
            return False
    return True


def _until_signalled() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    return ending
