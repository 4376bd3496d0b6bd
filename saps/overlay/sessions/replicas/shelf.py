"""Copies of other brokers' sessions in this broker's own file: rows that come and go with what is copied.

A holder answers `Append` when these rows are on disk, so that what is acknowledged outlives a loss of power of all
brokers, and of the owner's disk beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from saps.overlay.frames.copies import Changes, MessageCopy, QueuedCopy, SessionCopy, SubscriptionCopy
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.copies import Copy
from saps.storage.journal import Journal, Table

LIVES = 64
"""Earlier lives of this broker with this file that are remembered."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.decode
Row = tuple[str, Any]
"""The name of a row and what is in it."""


class _Head(msgspec.Struct, array_like=True):
    """How far a copy goes."""

    owner: BrokerRef
    log: int
    seq: int
    commit: int
    whole: bool
    holders: list[BrokerRef]


class Shelf:
    """The rows of all copies here; none without a file."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
        """Of the file."""
        self.lives: set[int] = set()
        """Incarnations of this broker that have written to the file."""

    def begin(self, journal: Journal, me: BrokerRef, held: dict[str, dict[str, bytes]]) -> list[Copy]:
        """From now on copies are kept in a file, in which this was `held`. Returns the copies that are whole."""
        self.journal = journal
        lives = sorted(int(name) for name in held.get("", {}))
        for life in lives[:-LIVES]:
            journal.drop(Table.HELD, ("", str(life)))
        self.lives = set(lives[-LIVES:])
        journal.put(Table.HELD, ("", str(me.incarnation)), ("", str(me.incarnation), b""))
        found = []
        for owner, rows in held.items():
            if not owner:
                continue
            copy = _read(rows)
            if copy is not None and copy.whole and copy.sessions:
                found.append(copy)
                continue
            for name in rows:
                journal.drop(Table.HELD, (owner, name))
        return found

    def take(self, copy: Copy, changes: Changes) -> None:
        """A copy is about to be changed."""
        if self.journal is None:
            return
        owner = _owner(copy)
        for name, value in _added(changes):
            self.journal.put(Table.HELD, (owner, name), (owner, name, _encode(value)))
        for name in _removed(copy, changes):
            self.journal.drop(Table.HELD, (owner, name))

    def note(self, copy: Copy) -> None:
        """It has been."""
        if self.journal is not None:
            owner = _owner(copy)
            head = _Head(copy.owner, copy.log, copy.seq, copy.commit, copy.whole, copy.holders)
            self.journal.put(Table.HELD, (owner, "log"), (owner, "log", _encode(head)))

    def drop(self, copy: Copy) -> None:
        """It is of no use any more."""
        if self.journal is not None:
            owner = _owner(copy)
            for name in ("log", *(name for name, _ in _added(copy.everything()))):
                self.journal.drop(Table.HELD, (owner, name))


def _owner(copy: Copy) -> str:
    return f"{copy.owner.name} {copy.owner.incarnation} {copy.log}"


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


def _removed(copy: Copy, changes: Changes) -> Iterator[str]:
    for number in changes.no_sessions:
        yield f"s{number}"
        yield from (f"f{number} {topic_filter}" for topic_filter in copy.subscriptions.get(number, ()))
    for number, topic_filter in changes.no_subscriptions:
        yield f"f{number} {topic_filter}"
    for letter, numbers in (("m", changes.no_messages), ("c", changes.no_copies), ("r", changes.no_releases)):
        yield from (f"{letter}{number}" for number in numbers)
    yield from (f"i{number} {packet_id}" for number, packet_id in changes.no_incoming)


def _read(rows: dict[str, bytes]) -> Copy | None:
    """A copy as it was; None if nobody knows whose it is."""
    if "log" not in rows:
        return None
    head = _decode(rows["log"], type=_Head)
    copy = Copy(head.owner, head.log, 0)
    copy.seq, copy.commit, copy.whole, copy.holders = head.seq, head.commit, head.whole, head.holders

    def of(letter: str, kind: Any) -> list[Any]:
        return [_decode(raw, type=kind) for name, raw in rows.items() if name.startswith(letter) and name != "log"]

    copy.apply(
        Changes(
            of("s", SessionCopy), of("f", SubscriptionCopy), of("m", MessageCopy), of("c", QueuedCopy),
            of("r", tuple[int, int, int]), of("i", tuple[int, int, int]),
        )
    )  # fmt: skip
    return copy
