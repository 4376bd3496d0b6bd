"""What a holder's file has of a copy after it has lost power."""

from __future__ import annotations

from collections.abc import Iterable

from saps.messages import Message
from saps.overlay.frames.copies import Changes, MessageCopy, QueuedCopy, SessionCopy
from saps.overlay.frames.sessions import Append
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.copies import Copy
from saps.overlay.sessions.replicas.shelf import HAD, Shelf
from saps.routing.batch import Origin
from saps.storage.journal import Journal, Table
from saps.storage.past import unpack

OWNER, ME = BrokerRef("b1", 1, "", "c"), BrokerRef("b2", 1, "", "c")


class Holder:
    """A holder with a file, and the copy of an owner with one session that follows its log."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, bytes]] = {}
        self.shelf, self._journal = Shelf(), Journal()
        assert self.shelf.begin(self._journal, ME, {}, 0.0) == []
        self.copy = Copy(OWNER, 1, 1)
        self._now = 0.0
        self.take(Changes([SessionCopy(1, "client", None, 60, None, 7, 1)]))

    def take(self, changes: Changes, seconds: float = 1.0) -> None:
        """The owner's next frame, so much later."""
        self._now += seconds
        frame = Append(1, 1, self.copy.seq + 1, self.copy.seq + 1, True, [ME], changes, self._now)
        self.shelf.take(self.copy, changes)
        self.copy.take(frame, self._now)
        self.copy.upto = self._now
        self.shelf.note(self.copy, self._now)
        for (owner, name), row in self._journal.take().get(Table.HELD, {}).items():
            self.rows.setdefault(owner, {}).pop(name, None)
            if row is not None:
                self.rows[owner][name] = row[2]

    def publish(self, number: int) -> None:
        message = MessageCopy(number, Message("t", b"%d" % number, 2), None, Origin("b3", 1, number))
        self.take(Changes(messages=[message], copies=[QueuedCopy(number, 1, number, 0, 2, False)]))

    def acknowledged(self, numbers: Iterable[int], seconds: float = 1.0) -> None:
        gone = [*numbers]
        self.take(Changes(no_messages=gone, no_copies=gone), seconds)

    def restart(self) -> tuple[list[int], list[int]]:
        """The session's publications that wait, and those that it has had, as the file has them."""
        (copy,) = Shelf().begin(Journal(), ME, {owner: dict(rows) for owner, rows in self.rows.items()}, 0.0)
        ((session,), messages) = copy.saved()
        waiting = [messages[each.message].origin for each in session.copies]
        return [each.seq for each in waiting if each is not None], [each.seq for each in unpack(session.had)]


def test_what_clients_have_acknowledged_is_known_after_a_loss_of_power() -> None:
    """Their brokers did not know it yet, and the heir of the session got it again (`make jepsen`)."""
    holder = Holder()
    for number in (1, 2, 3):
        holder.publish(number)
    holder.acknowledged([1])
    holder.acknowledged([2])
    assert holder.restart() == ([3], [1, 2])


def test_it_is_not_kept_for_long() -> None:
    holder = Holder()
    holder.publish(1)
    holder.publish(2)
    holder.acknowledged([1])
    holder.acknowledged([2], HAD + 2)
    assert holder.restart() == ([], [1, 2])
    holder.take(Changes(), 1)
    holder.publish(3)
    holder.acknowledged([3], 2)
    assert holder.restart() == ([], [2, 3])


def test_nothing_of_a_copy_that_is_dropped_stays() -> None:
    holder = Holder()
    holder.publish(1)
    holder.acknowledged([1])
    holder.shelf.drop(holder.copy)
    holder.take(Changes())
    assert [*holder.rows["b1 1 1"]] == ["log"]
