"""The whole command with its state in S3 or HDFS: small files by Arrow or hdfs-native, Spark's by Hadoop's clients."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
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
from monitoring.files import LocalFolder, folder_of
from monitoring.forecasts.model import Pace
from monitoring.settings import Rules
from saps.statistics.files_io import encoded, file_of
from tests.monitoring.hdfs import fetch, served
from tests.monitoring.test_sources import at, s3
from tests.monitoring.test_spark_cluster import JOB

__all__ = ["s3"]  # pytest takes the fixture from here

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
    pytest.mark.spark,
    pytest.mark.soak,
]

CARRIER = "sagemaker_pyspark==1.4.5"
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
    fetch(folder, CARRIER)
    found = []
    with tarfile.open(next(folder.glob("*.tar.gz"))) as content:
        for member in content:
            if Path(member.name).name in JARS:
                member.name = Path(member.name).name
                content.extract(member, folder, filter="data")
                found.append(folder / member.name)
    return found


def decides_alike(source: str, state: str) -> None:
    """Run the command for three windows: each time it decides what the small decider does."""
    argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", source, "--state", state, *JOB]
    argv += ["--master", "local[2]", "--memory", "1g", "--partitions", "2"]
    decider, place = Decider(Rules(pace=Pace(horizon=3), lateness=1000)), city(topics=40, clusters=3, brokers=2, seed=6)
    counts, store = folder_of(source), Store(state)
    for number in range(3):
        seen = list(rows(place, traffic(place, number)))
        for broker, own in groupby(sorted(seen), key=attrgetter("broker")):
            batch = list(own)
            counts.write(str(file_of(Path(), broker, 1, batch[0].start)), encoded(batch))
        decider.feed(seen)
        done = subprocess.run(argv, env=os.environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        expected = decider.decide()
        assert expected is not None
        assert store.table(store.last().closed) == expected
        trees = expected.trees
    assert len(store.epochs()) == 3
    assert len(trees) > 3


def test_the_state_is_in_s3(tmp_path: Path, s3: str, jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    s3a = OF_THEN | {"endpoint": f"http://{s3}", "path.style.access": "true", "connection.ssl.enabled": "false"}
    s3a |= {"access.key": "key", "secret.key": "secret"}
    told = " ".join(f"--conf spark.hadoop.fs.s3a.{name}={value}" for name, value in s3a.items())
    told += " --conf spark.sql.streaming.checkpointFileManagerClass=org.apache.spark.sql.execution.streaming."
    told += "checkpointing.FileSystemBasedCheckpointFileManager"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {','.join(map(str, jars))} {told} pyspark-shell")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)
    decides_alike(str(tmp_path / "counts"), at(s3, "monitor"))
    assert not (tmp_path / "monitor").exists()


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the NameNode of a real HDFS."""
    with served(tmp_path_factory.mktemp("hdfs")) as address:
        yield address


def test_counts_and_state_are_in_hdfs(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)
    decides_alike(f"hdfs://{hdfs}/counts", f"hdfs://{hdfs}/monitor")


def test_a_folder_in_hdfs_is_as_one_on_a_disk(hdfs: str, tmp_path: Path) -> None:
    for folder in (LocalFolder(tmp_path), folder_of(f"hdfs://{hdfs}/folder")):
        for content in (b"one", b"two"):
            folder.write("a/b", content)
            assert folder.read("a/b") == content
        assert folder.names() == (set(), {"a"})
        assert folder.names("a") == ({"b"}, set())
        assert folder.names("none") == (set(), set())
        folder.delete("a/none")
        folder.delete("a")
        assert folder.names() == (set(), set())
        with pytest.raises(FileNotFoundError):
            folder.read("a/b")


def test_an_hdfs_that_is_away_is_said_in_one_line(tmp_path: Path) -> None:
    argv = [str(Path(sys.executable).parent / "saps"), "monitor", "--source", str(tmp_path), *JOB]
    done = subprocess.run(
        [*argv, "--state", "hdfs://127.0.0.1:1/state"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 2
    assert "hdfs://127.0.0.1:1/state: Connection refused" in done.stderr
    assert "Traceback" not in done.stderr
