"""The whole command on a standalone cluster: a master and two workers on loopback decide as the small decider does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

import pyspark

from benchmarks.processes import free_port
from examples.smart_city.ofm import QUICK
from monitoring.counts.synthetic import city, rows, traffic
from monitoring.decisions.decider import Decider
from monitoring.decisions.store import Store
from monitoring.decisions.table import Table
from monitoring.forecasts.model import Pace
from monitoring.settings import Rules
from saps.statistics.files_io import file_of, write_rows

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark"), pytest.mark.spark]

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
TIMEOUT = 300.0
"""Seconds for what must come: on a machine under full load Java takes its time."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that hides the checkout from whoever has it."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.path[:] = [path for path in sys.path if not path.startswith({str(ROOT)!r}) "
        f"or path.startswith({str(Path(sys.prefix))!r})]\n"
    )
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel of this checkout installs."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as content:
        content.extractall(folder / "site")
    return folder / "site"


@contextmanager
def daemon(log: Path, alone: Path, *command: str, memory: str = "256m") -> Iterator[None]:
    """One of Spark's programs, ended at the end."""
    environment = os.environ | {
        "PYTHONPATH": str(alone),
        "SPARK_HOME": str(SPARK),
        "SPARK_DAEMON_MEMORY": memory,
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
    give_up = time.monotonic() + TIMEOUT
    while time.monotonic() < give_up:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} did not come: {log.read_text(errors='replace')[-2000:]}")


TOLD = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.app.name": "city",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
}
"""What `spark-submit` is told beside the directory of the event log."""
JOB = ("--once", "--lateness", "1s", "--horizon", "3", "--least", "0")


@contextmanager
def cluster(folder: Path, alone: Path) -> Iterator[str]:
    """A master and two workers on loopback, which have nothing of the checkout. Gives the master's address."""
    with ExitStack() as stack:
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = folder / "master.log"
        stack.enter_context(daemon(log, alone, "org.apache.spark.deploy.master.Master", *here))
        master = told(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        logs = [folder / f"worker{number}.log" for number in range(2)]
        for number, log in enumerate(logs):
            room = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"work{number}"))
            stack.enter_context(daemon(log, alone, "org.apache.spark.deploy.worker.Worker", *here, *room, master))
        for log in logs:
            told(log, r"(Successfully registered with master)")
        yield master


def counted(source: Path) -> Table:
    """Leaves counts of three windows, as brokers do. Gives what the small decider makes of them."""
    place = city(topics=40, clusters=3, brokers=2, seed=6)
    decider = Decider(Rules(pace=Pace(horizon=3), lateness=1000))
    for number in range(3):
        seen = list(rows(place, traffic(place, number)))
        for broker in sorted({row.broker for row in seen}):
            write_rows(file_of(source, broker, 1, seen[0].start), [row for row in seen if row.broker == broker])
        decider.feed(seen)
    expected = decider.decide()
    assert expected is not None
    assert len(expected.trees) > 3
    return expected


def decided(state: Path) -> Table:
    """The last table."""
    store = Store(state)
    return store.table(store.last().epoch)


@pytest.mark.soak
def test_a_master_and_two_workers_decide_as_the_small_decider_does_and_what_spark_submit_is_told_holds(
    tmp_path: Path, alone: Path, wheel: Path
) -> None:
    """From the wheel, with nothing of the checkout. The configuration is read back from the event log, which is one of
    the things that spark-submit is told."""
    source, state, events = (tmp_path / name for name in ("counts", "state", "events"))
    expected = counted(source)
    events.mkdir()
    wanted = {**TOLD, "spark.eventLog.dir": events.as_uri()}
    with cluster(tmp_path, alone) as master:
        argv = [str(SPARK / "bin" / "spark-submit"), "--master", master, "--driver-memory", "700m"]
        argv += ["--driver-java-options", QUICK, "--conf", f"spark.executor.extraJavaOptions={QUICK}"]
        argv += [part for name, value in wanted.items() for part in ("--conf", f"{name}={value}")]
        argv += [str(wheel / "monitoring" / "__main__.py"), *JOB]
        argv += ["--source", str(source), "--state", str(state)]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK, "PYTHONPATH": f"{alone}:{wheel}"}
        environment = os.environ | python | own
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT * 2, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert decided(state) == expected
    (log,) = events.iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = next(line["Spark Properties"] for line in lines if line["Event"] == "SparkListenerEnvironmentUpdate")
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["spark.driver.memory"] == "700m"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert "spark.sql.shuffle.partitions=3" in done.stdout + done.stderr


@contextmanager
def server(folder: Path, alone: Path) -> Iterator[str]:
    """A server of Spark Connect on loopback, which has nothing of the checkout. Gives its address."""
    port, log = free_port(), folder / "connect.log"
    told_to = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": 3,
        "spark.ui.enabled": "false",
    }
    argv = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    argv += [part for name, value in told_to.items() for part in ("--conf", f"{name}={value}")]
    argv += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with daemon(log, alone, *argv, memory="700m"):
        told(log, r"(Spark Connect server started)")
        yield f"sc://127.0.0.1:{port}"


def stumbling(folder: Path, alone: Path) -> Path:
    """A folder as `alone`, with which a server's first Python for batches fails before it runs one."""
    mark = folder / "stumbled"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        (alone / "sitecustomize.py").read_text()
        + f"import os, pathlib\nmark = pathlib.Path({str(mark)!r})\n"
        + "if any('foreach_batch_worker' in part for part in sys.orig_argv) and not mark.exists():\n"
        + "    mark.touch()\n    del os.environ['SPARK_CONNECT_LOCAL_URL']\n"
    )
    return folder


@pytest.mark.soak
def test_a_server_of_spark_connect_decides_as_the_small_decider_does(tmp_path: Path, alone: Path, wheel: Path) -> None:
    """From the wheel. The server gets the job's code from it, keeps its own configuration, and runs the batches; the
    command here sees them in its metrics. The server could not start them at the first attempt."""
    pytest.importorskip("grpc", reason="saps[connect] is not installed")
    source, state = tmp_path / "counts", tmp_path / "state"
    expected = counted(source)
    with server(tmp_path, stumbling(tmp_path / "first", alone)) as address:
        argv = [sys.executable, "-m", "monitoring", "--master", address, *JOB]
        argv += ["--source", str(source), "--state", str(state)]
        environment = os.environ | {"PYTHONPATH": f"{alone}:{wheel}"}
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT * 2, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the batches did not start: " in done.stderr
    assert decided(state) == expected
    store = Store(state)
    assert store.epochs() == [expected.epoch]
    assert store.last().batch == 0
    assert len(list((state / "batches" / "0" / "topics").glob("*.parquet"))) <= 3


@pytest.mark.soak
def test_they_do_when_the_command_names_the_master(tmp_path: Path, alone: Path) -> None:
    source, state = tmp_path / "counts", tmp_path / "state"
    expected = counted(source)
    with cluster(tmp_path, alone) as master:
        argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", str(source), "--state", str(state)]
        argv += ["--master", master, *JOB, "--memory", "512m", "--partitions", "2"]
        submit = f'--conf spark.executor.memory=512m --conf spark.executor.extraJavaOptions="{QUICK}" pyspark-shell'
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": submit, "JDK_JAVA_OPTIONS": QUICK}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT * 2, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert decided(state) == expected
