"""The journal: what has changed and is not on disk yet, as the net change of each row.

The machines note changes here while they work; a commit takes all that has come together. What was added and has gone
again meanwhile (a message that its subscriber has acknowledged already) never reaches the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from saps.local.batch import Batch as Single
from saps.local.batch import Origin

Row = tuple[Any, ...]
Batch = dict["Table", dict[Any, Row | None]]
"""By table and key: the row as it is to be, None if there is to be none."""


class Table(StrEnum):
    """What is stored. The value is the table's name in the file; the first columns of a row are its key. (Strings are
    hashed by C, an `Enum` by Python.)"""

    SESSIONS = "sessions"
    """(id, client, user, expiry, ends, will, will delay, will due, birth)"""
    SUBSCRIPTIONS = "subscriptions"
    """(session, filter, subscription)"""
    MESSAGES = "messages"
    """(id, message, expires, origin): shared by all its copies"""
    COPIES = "copies"
    """(serial, session, message, packet identifier or 0, form): what a client is still to get, or to acknowledge"""
    RELEASES = "releases"
    """(serial, session, packet identifier): PUBREC has come, PUBCOMP has not"""
    INCOMING = "incoming"
    """(session, packet identifier, subscribers reached): QoS 2 publications that were not released"""
    RETAINED = "retained"
    """(topic, record)"""
    HELD = "held"
    """(owner, name, content): copies of other brokers' sessions"""


class Stored:
    """A message that is stored once, for as long as somebody refers to it."""

    __slots__ = ("_place", "_single", "number", "origin", "references")

    def __init__(self, number: int, origin: Origin | None = None, single: Single | None = None, place: int = 0) -> None:
        """`single`: the publication, if its origin is not known yet; `place`: its number if the mesh gives it none."""
        self.number = number
        self._place = place or UNNUMBERED + number
        self.references = 0
        self.origin = origin
        """Which publication it is, wherever it is stored. Known when it is taken from the journal."""
        self._single = single

    def settle(self, life: tuple[str, int]) -> Origin:
        """Its origin. One that the mesh has not numbered yet is named after this `life` of the broker."""
        if self._single is not None and (known := self._single.origin) is not None:
            self.origin, self._single = known, None
        if self.origin is None:
            self.origin = Origin(*life, self._place)
        return self.origin


class Watcher(Protocol):
    """Who takes what a journal has collected."""

    def on_urgent(self) -> None:
        """Runs at the first urgent change after `Journal.take`."""

    def on_late(self) -> None:
        """Runs at the first late change after `Journal.take`, unless an urgent one is before it."""

    def on_much(self) -> None:
        """Runs for each message noted while more than `MUCH` wait."""


class Nobody:
    """A `Watcher` of a journal that nobody takes anything from."""

    def on_urgent(self) -> None:
        pass

    def on_late(self) -> None:
        pass

    def on_much(self) -> None:
        pass


def _nowhere() -> int:
    return 0


UNNUMBERED = 1 << 62
"""Above all sequence numbers of publications."""
MUCH = 64 << 20
"""Bytes of payload that may wait for a commit before publishers are held back."""


class Journal:
    """Collects changes until `take`.

    A change is **urgent**: an acknowledgement waits for it; or **late**: a message that its client has goes. A late one
    alone can wait for others: at worst the client gets the message once more, as QoS 1 permits.
    """

    def __init__(self) -> None:
        self.watcher: Watcher = Nobody()
        self.epoch = 0.0
        """Seconds since the epoch at moment 0 of the machines' clock; the store sets it."""
        self._batch: Batch = {}
        self._urgent = False
        self._late = False
        self._next = 1
        self._returned = False
        """Some of it has been taken before, and others may have it."""
        self.payload = 0
        """Bytes of payload noted since the last `take`."""
        self.disk = True
        """It is written to a file; else other brokers alone get it."""
        self.life = "", 0
        """The broker's name and incarnation."""
        self.place: Callable[[], int] = _nowhere
        """Takes the next of the numbers of this broker's publications, for one that the mesh may leave without."""

    def __bool__(self) -> bool:
        return bool(self._batch)

    @property
    def urgent(self) -> bool:
        """An acknowledgement waits for something that is noted here."""
        return self._urgent and bool(self._batch)

    def number(self) -> int:
        """A number that no other row has: greater than all before."""
        self._next += 1
        return self._next - 1

    def begin_after(self, number: int) -> None:
        """The file has numbers up to this one."""
        self._next = max(self._next, number + 1)

    def put(self, table: Table, key: Any, row: Row) -> None:
        """The table has this row from now on, in place of the one with the same key."""
        if not self._urgent:
            self._hurry()
        rows = self._batch.get(table)
        if rows is None:
            self._batch[table] = {key: row}
        else:
            rows[key] = row

    def drop(self, table: Table, key: Any, *, once: bool = False) -> None:
        """The table has no row with this key any more. `once`: a row with this key is put once at most, so that one
        which has not been taken yet need never be written; and that it has gone is a late change."""
        rows = self._batch.get(table)
        if once and not self._returned and rows is not None and rows.get(key) is not None:
            del rows[key]
            if not rows:
                del self._batch[table]
            return
        if not (once or self._urgent):
            self._hurry()
        elif not (self._urgent or self._late):
            self._late = True
            self.watcher.on_late()
        if rows is None:
            self._batch[table] = {key: None}
        else:
            rows[key] = None

    def _hurry(self) -> None:
        self._urgent = True
        self.watcher.on_urgent()

    def take(self) -> Batch:
        """All changes so far; from now on others are collected."""
        batch, self._batch, self.payload = self._batch, {}, 0
        self._returned = self._urgent = self._late = False
        messages = batch.get(Table.MESSAGES, {})
        for number, row in messages.items():
            if row is not None and isinstance(row[3], Stored):
                messages[number] = (*row[:3], row[3].settle(self.life))
        return batch

    def show(self) -> None:
        """Others get what is noted here, and see it before it is taken: what goes meanwhile must be said."""
        self._returned = True

    def give_back(self, batch: Batch) -> None:
        """A batch that was taken could not be written: what has changed since comes on top of it."""
        newer, self._returned, self._urgent = self._batch, True, True
        for table, rows in newer.items():
            batch.setdefault(table, {}).update(rows)
        self._batch = batch

    # ---- messages

    def refer(self, single: Single, expires: float | None) -> Stored:
        """One reference more to a message, a batch of one that remembers its number. `expires`: seconds since the
        epoch."""
        cache = single.encoded
        stored: Stored | None = cache.get(Stored)
        if stored is None or not stored.references:
            known, number, message = single.origin if stored is None else stored.origin, self.number(), single.message
            stored = Stored(number, known) if known is not None else Stored(number, None, single, self.place())
            cache[Stored] = stored
            self.put(Table.MESSAGES, number, (number, message, expires, stored))
            self.payload += len(message.payload)
            if self.payload > MUCH:
                self.watcher.on_much()
        stored.references += 1
        return stored

    def release(self, stored: Stored) -> None:
        """One reference less; nobody's message is not kept."""
        stored.references -= 1
        if not stored.references:
            stored.settle(self.life)
            self.drop(Table.MESSAGES, stored.number, once=True)
