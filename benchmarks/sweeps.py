"""How much faster a sweep of `saps reproduce` is on two Spark workers than on one: ``python -m benchmarks.sweeps``.

A standalone master and workers of one core each run on loopback. Beside the clock it counts each worker's processor
time, since on a machine with other work the clock says little: all tasks together by the busier worker's is the
speed-up that two idle cores would show, but for Spark's own share.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from research.engine import Engine, sweep
from research.overlay_designs.overlay import Statistics
from research.tdcdoda import study

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Java asks for the address of the machine's own name
SPARK = Path(pyspark.__file__).parent
LINES = [line for line in study.rows() if line.table.number == "I"]
REPETITIONS = 8
SEED = 1
TIMEOUT = 120.0
"""Seconds for Spark's programs to start."""


class Timed(NamedTuple):
    """One part of the sweep."""

    figures: dict[str, Statistics]
    process: int
    seconds: float
    """Of processor."""


def timed(instance: study.Instance) -> Timed:
    """Measure the instance, and what that takes."""
    begin = time.process_time()
    figures = study.measure(instance, SEED)
    return Timed(figures, os.getpid(), time.process_time() - begin)


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """A master and workers of one core each. Gives the master's address."""
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(_daemon(folder / "master.log", "master.Master", *here))
        url = _told(master, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for number in range(workers):
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            log = stack.enter_context(_daemon(folder / f"{number}.log", "worker.Worker", *here, *room, url))
            _told(log, r"(Successfully registered with master)")
        yield url


@contextmanager
def _daemon(log: Path, name: str, *options: str) -> Iterator[Path]:
    environment = os.environ | {
        "SPARK_HOME": str(SPARK),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield log
        finally:
            process.terminate()


def _told(log: Path, pattern: str) -> str:
    give_up = time.monotonic() + TIMEOUT
    while time.monotonic() < give_up:
        if (found := re.search(pattern, log.read_text(errors="replace"))) is not None:
            return found[1]
        time.sleep(0.2)
    raise TimeoutError(f"{log} does not say {pattern}")


def main() -> None:
    """Print the figures of docs/for-researchers.md."""
    instances = [study.Instance(line.setting, number) for line in LINES for number in range(REPETITIONS)]
    study.measure(instances[0], SEED)  # compiles
    taken, cells = dict[int, float](), set[str]()
    for workers in (1, 2):
        with (
            tempfile.TemporaryDirectory() as folder,
            cluster(Path(folder), workers) as url,
            sweep(Engine.SPARK, url) as computes,
        ):
            computes(timed, instances[:4])  # starts Python, loads the code
            begin = time.perf_counter()
            found = computes(timed, instances)
            taken[workers] = time.perf_counter() - begin
        busy: dict[int, float] = defaultdict(float)
        for part in found:
            busy[part.process] += part.seconds
        every, most = sum(busy.values()), max(busy.values())
        print(f"{workers} workers: {len(instances)} parts in {taken[workers]:.1f} s, load {os.getloadavg()[0]:.1f};")
        print(f"  processor {every:.1f} s, of it the busier worker {most:.1f} s: {every / most:.2f} times")
        cells.add(repr([part.figures for part in found]))
    print(f"speed-up by the clock {taken[1] / taken[2]:.2f}; results {'the same' if len(cells) == 1 else 'DIFFER'}")


if __name__ == "__main__":
    main()
