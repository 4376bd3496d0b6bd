"""Windows and decisions as tables of Delta Lake or Apache Iceberg, for whoever else works with them.

Spark writes the windows as Parquet files to where the table is; one commit, by the format's own library, adds them. No
jar is needed. Each epoch is in a table once, also if its batch is computed again: Delta keeps the last one as an
application's transaction, Iceberg in the summary of its snapshot.
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
"""The tables."""
_EPOCH = "saps-monitor.epoch"


class Lake(Protocol):
    """Tables of one format. All raise OSError."""

    def epoch(self, table: str) -> int:
        """The last one that was added, 0 before the first."""

    def folder(self, table: str, schema: pa.Schema) -> Folder:
        """Where the table is; it is made if it is not there."""

    def add(self, table: str, epoch: int, files: Sequence[str]) -> None:
        """Commit Parquet files below the table's folder, by their names in it."""


class Tables:
    """What the job keeps in a lake."""

    def __init__(self, lake: Lake, store: Store) -> None:
        self._lake = lake
        self._store = store

    def keep(self, windows: DataFrame, since: int, epoch: int, length: int) -> DataFrame:
        """Add the windows, of `length` ms, that are closed with an epoch and were not with that of `since` (both ms
        since 1970). Returns the same windows, to go on with."""
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
        """Add the decisions that have happened since the last epoch in the table."""
        last, before = self._store.last().closed, self._lake.epoch(DECISIONS)
        for epoch in self._store.epochs():
            if before < epoch <= last:
                rows = arrow_table(self._store.table(epoch)).replace_schema_metadata(None)
                folder = self._lake.folder(DECISIONS, rows.schema)
                name = f"data/{epoch}.parquet"
                write_table(folder, name, rows)
                self._lake.add(DECISIONS, epoch, [name])


class Delta:
    """A `Lake` in a folder: one Delta table in ``ROOT/windows``, one in ``ROOT/decisions``."""

    def __init__(self, root: str) -> None:
        """`root`: path or URI."""
        self._folder = folder_of(root)
        self._root = str(self._folder)
        self._made: dict[str, Any] = {}

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
    """A `Lake` in a namespace of a catalog: tables ``NAMESPACE.windows`` and ``NAMESPACE.decisions``."""

    def __init__(self, namespace: str) -> None:
        """The catalog is PyIceberg's `default` one (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__DEFAULT__URI``)."""
        from pyiceberg.catalog import load_catalog

        self._catalog = load_catalog()
        self._namespace = namespace
        self._catalog.create_namespace_if_not_exists(namespace)

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
    """``delta:URI`` or ``iceberg:NAMESPACE``. Raises ValueError for another, OSError, ImportError without its
    library."""
    if (fault := lake_fault(text)) is not None:
        raise ValueError(fault)
    kind, _, place = text.partition(":")
    return Delta(place) if kind == "delta" else Iceberg(place)
