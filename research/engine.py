"""Runs sweeps over many independent parts, on the cores of this machine or on Spark."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

Part = TypeVar("Part")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Function that is called with the number of parts done and the number of all parts."""

LOOK = 0.2
"""Seconds between two queries of Spark's progress."""


class Engine(StrEnum):
    """The place where the parts of a sweep run. Results do not depend on it."""

    LOCAL = "local"
    SPARK = "spark"


class Sweep(Protocol):
    """Returns the results of `call` for all parts, in the order of the parts. Raises the error of a failed call."""

    def __call__(
        self, call: Callable[[Part], Result], parts: Sequence[Part], done: Progress = ..., /
    ) -> list[Result]: ...


def untold(done: int, total: int) -> None:
    """Ignore progress."""


def in_turn(call: Callable[[Part], Result], parts: Sequence[Part], done: Progress = untold, /) -> list[Result]:
    """A `Sweep` that runs the parts in this process, one after the other."""
    results = []
    for part in parts:
        results.append(call(part))
        done(len(results), len(parts))
    return results


@contextmanager
def sweep(engine: Engine, master: str | None = None) -> Iterator[Sweep]:
    """Yield a `Sweep` of the engine, whose processes or Spark context end with the block.

    `master` is Spark's; None: this machine's cores. Raises ModuleNotFoundError if Spark is needed and not installed."""
    if engine is Engine.LOCAL:
        with ProcessPoolExecutor(os.cpu_count()) as processes:
            yield partial(_on_cores, processes)
        return
    context = _context(master or "local[*]")
    try:
        yield partial(_on_spark, context)
    finally:
        context.stop()


def _on_cores(
    processes: ProcessPoolExecutor,
    call: Callable[[Part], Result],
    parts: Sequence[Part],
    done: Progress = untold,
    /,
) -> list[Result]:
    futures = [processes.submit(call, part) for part in parts]
    for count, _ in enumerate(as_completed(futures), start=1):
        done(count, len(parts))
    return [future.result() for future in futures]


def _on_spark(
    context: SparkContext, call: Callable[[Part], Result], parts: Sequence[Part], done: Progress = untold, /
) -> list[Result]:
    """Run one Spark job with a task for each part, so that each free core gets the next part.

    Function, parts and results are pickled, so `research` and `saps` must be installed on the executors."""
    group = f"sweep {threading.get_ident()} {id(parts)}"

    def collect() -> list[Result]:
        context.setJobGroup(group, "saps reproduce", interruptOnCancel=True)
        results: list[Result] = context.parallelize(parts, len(parts)).map(call).collect()
        return results

    with ThreadPoolExecutor(1) as waiting:
        job = waiting.submit(collect)
        while not job.done():
            done(_completed(context, group), len(parts))
            threading.Event().wait(LOOK)
        results = job.result()
    done(len(parts), len(parts))
    return results


def _completed(context: SparkContext, group: str) -> int:
    """Return the number of ended tasks of a group's jobs."""
    tracker = context.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _context(master: str) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName("saps reproduce").set("spark.ui.enabled", "false")
    if master.startswith("local") or "//127.0.0.1:" in master:
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    conf.set("spark.ui.showConsoleProgress", "false")
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    return context
