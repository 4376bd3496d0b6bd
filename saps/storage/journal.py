"""The journal: collects changes that are not on disk yet, as the net change of each row.

The state machines note changes here while they work; a commit takes all changes collected since the last one. A row
that is added and dropped between two commits (a message that its subscriber has acknowledged already) never reaches
the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from saps.marks import hit
from saps.routing.batch import UNNUMBERED, Origin
from saps.routing.batch import Batch as Single

Row = tuple[Any, ...]
Batch = dict["Table", dict[Any, Row | None]]
"""New rows by table and key; None deletes the row."""


class Table(StrEnum):
    """The tables of the storage. The value is the table's name in the file; the first columns of a row are its key.
    (A `StrEnum` because C hashes strings, while Python code hashes the members of a plain `Enum`.)"""

    SESSIONS = "sessions"
    """(id, client, user, expiry, ends, will, will delay, will due, birth)"""
    SUBSCRIPTIONS = "subscriptions"
    """(session, filter, subscription)"""
    MESSAGES = "messages"
    """(id, message, expires, origin): a message, shared by all its copies"""
    COPIES = "copies"
    """(serial, session, message, packet identifier or 0, form): a message that a client has yet to receive or
    acknowledge"""
    RELEASES = "releases"
    """(serial, session, packet identifier): a QoS 2 delivery after PUBREC and before PUBCOMP"""
    INCOMING = "incoming"
    """(session, packet identifier, subscribers reached): a client's QoS 2 publication before PUBREL"""
    HAD = "had"
    """(session, publications): those that a session had when the last ones came from another broker, as
    `saps.storage.past.pack` returns them"""
    RETAINED = "retained"
    """(topic, record)"""
    HELD = "held"
    """(owner, name, content): a copied row of another broker's sessions"""
    LOG = "log"
    """(id, changes): a record of the storage's own log (`saps.storage.driver.log`), which no journal has"""


Change = tuple[Table, Any, Row]
"""A row with its table and key."""


class Stored:
    """A message stored once for all its copies, as long as at least one copy refers to it."""

    __slots__ = ("_place", "_single", "_told", "number", "origin", "references")

    def __init__(self, number: int, origin: Origin | None = None, single: Single | None = None, place: int = 0) -> None:
        """`single`: the publication, if its origin is not known yet. `place`: the sequence number to use if the mesh
        never numbers the publication; 0 to derive one from `number`, above `UNNUMBERED`."""
        self.number = number
        self._place = place or UNNUMBERED + number
        self.references = 0
        self.origin = origin
        """Identifies the publication at every broker that stores it. Set at the latest when `Journal.take` returns
        the row."""
        self._single = single
        self._told: tuple[Callable[[Origin], None], ...] = ()

    def tell(self, renumbered: Callable[[Origin], None]) -> None:
        """Have `renumbered` called with the origin that the mesh gives the publication, if it has none yet."""
        if self._single is not None:
            self._told += (renumbered,)

    def renumber(self, incarnation: tuple[str, int]) -> bool:
        """Take over the origin that the mesh has given the publication. Return whether another one was settled."""
        before = self.origin
        if before is None or self.settle(incarnation) == before:
            return False
        for renumbered in self._told:
            renumbered(self.settle(incarnation))
        self._told = ()
        return True

    def settle(self, incarnation: tuple[str, int]) -> Origin:
        """Return the message's origin, and fix it. `incarnation`: name and incarnation of this broker, which become the
        origin of a publication that the mesh has not numbered yet."""
        if self._single is not None and (known := self._single.origin) is not None:
            self.origin, self._single = known, None
        if self.origin is None:
            self.origin = Origin(*incarnation, self._place)
        return self.origin


class Watcher(Protocol):
    """Takes the changes that a journal has collected."""

    def on_urgent(self) -> None:
        """Handle the first urgent change after `Journal.take`."""

    def on_late(self) -> None:
        """Handle the first late change after `Journal.take`, unless an urgent change came before it."""

    def on_much(self) -> None:
        """Handle a message noted while more than `MUCH` bytes of payload wait."""


class Nobody:
    """A `Watcher` that does nothing, for a journal whose changes nobody takes."""

    def on_urgent(self) -> None:
        pass

    def on_late(self) -> None:
        pass

    def on_much(self) -> None:
        pass


def _nowhere() -> int:
    return 0


def _never() -> bool:
    return False


MUCH = 64 << 20
"""Bytes of payload that may wait for a commit before publishers are held back."""


