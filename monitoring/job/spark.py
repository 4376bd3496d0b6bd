"""Spark as the job wants it: settings with reasons, and how its code reaches the executors."""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import os
import shutil
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import monitoring
import saps

logger = logging.getLogger(__name__)

LOCAL_PARTITIONS = 4
"""Parts that topics are divided into on one machine. More needs less memory at a time, and costs more per part."""
MEMORY = "3g"
"""Java heap of the driver."""


class NoSparkError(Exception):
    """Spark's Java cannot be started here. It has said why on standard error."""


DEFAULTS = {
    "spark.app.name": "saps monitor",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(LOCAL_PARTITIONS),
    "spark.sql.adaptive.enabled": "false",  # it measures each stage before the next: more time for small ones
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
"""What is set where Spark's own configuration says nothing."""
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Also, where all is on this machine."""
UNNAMED = ("pyspark-shell", "__main__.py")
"""Names that Spark itself gives a job that has none."""


def session(
    master: str | None,
    memory: str | None = None,
    partitions: int | None = None,
    options: str = "",
    event_log: str | None = None,
) -> SparkSession:
    """A session. `master` None: what `spark-submit` says; `options`: for the driver's Java; `event_log`: a directory
    or a URI of Spark's. One in a process only.

    What is not given is as Spark's own configuration says (`spark-submit --conf`, ``PYSPARK_SUBMIT_ARGS``,
    ``spark-defaults.conf``), and only then as `DEFAULTS` do. Raises `NoSparkError`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if memory is None:
        os.environ.setdefault("SPARK_DRIVER_MEMORY", MEMORY)  # whatever else is said goes before it
    defaults = dict(DEFAULTS)
    given: dict[str, str] = {}
    if master is not None:
        given["spark.master"] = master
        if master.startswith("local") or "//127.0.0.1:" in master:
            defaults |= LOOPBACK
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Java asks for the machine's own name's address
    if memory is not None:
        given["spark.driver.memory"] = memory
    if options:
        given["spark.driver.extraJavaOptions"] = options
    if partitions is not None:
        given["spark.sql.shuffle.partitions"] = str(partitions)
    if event_log is not None:
        if "://" not in event_log:
            Path(event_log).mkdir(parents=True, exist_ok=True)
            event_log = Path(event_log).absolute().as_uri()
        given |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": event_log}
    launch = {"spark.ui.showConsoleProgress": "false", **given}  # else Spark takes this for a shell, and shows it
    try:
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(launch.items())))
        known = dict(SparkConf().getAll())  # the Java that runs now has read all of Spark's own configuration
        if known.get("spark.app.name") in UNNAMED:
            del known["spark.app.name"]
        kept = {name: known[name] for name in defaults if known.get(name, defaults[name]) != defaults[name]}
        if kept:
            said = ", ".join(f"{name}={value}" for name, value in sorted(kept.items()) if name not in given)
            logger.info("from Spark's own configuration: %s", said)
        settings = {name: value for name, value in defaults.items() if name not in known} | given
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise NoSparkError(f"Spark's Java did not start, see above; it needs Java 17: {error}") from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def ship(spark: SparkSession) -> None:
    """Give the executors this code, as a zip: a wheel is not taken by all of them. The same code makes the same file,
    for Spark does not take two of one name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as out:
        for package in (monitoring, saps):
            root = Path(package.__file__ or "").parent
            for file in sorted(root.rglob("*.py")):
                out.writestr(zipfile.ZipInfo(str(file.relative_to(root.parent))), file.read_bytes())
    archive = _shelf() / f"code-{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.zip"
    archive.write_bytes(content.getvalue())
    spark.sparkContext.addPyFile(str(archive))


@cache
def _shelf() -> Path:
    """A directory of this machine that stays until the process ends: executors that come later are served from it."""
    directory = Path(tempfile.mkdtemp(prefix="saps-monitor-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
