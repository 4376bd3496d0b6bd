"""A sweep on Spark gives what it gives on this machine's cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from research.engine import Engine, executor
from research.published import Setting
from research.tdcdoda import study

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'saps[spark]')")

INSTANCES = [study.Instance(Setting(20, 10, 3), seed) for seed in range(3)]


def main() -> None:
    """In a process of its own: there can be one Spark context in a process."""
    with executor(Engine.SPARK, "local[2]") as jobs:
        for measured in jobs.map(study.measure, INSTANCES, [1] * len(INSTANCES)):
            print(repr(measured))


@pytest.mark.simulation
@pytest.mark.xdist_group("spark")
def test_the_engine_changes_no_result() -> None:
    from examples.smart_city.ofm import QUICK  # here: the file is a program, too, which finds no examples

    quick = os.environ | {"JDK_JAVA_OPTIONS": QUICK}
    expected = [repr(study.measure(instance, 1)) for instance in INSTANCES]  # first: what is compiled here is kept
    run = subprocess.run([sys.executable, Path(__file__)], capture_output=True, text=True, check=True, env=quick)
    assert run.stdout.splitlines() == expected


if __name__ == "__main__":
    main()
