"""Where a sweep runs: on the cores of this machine, or on Spark."""

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
"""Told how many parts are done, of how many."""

LOOK = 0.2
"""Seconds between two looks at how far Spark is."""


class Engine(StrEnum):
    """What the parts of a sweep are given to. The results do not depend on it."""

    LOCAL = "local"
    SPARK = "spark"


class Sweep(Protocol):
    """Gives `call` of each part, in the order of the parts. Raises what a call raises."""

    def __call__(
        self, call: Callable[[Part], Result], parts: Sequence[Part], done: Progress = ..., /
    ) -> list[Result]: ...


def untold(done: int, total: int) -> None:
    """Nobody is told."""


def in_turn(call: Callable[[Part], Result], parts: Sequence[Part], done: Progress = untold, /) -> list[Result]:
    """A `Sweep` in this process, one part after the other."""
    results = []
    for part in parts:
        results.append(call(part))
        done(len(results), len(parts))
    return results


@contextmanager
def sweep(engine: Engine, master: str | None = None) -> Iterator[Sweep]:
    """Runs sweeps. `master` is Spark's, by default this machine's cores.

    Raises ModuleNotFoundError if Spark is asked for and not installed."""
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
    """One job with a task for each part: Spark gives the next task to whichever core is free. Function, parts and
    results are pickled, so `research` and `saps` must be on the executors."""
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
    """Tasks of a group's jobs that have ended."""
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
