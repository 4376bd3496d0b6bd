"""Stores copies of other brokers' sessions in this broker's own file: a log of the owner's frames, and rows.

A holder answers `Append` when its changes are on disk. So acknowledged changes survive a loss of power of all brokers,
even if the owner's disk is lost, too.

1. A frame is stored as one row of a log, with what it has changed of messages and their copies. Most messages are
   delivered soon, and need no rows of their own.
2. When a log is longer than `LOG`, its oldest frames are **folded**: what is still there of their items becomes rows.
   When an item with a row is removed, so is the row. Rows may be ahead of the log, then: to repeat its frames on them
   leads to the same copy.
3. Sessions and subscriptions change seldom, and are rows at once.
4. What clients have acknowledged lately is kept as well: in the log, then in rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from saps.overlay.frames.copies import Changes, MessageCopy, QueuedCopy, SessionCopy, SubscriptionCopy
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.copies import Copy
from saps.routing.batch import Origin
from saps.storage.journal import Journal, Table
from saps.storage.past import RECENT_IN_CUT, pack

INCARNATIONS = 64
"""Number of this broker's incarnations with this file that are remembered."""
HAD = 10.0
"""Seconds for which publications that clients have acknowledged are kept: their brokers may not know it after a loss of
power, and send them again."""
LOG = 4 << 20
"""Most bytes of a copy's log, roughly: items and payloads. More than is under way to clients at one time."""
ITEM = 128
"""Bytes of an item of a frame, roughly."""
FOLDED = LOG // 32
"""Bytes that are folded at a time: little, so that no other work waits for it."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.decode
_NOTHING = Changes()
Row = tuple[str, Any]
"""The name and the value of a row."""


class _Frame(msgspec.Struct, array_like=True):
    """A row of the log: a frame, and the extent of the copy after it."""

    seq: int
    commit: int
    whole: bool
    holders: list[BrokerRef]
    upto: float
    """`Copy.upto`, in seconds since the epoch."""
    changes: Changes
    """Those of messages and their copies."""
    over: list[tuple[int, list[Origin]]]
    """What `Copy.take` has returned."""

    @property
    def name(self) -> str:
        return f"a{self.seq}"

    @property
    def size(self) -> int:
        """Its bytes, roughly."""
        each = self.changes
        added = len(each.messages) + len(each.copies) + len(each.releases) + len(each.incoming)
        gone = len(each.no_messages) + len(each.no_copies) + len(each.no_releases) + len(each.no_incoming)
        return ITEM * (1 + added + gone) + sum(len(message.message.payload) for message in each.messages)


class _Items(NamedTuple):
    """Messages, their copies, releases or incoming publications."""

    letter: str
    """With which the names of their rows begin."""
    added: dict[Any, Any]
    """Those that a frame adds, by key."""
    gone: Collection[Any]
    """Keys of those that it removes."""
    present: Mapping[Any, Any]
    """Those of the copy, by key."""

    def row(self, key: Any) -> Row:
        """Return the row of an item that is present."""
        if self.letter == "i":
            return self.name(key), (*key, self.present[key])
        return self.name(key), (key, *self.present[key]) if self.letter == "r" else self.present[key]

    def name(self, key: Any) -> str:
        return f"i{key[0]} {key[1]}" if self.letter == "i" else f"{self.letter}{key}"


def _items(copy: Copy, changes: Changes = _NOTHING) -> Iterator[_Items]:
    messages = {each.number: each for each in changes.messages}
    yield _Items("m", messages, changes.no_messages, copy.messages)
    yield _Items("c", {each.serial: each for each in changes.copies}, changes.no_copies, copy.copies)
    yield _Items("r", {each[0]: each for each in changes.releases}, changes.no_releases, copy.releases)
    yield _Items("i", {each[:2]: each for each in changes.incoming}, changes.no_incoming, copy.incoming)


class _Kept:
    """What the file has of a copy, apart from its sessions and subscriptions."""

    def __init__(self, owner: str) -> None:
        """`owner`: the first column of its rows."""
        self.owner = owner
        self.frames: deque[tuple[_Frame, int]] = deque()
        """The log, each frame with its size."""
        self.size = 0
        """Of all frames."""
        self.loose: dict[str, set[Any]] = {"m": set(), "c": set(), "r": set(), "i": set()}
        """By letter: keys of the items that are present and have no row, only a frame."""
        self.had: deque[tuple[float, str]] = deque()
        """The rows of what clients have acknowledged, each with `Copy.upto` after it, oldest first."""

    def add(self, frame: _Frame) -> None:
        size = frame.size
        self.frames.append((frame, size))
        self.size += size


class Shelf:
    """The rows of all copies here. Without a file all calls do nothing."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
        """The journal of the file; None without one."""
        self.incarnations: set[int] = set()
        """Earlier incarnations of this broker that have written to the file."""
        self._kept: dict[tuple[BrokerRef, int], _Kept] = {}
        """By owner and log."""

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
            kept = _Kept(owner)
            copy = _read(rows, kept)
            if copy is not None and copy.whole and copy.sessions:
                found.append(copy)
                self._kept[copy.owner, copy.log] = kept
                if jump:
                    self._shift(journal, kept, copy, jump)
                continue
            for name in rows:
                journal.drop(Table.HELD, (owner, name))
        return found

    def _shift(self, journal: Journal, kept: _Kept, copy: Copy, jump: float) -> None:
        """Convert all times of a copy in the file to a clock that is so much ahead."""
        timed = copy.shift(jump)
        self._fold(journal, kept, copy, len(kept.frames))
        for name, value in (*_rows(timed), *((f"m{each.number}", each) for each in timed.messages)):
            _put(journal, kept, name, value)
        self._append(journal, kept, _frame(copy, Changes(), {}, copy.upto))

    def take(self, copy: Copy, changes: Changes) -> None:
        """Write what is about to change of the rows of a copy. Call it before `Copy.take`, with the copy as it was."""
        if self.journal is None:
            return
        journal, kept = self.journal, self._of(self.journal, copy)
        for name, value in _rows(changes):
            _put(journal, kept, name, value)
        for name in _no_rows(copy, changes):
            journal.drop(Table.HELD, (kept.owner, name))
        for items in _items(copy, changes):
            loose, known = kept.loose[items.letter], items.present.keys()
            for key in (items.added.keys() & known) - loose:  # it has a row, and gets another one
                _put(journal, kept, items.name(key), items.added[key])
            loose.update(key for key in items.added if key not in known)
            for key in (known & items.gone) - loose:
                journal.drop(Table.HELD, (kept.owner, items.name(key)))
            loose.difference_update(items.gone)

    def note(self, copy: Copy, changes: Changes, over: dict[int, list[Origin]], upto: float) -> None:
        """Write what has changed of a copy's messages, and its extent. `over` is what `Copy.take` has returned, `upto`
        is `Copy.upto`, in seconds since the epoch."""
        if self.journal is None:
            return
        kept = self._of(self.journal, copy)
        self._append(self.journal, kept, _frame(copy, changes, over, upto))
        if kept.size > LOG:
            count, size = 0, kept.size - LOG + FOLDED
            while size > 0 and count < len(kept.frames) - 1:  # the last one tells the extent
                size -= kept.frames[count][1]
                count += 1
            self._fold(self.journal, kept, copy, count)

    def drop(self, copy: Copy) -> None:
        """Drop all rows of a copy."""
        if self.journal is not None and (kept := self._kept.pop((copy.owner, copy.log), None)) is not None:
            had, frames = (name for _, name in kept.had), (frame.name for frame, _ in kept.frames)
            items = (each.name(key) for each in _items(copy) for key in each.present)
            for name in ("log", *frames, *had, *items, *_names(copy)):
                self.journal.drop(Table.HELD, (kept.owner, name))

    def _of(self, journal: Journal, copy: Copy) -> _Kept:
        kept = self._kept.get((copy.owner, copy.log))
        if kept is None:
            kept = _Kept(f"{copy.owner.name} {copy.owner.incarnation} {copy.log}")
            self._kept[copy.owner, copy.log] = kept
            _put(journal, kept, "log", (copy.owner, copy.log))
        return kept

    def _append(self, journal: Journal, kept: _Kept, frame: _Frame) -> None:
        kept.add(frame)
        _put(journal, kept, frame.name, frame)

    def _fold(self, journal: Journal, kept: _Kept, copy: Copy, count: int) -> None:
        """Replace the first frames of a log, so many, by rows of what is still there of their items."""
        over: dict[int, list[Origin]] = {}
        upto = copy.upto
        for frame, size in [kept.frames.popleft() for _ in range(count)]:
            kept.size -= size
            upto = frame.upto
            for items in _items(copy, frame.changes):
                loose = kept.loose[items.letter]
                for key in items.added.keys() & loose:
                    _put(journal, kept, *items.row(key))
                    loose.discard(key)
            for number, origins in frame.over:
                over.setdefault(number, []).extend(origins)
            journal.drop(Table.HELD, (kept.owner, frame.name))
            last = frame.seq
        if over:
            name = f"d{last}"
            _put(journal, kept, name, (upto, [(number, pack(origins)) for number, origins in over.items()]))
            kept.had.append((upto, name))
        while kept.had and kept.had[0][0] < upto - HAD:
            journal.drop(Table.HELD, (kept.owner, kept.had.popleft()[1]))


