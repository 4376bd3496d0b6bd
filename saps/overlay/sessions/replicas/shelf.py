"""Stores copies of other brokers' sessions in this broker's own file, as rows that change with the copies.

A holder answers `Append` when these rows are on disk. So acknowledged changes survive a loss of power of all brokers,
even if the owner's disk is lost, too. What clients have acknowledged lately is kept as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from saps.overlay.frames.copies import Changes, MessageCopy, QueuedCopy, SessionCopy, SubscriptionCopy
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.copies import Copy
from saps.storage.journal import Journal, Table
from saps.storage.past import pack

INCARNATIONS = 64
"""Number of this broker's incarnations with this file that are remembered."""
HAD = 10.0
"""Seconds for which publications that clients have acknowledged are kept: their brokers may not know it after a loss of
power, and send them again."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.decode
Row = tuple[str, Any]
"""The name and the value of a row."""


class _Head(msgspec.Struct, array_like=True):
    """The row with the identity and extent of a copy."""

    owner: BrokerRef
    log: int
    seq: int
    commit: int
    whole: bool
    holders: list[BrokerRef]
    upto: float = 0.0
    """`Copy.upto`, in seconds since the epoch."""


class Shelf:
    """The rows of all copies here. Without a file all calls do nothing."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
        """The journal of the file; None without one."""
        self.incarnations: set[int] = set()
        """Earlier incarnations of this broker that have written to the file."""
        self._had: dict[str, deque[tuple[float, str]]] = {}
        """By owner: the rows of what its clients have acknowledged, each with `Copy.upto` before it, oldest first."""

    def begin(self, journal: Journal, me: BrokerRef, held: dict[str, dict[str, bytes]], jump: float) -> list[Copy]:
        """Keep the copies in a file from now on. `held` has the file's rows by owner and name. `jump`: seconds by which
        this broker's clock has jumped since they were written.

        Return the complete copies of it. Rows of incomplete ones are dropped."""
        self.journal = journal
        incarnations = sorted(int(name) for name in held.get("", {}))
        for incarnation in incarnations[:-INCARNATIONS]:
            journal.drop(Table.HELD, ("", str(incarnation)))
        self.incarnations = set(incarnations[-INCARNATIONS:])
        journal.put(Table.HELD, ("", str(me.incarnation)), ("", str(me.incarnation), b""))
        found = []
        for owner, rows in held.items():
            if not owner:
                continue
            copy = _read(rows)
            if copy is not None and copy.whole and copy.sessions:
                found.append(copy)
                self._had[owner] = deque((copy.upto, name) for name in rows if name.startswith("d"))
                if jump:
                    _put(journal, owner, copy.shift(jump))
                    self.note(copy, copy.upto)
                continue
            for name in rows:
                journal.drop(Table.HELD, (owner, name))
        return found

    def take(self, copy: Copy, changes: Changes) -> None:
        """Write changes that are about to be applied to a copy. Call it before `Copy.take`, whose rows it reads."""
        if self.journal is None:
            return
        owner = _owner(copy)
        _put(self.journal, owner, changes)
        if had := [(number, pack(origins)) for number, origins in copy.over(changes).items()]:
            name, rows = f"d{copy.seq + 1}", self._had.setdefault(owner, deque())
            self.journal.put(Table.HELD, (owner, name), (owner, name, _encode(had)))
            rows.append((copy.upto, name))
            while len(rows) > 1 and rows[1][0] < copy.upto - HAD:
                self.journal.drop(Table.HELD, (owner, rows.popleft()[1]))
        for name in _removed(copy, changes):
            self.journal.drop(Table.HELD, (owner, name))

    def note(self, copy: Copy, upto: float) -> None:
        """Write the extent of a copy after its change. `upto` is `Copy.upto`, in seconds since the epoch."""
        if self.journal is not None:
            owner = _owner(copy)
            head = _Head(copy.owner, copy.log, copy.seq, copy.commit, copy.whole, copy.holders, upto)
            self.journal.put(Table.HELD, (owner, "log"), (owner, "log", _encode(head)))

    def drop(self, copy: Copy) -> None:
        """Drop all rows of a copy."""
        if self.journal is not None:
            owner = _owner(copy)
            had = (name for _, name in self._had.pop(owner, ()))
            for name in ("log", *had, *_names(copy)):
                self.journal.drop(Table.HELD, (owner, name))


def _owner(copy: Copy) -> str:
    return f"{copy.owner.name} {copy.owner.incarnation} {copy.log}"


def _put(journal: Journal, owner: str, changes: Changes) -> None:
    for name, value in _added(changes):
        journal.put(Table.HELD, (owner, name), (owner, name, _encode(value)))


def _added(changes: Changes) -> Iterator[Row]:
    for session in changes.sessions:
        yield f"s{session.number}", session
    for each in changes.subscriptions:
        yield f"f{each.session} {each.filter}", each
    for message in changes.messages:
        yield f"m{message.number}", message
    for copy in changes.copies:
        yield f"c{copy.serial}", copy
    for release in changes.releases:
        yield f"r{release[0]}", release
    for incoming in changes.incoming:
        yield f"i{incoming[0]} {incoming[1]}", incoming
    for had in changes.had:
        yield f"h{had[0]}", had


def _names(copy: Copy) -> Iterator[str]:
    for number in copy.sessions:
        yield from (f"s{number}", f"h{number}")
    for number, subscriptions in copy.subscriptions.items():
        yield from (f"f{number} {topic_filter}" for topic_filter in subscriptions)
    for letter, rows in (("m", copy.messages), ("c", copy.copies), ("r", copy.releases)):
        yield from (f"{letter}{number}" for number in rows)
    yield from (f"i{number} {packet_id}" for number, packet_id in copy.incoming)


def _removed(copy: Copy, changes: Changes) -> Iterator[str]:
    for number in changes.no_sessions:
        yield from (f"s{number}", f"h{number}")
        yield from (f"f{number} {topic_filter}" for topic_filter in copy.subscriptions.get(number, ()))
    for number, topic_filter in changes.no_subscriptions:
        yield f"f{number} {topic_filter}"
    for letter, numbers in (("m", changes.no_messages), ("c", changes.no_copies), ("r", changes.no_releases)):
        yield from (f"{letter}{number}" for number in numbers)
    yield from (f"i{number} {packet_id}" for number, packet_id in changes.no_incoming)


def _read(rows: dict[str, bytes]) -> Copy | None:
    """Return the copy with these rows, or None if the row with its owner is missing."""
    if "log" not in rows:
        return None
    head = _decode(rows["log"], type=_Head)
    copy = Copy(head.owner, head.log, 0)
    copy.seq, copy.commit, copy.whole = head.seq, head.commit, head.whole
    copy.holders, copy.upto = head.holders, head.upto

    def of(letter: str, kind: Any) -> list[Any]:
        return [_decode(raw, type=kind) for name, raw in rows.items() if name.startswith(letter) and name != "log"]

    for name in sorted((name for name in rows if name.startswith("d")), key=lambda name: int(name[1:])):
        for number, had in _decode(rows[name], type=list[tuple[int, list[bytes]]]):
            copy.recall(number, had)
    copy.apply(
        Changes(
            of("s", SessionCopy), of("f", SubscriptionCopy), of("m", MessageCopy), of("c", QueuedCopy),
            of("r", tuple[int, int, int]), of("i", tuple[int, int, int]), had=of("h", tuple[int, list[bytes]]),
        )
    )  # fmt: skip
    return copy
