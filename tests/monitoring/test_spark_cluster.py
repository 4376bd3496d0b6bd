"""The whole command on a standalone cluster: a master and two workers on loopback decide as the small decider does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

import pyspark

from examples.smart_city.ofm import QUICK
from monitoring.decider import Decider
from monitoring.model import Pace
from monitoring.settings import Rules
from monitoring.store import Store
from monitoring.synthetic import city, rows, traffic
from saps.statistics.files import file_of, write_rows

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark"), pytest.mark.spark]

SPARK = Path(pyspark.__file__).parent
PATIENCE = 300.0
"""Seconds for what must come: on a machine under full load Java takes its time."""


@contextmanager
def daemon(log: Path, *command: str) -> Iterator[None]:
    """One of Spark's programs, ended at the end."""
    environment = os.environ | {
        "SPARK_HOME": str(SPARK),
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": QUICK,  # also for the Java that only puts together the command line
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.master.rest.enabled=false",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as out:
        argv = [str(SPARK / "bin" / "spark-class"), *command]
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def told(log: Path, pattern: str) -> str:
    """What a program's log says, once it does."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} did not come: {log.read_text(errors='replace')[-2000:]}")


def test_a_master_and_two_workers_decide_as_the_small_decider_does(tmp_path: Path) -> None:
    place, source, state = city(topics=40, clusters=3, brokers=2, seed=6), tmp_path / "counts", tmp_path / "state"
    decider = Decider(Rules(pace=Pace(horizon=3), lateness=1000))
    for number in range(3):
        seen = list(rows(place, traffic(place, number)))
        for broker in sorted({row.broker for row in seen}):
            write_rows(file_of(source, broker, 1, seen[0].start), [row for row in seen if row.broker == broker])
    decider.feed([row for number in range(3) for row in rows(place, traffic(place, number))])
    with ExitStack() as stack:
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = tmp_path / "master.log"
        stack.enter_context(daemon(log, "org.apache.spark.deploy.master.Master", *here))
        master = told(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        logs = [tmp_path / f"worker{number}.log" for number in range(2)]
        for number, log in enumerate(logs):
            room = ("--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work{number}"))
            stack.enter_context(daemon(log, "org.apache.spark.deploy.worker.Worker", *here, *room, master))
        for log in logs:
            told(log, r"(Successfully registered with master)")
        options = ["--once", "--lateness", "1s", "--horizon", "3", "--memory", "512m", "--partitions", "2"]
        argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", str(source), "--state", str(state)]
        argv += ["--master", master, *options]
        submit = f'--conf spark.executor.memory=512m --conf spark.executor.extraJavaOptions="{QUICK}" pyspark-shell'
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": submit, "JDK_JAVA_OPTIONS": QUICK}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    store = Store(state)
    expected = decider.decide()
    assert expected is not None
    assert store.table(store.last().epoch) == expected
    assert len(expected.trees) > 3
