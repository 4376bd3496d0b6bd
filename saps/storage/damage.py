"""How damage in what is stored is told.

Two kinds. A **record** whose checksum is wrong (`Damage`) is named, set aside in the table ``quarantine``, and the
broker starts without it. Where records may be missing that nobody can name (`DamagedError`: transactions that were
acknowledged, pages, the marks beside the file), the broker does not start.

For a holder of the same sessions that can heal: `saps.storage.saved.Saved.damaged` lists the records of the first kind.
What is put into the journal again under the same session and filter, topic or packet identifier takes their place; the
quarantine keeps the damaged bytes. Of the second kind `DamagedError.lost` is for people: repair into a new file, start
from that, and compare its sessions with the other holders'.
"""

from __future__ import annotations

from shlex import quote
from typing import Any, NamedTuple

from saps.storage.journal import Table
from saps.storage.place import Server, shown


class StorageError(Exception):
    """The storage cannot be used; the text names it and says why."""


class Damage(NamedTuple):
    """A record that is not what was stored, or that refers to such a one."""

    table: Table
    key: Any
    """As the journal has it; it may be damaged, too."""
    reason: str
    session: str | None = None
    """The client whose session it belongs to."""
    topic: str | None = None
    """Its topic, or topic filter."""

    def __str__(self) -> str:
        number = self.key[-1] if isinstance(self.key, tuple) else self.key
        session = "" if self.session is None else f" of session {self.session!r}"
        topic = "" if self.topic is None else f", topic {self.topic!r}"
        return f"{self.table.value} record {number!r}{session}{topic}: {self.reason}"


class DamagedError(StorageError):
    """The file, or what belongs to it, is damaged beyond single records. Nothing has been changed."""

    def __init__(self, place: object, lost: list[str]) -> None:
        """`place`: the file, or a `Server`. `lost`: what is missing or cannot be told, a line each."""
        self.lost = lost
        if isinstance(place, Server):
            repair = f"{quote(shown(place.url))} --broker {quote(place.broker)}"
        else:
            old, new = quote(str(place)), quote(f"{place}.repaired")
            repair = f"{old} {new}, then start with storage.file={new}"
        lines = [f"{place} is damaged:", *(f"  {line}" for line in lost)]
        lines.append(f"  to go on without it: saps storage repair {repair}")
        super().__init__("\n".join(lines))
