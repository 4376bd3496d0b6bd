"""The job's Prometheus metrics: rows received, late rows, quarantined files, and the age of the last decision."""

from __future__ import annotations

import threading
import time
from collections import Counter as Sums
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from monitoring.counts.intake import Intake
from monitoring.decisions.store import Commit, Store
from monitoring.decisions.table import OFM
from monitoring.settings import Rules

TOLD = {
    "batches": "batches_total",
    "failures": "batch_failures_total",
    "rows": "rows_total",
    "late": "late_rows_total",
    "waiting": "inbox_files",
    "bad_files": "quarantined_files",
    "bad_rows": "quarantined_rows",
    "window": "window_seconds",
    "closed": "event_time_seconds",
    "decided": "last_decision_timestamp_seconds",
    "saved": "saved_bytes",
    "predicted": "predicted_bytes",
}
"""The metrics that OFGate gets (`saps.agents.ofgate.decisions_io.Job`): OFGate's name -> the metric's name without its
prefix."""


class Progress:
    """Keeps the job's metrics in a registry of their own."""

    def __init__(self, store: Store, rules: Rules, intake: Intake, clock: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"saps_monitor_{name}", text, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"saps_monitor_{name}", text, labels, registry=self.registry)

        self._batches = counter("batches", "Batches committed.")
        failures = counter("batch_failures", "Batches that failed, and were tried again.")
        self._rows = counter("rows", "Rows of counts that came.")
        self._late = counter("late_rows", "Rows that came after their windows were closed: not counted.", "broker")
        self._refused = counter(
            "fast_clock_batches", "Batches with rows ahead of this machine's clock: not counted.", "broker"
        )
        seconds = gauge("batch_seconds", "Duration of the last batch.")
        self._trees = gauge("trees", "Topics with trees in the last table.")
        self._gap = gauge("selection_gap", "Share of the best selection's worth that the last one lacks, at most.")
        self._decided = gauge("last_decision_timestamp_seconds", "When the last table was decided; first, the start.")
        self._closed = gauge("event_time_seconds", "Windows that end by then (since 1970) are closed; 0 for none.")
        gauge("window_seconds", "Length of a window.").set(rules.pace.window / 1000)
        gauge("inbox_files", "Files that wait for a batch.").set_function(
            lambda: sum(name.endswith(".parquet") for name in store.folder.names("inbox", kinds=False).files)
        )
        gauge("unsent_tables", "Tables of decisions that OFGate does not have.").set_function(
            lambda: len(store.unsent())
        )
        gauge("files", "Files that were read since the start.").set_function(lambda: intake.read)
        gauge("quarantined_files", "Files put into quarantine since the start.").set_function(lambda: intake.bad_files)
        gauge("quarantined_rows", "Rows put into quarantine since the start.").set_function(lambda: intake.bad_rows)
        self._saved = gauge("saved_bytes", "Bytes between clusters that all trees have saved so far.")
        self._predicted = gauge("predicted_bytes", "Bytes that were predicted of them.")
        self._clock = clock
        self._decided.set(clock())
        self._store = store
        self._last = store.last()
        self._stand(self._last)
        self.listener = Listener(seconds, failures)

    def follow(self) -> None:
        """Count the batches that were committed since the last call."""
        before, last = self._last, self._store.last()
        self._last = last
        self._batches.inc(last.batch - before.batch)
        self._rows.inc(last.rows - before.rows)
        for counter, sums, known in ((self._late, last.late, before.late), (self._refused, last.fast, before.fast)):
            for broker, more in (Sums(sums) - Sums(known)).items():
                counter.labels(broker).inc(more)
        self._stand(last)
        if last.closed > before.closed:
            table = self._store.table(last.closed)
            self._decided.set(self._clock())
            self._trees.set(sum(decision.mode == OFM for decision in table.decisions))
            self._gap.set(table.gap)

    def _stand(self, last: Commit) -> None:
        saved, predicted = last.money()
        self._closed.set(last.closed / 1000)
        self._saved.set(saved)
        self._predicted.set(predicted)

    def told(self) -> dict[str, float]:
        """Return the metrics `TOLD` for the operator's page: sums since the start, times in seconds since 1970."""
        found: dict[str, float] = defaultdict(float)
        for family in self.registry.collect():
            for sample in family.samples:
                found[sample.name.removeprefix("saps_monitor_")] += sample.value
        return {short: found[name] for short, name in TOLD.items()}

    @contextmanager
    def served(self, host: str, port: int) -> Iterator[int]:
        """Serve ``GET /metrics`` within the context, which yields the port. Raises OSError if it cannot listen."""
        server, thread = start_http_server(port, host, self.registry)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Listener(StreamingQueryListener):
    """Turns Spark's events about its queries into metrics. Spark calls it on a thread of its own."""

    def __init__(self, seconds: Gauge, failures: Counter) -> None:
        self._seconds, self._failures = seconds, failures
        self.news = threading.Event()
        """Set by each batch that Spark tells of."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Ignore the start of a query."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Record the duration of a batch that has ended."""
        self._seconds.set(event.progress.batchDuration / 1000)
        self.news.set()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Ignore a trigger without new files."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Count a failure if the query ended with an exception."""
        if event.exception is not None:
            self._failures.inc()
