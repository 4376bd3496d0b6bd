"""What the job keeps on disk: one directory, which moves from epoch to epoch by the rename of one small file.

    checkpoint/            Spark's: which files belong to which batch
    batches/N/             what batch N has computed: `topics`, `open` (Parquet) and, last, `commit.json`
    decisions/E.parquet    the table of epoch E, for ever
    sent/E                 an empty file: OFGate has it
    inbox/ taken/ quarantine/       the intake's

A batch without `commit.json` never happened: it is computed again, from the same files. With it, it is not.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from monitoring.decisions.audit import Account
from monitoring.decisions.decider import Heard
from monitoring.decisions.table import Decision, Table
from monitoring.selection.selection import Held
from saps.runtime.atomic_file import replacing, sync_directory

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


NOTHING = Commit(-1, 0, {}, "", "", 0, "", [])
"""Before the first batch."""


class Store:
    """The directory."""

    def __init__(self, root: Path) -> None:
        """Makes what is missing. Raises OSError."""
        self.root = root.absolute()
        for name in ("batches", "decisions", "sent", "inbox", "quarantine"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.checkpoint = self.root / "checkpoint"
        self.inbox = self.root / "inbox"
        self.quarantine = self.root / "quarantine"

    def last(self) -> Commit:
        """The last batch that was committed."""
        done = [int(file.parent.name) for file in self.root.glob("batches/*/commit.json")]
        return self.commit_of(max(done)) if done else NOTHING

    def commit_of(self, batch: int) -> Commit:
        """What a batch has left. Raises OSError if it was not committed."""
        plain = json.loads((self._batch(batch) / "commit.json").read_text())
        held = {
            topic: Held(tree, since, *(until[:1]), *(Account(*account) for account in until[1:]))
            for topic, (tree, since, *until) in plain["held"].items()
        }
        heard = {broker: Heard(*last) for broker, last in plain.get("heard", {}).items()}
        return Commit(**{**plain, "held": held, "heard": heard})

    def fresh(self, batch: int) -> Path:
        """An empty directory for what a batch computes."""
        directory = self._batch(batch)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory

    def commit(self, commit: Commit) -> None:
        """The batch has happened. What the next one does not need is deleted."""
        write(self._batch(commit.batch) / "commit.json", json.dumps(commit._asdict()).encode())
        needed = {str(commit.batch), *(Path(name).parts[1] for name in (commit.topics, commit.open) if name)}
        for directory in (self.root / "batches").iterdir():
            if directory.name not in needed:
                shutil.rmtree(directory, ignore_errors=True)

    def _batch(self, batch: int) -> Path:
        return self.root / "batches" / str(batch)

    # --- decisions ------------------------------------------------------------------------------------------------

    def keep(self, table: Table) -> None:
        """Add a table to the history; once more changes nothing."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64()}
        hints = get_type_hints(Decision)
        fields = [(name, kinds[hints[name]]) for name in Decision._fields]
        schema = pa.schema(fields, metadata={GAP_KEY: repr(table.gap).encode()})
        columns = list(zip(*table.decisions, strict=True)) or [()] * len(schema)
        out = pa.BufferOutputStream()
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out)
        write(self.root / "decisions" / f"{table.epoch}.parquet", out.getvalue().to_pybytes())

    def epochs(self) -> list[int]:
        """The epochs of the history, ascending."""
        return sorted(int(file.stem) for file in self.root.glob("decisions/*.parquet"))

    def table(self, epoch: int) -> Table:
        """The table of an epoch. Raises OSError."""
        import pyarrow.parquet as pq

        found = pq.read_table(self.root / "decisions" / f"{epoch}.parquet")
        gap = float((found.schema.metadata or {}).get(GAP_KEY, b"0"))
        return Table(epoch, [Decision(**row) for row in found.to_pylist()], gap)

    # --- what OFGate has --------------------------------------------------------------------------------------------

    def unsent(self) -> list[int]:
        """The epochs that OFGate has not confirmed, ascending; only those that have happened."""
        done = {int(file.name) for file in (self.root / "sent").iterdir() if file.name.isdecimal()}
        newest = max(done, default=-1)
        happened = self.last().closed
        return [epoch for epoch in self.epochs() if newest < epoch <= happened]

    def mark_sent(self, epochs: Iterable[int]) -> None:
        """OFGate has these."""
        for epoch in epochs:
            write(self.root / "sent" / str(epoch), b"")


def write(file: Path, content: bytes) -> None:
    """Write a file so that it is there complete, or not at all. Raises OSError."""
    with replacing(file) as out:
        out.write(content)
    sync_directory(file.parent)
