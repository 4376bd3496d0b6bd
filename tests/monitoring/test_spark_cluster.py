"""The whole command on a standalone cluster: a master and two workers on loopback decide as the small decider does."""

from __future__ import annotations

import json
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

import monitoring
from examples.smart_city.ofm import QUICK
from monitoring.decider import Decider
from monitoring.model import Pace
from monitoring.settings import Rules
from monitoring.store import Store
from monitoring.synthetic import city, rows, traffic
from saps.statistics.files_io import file_of, write_rows

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
        options = [
            "--once",
            "--lateness",
            "1s",
            "--horizon",
            "3",
            "--least",
            "0",
            "--memory",
            "512m",
            "--partitions",
            "2",
        ]
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


def test_what_spark_submit_is_told_holds(tmp_path: Path) -> None:
    """Its configuration, read back from the event log, which is one of the things it is told."""
    place, source = city(topics=8, clusters=2, brokers=1, seed=6), tmp_path / "counts"
    for number in range(2):
        write_rows(file_of(source, "b", 1, number), list(rows(place, traffic(place, number))))
    (tmp_path / "events").mkdir()
    told = {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.app.name": "city",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    argv = [
        str(SPARK / "bin" / "spark-submit"),
        "--master",
        "local[1]",
        "--driver-memory",
        "700m",
        "--driver-java-options",
        QUICK,
    ]
    argv += [part for name, value in told.items() for part in ("--conf", f"{name}={value}")]
    argv += [str(Path(monitoring.__file__).parent / "__main__.py"), "--once", "--source", str(source)]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(argv, env=os.environ | python, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (log,) = (tmp_path / "events").iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    found = next(event["Spark Properties"] for event in events if event["Event"] == "SparkListenerEnvironmentUpdate")
    assert {name: found.get(name) for name in told} == told
    assert found["spark.driver.memory"] == "700m"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert "spark.sql.shuffle.partitions=3" in done.stdout + done.stderr
