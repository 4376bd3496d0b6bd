"""A sweep on Spark is one job, and writes what a sweep on this machine's cores writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from research.engine import Engine, Sweep, in_turn, sweep
from research.tdcdoda import study

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'saps[spark]')")

LINES = study.rows(quick=True)[:1]
REPETITIONS = 3


def main() -> None:
    """In a process of its own: there can be one Spark context in a process."""
    from pyspark import SparkContext

    with sweep(Engine.SPARK, "local[2]") as computes:
        print(written(computes))
        tracker = SparkContext.getOrCreate().statusTracker()
        print("jobs", sum(tracker.getJobInfo(job) is not None for job in range(10)))


def written(computes: Sweep) -> str:
    """The JSON of some cells; all parts are told of."""
    told: list[tuple[int, int]] = []
    measured = study.run(LINES, REPETITIONS, 1, computes, lambda *far: told.append(far))
    assert told[-1] == (REPETITIONS, REPETITIONS)
    return json.dumps([cell._asdict() for cell in study.records(LINES, measured)])


@pytest.mark.simulation
@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_the_engine_changes_no_result() -> None:
    from examples.smart_city.ofm import QUICK  # here: the file is a program, too, which finds no examples

    expected = written(in_turn)  # first: what is compiled here is kept
    quick = os.environ | {"JDK_JAVA_OPTIONS": QUICK}
    run = subprocess.run([sys.executable, Path(__file__)], capture_output=True, text=True, check=True, env=quick)
    assert run.stdout.splitlines() == [expected, "jobs 1"]


if __name__ == "__main__":
    main()