def _put(journal: Journal, kept: _Kept, name: str, value: Any) -> None:
    journal.put(Table.HELD, (kept.owner, name), (kept.owner, name, _encode(value)))


def _frame(copy: Copy, changes: Changes, over: dict[int, list[Origin]], upto: float) -> _Frame:
    each = changes
    if each.sessions or each.subscriptions or each.had or each.no_sessions or each.no_subscriptions:
        each = msgspec.structs.replace(each, sessions=[], subscriptions=[], had=[], no_sessions=[], no_subscriptions=[])
    return _Frame(copy.seq, copy.commit, copy.whole, copy.holders, upto, each, [*over.items()])


def _rows(changes: Changes) -> Iterator[Row]:
    for session in changes.sessions:
        yield f"s{session.number}", session
    for each in changes.subscriptions:
        yield f"f{each.session} {each.filter}", each
    for had in changes.had:
        yield f"h{had[0]}", had


def _no_rows(copy: Copy, changes: Changes) -> Iterator[str]:
    for number in changes.no_sessions:
        yield from (f"s{number}", f"h{number}")
        yield from (f"f{number} {topic_filter}" for topic_filter in copy.subscriptions.get(number, ()))
    for number, topic_filter in changes.no_subscriptions:
        yield f"f{number} {topic_filter}"


