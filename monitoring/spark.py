"""Spark as the job wants it: settings with reasons, and how its code reaches the executors."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import monitoring
import saps

LOCAL_PARTITIONS = 4
"""Parts that topics are divided into on one machine. More needs less memory at a time, and costs more per part."""


class NoSparkError(Exception):
    """Spark's Java cannot be started here. It has said why on standard error."""


def session(master: str | None, memory: str = "3g", partitions: int | None = None, options: str = "") -> SparkSession:
    """A session. `master` None: what `spark-submit` says; `options`: for the driver's Java. One in a process only.

    Raises `NoSparkError`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("saps monitor")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local") or "//127.0.0.1:" in master:
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Java asks for the machine's own name's address
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions or LOCAL_PARTITIONS),
        "spark.sql.adaptive.enabled": "false",  # the parts of two joined inputs must be the same ones
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise NoSparkError(f"Spark's Java did not start, see above; it needs Java 17: {error}") from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def ship(spark: SparkSession, directory: Path) -> None:
    """Give the executors this code, as a zip: a wheel is not taken by all of them. The same code makes the same file,
    for Spark does not take two of one name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as out:
        for package in (monitoring, saps):
            root = Path(package.__file__ or "").parent
            for file in sorted(root.rglob("*.py")):
                out.writestr(zipfile.ZipInfo(str(file.relative_to(root.parent))), file.read_bytes())
    archive = directory / f"code-{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.zip"
    archive.write_bytes(content.getvalue())
    spark.sparkContext.addPyFile(str(archive))
