"""Where a sweep runs: on the cores of this machine, or on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

P = ParamSpec("P")
T = TypeVar("T")


class Engine(StrEnum):
    """What the parts of a sweep are given to. The results do not depend on it."""

    LOCAL = "local"
    SPARK = "spark"


@contextmanager
def executor(engine: Engine, master: str | None = None) -> Iterator[Executor]:
    """Runs the parts of a sweep. `master` is Spark's, by default this machine's cores.

    Raises ModuleNotFoundError if Spark is asked for and not installed."""
    if engine is Engine.LOCAL:
        with ProcessPoolExecutor(os.cpu_count()) as processes:
            yield processes
        return
    context = _context(master or "local[*]")
    try:
        with SparkExecutor(context) as jobs:
            yield jobs
    finally:
        context.stop()


def _context(master: str) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName("saps reproduce").set("spark.ui.enabled", "false")
    if master.startswith("local"):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    conf.set("spark.ui.showConsoleProgress", "false")
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    return context


class SparkExecutor(Executor):
    """Each call is a Spark job of one task; as many at once as the cluster has cores.

    Functions, arguments and results are pickled, so `saps` must be installed on the executors."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._threads = ThreadPoolExecutor(max(2, context.defaultParallelism))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._threads.submit(self._job, partial(fn, *args, **kwargs))

    def _job(self, call: Callable[[], T]) -> T:
        def task(_: Any) -> T:
            return call()

        result: T = self._context.parallelize([0], 1).map(task).first()
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
