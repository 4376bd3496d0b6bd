"""Group commit: all changes noted while one transaction is written go together into the next transaction.

Pure: the driver (`saps.storage.driver.writer`) writes a batch, reports success or failure, and runs delayed actions.
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
"""Seconds for which late changes wait for other changes, to share their transaction."""
RETRY = 0.5
"""Seconds from a failed write to the next attempt."""
ROOM_AGAIN = 0.9
"""Share of the maximum size below which a full storage accepts publications again."""


class Urgent(Enum):
    """The state of urgent changes (those an acknowledgement waits for) that are not in the batch being written."""

    NOTHING = "nothing"
    """There are no such changes, or the end of the present write begins their commit."""
    SCHEDULED = "scheduled"
    """A commit of the changes is scheduled."""
    ALONE = "alone"
    """Neither a disk nor another broker stores the changes, so no acknowledgement waits."""


class Held(Protocol):
    """Holds back output of this broker until the journal is on disk."""

    def cut(self) -> None:
        """Mark the beginning of a commit. The output held now leaves with that commit, or with a later one if it
        fails."""

    def release(self) -> None:
        """Send the output held at the last `cut` and before: its commit is done."""

    def fail(self, storage_fault: StorageFault) -> None:
        """Handle a failed commit: the held output is not backed by the disk for now."""


class Copier(Protocol):
    """Copies batches to other brokers."""

    @property
    def alone(self) -> bool:
        """Whether no other broker can keep copies, so that nothing has to wait for one."""

    def append(self, batch: Batch, done: Callable[[], None]) -> None:
        """Copy this batch to the other brokers; call `done` when they have it."""


class Driver(Protocol):
    """The driver that `Commits` need."""

    def write(self, batch: Batch, commits: Commits) -> None:
        """Write a batch of `commits`, then call their `written` or `failed`. `Commits` have one batch written at a
        time."""

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Run `action` after `delay` seconds; 0 means as soon as the present input is handled."""


class Health:
    """Tracks whether the storage accepts new sessions and messages."""

    def __init__(self, maximum_size: int, on_change: Callable[[StorageFault | None], None]) -> None:
        """`maximum_size`: bytes in use beyond which the storage accepts nothing new; 0 for no limit. `on_change` is
        called with each new fault, and with None when the storage works again."""
        self.fault: StorageFault | None = None
        self._maximum_size = maximum_size
        self._on_change = on_change

    def written(self, size: int) -> None:
        """Record a successful write, after which the storage uses `size` bytes."""
        full = self._maximum_size and size > self._maximum_size * (ROOM_AGAIN if self.fault else 1)
        self._set(StorageFault(False, True, f"more than {self._maximum_size} bytes") if full else None)

    def failed(self, full: bool, reason: str) -> StorageFault:
        """Record a failed write, for lack of space (`full`) or another reason. Returns the fault."""
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
    """The commits of one broker's journal. At most one batch is being written at any time."""

    def __init__(
        self,
        journal: Journal,
        driver: Driver,
        maximum_size: int = 0,
        on_storage_fault: Callable[[StorageFault | None], None] = lambda storage_fault: None,
        on_backlog: Callable[[bool], None] = lambda behind: None,
    ) -> None:
        """`maximum_size`: bytes in use beyond which the storage accepts nothing new; 0 for no limit.
        `on_storage_fault` is called with each new fault and with None at its end. `on_backlog` is called with True when
        publishers must be held back, and with False when they need not be any more."""
        self.journal = journal
        self.held: list[Held] = []
        self.health = Health(maximum_size, on_storage_fault)
        self._on_pending: list[Callable[[bool], None]] = []
        self.copier: Copier | None = None
        """Copies batches to other brokers. With a copier, a commit is done when both disk and copier have the batch."""
        self._waiting: list[Callable[[], None]] = []
        """Actions to run when the batch being written, and all urgent changes since, are on disk."""
        self._missing = 0
        """Number of places, of disk and copier, that do not have the present batch yet."""
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
        """Whether a batch is being written, or an urgent change is not on disk yet."""
        if self._urgent is Urgent.ALONE:
            return False
        return self._batch is not None or self._urgent is Urgent.SCHEDULED or self.journal.urgent

    def then(self, action: Callable[[], None]) -> None:
        """Run `action` when all urgent changes so far are on disk; at once if they are already."""
        if self.pending:
            self._waiting.append(action)
        else:
            action()

    def watch(self, told: Callable[[bool], None]) -> None:
        """Call `told` with each new value of `pending`; also now, if it is True."""
        self._on_pending.append(told)
        if self._told:
            told(True)

    def _tell_pending(self, pending: bool) -> None:
        if pending != self._told:
            self._told = pending
            for told in self._on_pending:
                told(pending)

    def on_urgent(self) -> None:
        """Implement `saps.storage.journal.Watcher`, as do `on_late` and `on_much`."""
        if self._batch is None and not self.journal.disk and (self.copier is None or self.copier.alone):
            self._urgent = Urgent.ALONE
            self.on_late()
            return
        self._tell_pending(True)
        if self._urgent is Urgent.NOTHING and self._batch is None:
            self._urgent = Urgent.SCHEDULED
            self._driver.later(0, self._scheduled_begin)

    def _scheduled_begin(self) -> None:
        if self._urgent is Urgent.SCHEDULED:  # else `end_turn` has begun this commit already
            self._begin()

    def end_turn(self) -> None:
        """Begin a scheduled commit now instead of in the next turn of the loop: all input read in this turn is
        handled."""
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
        """Begin to write late changes now, without waiting for `LINGER`."""
        if self._urgent is Urgent.ALONE or (self.journal and self._urgent is Urgent.NOTHING):
            self._tell_pending(True)
            self._begin()

    def _begin(self) -> None:
        """Begin to write all collected changes, unless a batch is being written."""
        self._urgent = Urgent.NOTHING
        if self._batch is not None:
            return
        for held in self.held:
            held.cut()
        some, batch = bool(self.journal), self.journal.take()
        if not some:
            self._settle()
            return
        self._batch = batch
        self._missing = 1 if self.copier is None else 2
        try:
            if self.copier is not None:
                self.copier.append(batch, lambda: self._one_done(batch))
            self._driver.write(batch, self)
        except Exception as error:
            if self._batch is not batch:  # it was written, and what failed is what had waited for it
                raise
            if self.health.fault is None:
                logger.exception("a commit could not begin")
            # Tried again, though the same batch may fail for ever: then everything new is refused, and the log says so.
            self.failed(False, f"{type(error).__name__}: {error}")

    def written(self, size: int) -> None:
        """Handle the driver's report that the batch is on disk; the storage now uses `size` bytes."""
        self.health.written(size)
        self._one_done(self._batch)

    def _one_done(self, batch: Batch | None) -> None:
        if batch is None or batch is not self._batch:  # the write failed, and the journal has the batch again
            return
        self._missing -= 1
        if not self._missing:
            self._batch = None
            self._settle()

    def _settle(self) -> None:
        """End a commit: release the output that was cut and commit the urgent changes that came since. If those have
        cancelled each other out meanwhile, the output held since has nothing to wait for and is released, too."""
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
        """Handle the driver's report that nothing of the batch is on disk, for lack of space (`full`) or another
        reason. The changes go back into the journal, and the commit is tried again after `RETRY` seconds."""
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
