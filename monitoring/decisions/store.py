"""What the job keeps: one directory, by path or URI, which moves from epoch to epoch as one small file appears.

    checkpoint/            Spark's: which files belong to which batch
    batches/N/             what batch N has computed: `topics`, `open` (Parquet) and, last, `commit.json`
    decisions/E.parquet    the table of epoch E, for ever
    sent/E                 an empty file: OFGate has it
    inbox/ taken/ quarantine/       the intake's

A batch without `commit.json` never happened: it is computed again, from the same files. With it, it is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from monitoring.decisions.audit import Account
from monitoring.decisions.decider import Heard
from monitoring.decisions.table import Decision, Table
from monitoring.files import folder_of, write_table
from monitoring.selection.selection import Held

if TYPE_CHECKING:
    import pyarrow as pa

GAP_KEY = b"saps.decisions.gap"
"""Key of `Table.gap` in a table's metadata."""


class Commit(NamedTuple):
    """What a batch leaves to the next one."""

    batch: int
    closed: int
    """Windows that end by then are closed."""
    held: dict[str, Held]
    topics: str
    """Directory of the topics' models, relative; empty before the first."""
    open: str
    """Directory of the rows of open windows."""
    epoch: int
    """Of the table that was decided, 0 if no window was closed."""
    digest: str
    files: list[str]
    """Names of the inbox's files that were read."""
    heard: dict[str, Heard] = {}  # a value like the others; never changed
    """The brokers heard of lately (`decider.Clock`)."""
    ended: tuple[float, float] = (0.0, 0.0)
    """Bytes saved, and predicted, by all trees that are no more (`audit.Account`)."""

    def money(self) -> tuple[float, float]:
        """The same of all trees."""
        accounts = [held.account for held in self.held.values() if held.tree]
        saved, predicted = self.ended
        return saved + sum(each.saved for each in accounts), predicted + sum(each.predicted for each in accounts)


NOTHING = Commit(-1, 0, {}, "", "", 0, "", [])
"""Before the first batch."""


class Store:
    """The directory."""

    def __init__(self, root: str | Path) -> None:
        """By path or URI (`monitoring.files`). Raises OSError, ValueError."""
        self.folder = folder_of(root)

    def last(self) -> Commit:
        """The last batch that was committed."""
        for batch in sorted(map(int, self.folder.names("batches").folders), reverse=True):
            try:
                return self.commit_of(batch)
            except FileNotFoundError:
                continue
        return NOTHING

    def commit_of(self, batch: int) -> Commit:
        """What a batch has left. Raises OSError if it was not committed."""
        plain = json.loads(self.folder.read(f"batches/{batch}/commit.json"))
        held = {
            topic: Held(tree, since, *(until[:1]), *(Account(*account) for account in until[1:]))
            for topic, (tree, since, *until) in plain["held"].items()
        }
        heard = {broker: Heard(*last) for broker, last in plain.get("heard", {}).items()}
        ended = tuple(plain.get("ended", (0.0, 0.0)))
        return Commit(**{**plain, "held": held, "heard": heard, "ended": ended})

    def fresh(self, batch: int) -> str:
        """Where a batch is to leave what it computes, relative; nothing is there."""
        self.folder.delete(f"batches/{batch}")
        return f"batches/{batch}"

    def commit(self, commit: Commit) -> None:
        """The batch has happened. What the next one does not need is deleted."""
        self.folder.write(f"batches/{commit.batch}/commit.json", json.dumps(commit._asdict()).encode())
        needed = {str(commit.batch), *(name.split("/")[1] for name in (commit.topics, commit.open) if name)}
        for name in self.folder.names("batches").folders - needed:
            self.folder.delete(f"batches/{name}")

    # --- decisions ------------------------------------------------------------------------------------------------

    def keep(self, table: Table) -> None:
        """Add a table to the history; once more changes nothing."""
        write_table(self.folder, f"decisions/{table.epoch}.parquet", arrow_table(table))

    def epochs(self) -> list[int]:
        """The epochs of the history, ascending."""
        return sorted(int(name.removesuffix(".parquet")) for name in self._names("decisions") if ".parquet" in name)

    def table(self, epoch: int) -> Table:
        """The table of an epoch. Raises OSError."""
        found = self.folder.table(f"decisions/{epoch}.parquet")
        gap = float((found.schema.metadata or {}).get(GAP_KEY, b"0"))
        return Table(epoch, [Decision(**row) for row in found.to_pylist()], gap)

    def _names(self, folder: str) -> set[str]:
        return {name for name in self.folder.names(folder, kinds=False).files if not name.startswith(".")}

    # --- what OFGate has --------------------------------------------------------------------------------------------

    def unsent(self) -> list[int]:
        """The epochs that OFGate has not confirmed, ascending; only those that have happened."""
        done = {int(name) for name in self._names("sent") if name.isdecimal()}
        newest = max(done, default=-1)
        happened = self.last().closed
        return [epoch for epoch in self.epochs() if newest < epoch <= happened]

    def mark_sent(self, epochs: Iterable[int]) -> None:
        """OFGate has these."""
        for epoch in epochs:
            self.folder.write(f"sent/{epoch}", b"")


def arrow_table(table: Table) -> pa.Table:
    """The decisions as columns; how far from the best they are is in the metadata."""
    import pyarrow as pa

    kinds: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    hints = get_type_hints(Decision)
    fields = [(name, kinds[hints[name]]) for name in Decision._fields]
    schema = pa.schema(fields, metadata={GAP_KEY: repr(table.gap).encode()})
    columns = list(zip(*table.decisions, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
