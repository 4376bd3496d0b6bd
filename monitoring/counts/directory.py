"""Counts in a directory and in those in it, on this machine or in a file system that Arrow reaches.

A look costs what is new, not what was ever kept: only directories of days whose windows are open are listed, and only
when they have changed, where the file system says so. A ledger in the job's state has the names that were taken.
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
"""After a look that took a second of processor, so many seconds pass before the next."""
PARTS = 100
"""Files of one directory's ledger, after which they become one."""
DAY = 86_400_000
_IS_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ROOT = "@"
"""In the place of a directory's name: the source itself. No quoted name is the same."""


@dataclass(slots=True)
class _Place:
    """A directory of the source."""

    path: str
    """In the source."""
    ledger: str
    """In the state."""
    taken: set[str] = field(default_factory=set)
    """Names of its files that were taken, or put into quarantine."""
    parts: list[int] = field(default_factory=list)
    """The numbers of its ledger's files."""
    changed: int | None = -1
    """Its time of change at the last look, in ns."""
    settled: bool = False
    """It was listed again after that: what came within the same tick of the file system's clock was seen."""


class Directory:
    """A `Source`."""

    def __init__(self, place: str | Path, store: Store) -> None:
        """Raises OSError, ValueError."""
        self._folder = folder_of(place)
        self._store = store
        self._places: dict[str, _Place] = {}
        self._directories: set[str] = set()
        self._again = 0.0
        """Before then (monotonic clock) nothing is looked for."""

    def __str__(self) -> str:
        return str(self._folder)

    def look(self) -> list[Found]:
        """The files that are new, by the begin of their intervals; none before it is time."""
        if time.monotonic() < self._again:
            return []
        begun = time.thread_time()
        found = self._look()
        self._again = time.monotonic() + REST * (time.thread_time() - begun)
        return sorted(found, key=lambda each: (_begin(each.name), each.name))

    def content(self, found: Found) -> bytes:
        """Raises OSError."""
        return self._folder.read(f"{found.key.path}{found.name}")

    def local(self, found: Found) -> Path | None:
        """Its path, if it is a file of this machine."""
        return self._folder.local(f"{found.key.path}{found.name}")

    def taken(self, found: Sequence[Found]) -> None:
        """Note them in the ledger."""
        each: dict[str, tuple[_Place, list[str]]] = {}
        for file in found:
            each.setdefault(file.key.ledger, (file.key, []))[1].append(file.name)
        for place, names in each.values():
            place.taken.update(names)
            self._note(place, names)
            if len(place.parts) > PARTS:
                self._join(place)

    def drained(self) -> bool:
        """A look finds all there is."""
        return True

    def close(self) -> None:
        """There is nothing to close."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> list[Found]:
        """Raises OSError if the source cannot be read."""
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
            except OSError:  # it has just been deleted
                continue
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
        """Whether a directory may have new files. Raises OSError."""
        changed = self._folder.changed(place.path)
        if changed is not None and changed == place.changed and place.settled:
            return False
        place.settled, place.changed = changed == place.changed, changed
        return True

    def _new(self, place: _Place, names: set[str]) -> list[Found]:
        """The files of a directory that were not taken."""
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
        """One file in the place of many: first it, then they go."""
        before = list(place.parts)
        self._note(place, sorted(place.taken))
        for number in before:
            self._store.folder.delete(f"{place.ledger}/{number}.txt")
        place.parts = place.parts[-1:]

    def _forget(self, first: str) -> None:
        """The ledgers of days that are over."""
        for name in self._store.folder.names("taken", kinds=False).files:
            if _IS_DAY.fullmatch(name) and name < first:
                self._store.folder.delete(f"taken/{name}")
                self._places.pop(name, None)


def _counts(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(".") and "\n" not in name


def _begin(name: str) -> int:
    """Of the interval that a file tells of; 0 if its name does not say."""
    begin = name.removesuffix(".parquet").rpartition("-")[2]
    return int(begin) if begin.isascii() and begin.isdecimal() and len(begin) < 20 else 0


def _first_day(closed: int) -> str:
    """The first day that is looked at: that before the one in which the last closed window ends."""
    at = datetime.datetime.fromtimestamp(max(0, closed - DAY) / 1000, datetime.UTC)
    return at.strftime("%Y-%m-%d")