def _names(copy: Copy) -> Iterator[str]:
    for number in copy.sessions:
        yield from (f"s{number}", f"h{number}")
    for number, subscriptions in copy.subscriptions.items():
        yield from (f"f{number} {topic_filter}" for topic_filter in subscriptions)


def _numbered(rows: Collection[str], letter: str) -> list[str]:
    """Return the names that are this letter and a number, in the order of the numbers."""
    return sorted((name for name in rows if name.startswith(letter) and name != "log"), key=lambda name: int(name[1:]))


def _read(rows: dict[str, bytes], kept: _Kept) -> Copy | None:
    """Return the copy with these rows, or None if the one with its owner is missing. Completes `kept`."""
    if "log" not in rows:
        return None
    copy = Copy(*_decode(rows["log"], type=tuple[BrokerRef, int]), 0)

    def of(letter: str, kind: Any) -> list[Any]:
        return [_decode(raw, type=kind) for name, raw in rows.items() if name.startswith(letter) and name != "log"]

    for name in _numbered(rows, "d"):
        upto, every = _decode(rows[name], type=tuple[float, list[tuple[int, list[bytes]]]])
        kept.had.append((upto, name))
        for number, had in every:
            copy.recall(number, had)
    copies = sorted(of("c", QueuedCopy), key=lambda each: int(each.serial))
    copy.apply(
        Changes(
            of("s", SessionCopy), of("f", SubscriptionCopy), of("m", MessageCopy), copies,
            of("r", tuple[int, int, int]), of("i", tuple[int, int, int]), had=of("h", tuple[int, list[bytes]]),
        )
    )  # fmt: skip
    for name in _numbered(rows, "a"):
        frame = _decode(rows[name], type=_Frame)
        kept.add(frame)
        copy.seq, copy.commit, copy.whole = frame.seq, frame.commit, frame.whole
        copy.holders, copy.upto = frame.holders, frame.upto
        copy.apply(frame.changes, RECENT_IN_CUT, dict(frame.over))
    for items in _items(copy):
        kept.loose[items.letter].update(key for key in items.present if items.name(key) not in rows)
    return copy
