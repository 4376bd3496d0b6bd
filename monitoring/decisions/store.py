"""The job's state: a directory by path or URI, in which one small file commits a batch.

    checkpoint/            Spark's record of the files of each batch
    batches/N/             results of batch N: `topics`, `open` (Parquet) and, written last, `commit.json`
    decisions/E.parquet    the table of epoch E, kept for ever
    sent/E                 an empty file, which says that OFGate has the table of epoch E
    inbox/ taken/ quarantine/       files of the intake

A batch without `commit.json` never happened, and is computed again from the same files. A committed batch is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from monitoring.decisions.audit import Account
from monitoring.decisions.decider import Heard
from monitoring.decisions.table import Decision, Table
from monitoring.files import first_line, folder_of, write_table
from monitoring.selection.selection import Held

if TYPE_CHECKING:
    import pyarrow as pa

GAP_KEY = b"saps.decisions.gap"
"""Key of `Table.gap` in a table's metadata."""


class Commit(NamedTuple):
    """The state that a batch leaves to the next one."""

    batch: int
    closed: int
    """Time in ms since 1970 up to which windows are closed."""
    held: dict[str, Held]
    topics: str
    """Directory of the topics' models, relative to the state; empty before the first epoch."""
    open: str
    """Directory of the rows of open windows, relative to the state; empty before the first batch."""
    epoch: int
    """Epoch of the batch's table; 0 if no window was closed."""
    digest: str
    """Digest of the batch's table; empty if no window was closed."""
    files: list[str]
    """Names of the inbox's files that the batch read."""
    heard: dict[str, Heard] = {}  # safe as a default: never changed in place
    """The brokers heard lately (`decider.Clock`)."""
    ended: tuple[float, float] = (0.0, 0.0)
    """Bytes that all former trees saved, and the bytes predicted for them (`audit.Account`)."""
    rows: int = 0
    """Rows that all batches read."""
    late: dict[str, int] = {}
    """Of them, rows of windows that were closed before, by broker."""
    fast: dict[str, int] = {}
    """Batches with rows ahead of the job's clock, by broker."""

    def money(self) -> tuple[float, float]:
        """Return the bytes that all trees, former and present, have saved, and the bytes predicted for them."""
        accounts = [held.account for held in self.held.values() if held.tree]
        saved, predicted = self.ended
        return saved + sum(each.saved for each in accounts), predicted + sum(each.predicted for each in accounts)


HISTORY = 14 * 86_400_000
"""Time in ms for which tables of decisions are kept."""
NOTHING = Commit(-1, 0, {}, "", "", 0, "", [])
"""The state before the first batch."""


class Store:
    """Reads and writes the state directory."""

    def __init__(self, root: str | Path) -> None:
        """`root` is a path or URI. Raises the errors of `monitoring.files.folder_of`."""
        self.folder = folder_of(root)

    def last(self) -> Commit:
        """Return the last committed batch, or `NOTHING`. Raises OSError, which names the folder."""
        try:
            batches = self.folder.names("batches").folders
        except OSError as error:
            raise OSError(f"{self.folder}: {first_line(error)}") from error
        for batch in sorted(map(int, batches), reverse=True):
            try:
                return self.commit_of(batch)
            except FileNotFoundError:
                continue
        return NOTHING

    def commit_of(self, batch: int) -> Commit:
        """Return the commit of a batch. Raises OSError if the batch was not committed."""
        plain = json.loads(self.folder.read(f"batches/{batch}/commit.json"))
        held = {
            topic: Held(tree, since, *(until[:1]), *(Account(*account) for account in until[1:]))
            for topic, (tree, since, *until) in plain["held"].items()
        }
        heard = {broker: Heard(*last) for broker, last in plain.get("heard", {}).items()}
        ended = tuple(plain.get("ended", (0.0, 0.0)))
        return Commit(**plain | {"held": held, "heard": heard, "ended": ended})

    def fresh(self, batch: int) -> str:
        """Return an empty directory for the results of a batch, relative to the state.

        Results of an earlier attempt are deleted."""
        self.folder.delete(f"batches/{batch}")
        return f"batches/{batch}"

    def commit(self, commit: Commit) -> None:
        """Commit a batch, and delete the results of earlier batches that the next one does not need."""
        self.folder.write(f"batches/{commit.batch}/commit.json", json.dumps(commit._asdict()).encode())
        needed = {str(commit.batch), *(name.split("/")[1] for name in (commit.topics, commit.open) if name)}
        for name in self.folder.names("batches").folders - needed:
            self.folder.delete(f"batches/{name}")

    def forget(self, files: Iterable[str]) -> None:
        """Delete files of the inbox. The batch that read them must be committed."""
        for name in files:
            self.folder.delete(f"inbox/{name}")

    # --- decisions ------------------------------------------------------------------------------------------------

    def keep(self, table: Table) -> None:
        """Add a table to the history, and delete those older than `HISTORY`. Adding the same table again changes
        nothing."""
        write_table(self.folder, f"decisions/{table.epoch}.parquet", arrow_table(table))
        for epoch in self.epochs():
            if epoch < table.epoch - HISTORY:
                self.folder.delete(f"decisions/{epoch}.parquet")

    def epochs(self) -> list[int]:
        """Return the epochs of the history, ascending."""
        return sorted(int(name.removesuffix(".parquet")) for name in self._names("decisions") if ".parquet" in name)

    def table(self, epoch: int) -> Table:
        """Return the table of an epoch. Raises OSError if the history has none."""
        found = self.folder.table(f"decisions/{epoch}.parquet")
        gap = float((found.schema.metadata or {}).get(GAP_KEY, b"0"))
        return Table(epoch, [Decision(**row) for row in found.to_pylist()], gap)

    def _names(self, folder: str) -> set[str]:
        return {name for name in self.folder.names(folder, kinds=False).files if not name.startswith(".")}

    # --- what OFGate has --------------------------------------------------------------------------------------------

    def unsent(self) -> list[int]:
        """Return the committed epochs after the last one that OFGate has, ascending."""
        newest = max(self._sent(), default=-1)
        happened = self.last().closed
        return [epoch for epoch in self.epochs() if newest < epoch <= happened]

    def mark_sent(self, epoch: int) -> None:
        """Note that OFGate has the table of this epoch, which replaces earlier ones."""
        self.folder.write(f"sent/{epoch}", b"")
        for earlier in self._sent():
            if earlier < epoch:
                self.folder.delete(f"sent/{earlier}")

    def _sent(self) -> list[int]:
        return [int(name) for name in self._names("sent") if name.isdecimal()]


def arrow_table(table: Table) -> pa.Table:
    """Return the decisions as columns. `Table.gap` is in the metadata under `GAP_KEY`."""
    import pyarrow as pa

    kinds: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    hints = get_type_hints(Decision)
    fields = [(name, kinds[hints[name]]) for name in Decision._fields]
    schema = pa.schema(fields, metadata={GAP_KEY: repr(table.gap).encode()})
    columns = list(zip(*table.decisions, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
