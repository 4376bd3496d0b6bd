"""The whole command with its state in S3: moto's server, Arrow for the small files, Hadoop's S3A for Spark's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("moto.server", exc_type=ImportError)
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

from examples.smart_city.ofm import QUICK
from monitoring.counts.synthetic import city, rows, traffic
from monitoring.decisions.decider import Decider
from monitoring.decisions.store import Store
from monitoring.forecasts.model import Pace
from monitoring.settings import Rules
from tests.monitoring.test_sources import at, s3
from tests.monitoring.test_spark_cluster import JOB
from tests.monitoring.test_spark_job import leave

__all__ = ["s3"]  # pytest takes the fixture from here

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
    pytest.mark.spark,
    pytest.mark.soak,
]

CARRIER = "sagemaker_pyspark", "1.4.5"
"""The one package in PyPI, npm and Debian that has a `hadoop-aws`: of Hadoop 3.3.1, while Spark has 3.5."""
JARS = "hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar"
OF_THEN = {
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "multipart.purge.age": "86400",
    "threads.keepalivetime": "60",
}
"""What Hadoop 3.5 takes for granted, in the words of 3.3.1."""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """S3A's jars, from PyPI: 180 MB."""
    folder = tmp_path_factory.mktemp("jars")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "-d", str(folder)]
    done = subprocess.run([*argv, "==".join(CARRIER)], capture_output=True, text=True, timeout=600, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"{CARRIER[0]} cannot be had: {done.stderr[-200:]}")
    found = []
    with tarfile.open(archives[0]) as content:
        for member in content:
            if Path(member.name).name in JARS:
                member.name = Path(member.name).name
                content.extract(member, folder, filter="data")
                found.append(folder / member.name)
    return found


def test_the_state_is_in_s3_and_each_run_goes_on(
    tmp_path: Path, s3: str, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, state = tmp_path / "counts", at(s3, "monitor")
    s3a = OF_THEN | {"endpoint": f"http://{s3}", "path.style.access": "true", "connection.ssl.enabled": "false"}
    s3a |= {"access.key": "key", "secret.key": "secret"}
    told = " ".join(f"--conf spark.hadoop.fs.s3a.{name}={value}" for name, value in s3a.items())
    told += " --conf spark.sql.streaming.checkpointFileManagerClass=org.apache.spark.sql.execution.streaming."
    told += "checkpointing.FileSystemBasedCheckpointFileManager"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {','.join(map(str, jars))} {told} pyspark-shell")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)
    argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", str(source), "--state", state, *JOB]
    argv += ["--master", "local[2]", "--memory", "1g", "--partitions", "2"]
    decider, place = Decider(Rules(pace=Pace(horizon=3), lateness=1000)), city(topics=40, clusters=3, brokers=2, seed=6)
    for number in range(3):
        seen = list(rows(place, traffic(place, number)))
        leave(source, seen)
        decider.feed(seen)
        done = subprocess.run(argv, env=os.environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        expected = decider.decide()
        store = Store(state)
        assert expected is not None
        assert store.table(store.last().closed) == expected
        trees = len(expected.trees)
    assert len(store.epochs()) == 3
    assert trees > 3
    assert not (tmp_path / "monitor").exists()
