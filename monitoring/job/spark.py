"""Starts Spark with the job's settings, and ships the job's code to the executors."""

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
from pyspark.sql.utils import is_remote

import monitoring
import saps
from monitoring.files import first_line
from monitoring.job.event_log import configuration

logger = logging.getLogger(__name__)

LOCAL_PARTITIONS = 4
"""Parts of the topics on one machine. More parts need less memory at a time, and add a fixed cost each."""
MEMORY = "3g"
"""Default Java heap of the driver."""
JAVA = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Default options of the Java of a driver with the executors in it. Java's second compiler, which compiles slowly and
well, begins ten times later than by default: of 64 s of Java for 1,000,000 rows it took 21 s."""


CONNECT = "sc://"
"""How the addresses of Spark Connect begin."""


class NoSparkError(Exception):
    """Spark's Java did not start, and has printed the reason on standard error; or Spark Connect does not answer."""


DEFAULTS = {
    "spark.app.name": "saps monitor",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(LOCAL_PARTITIONS),
    "spark.sql.adaptive.enabled": "false",  # it measures each stage before the next, which slows down small stages
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
"""The job's settings where Spark's own configuration has none."""
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Further default settings if the master is on this machine."""
UNNAMED = ("pyspark-shell", "__main__.py")
"""Names that Spark itself gives to an unnamed job."""


def session(
    master: str | None,
    memory: str | None = None,
    partitions: int | None = None,
    options: str = "",
    event_log: str | None = None,
) -> SparkSession:
    """Start Spark and return its session. A process can have only one.

    `master` None takes that of `spark-submit`; ``sc://HOST:PORT`` is a server of Spark Connect, which has a driver of
    its own. `memory` is the driver's Java heap, `partitions` the number of parts of the topics, `options` are options
    of the driver's Java, and `event_log` is a directory or URI for Spark's event log. Spark's own configuration
    (`spark-submit --conf`, ``PYSPARK_SUBMIT_ARGS``, ``spark-defaults.conf``) fills in missing settings, then
    `DEFAULTS`. Raises `NoSparkError`, OSError if the directory of the event log cannot be made, and ImportError without
    the libraries of Spark Connect."""
    if master is not None and master.startswith(CONNECT):
        return _connected(master, partitions)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if memory is None:
        os.environ.setdefault("SPARK_DRIVER_MEMORY", MEMORY)  # every other setting of Spark overrides it
    defaults = dict(DEFAULTS)
    given: dict[str, str] = {}
    if master is not None:
        given["spark.master"] = master
        if master.startswith("local"):
            os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA)  # the driver's options come after it, and override it
        if master.startswith("local") or "//127.0.0.1:" in master:
            defaults |= LOOPBACK
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Java resolves the machine's own name
    if memory is not None:
        given["spark.driver.memory"] = memory
    if options:
        given["spark.driver.extraJavaOptions"] = options
    if partitions is not None:
        given["spark.sql.shuffle.partitions"] = str(partitions)
    if event_log is not None:
        defaults |= configuration(event_log)
    launch = {"spark.ui.showConsoleProgress": "false", **given}  # else Spark takes the job for a shell and shows a bar
    try:
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(launch.items())))
        known = dict(SparkConf().getAll())  # the running Java has read all of Spark's own configuration
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


def _connected(master: str, partitions: int | None) -> SparkSession:
    """Return a session at a server of Spark Connect. The server's own configuration comes before `DEFAULTS`."""
    from pyspark.errors.exceptions.connect import SparkConnectException

    try:
        spark = SparkSession.builder.remote(master).getOrCreate()
        known = spark.conf.getAll
        wanted = {
            name: value for name, value in DEFAULTS.items() if name not in known and spark.conf.isModifiable(name)
        }
        if partitions is not None:
            wanted["spark.sql.shuffle.partitions"] = str(partitions)
        for name, value in wanted.items():
            spark.conf.set(name, value)
    except SparkConnectException as error:
        raise NoSparkError(f"{master} does not answer: {first_line(error)}") from None
    return spark


def ship(spark: SparkSession) -> None:
    """Ship this code to the executors as a zip, because not every executor accepts a wheel.

    The file's name is a digest of the code: Spark rejects a second file of the same name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as out:
        for package in (monitoring, saps):
            root = Path(package.__file__ or "").parent
            for file in sorted(root.rglob("*.py")):
                out.writestr(zipfile.ZipInfo(str(file.relative_to(root.parent))), file.read_bytes())
    archive = _shelf() / f"code-{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.zip"
    archive.write_bytes(content.getvalue())
    if is_remote():
        spark.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))


@cache
def _shelf() -> Path:
    """Return a temporary directory that stays until the process ends, because later executors fetch files from it."""
    directory = Path(tempfile.mkdtemp(prefix="saps-monitor-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
