"""Queues messages with QoS 1 and 2 for one client until they can be sent, within limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import ENTRY_COST, Budget
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.journaled import Copies, Entry, JournaledInflight
from saps.frontend.mqtt.session.window import Copy
from saps.routing.batch import Batch, Form, Origin

if TYPE_CHECKING:
    from saps.storage.journal import Change


class MessageQueue:
    """The messages that wait for one client, oldest first. With storage it logs each change in the journal."""

    __slots__ = ("_book", "_budget", "_entries", "bytes", "copies", "limits")

    def __init__(self, limits: Limits, budget: Budget) -> None:
        """Make an empty queue. `budget`: the bytes that all queues share."""
        self.limits = limits
        self._budget = budget
        self.copies: deque[Copy] | None = None
        """The waiting messages; None if there are none."""
        self.bytes = 0
        """Bytes of the waiting payloads."""
        self._book: Copies | None = None
        self._entries: deque[Entry] | None = None
        """The entry of each copy in the journal; None without storage."""

    @property
    def stored(self) -> bool:
        """Whether the journal has the messages."""
        return self._book is not None

    def add(self, single: Batch, form: Form) -> list[Batch]:
        """Append a message. Returns the messages that the limits drop for it, oldest first."""
        self.append((single, form))
        return self.trim()

    def trim(self) -> list[Batch]:
        """Remove and return the messages beyond the limits, oldest first."""
        lost: list[Batch] = []
        limits, budget = self.limits, self._budget
        while self.copies and (
            len(self.copies) > limits.maximum_queued
            or self.bytes > limits.maximum_queued_bytes
            or budget.used > budget.limit
        ):
            lost.append(self.popleft()[0])
        return lost

    def append(self, copy: Copy, entry: Entry | None = None) -> None:
        """Append a message regardless of the limits. `entry`: its entry, if it is already in the journal."""
        copies = self.copies
        if copies is None:
            copies = self.copies = deque()
            self._entries = None if self._book is None else deque()
        copies.append(copy)
        if self._book is not None and self._entries is not None:
            self._entries.append(entry or self._book.add(copy[0], copy[1]))
        size = copy[0].size
        self.bytes += size
        self._budget.used += size + ENTRY_COST

    def popleft(self) -> Copy:
        """Remove and return the oldest message. The queue must not be empty."""
        copy, entry = self._take()
        self._remove(entry)
        return copy

    def send(self, inflight: dict[int, Copy | None], packet_id: int) -> None:
        """Move the oldest message to those in flight, under this packet identifier. The queue must not be empty."""
        copy, entry = self._take()
        if isinstance(inflight, JournaledInflight) and entry is not None:
            inflight.sent(packet_id, copy, entry)
        else:
            inflight[packet_id] = copy

    def _take(self) -> tuple[Copy, Entry | None]:
        """Remove and return the oldest message, and its entry, which stays in the journal."""
        assert self.copies is not None
        copy = self.copies.popleft()
        entry = None if self._entries is None else self._entries.popleft()
        size = copy[0].size
        self.bytes -= size
        self._budget.used -= size + ENTRY_COST
        if not self.copies:
            self.copies = self._entries = None
        return copy, entry

    def replace(self, copies: Iterable[Copy]) -> None:
        """Replace all messages, regardless of the limits. Those that waited before are not stored anew."""
        kept = list(copies)
        before: dict[int, tuple[Copy, Entry | None]] = {}
        while self.copies:
            copy, entry = self._take()
            before[id(copy)] = copy, entry
        last = 0
        for copy in kept:
            _, entry = before.pop(id(copy), (None, None))
            if self._book is not None:
                if entry is None:
                    entry = self._book.add(*copy)
                elif entry.serial < last:
                    entry = self._book.renew(entry, copy[1])
                last = entry.serial
            self.append(copy, entry)
        for _, entry in before.values():
            self._remove(entry)

    def _remove(self, entry: Entry | None) -> None:
        if self._book is not None and entry is not None:
            self._book.remove(entry)

    @property
    def half_full(self) -> bool:
        """Whether the queue is more than half full, by messages or bytes."""
        limits = self.limits
        return len(self.copies or ()) * 2 > limits.maximum_queued or self.bytes * 2 > limits.maximum_queued_bytes

    # ---- storage

    def store(self, book: Copies) -> None:
        """Log the messages in this book from now on."""
        waiting = list(self.copies or ())
        self.replace(())
        self._book = book
        self.replace(waiting)

    def forget(self) -> None:
        """Delete the messages from the journal, and keep them in memory only."""
        if self._book is not None:
            for entry in self._entries or ():
                self._book.remove(entry)
        self._book = self._entries = None

    @property
    def origins(self) -> Iterator[Origin]:
        """The waiting publications that the journal has."""
        return iter(()) if self._book is None else self._book.origins(self._entries or ())

    def rows(self) -> list[Change]:
        """Return the rows of all waiting messages."""
        found: list[Change] = []
        if self._book is not None and self._entries is not None:
            for entry, copy in zip(self._entries, self.copies or (), strict=True):
                found += self._book.rows(entry, copy, 0)
        return found
