"""Describes damage in stored data. There are two kinds:

1. `Damage`: a **record** with a wrong checksum. It is named and set aside in the table ``quarantine``; the broker
   starts without it.
2. `DamagedError`: records may be missing that nobody can name (acknowledged transactions, pages, or the marks beside
   the file). The broker does not start.

`saps.storage.saved.Saved.damaged` lists the records of the first kind, for another holder of the same sessions that can
heal them. A record put into the journal again under the same session and filter, topic or packet identifier takes the
place of the damaged one; the quarantine keeps the damaged bytes. `DamagedError.lost` describes the second kind for
operators: repair into a new file, start from that file, and compare its sessions with those of the other holders.
"""

from __future__ import annotations

from shlex import quote
from typing import Any, NamedTuple

from saps.storage.journal import Table
from saps.storage.place import Server, shown


class StorageError(Exception):
    """Raised when the storage cannot be used; the text names the storage and the reason."""


class Damage(NamedTuple):
    """A damaged record, or a record that refers to a damaged one."""

    table: Table
    key: Any
    """The record's key as in the journal (`saps.storage.journal.Table`). The key may be damaged, too."""
    reason: str
    session: str | None = None
    """Client identifier of the session that the record belongs to, if known."""
    topic: str | None = None
    """The record's topic or topic filter, if known."""

    def __str__(self) -> str:
        number = self.key[-1] if isinstance(self.key, tuple) else self.key
        session = "" if self.session is None else f" of session {self.session!r}"
        topic = "" if self.topic is None else f", topic {self.topic!r}"
        return f"{self.table.value} record {number!r}{session}{topic}: {self.reason}"


class DamagedError(StorageError):
    """Raised when the storage, or a file beside it, is damaged beyond single records. Nothing has been changed."""

    def __init__(self, place: object, lost: list[str]) -> None:
        """`place`: the file's path, or a `Server`. `lost`: one line for each thing that is missing or unknown."""
        self.lost = lost
        if isinstance(place, Server):
            repair = f"{quote(shown(place.url))} --broker {quote(place.broker)}"
        else:
            old, new = quote(str(place)), quote(f"{place}.repaired")
            repair = f"{old} {new}, then start with storage.file={new}"
        lines = [f"{place} is damaged:", *(f"  {line}" for line in lost)]
        lines.append(f"  to go on without it: saps storage repair {repair}")
        super().__init__("\n".join(lines))