class Journal:
    """Collects changes until `take`.

    A change is **urgent** if an acknowledgement waits for it. It is **late** if it deletes a message that its client
    already has. Late changes alone can wait for other changes: at worst, a crash makes the broker deliver the message
    once more, as QoS 1 permits.
    """

    def __init__(self) -> None:
        self.watcher: Watcher = Nobody()
        self.epoch = 0.0
        """Seconds since the epoch at time 0 of the state machines' clock; the store sets it."""
        self._batch: Batch = {}
        self._urgent = False
        self._late = False
        self._next = 1
        self._outside = False
        """Whether files beside the storage have to be flushed with the next commit."""
        self._returned = False
        """Whether a part of the batch may be at another place already, so that a dropped row must be deleted there."""
        self.payload = 0
        """Bytes of payload noted since the last `take`."""
        self.disk = True
        """Whether changes are written to a file or database; otherwise only other brokers store them."""
        self.incarnation = "", 0
        """The broker's name and incarnation."""
        self.place: Callable[[], int] = _nowhere
        """Takes the next sequence number of this broker's publications, for a publication that the mesh may not
        number."""
        self.cut: Callable[[], bool] = _never
        """Returns whether some broker is lost to this one, or was lately."""

    def __bool__(self) -> bool:
        return bool(self._batch) or self._outside

    @property
    def urgent(self) -> bool:
        """Whether an acknowledgement waits for a change in this journal."""
        return self._urgent and bool(self)

    def number(self) -> int:
        """Return a new row number, greater than all before."""
        self._next += 1
        return self._next - 1

    def begin_after(self, number: int) -> None:
        """Make `number` return only numbers above this one, the highest in the file."""
        self._next = max(self._next, number + 1)

    def put(self, table: Table, key: Any, row: Row) -> None:
        """Note a row that is new or replaces the row with the same key. The change is urgent."""
        if not self._urgent:
            self._hurry()
        rows = self._batch.get(table)
        if rows is None:
            self._batch[table] = {key: row}
        else:
            rows[key] = row

    def drop(self, table: Table, key: Any, *, once: bool = False) -> None:
        """Note that a row is deleted. The change is urgent, unless `once` is set.

        `once`: the key is never used for another row. A row that has not been taken yet then need not be written at
        all, and the deletion of any other row is a late change.
        """
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

    def outside(self) -> None:
        """Note that a file beside the storage was written: the next commit flushes it, and may have no changes else.
        The change is urgent."""
        self._outside = True
        if not self._urgent:
            self._hurry()

    def _hurry(self) -> None:
        self._urgent = True
        self.watcher.on_urgent()

    def take(self) -> Batch:
        """Return all changes so far, and begin an empty batch. Fixes the origins of the messages in the batch."""
        batch, self._batch, self.payload = self._batch, {}, 0
        self._returned = self._urgent = self._late = self._outside = False
        messages = batch.get(Table.MESSAGES, {})
        for number, row in messages.items():
            if row is not None and isinstance(row[3], Stored):
                messages[number] = (*row[:3], row[3].settle(self.incarnation))
        return batch

    def show(self) -> None:
        """Make each later `drop` of a row of this batch an explicit deletion: another broker has seen the batch before
        `take`."""
        self._returned = True

    def give_back(self, batch: Batch) -> None:
        """Put back a batch that could not be written, under the changes noted since. The result is urgent."""
        newer, self._returned, self._urgent, self._outside = self._batch, True, True, True
        for table, rows in newer.items():
            batch.setdefault(table, {}).update(rows)
        self._batch = batch

    # ---- messages

    def expiry(self, single: Single) -> float | None:
        """Return when a batch of one expires, in seconds since the epoch; None: never."""
        return None if single.deadline is None else single.deadline + self.epoch

    def refer(self, single: Single, expires: float | None) -> Stored:
        """Add a reference to a message, and store the message with the first one. `single`: a batch of one message,
        which caches the `Stored`. `expires`: seconds since the epoch; None for never."""
        cache = single.encoded
        stored: Stored | None = cache.get(Stored)
        if stored is None or not stored.references:
            number, message = self.number(), single.message
            known = single.origin or (None if stored is None else stored.origin)
            stored = Stored(number, known) if known is not None else Stored(number, None, single, self.place())
            cache[Stored] = stored
            self.put(Table.MESSAGES, number, (number, message, expires, stored))
            self.payload += len(message.payload)
            if self.payload > MUCH:
                self.watcher.on_much()
        stored.references += 1
        return stored

    def numbered(self, batch: Single) -> None:
        """Store again what the mesh has numbered after `take` had given it another number."""
        for single in batch.singles:
            stored: Stored | None = single.encoded.get(Stored)
            if stored is not None and stored.renumber(self.incarnation) and stored.references:
                hit("numbered after it was stored")
                row = stored.number, single.message, self.expiry(single), stored
                self.put(Table.MESSAGES, stored.number, row)

    def release(self, stored: Stored) -> None:
        """Remove a reference to a message; delete the message with the last one."""
        stored.references -= 1
        if not stored.references:
            stored.settle(self.incarnation)
            self.drop(Table.MESSAGES, stored.number, once=True)
