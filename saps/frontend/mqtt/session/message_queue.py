"""What one client is to get with QoS 1 and 2 and has not been sent yet, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import ENTRY_COST, Budget
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.window import Copy
from saps.local.batch import Batch, Form

if TYPE_CHECKING:
    from saps.frontend.mqtt.session.journaled import Change, Copies, Entry


class MessageQueue:
    """The messages that wait for one client, oldest first; with storage each change is noted in the journal."""

    __slots__ = ("_book", "_budget", "_entries", "bytes", "copies", "limits")

    def __init__(self, limits: Limits, budget: Budget) -> None:
        """`budget`: what all queues together may keep."""
        self.limits = limits
        self._budget = budget
        self.copies: deque[Copy] | None = None
        """None while nothing waits."""
        self.bytes = 0
        """Of the payloads."""
        self._book: Copies | None = None
        self._entries: deque[Entry] | None = None
        """The row of each copy, where there is a book."""

    def add(self, single: Batch, form: Form) -> list[Batch]:
        """Keep a message. Returns those that give way to it, oldest first."""
        self.append((single, form))
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
        """Keep a message, whatever the limits. `entry`: its row, if it is stored already."""
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
        """Take the oldest message; there must be one."""
        assert self.copies is not None
        copy = self.copies.popleft()
        if self._book is not None and self._entries is not None:
            self._book.remove(self._entries.popleft())
        size = copy[0].size
        self.bytes -= size
        self._budget.used -= size + ENTRY_COST
        if not self.copies:
            self.copies = self._entries = None
        return copy

    def replace(self, copies: Iterable[Copy]) -> None:
        """Keep these instead, whatever the limits."""
        kept = list(copies)
        while self.copies:
            self.popleft()
        for copy in kept:
            self.append(copy)

    @property
    def half_full(self) -> bool:
        """More waits than half of what may."""
        limits = self.limits
        return len(self.copies or ()) * 2 > limits.maximum_queued or self.bytes * 2 > limits.maximum_queued_bytes

    # ---- storage

    def store(self, book: Copies | None) -> None:
        """From now on what waits is stored in this book; None: it is not."""
        waiting = list(self.copies or ())
        self.replace(())
        self._book = book
        self.replace(waiting)

    def rows(self) -> list[Change]:
        """What is stored of it."""
        found: list[Change] = []
        if self._book is not None and self._entries is not None:
            for entry, copy in zip(self._entries, self.copies or (), strict=True):
                found += self._book.rows(entry, copy, 0)
        return found
