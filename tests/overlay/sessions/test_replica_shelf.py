"""What a holder's file has of a copy after it has lost power."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from saps.messages import Message
from saps.overlay.frames.copies import Changes, MessageCopy, QueuedCopy, SessionCopy, SubscriptionCopy
from saps.overlay.frames.sessions import Append
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas import shelf
from saps.overlay.sessions.replicas.copies import Copy
from saps.overlay.sessions.replicas.shelf import HAD, Shelf
from saps.routing.batch import Origin
from saps.storage.journal import Journal, Table
from saps.storage.past import unpack
from tests.drawn import seeds

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
        over = self.copy.take(frame, self._now)
        self.copy.upto = self._now
        self.shelf.note(self.copy, changes, over, self._now)
        self._write(self._journal)

    def _write(self, journal: Journal) -> None:
        for (owner, name), row in journal.take().get(Table.HELD, {}).items():
            self.rows.setdefault(owner, {}).pop(name, None)
            if row is not None:
                self.rows[owner][name] = row[2]

    def publish(self, number: int) -> None:
        message = MessageCopy(number, Message("t", b"%d" % number, 2), None, Origin("b3", 1, number))
        self.take(Changes(messages=[message], copies=[QueuedCopy(number, 1, number, 0, 2, False)]))

    def acknowledged(self, numbers: Iterable[int], seconds: float = 1.0) -> None:
        gone = [*numbers]
        self.take(Changes(no_messages=gone, no_copies=gone), seconds)

    def copy_of_the_file(self, jump: float = 0.0) -> Copy:
        """The copy that a broker restores whose clock has jumped so far. It goes on with the file."""
        journal = Journal()
        (copy,) = Shelf().begin(journal, ME, {owner: dict(rows) for owner, rows in self.rows.items() if owner}, jump)
        self._write(journal)
        return copy

    def restart(self) -> tuple[list[int], list[int]]:
        """The session's publications that wait, and those that it has had, as the file has them."""
        ((session,), messages) = self.copy_of_the_file().saved()
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


def test_it_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "LOG", 0)  # only the last frame stays in the log
    holder = Holder()
    holder.publish(1)
    holder.publish(2)
    holder.acknowledged([1])
    holder.acknowledged([2], HAD - 2)
    holder.take(Changes(), 1)
    assert holder.restart() == ([], [1, 2])
    holder.publish(3)
    holder.acknowledged([3], 1)
    holder.take(Changes(), 1)
    assert holder.restart() == ([], [2, 3])


def test_what_is_delivered_soon_has_no_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "LOG", 40 * shelf.ITEM)
    holder, written = Holder(), set[str]()
    for number in range(1000):
        holder.publish(number)
        holder.acknowledged([number], 0.0)
        written.update(holder.rows["b1 1 1"])
        assert len(holder.rows["b1 1 1"]) < 60
    assert {name.rstrip("0123456789") for name in written} == {"log", "s", "a", "d"}


def test_nothing_of_a_copy_that_is_dropped_stays() -> None:
    holder = Holder()
    holder.publish(1)
    holder.acknowledged([1])
    holder.shelf.drop(holder.copy)
    holder.take(Changes())
    assert [*holder.rows["b1 1 1"]] == ["log", "a4"]


class Life:
    """An owner's sessions that change at random, and their holder."""

    def __init__(self, seed: int) -> None:
        self.holder = Holder()
        self._rng = random.Random(seed)
        self._number = 1

    def step(self) -> None:
        """A frame with several changes; some items are put again, keys of incoming publications are used again."""
        copy, rng = self.holder.copy, self._rng
        each = Changes()
        staying = [*copy.sessions]
        if len(staying) > 1 and rng.random() < 0.1:
            each.no_sessions.append(gone := staying.pop(rng.randrange(len(staying))))
            each.no_copies.extend(serial for serial, found in copy.copies.items() if found.session == gone)
        for _ in range(rng.randint(1, 4)):
            self._number += 1
            session = rng.choice(staying)
            match rng.randrange(6):
                case 0:
                    each.sessions.append(SessionCopy(session, f"c{session}", None, self._number, None, 7, 1))
                case 1:
                    each.sessions.append(SessionCopy(self._number, f"c{self._number}", None, 60, None, 7, 1))
                case 2:
                    options = rng.randrange(3), False, False, 0, None
                    each.subscriptions.append(SubscriptionCopy(session, f"f{rng.randrange(3)}", *options))
                case 3:
                    each.releases.append((self._number, session, rng.randrange(9)))
                case 4:
                    each.incoming.append((session, rng.randrange(3), rng.randrange(9)))
                case _:
                    number = rng.choice([self._number, *copy.messages])
                    message = Message("t", bytes(rng.randrange(300)), 1)
                    each.messages.append(MessageCopy(number, message, 9e9, Origin("b3", 1, self._number)))
                    queued = QueuedCopy(self._number, session, number, rng.randrange(3), 1, False)
                    each.copies.append(queued)
        kept = {serial for serial in copy.copies if serial not in each.no_copies and rng.random() < 0.8}
        each.no_copies.extend(copy.copies.keys() - kept - {*each.no_copies})
        used = {copy.copies[serial].message for serial in kept} | {found.message for found in each.copies}
        each.no_messages.extend(copy.messages.keys() - used)
        each.no_releases.extend(serial for serial in copy.releases if rng.random() < 0.3)
        added = {found[:2] for found in each.incoming}
        each.no_incoming.extend(key for key in copy.incoming if key not in added and rng.random() < 0.3)
        self.holder.take(each, 0.0)


def state(copy: Copy) -> object:
    """All of a copy that a restart must not change."""
    sessions, messages = copy.saved()
    past = {each.number: {*unpack(each.had)} for each in sessions}
    extent = copy.seq, copy.commit, copy.whole, copy.holders
    subscriptions = {number: found for number, found in copy.subscriptions.items() if found}
    items = copy.sessions, subscriptions, copy.messages, copy.copies, copy.releases, copy.incoming
    return extent, items, past, messages


@seeds(30)
def test_a_restarted_holder_has_the_same_copy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of the log is folded."""
    monkeypatch.setattr(shelf, "LOG", (seed % 5) * 1500)
    monkeypatch.setattr(shelf, "FOLDED", 1 + seed % 7 * 200)
    life = Life(seed)
    for _ in range(60):
        life.step()
        assert state(life.holder.copy_of_the_file()) == state(life.holder.copy)
    life.holder.shelf.drop(life.holder.copy)
    life.holder.take(Changes())
    assert {*life.holder.rows["b1 1 1"]} == {"log", f"a{life.holder.copy.seq}"}


@seeds(10)
def test_times_follow_a_jump_of_the_clock(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "LOG", seed * 500)
    life = Life(seed)
    for _ in range(30):
        life.step()
    jumped = life.holder.copy_of_the_file(jump=100.0)
    assert {found.expires for found in jumped.messages.values()} <= {9e9 + 100}
    assert state(life.holder.copy_of_the_file()) == state(jumped)
