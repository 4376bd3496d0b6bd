"""A holder that begins while its owner goes on: a snapshot read bit by bit between commits makes the same copy."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator

from saps.messages import Message
from saps.overlay.frames.base import Frame
from saps.overlay.frames.copies import Changes
from saps.overlay.frames.sessions import Append, Appended
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.changes import ROWS, Owned, snapshot
from saps.overlay.sessions.replicas.copies import Copy
from saps.overlay.sessions.replicas.source import Source
from saps.routing.batch import Origin, form
from saps.storage.journal import Change, Journal, Row, Table
from tests.drawn import seeds
from tests.overlay.ports import LonePort


class Owner(LonePort):
    """A broker with sessions that share messages, its log, and a holder whose answers take a while."""

    def __init__(self, seed: int, *, alone: bool = False) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.journal = Journal()
        self.sessions: dict[int, dict[int, int]] = {}
        """By number: the messages of the session's copies, by serial."""
        self.references: dict[int, int] = {}
        self.holder = BrokerRef("h", 1, "", "c")
        self.source = Source(self, lambda: [] if alone else [self.holder], self, 2, lambda: 0.0)
        self.source.shown = self.journal.show
        self.copy = Copy(self.me, 1, 1)
        self.under_way: deque[Append] = deque()
        self.largest = 0
        """Most rows of a session that were read."""
        self.all_read = False

    def send(self, to: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Append)
        assert self.all_read or not frame.whole
        if frame.seq > self.copy.seq + len(self.under_way):
            self.under_way.append(frame)

    def owned(self, client: str) -> Owned:
        return Owned(1, [])

    def fenced(self) -> None:
        raise AssertionError("nobody adopts these sessions")

    def rows(self) -> Iterator[Iterable[Change]]:
        for number in list(self.sessions):
            if number in self.sessions:
                found = list(self._rows(number))
                self.largest = max(self.largest, len(found))
                yield found
        self.all_read = True

    def _rows(self, number: int) -> Iterator[Change]:
        yield Table.SESSIONS, number, _session(number)
        for serial, message in self.sessions[number].items():
            yield Table.MESSAGES, message, _message(message)
            yield Table.COPIES, serial, _copy(serial, number, message)

    def begin_session(self) -> None:
        number = self.journal.number()
        self.sessions[number] = {}
        self.journal.put(Table.SESSIONS, number, _session(number))

    def end_session(self) -> None:
        number = self.rng.choice([*self.sessions])
        for serial in list(self.sessions[number]):
            self._drop(number, serial)
        del self.sessions[number]
        self.journal.drop(Table.SESSIONS, number)

    def publish(self) -> None:
        """A message for some of the sessions."""
        message = self.journal.number()
        for number in self.rng.sample([*self.sessions], self.rng.randint(0, len(self.sessions))):
            serial = self.journal.number()
            self.sessions[number][serial] = message
            if message not in self.references:
                self.journal.put(Table.MESSAGES, message, _message(message))
            self.references[message] = self.references.get(message, 0) + 1
            self.journal.put(Table.COPIES, serial, _copy(serial, number, message))

    def acknowledge(self) -> None:
        """A client takes some of its messages."""
        number = self.rng.choice([*self.sessions])
        serials = list(self.sessions[number])
        for serial in serials[: self.rng.randint(0, 30)] + serials[-self.rng.randint(1, 2) :]:
            if serial in self.sessions[number]:
                self._drop(number, serial)

    def _drop(self, number: int, serial: int) -> None:
        message = self.sessions[number].pop(serial)
        self.journal.drop(Table.COPIES, serial, once=True)
        self.references[message] -= 1
        if not self.references[message]:
            del self.references[message]
            self.journal.drop(Table.MESSAGES, message, once=True)

    def change(self) -> None:
        """Something happens to a session."""
        if not self.sessions or self.rng.random() < 0.05:
            self.begin_session()
        elif self.rng.random() < 0.03:
            self.end_session()
        else:
            self.rng.choice([self.publish, self.publish, self.acknowledge])()

    def commit(self) -> None:
        self.source.append(self.journal.take(), lambda: None)

    def answer(self, count: int) -> None:
        """The holder takes so many frames, and answers each."""
        for _ in range(min(count, len(self.under_way))):
            frame = self.under_way.popleft()
            self.copy.take(frame, 0.0)
            self.source.on_appended(self.holder, Appended(frame.stream, frame.seq))

    def same(self) -> None:
        """The copy is what the owner has, and complete."""
        assert self.copy.whole
        assert {*self.copy.sessions} == {*self.sessions}
        held = {(each.session, serial): each.message for serial, each in self.copy.copies.items()}
        assert held == {(number, s): m for number, had in self.sessions.items() for s, m in had.items()}
        assert {*self.copy.messages} == {*self.references}


def _session(number: int) -> Row:
    return number, f"client {number}", None, 60, None, None, 0, None, number


def _message(number: int) -> Row:
    return number, Message("t", b"%d" % number, 1), None, Origin("b1", 1, number)


def _copy(serial: int, session: int, message: int) -> Row:
    return serial, session, message, 0, form(1, False)


@seeds(20)
def test_the_copy_is_what_the_owner_has(seed: int) -> None:
    owner = Owner(seed)
    for _ in range(10 + seed):
        owner.begin_session()
    for _ in range(owner.rng.randint(200, 600)):
        owner.change()
    owner.commit()  # the holder begins
    steps = 0
    while not owner.source.in_sync:
        for _ in range(owner.rng.randint(0, 5)):
            owner.change()
        owner.answer(owner.rng.randint(0, 3))
        if owner.rng.random() < 0.5:
            owner.commit()
        steps += 1
    assert steps > 2
    owner.commit()
    while owner.under_way:
        owner.answer(1)
    owner.same()


def test_a_broker_reads_no_more_at_once_than_a_session_and_a_frame() -> None:
    """(A broker with many full sessions stood still for its snapshots; the others took it for dead, chose new holders,
    and stood still for theirs.)"""
    owner = Owner(1)
    for _ in range(100):
        owner.begin_session()
    for _ in range(100):
        owner.publish()
    read = [sum(map(_size, parts)) for parts, _ in snapshot(owner.rows(), lambda client: Owned(1, []))]
    assert len(read) > 10
    assert max(read) <= owner.largest + ROWS


def test_a_message_of_many_sessions_is_read_once() -> None:
    owner = Owner(2)
    for _ in range(50):
        owner.begin_session()
    for _ in range(20):
        owner.publish()
    read = [
        message.number
        for parts, _ in snapshot(owner.rows(), lambda _: Owned(1, []))
        for part in parts
        for message in part.messages
    ]
    assert sorted(read) == sorted(owner.references)


def _size(part: Changes) -> int:
    return len(part.sessions) + len(part.messages) + len(part.copies)


def test_an_owner_without_others_waits_for_nobody() -> None:
    owner, done = Owner(1, alone=True), []
    for _ in range(3):
        owner.change()
        owner.source.append(owner.journal.take(), lambda: done.append(True))
    assert len(done) == 3
