"""Reads counts from a directory and its subdirectories, on this machine or in a file system that Arrow reaches.

The cost of a look depends on the new files, not on all files ever kept. A look lists only directories of days whose
windows may still be open. Where the file system records changes, it lists only changed directories. A ledger in the
job's state holds the names of the files that were taken.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from monitoring.counts.sources import Found
from monitoring.decisions.store import Store
from monitoring.files import folder_of

REST = 200.0
"""Pause before the next look, in seconds for each second of processor time that the last look took."""
PARTS = 100
"""Most files in one directory's ledger; with more, they are joined into one."""
DAY = 86_400_000
_IS_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ROOT = "@"
"""Name of the source itself in the ledger. No quoted name of a directory equals it."""


@dataclass(slots=True)
class _Place:
    """A directory of the source."""

    path: str
    """Path in the source, with a slash at its end; empty for the source itself."""
    ledger: str
    """Path of the directory's ledger in the state."""
    taken: set[str] = field(default_factory=set)
    """Names of the directory's files that were taken or put into quarantine."""
    parts: list[int] = field(default_factory=list)
    """Numbers of the ledger's files, ascending."""
    changed: int | None = -1
    """Time of the directory's last change as seen at the last look, in ns; None if the file system records none."""
    settled: bool = False
    """Whether the directory was listed again since that change. The second list shows files that came within the same
    tick of the file system's clock."""


class Directory:
    """A `monitoring.counts.sources.Source` of files in a directory and its direct subdirectories."""

    def __init__(self, place: str | Path, store: Store) -> None:
        """`place` is a path or URI; `store` keeps the ledger. Raises the errors of `monitoring.files.folder_of`."""
        self._folder = folder_of(place)
        self._store = store
        self._places: dict[str, _Place] = {}
        self._directories: set[str] = set()
        self._again = 0.0
        """Earliest time of the next look, on the monotonic clock."""

    def __str__(self) -> str:
        return str(self._folder)

    def look(self) -> list[Found]:
        """Return the new files, ordered by the beginning of their intervals; nothing during the pause (`REST`)."""
        if time.monotonic() < self._again:
            return []
        begun = time.thread_time()
        try:
            found = self._look()
        except OSError:
            for place in self._places.values():  # what was found is lost: the next look lists all of it again
                place.settled = False
            raise
        self._again = time.monotonic() + REST * (time.thread_time() - begun)
        return sorted(found, key=lambda each: (_begin(each.name), each.name))

    def content(self, found: Found) -> bytes:
        """Return the content of a file. Raises OSError."""
        return self._folder.read(f"{found.key.path}{found.name}")

    def local(self, found: Found) -> Path | None:
        """Return the file's path if it is on this machine, else None."""
        return self._folder.local(f"{found.key.path}{found.name}")

    def taken(self, found: Sequence[Found]) -> None:
        """Note the files in the ledger, so that no later look returns them."""
        each: dict[str, tuple[_Place, list[str]]] = {}
        for file in found:
            each.setdefault(file.key.ledger, (file.key, []))[1].append(file.name)
        for place, names in each.values():
            place.taken.update(names)
            self._note(place, names)
            if len(place.parts) > PARTS:
                self._join(place)

    def drained(self) -> bool:
        """Return True: one look finds every file."""
        return True

    def close(self) -> None:
        """Do nothing: a directory holds no connection."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> list[Found]:
        """Return the new files in any order. Raises OSError if the source cannot be read."""
        found = []
        root = self._place(_ROOT, "")
        changed = self._changed(root)  # raises OSError
        if changed:
            names = self._folder.names()
            self._directories = {name for name in names.folders if not name.startswith(".")}
            found += self._new(root, names.files)
        first = _first_day(self._store.last().closed)
        for name in sorted(self._directories):
            if _IS_DAY.fullmatch(name) and name < first:
                continue
            place = self._place(quote(name, safe=""), f"{name}/")
            try:
                if self._changed(place):
                    found += self._new(place, self._folder.names(name, kinds=False).files)
            except OSError:  # the directory has just been deleted, or cannot be read now
                place.settled = False
        self._forget(first)
        return found

    def _place(self, name: str, path: str) -> _Place:
        if name not in self._places:
            place = self._places[name] = _Place(path, f"taken/{name}")
            files = self._store.folder.names(place.ledger, kinds=False).files
            place.parts = sorted(int(file.removesuffix(".txt")) for file in files if file[:-4].isdecimal())
            for number in place.parts:
                place.taken.update(self._store.folder.read(f"{place.ledger}/{number}.txt").decode().splitlines())
        return self._places[name]

    def _changed(self, place: _Place) -> bool:
        """Return whether a directory may have new files, and note its time of change. Raises OSError."""
        changed = self._folder.changed(place.path)
        if changed is not None and changed == place.changed and place.settled:
            return False
        place.settled, place.changed = changed == place.changed, changed
        return True

    def _new(self, place: _Place, names: set[str]) -> list[Found]:
        """Return the files of a directory that were not taken, and drop the names of deleted files.

        The ledger is rewritten when deleted names outnumber the others by 1000."""
        gone = place.taken - names
        place.taken -= gone
        if len(gone) > len(place.taken) + 1000:
            self._join(place)
        at = f"{self._folder}/{place.path}"
        return [Found(name, f"{at}{name}", place) for name in names - place.taken if _counts(name)]

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def _note(self, place: _Place, names: Sequence[str]) -> None:
        number = place.parts[-1] + 1 if place.parts else 0
        self._store.folder.write(f"{place.ledger}/{number}.txt", "".join(f"{name}\n" for name in names).encode())
        place.parts.append(number)

    def _join(self, place: _Place) -> None:
        """Replace the ledger's files by a single one. The new file is written before the old ones are deleted, so a
        crash loses no name."""
        before = list(place.parts)
        self._note(place, sorted(place.taken))
        for number in before:
            self._store.folder.delete(f"{place.ledger}/{number}.txt")
        place.parts = place.parts[-1:]

    def _forget(self, first: str) -> None:
        """Delete the ledgers of days before `first`."""
        for name in self._store.folder.names("taken", kinds=False).files:
            if _IS_DAY.fullmatch(name) and name < first:
                self._store.folder.delete(f"taken/{name}")
                self._places.pop(name, None)


def _counts(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(".") and "\n" not in name


def _begin(name: str) -> int:
    """Return the beginning of a file's interval as its name gives it, or 0 if it gives none."""
    begin = name.removesuffix(".parquet").rpartition("-")[2]
    return int(begin) if begin.isascii() and begin.isdecimal() and len(begin) < 20 else 0


def _first_day(closed: int) -> str:
    """Return the first day to look at (ISO 8601): the day before the one in which the last closed window ends."""
    at = datetime.datetime.fromtimestamp(max(0, closed - DAY) / 1000, datetime.UTC)
    return at.strftime("%Y-%m-%d")
