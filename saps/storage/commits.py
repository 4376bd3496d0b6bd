"""Group commit: what happens while one transaction is written goes into the next one as a whole.

Pure: the driver (`saps.storage.driver.writer`) writes a batch, says how that went, and runs actions later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from saps.storage.error import StorageFault
from saps.storage.journal import Batch, Journal

logger = logging.getLogger(__name__)

LINGER = 0.05
"""Seconds for which late changes wait for others to be written with."""
RETRY = 0.5
"""Seconds between two attempts to write to a disk that failed."""
ROOM_AGAIN = 0.9
"""Share of the maximum size below which publications are taken again."""


class Urgent(Enum):
    """What there is for changes that an acknowledgement waits for, beside a batch that is being written."""

    NOTHING = "nothing"
    SCHEDULED = "scheduled"
    """They are written next."""
    ALONE = "alone"
    """Neither a disk nor another broker will have them: nothing waits."""


class Held(Protocol):
    """What leaves this broker only when the journal is on disk."""

    def cut(self) -> None:
        """A commit begins: what is held now leaves when it is done, or a later one if it fails."""

    def release(self) -> None:
        """The commit is done: what was held at the last `cut`, and those before, leaves."""

    def fail(self, storage_fault: StorageFault) -> None:
        """The commit failed: what is held does not come true for now."""


class Copier(Protocol):
    """Has other brokers keep copies."""

    @property
    def alone(self) -> bool:
        """There is nobody who could: nothing has to wait."""

    def append(self, batch: Batch, done: Callable[[], None]) -> None:
        """They are to have this batch, too; `done` runs when they do."""


class Driver(Protocol):
    """What the commits ask of their driver."""

    def write(self, batch: Batch, commits: Commits) -> None:
        """Write a batch of these commits; then call their `written` or `failed`. One at a time."""

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Run an action after so many seconds; 0: when the present input is handled."""


class Health:
    """Whether new things can be stored."""

    def __init__(self, maximum_size: int, on_change: Callable[[StorageFault | None], None]) -> None:
        """`maximum_size`: bytes of the file beyond which nothing new is taken; 0: any."""
        self.fault: StorageFault | None = None
        self._maximum_size = maximum_size
        self._on_change = on_change

    def written(self, size: int) -> None:
        """A write has succeeded; the file uses so many bytes."""
        full = self._maximum_size and size > self._maximum_size * (ROOM_AGAIN if self.fault else 1)
        self._set(StorageFault(False, True, f"more than {self._maximum_size} bytes") if full else None)

    def failed(self, full: bool, reason: str) -> StorageFault:
        """A write has failed, because there is no space (`full`) or for another reason."""
        fault = StorageFault(True, full, reason)
        self._set(fault)
        return fault

    def _set(self, fault: StorageFault | None) -> None:
        if fault == self.fault:
            return
        self.fault = fault
        if fault is None:
            logger.warning("storage: writing again")
        else:
            logger.error("storage: %s; sessions and messages that need it are refused", fault.text)
        self._on_change(fault)


