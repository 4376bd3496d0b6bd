"""Spark's event log, for its history server: on by default, and bounded.

A run's log is a folder of files of `FILE`. When there are more than twice `FILES`, Spark's own compaction drops the
events of jobs that have ended from all but the last `FILES`, as its history server does. The logs of `RUNS` runs stay.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from monitoring.files import first_line

logger = logging.getLogger(__name__)

FILE = "10m"
"""Size of a file of the log, the least that Spark takes."""
FILES = 3
"""Files of a run that keep all events."""
RUNS = 20
"""Runs whose logs are kept, the present one among them."""
_FOLDER = "eventlog_v2_"
"""How Spark's name of a run's folder begins."""


def configuration(place: str) -> dict[str, str]:
    """Return Spark's settings for a log at `place`, a directory or URI.

    A directory is created, and the oldest runs' logs in it are deleted. Raises OSError if it cannot be created."""
    if "://" not in place:
        folder = Path(place).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        logs = sorted(folder.glob(f"{_FOLDER}*"), key=lambda path: path.stat().st_mtime)
        for log in logs[: -RUNS + 1]:
            shutil.rmtree(log, ignore_errors=True)
        place = folder.as_uri()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": place,
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": FILE,
    }


class Compaction:
    """Keeps the log of this run small. That of Spark Connect is its server's."""

    def __init__(self, spark: SparkSession) -> None:
        self._place = ""
        if is_remote():
            return
        context = spark.sparkContext
        self._java: Any = context._jvm
        self._settings: Any = context._jsc.sc().conf()
        self._hadoop: Any = context._jsc.hadoopConfiguration()
        wanted = self._settings.get("spark.eventLog.enabled", "false") == "true"
        if wanted and self._settings.get("spark.eventLog.rolling.enabled", "true") == "true":
            self._place = f"{self._settings.get('spark.eventLog.dir')}/{_FOLDER}{context.applicationId}"

    def run(self) -> None:
        """Drop events of ended jobs if enough files are full. What Spark does not do is logged once."""
        if not self._place:
            return
        try:
            history = self._java.org.apache.spark.deploy.history
            path = self._java.org.apache.hadoop.fs.Path(self._place)
            system = path.getFileSystem(self._hadoop)
            files = history.EventLogFileReader.apply(system, path).get().listEventLogFiles()
            if files.size() > 2 * FILES:
                history.EventLogFileCompactor(self._settings, self._hadoop, system, FILES, 0.0).compact(files)
        except (Py4JError, TypeError) as error:
            self._place = ""
            logger.warning("Spark's event log is not compacted, and grows: %s", first_line(error))
