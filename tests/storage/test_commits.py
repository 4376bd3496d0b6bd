"""Which changes are committed at once, and which wait for others."""

from __future__ import annotations

from collections.abc import Callable

from saps.storage.commits import LINGER, RETRY, Commits
from saps.storage.journal import Batch, Journal, Table


class Manual:
    """A driver that writes when it is told to. (A `saps.storage.commits.Driver`.)"""

    def __init__(self) -> None:
        self.journal = Journal()
        self.commits = Commits(self.journal, self)
        self.written: list[Batch] = []
        self.due: list[tuple[float, Callable[[], None]]] = []

    def write(self, batch: Batch, commits: Commits) -> None:
        self.written.append(batch)

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.due.append((delay, action))

    def run(self, delay: float) -> None:
        """What was to be done after so many seconds."""
        due, self.due = self.due, []
        for after, action in due:
            if after == delay:
                action()
            else:
                self.due.append((after, action))


def test_late_changes_hold_up_nothing_and_are_written_soon() -> None:
    driver = Manual()
    driver.journal.put(Table.COPIES, 1, (1, 1, 1, 1, None))
    driver.run(0)
    driver.journal.drop(Table.COPIES, 1, once=True)  # while the other one is being written
    driver.commits.written(0)
    assert not driver.commits.pending
    done: list[str] = []
    driver.commits.then(lambda: done.append("at once"))
    assert done
    driver.run(0)
    assert len(driver.written) == 1
    driver.run(LINGER)
    driver.commits.written(0)
    assert driver.written[1:] == [{Table.COPIES: {1: None}}]
    assert not driver.due


def test_late_changes_go_with_the_next_urgent_one() -> None:
    driver = Manual()
    driver.journal.drop(Table.COPIES, 1, once=True)
    driver.journal.put(Table.COPIES, 2, (2, 1, 2, 1, None))
    assert driver.commits.pending
    driver.run(0)
    assert driver.written == [{Table.COPIES: {1: None, 2: (2, 1, 2, 1, None)}}]
    driver.commits.written(0)
    driver.run(LINGER)
    assert len(driver.written) == 1


def test_what_was_put_and_dropped_again_leaves_no_one_waiting() -> None:
    driver = Manual()
    driver.journal.put(Table.COPIES, 1, (1, 1, 1, 1, None))
    driver.journal.drop(Table.COPIES, 1, once=True)
    done: list[str] = []
    driver.commits.then(lambda: done.append("after the turn"))
    driver.run(0)
    assert done
    assert not driver.written
    assert not driver.commits.pending


def test_the_end_hurries_late_changes() -> None:
    driver = Manual()
    driver.journal.drop(Table.COPIES, 1, once=True)
    driver.commits.hurry()
    assert driver.commits.pending
    assert driver.written == [{Table.COPIES: {1: None}}]


def test_the_end_of_a_turn_begins_the_commit_once() -> None:
    driver = Manual()
    driver.journal.put(Table.COPIES, 1, (1, 1, 1, 1, None))
    driver.commits.end_turn()
    assert len(driver.written) == 1
    driver.journal.put(Table.COPIES, 2, (2, 1, 2, 1, None))
    driver.run(0)  # what was scheduled before has nothing left to begin
    assert len(driver.written) == 1
    driver.commits.written(0)
    assert len(driver.written) == 2


def test_the_end_of_a_turn_does_not_hurry_a_broken_disk() -> None:
    driver = Manual()
    driver.journal.put(Table.COPIES, 1, (1, 1, 1, 1, None))
    driver.run(0)
    driver.commits.failed(False, "I/O error")
    driver.commits.end_turn()
    assert len(driver.written) == 1
    driver.run(RETRY)
    assert len(driver.written) == 2


def test_a_commit_that_cannot_begin_is_tried_again() -> None:
    driver, done = Manual(), list[str]()
    write, faults = driver.write, [ValueError("an integer out of range")]

    def broken(batch: Batch, commits: Commits) -> None:
        if faults:
            raise faults.pop()
        write(batch, commits)

    driver.write = broken  # type: ignore[method-assign]
    driver.journal.put(Table.COPIES, 1, (1, 1, 1, 1, None))
    driver.commits.then(lambda: done.append("acknowledged"))
    driver.run(0)
    assert driver.commits.health.fault is not None
    assert driver.commits.health.fault.text == "ValueError: an integer out of range"
    driver.run(RETRY)
    driver.commits.written(0)
    assert done
    assert not driver.commits.pending
    assert driver.commits.health.fault is None


class Others:
    """Other brokers. (A `saps.storage.commits.Copier`.)"""

    def __init__(self) -> None:
        self.alone = True
        self.copied: list[Callable[[], None]] = []

    def append(self, batch: Batch, done: Callable[[], None]) -> None:
        if self.alone:
            done()
        else:
            self.copied.append(done)


def test_whoever_watches_during_a_commit_learns_of_it() -> None:
    """A broker's first commit may begin before its frontend is there, whose output went out at once."""
    driver, told = Manual(), list[bool]()
    driver.journal.outside()
    driver.commits.watch(told.append)
    assert told == [True]
    driver.run(0)
    driver.commits.written(0)
    assert told == [True, False]


def test_without_a_disk_or_others_nothing_waits() -> None:
    driver, others, told = Manual(), Others(), list[bool]()
    driver.journal.disk, driver.commits.copier = False, others
    driver.commits.watch(told.append)
    driver.journal.put(Table.COPIES, 1, (1, 1, 1, 1, None))
    assert not driver.commits.pending
    driver.run(LINGER)
    driver.commits.written(0)
    assert driver.written == [{Table.COPIES: {1: (1, 1, 1, 1, None)}}]
    driver.journal.put(Table.COPIES, 3, (3, 1, 1, 1, None))
    driver.journal.drop(Table.COPIES, 3, once=True)
    driver.run(LINGER)
    others.alone = False
    driver.journal.put(Table.COPIES, 2, (2, 1, 2, 1, None))
    assert driver.commits.pending
    driver.run(0)
    driver.commits.written(0)
    assert driver.commits.pending
    others.copied.pop()()
    assert not driver.commits.pending
    assert told[-2:] == [True, False]
