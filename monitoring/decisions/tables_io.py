"""Adds windows and decisions to tables of Delta Lake or Apache Iceberg, for use by other programs.

Spark writes the windows as Parquet files into the table's folder, and one commit by the format's own library adds them.
No jar is needed. A table has each epoch once, even if its batch is computed again. Delta records the last epoch as an
application transaction, and Iceberg in the summary of a snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from monitoring.decisions.store import Store, arrow_table
from monitoring.files import Folder, folder_of, write_table
from monitoring.settings import lake_fault

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

APP = "saps-monitor"
WINDOWS, DECISIONS = "windows", "decisions"
"""Names of the tables."""
_EPOCH = "saps-monitor.epoch"


class Lake(Protocol):
    """The tables of one format. All methods raise OSError."""

    def epoch(self, table: str) -> int:
        """Return the last epoch that was added to a table, or 0 before the first."""

    def folder(self, table: str, schema: pa.Schema) -> Folder:
        """Return the folder of a table. A missing table is created with `schema`."""

    def add(self, table: str, epoch: int, files: Sequence[str]) -> None:
        """Commit the Parquet files of an epoch. `files` are names relative to the table's folder."""


class Tables:
    """Writes the job's windows and decisions into the tables of a lake."""

    def __init__(self, lake: Lake, store: Store) -> None:
        self._lake = lake
        self._store = store

    def keep(self, windows: DataFrame, since: int, epoch: int, length: int) -> DataFrame:
        """Add the windows that closed after `since` and by `epoch` (both ms since 1970); `length` is a window's, in ms.

        Windows that the table has already are not added again. Returns the same windows for further use; they are read
        back from the table's files where these hold all of them, so that Spark does not compute them twice."""
        from pyspark.sql import functions as F  # noqa: N812  # its usual name
        from pyspark.sql.pandas.types import to_arrow_schema

        before = self._lake.epoch(WINDOWS)
        if before >= epoch:
            return windows
        folder = self._lake.folder(WINDOWS, to_arrow_schema(windows.schema))
        name = f"data/{epoch}"
        new = windows if before <= since else windows.where(F.col("start") + length > before)
        new.write.mode("overwrite").parquet(folder.uri(name))
        found = folder.names(name, kinds=False).files
        files = [f"{name}/{file}" for file in sorted(found) if file.endswith(".parquet") and file[0] not in "._"]
        self._lake.add(WINDOWS, epoch, files)
        if before > since:
            return windows
        return windows.sparkSession.read.schema(windows.schema).parquet(folder.uri(name))

    def flush(self) -> None:
        """Add the committed decisions after the last epoch in the table."""
        last, before = self._store.last().closed, self._lake.epoch(DECISIONS)
        for epoch in self._store.epochs():
            if before < epoch <= last:
                rows = arrow_table(self._store.table(epoch)).replace_schema_metadata(None)
                folder = self._lake.folder(DECISIONS, rows.schema)
                name = f"data/{epoch}.parquet"
                write_table(folder, name, rows)
                self._lake.add(DECISIONS, epoch, [name])


class Delta:
    """A `Lake` in a folder with two Delta tables, ``ROOT/windows`` and ``ROOT/decisions``."""

    def __init__(self, root: str) -> None:
        """`root` is a path or URI."""
        self._folder = folder_of(root)
        self._root = str(self._folder)
        self._made: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[Delta], tuple[str]]:
        return Delta, (self._root,)

    def epoch(self, table: str) -> int:
        found = self._table(table)
        return 0 if found is None else int(found.transaction_version(APP) or 0)

    def folder(self, table: str, schema: pa.Schema) -> Folder:
        from deltalake import DeltaTable

        if self._table(table) is None:
            self._made[table] = DeltaTable.create(f"{self._root}/{table}", schema, name=f"saps_{table}")
        return folder_of(f"{self._root}/{table}")

    def add(self, table: str, epoch: int, files: Sequence[str]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        found, folder = self._table(table), folder_of(f"{self._root}/{table}")
        assert found is not None
        now, actions = int(time.time() * 1000), []
        for name in files:
            size, rows = folder.measured(name)
            actions.append(AddAction(name, size, {}, now, True, json.dumps({"numRecords": rows})))
        done = CommitProperties(app_transactions=[Transaction(APP, epoch, now)])
        found.create_write_transaction(actions, "append", found.schema(), commit_properties=done)

    def _table(self, name: str) -> Any:
        from deltalake import DeltaTable

        if name not in self._made:
            where = f"{self._root}/{name}"
            if not DeltaTable.is_deltatable(where):
                return None
            self._made[name] = DeltaTable(where)
        self._made[name].update_incremental()
        return self._made[name]


class Iceberg:
    """A `Lake` in a namespace of a catalog, with the tables ``NAMESPACE.windows`` and ``NAMESPACE.decisions``."""

    def __init__(self, namespace: str) -> None:
        """Open PyIceberg's `default` catalog (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__DEFAULT__URI``).

        A missing namespace is created."""
        from pyiceberg.catalog import load_catalog

        self._catalog = load_catalog()
        self._namespace = namespace
        self._catalog.create_namespace_if_not_exists(namespace)

    def __reduce__(self) -> tuple[type[Iceberg], tuple[str]]:
        return Iceberg, (self._namespace,)

    def epoch(self, table: str) -> int:
        if not self._catalog.table_exists(f"{self._namespace}.{table}"):
            return 0
        found = self._table(table).metadata.snapshots
        return max(
            (int(each.summary[_EPOCH] or 0) for each in found if each.summary and _EPOCH in each.summary), default=0
        )

    def folder(self, table: str, schema: pa.Schema) -> Folder:
        self._catalog.create_table_if_not_exists(f"{self._namespace}.{table}", schema)
        return folder_of(self._table(table).location())

    def add(self, table: str, epoch: int, files: Sequence[str]) -> None:
        found = self._table(table)
        location = found.location().rstrip("/")
        found.add_files([f"{location}/{name}" for name in files], snapshot_properties={_EPOCH: str(epoch)})

    def _table(self, name: str) -> Any:
        return self._catalog.load_table(f"{self._namespace}.{name}")


def lake_of(text: str) -> Lake:
    """Return the lake that ``delta:URI`` or ``iceberg:NAMESPACE`` names.

    Raises ValueError for any other text, OSError if the place cannot be reached, and ImportError without the format's
    library."""
    if (fault := lake_fault(text)) is not None:
        raise ValueError(fault)
    kind, _, place = text.partition(":")
    return Delta(place) if kind == "delta" else Iceberg(place)
