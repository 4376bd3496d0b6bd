"""Which changes are committed at once, and which wait for others."""

from __future__ import annotations

from collections.abc import Callable

from saps.storage.commits import LINGER, Commits
from saps.storage.journal import Batch, Journal, Table


class Manual:
    """A driver that writes when it is told to. (A `saps.storage.commits.Driver`.)"""

    def __init__(self) -> None:
        self.journal = Journal()
        self.commits = Commits(self.journal, self)
        self.written: list[Batch] = []
        self.due: list[tuple[float, Callable[[], None]]] = []

    def write(self, batch: Batch) -> None:
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