class Commits:
    """The commits of one broker's journal: at most one is being written."""

    def __init__(
        self,
        journal: Journal,
        driver: Driver,
        maximum_size: int = 0,
        on_storage_fault: Callable[[StorageFault | None], None] = lambda storage_fault: None,
        on_backlog: Callable[[bool], None] = lambda behind: None,
    ) -> None:
        """`maximum_size`: bytes of the file beyond which nothing new is to be taken; 0: any. `on_storage_fault` is
        told of each change; `on_backlog` when publishers are to be held back, and when not any more."""
        self.journal = journal
        self.held: list[Held] = []
        self.health = Health(maximum_size, on_storage_fault)
        self.on_pending: list[Callable[[bool], None]] = []
        """Told when something has changed that is not on disk, and when there is nothing any more."""
        self.copier: Copier | None = None
        """Who has the batches beside the disk: a commit is done when both have it."""
        self._waiting: list[Callable[[], None]] = []
        """What is to be done when the batch being written, and what has come since, is on disk."""
        self._missing = 0
        """Who does not have the present batch yet."""
        self._told = False
        self._driver = driver
        self._on_backlog = on_backlog
        self._behind = False
        self._batch: Batch | None = None
        self._urgent = Urgent.NOTHING
        self._lingering = False
        journal.watcher = self

    @property
    def pending(self) -> bool:
        """Something has changed, not only late, that is not on disk."""
        if self._urgent is Urgent.ALONE:
            return False
        return self._batch is not None or self._urgent is Urgent.SCHEDULED or self.journal.urgent

    def then(self, action: Callable[[], None]) -> None:
        """Do this when all changes so far but late ones are on disk; at once if they are."""
        if self.pending:
            self._waiting.append(action)
        else:
            action()

    def _tell_pending(self, pending: bool) -> None:
        if pending != self._told:
            self._told = pending
            for told in self.on_pending:
                told(pending)

    def on_urgent(self) -> None:
        """`saps.storage.journal.Watcher`, as the next two."""
        if self._batch is None and not self.journal.disk and (self.copier is None or self.copier.alone):
            self._urgent = Urgent.ALONE
            self.on_late()
            return
        self._tell_pending(True)
        if self._urgent is Urgent.NOTHING and self._batch is None:
            self._urgent = Urgent.SCHEDULED
            self._driver.later(0, self._scheduled_begin)

    def _scheduled_begin(self) -> None:
        if self._urgent is Urgent.SCHEDULED:  # the end of the turn was not before it
            self._begin()

    def end_turn(self) -> None:
        """All that is read in this turn of the loop is handled: begin now what would begin with the next turn."""
        if self._urgent is Urgent.SCHEDULED and self.health.fault is None:
            self._begin()

    def on_late(self) -> None:
        if not self._lingering:
            self._lingering = True
            self._driver.later(LINGER, self._lingered)

    def on_much(self) -> None:
        self._hold_back(True)

    def _lingered(self) -> None:
        self._lingering = False
        if not self.pending:
            self.hurry()

    def hurry(self) -> None:
        """Have late changes written now."""
        if self._urgent is Urgent.ALONE or (self.journal and self._urgent is Urgent.NOTHING):
            self._tell_pending(True)
            self._begin()

    def _begin(self) -> None:
        """Have what has come together written."""
        self._urgent = Urgent.NOTHING
        if self._batch is not None:
            return
        for held in self.held:
            held.cut()
        if batch := self.journal.take():
            self._batch = batch
            self._missing = 1
            if self.copier is not None:
                self._missing = 2
                self.copier.append(batch, lambda: self._one_done(batch))
            self._driver.write(batch, self)
        else:
            self._settle()

    def written(self, size: int) -> None:
        """The batch is on disk, in a file that uses so many bytes."""
        self.health.written(size)
        self._one_done(self._batch)

    def _one_done(self, batch: Batch | None) -> None:
        if batch is None or batch is not self._batch:  # it was taken back meanwhile
            return
        self._missing -= 1
        if not self._missing:
            self._batch = None
            self._settle()

    def _settle(self) -> None:
        """All that was cut is on disk. What has come since is committed next; if it has gone again meanwhile, nothing
        is left to wait for."""
        if not self.journal.urgent:
            for held in self.held:
                held.cut()
        for held in self.held:
            held.release()
        if self.journal.urgent:
            self._begin()
            return
        if self.journal:
            self.on_late()
        self._hold_back(False)
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()
        self._tell_pending(self.pending)

    def failed(self, full: bool, reason: str) -> None:
        """Nothing of the batch is on disk, because there is no space (`full`) or for another reason."""
        batch, self._batch = self._batch, None
        assert batch is not None
        self.journal.give_back(batch)
        storage_fault = self.health.failed(full, reason)
        for held in self.held:
            held.fail(storage_fault)
        self._urgent = Urgent.SCHEDULED
        self._driver.later(RETRY, self._begin)

    def _hold_back(self, behind: bool) -> None:
        if behind != self._behind:
            self._behind = behind
            self._on_backlog(behind)
