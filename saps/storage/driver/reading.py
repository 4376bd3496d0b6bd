"""Reads a whole storage, compares each record with its checksum, and each table with its totals. The changes in the
storage's log (`saps.storage.driver.log`) are applied to the tables as they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from saps.messages import Message, Subscription
from saps.routing.batch import Origin
from saps.storage.damage import Damage
from saps.storage.driver.engine import Records, SetAside
from saps.storage.driver.log import LOGGED
from saps.storage.journal import Batch, Row, Table
from saps.storage.records import SEEDS, State, intact, key_of, plain
from saps.storage.saved import Saved, SavedCopy, SavedForm, SavedMessage, SavedSession

CHANGED = "its checksum is wrong"
UNREADABLE = "its content cannot be decoded"
UNCLAIMED = "the record that says whose it is is damaged"
_decode = msgspec.msgpack.decode
_decode_changes = msgspec.msgpack.Decoder(dict[Table, tuple[list[tuple[Any, ...]], list[Any]]]).decode


class Reader:
    """Reads a storage once. Damage never stops the reader: it reads all that can be read."""

    def __init__(self, records: Records) -> None:
        self.saved = Saved()
        """The intact records."""
        self.state: State | None = None
        self.sums: dict[Table, dict[Any, int]] = {table: {} for table in Table}
        """Checksums of the intact records, by table and key."""
        self.set_aside: list[Row | None] = []
        """The rows of `saved.damaged`, unchanged and in the same order; None for one that only the log has."""
        self.logged: Batch = {table: {} for table in LOGGED}
        """The last change in the log of each row that it changes. Intact rows become part of `saved`."""
        self.quarantine: list[SetAside] = []
        """Records that earlier starts set aside."""
        self.lost: list[str] = []
        """One line for each thing that may be missing."""
        self._records = records
        self._sessions: dict[int, SavedSession] = {}

    def read(self) -> None:
        """Read the whole storage into the attributes. To be called once."""
        with self._looking("the file"):
            self.lost += self._records.check()
        with self._looking("the state"):
            self.state = self._records.state()
        if self.state is None:
            self.lost.append("the record that says what must be there is damaged: nobody can tell what is missing")
        for table, take in (
            (Table.LOG, self._record),
            (Table.SESSIONS, self._session),
            (Table.SUBSCRIPTIONS, self._subscription),
            (Table.MESSAGES, self._message),
            (Table.COPIES, self._copy),
            (Table.RELEASES, self._release),
            (Table.INCOMING, self._incoming),
            (Table.HAD, self._had),
            (Table.RETAINED, self._retained),
            (Table.HELD, self._held),
        ):
            self._table(table, take)
        self.saved.sessions = list(self._sessions.values())
        for session in self.saved.sessions:
            session.copies.sort()
            session.releases.sort()
        numbered = Table.MESSAGES, Table.COPIES, Table.RELEASES
        keys = (key for table in numbered for key in (*self.sums[table], *self.logged[table]))
        self.saved.highest = max([0, *self._sessions, *keys])
        with self._looking("quarantine"):
            self.quarantine += self._records.quarantine()
        if self.saved.damaged:
            self._drop_unclaimed()

    def _looking(self, at: str) -> _Looking:
        return _Looking(self.lost, at, self._records.faults)

    def _table(self, table: Table, take: Callable[[Row], None]) -> None:
        sums, damaged, seed, logged = self.sums[table], 0, SEEDS[table], self.logged.get(table, {})
        for row in self._records.rows(table, self.lost):
            key = key_of(table, row)
            fault = None if intact(row, seed) else CHANGED
            if fault is None and key not in logged:
                fault = _fault(take, row)
            if fault is None:
                sums[key] = row[-1]
                continue
            damaged += 1
            if table is Table.LOG:
                self.lost.append(f"log: the changes of transaction {key!r} are lost: {fault}")
            elif logged.get(key) is None:  # else the log has another row in its place
                self._damage(table, row, fault)
        if self.state is None:
            return
        count, total = self.state.totals.get(table.value, (0, 0))
        if len(sums) + damaged != count:
            self.lost.append(f"{table.value}: {len(sums) + damaged} of {count} records can be read")
        elif not damaged and sum(sums.values()) != total:
            self.lost.append(f"{table.value}: not all of the {count} records are those that were stored last")
        for change in [*logged.values()]:
            if change is not None and (fault := _fault(take, (*change, None))) is not None:
                self._damage(table, change, fault, stored=False)

    def fold(self) -> Batch:
        """Return the changes that bring the log into the tables."""
        return {Table.LOG: dict.fromkeys(self.sums[Table.LOG])} | self.logged

    # ---- the tables

    def _record(self, row: Row) -> None:
        for table, (rows, gone) in _decode_changes(row[1]).items():
            logged = self.logged[table]
            for found in rows:
                logged[key_of(table, found)] = tuple(plain(found))
            logged.update((tuple(key) if isinstance(key, list) else key, None) for key in gone)

    def _session(self, row: Row) -> None:
        number, client, user, expiry, ends, will, delay, due, birth, _ = row
        message = _decode(will, type=Message) if will is not None else None
        self._sessions[number] = SavedSession(number, client, user, expiry, ends, message, delay, due, birth)

    def _subscription(self, row: Row) -> None:
        self._of(row[0]).subscriptions.append(_decode(row[2], type=Subscription))

    def _message(self, row: Row) -> None:
        number, body, expires, origin, _ = row
        known = None if origin is None else _decode(origin, type=Origin)
        self.saved.messages[number] = SavedMessage(number, _decode(body, type=Message), expires, known)

    def _copy(self, row: Row) -> None:
        serial, session, message, packet_id, form, _ = row
        if message not in self.saved.messages:
            raise _OrphanError(f"its message {message} is damaged")
        copy = SavedCopy(serial, message, packet_id, _decode(form, type=SavedForm))
        self._of(session).copies.append(copy)

    def _release(self, row: Row) -> None:
        self._of(row[1]).releases.append((row[0], row[2]))

    def _incoming(self, row: Row) -> None:
        self._of(row[0]).incoming[row[1]] = row[2]

    def _had(self, row: Row) -> None:
        self._of(row[0]).had = _decode(row[1], type=list[bytes])

    def _retained(self, row: Row) -> None:
        self.saved.retained[row[0]] = row[1]

    def _held(self, row: Row) -> None:
        self.saved.held.setdefault(row[0], {})[row[1]] = row[2]

    def _of(self, number: int) -> SavedSession:
        session = self._sessions.get(number)
        if session is None:
            raise _OrphanError(f"its session {number} is damaged")
        return session

    # ---- what is damaged

    def _damage(self, table: Table, row: Row, reason: str, *, stored: bool = True) -> None:
        """Name a damaged row; `stored`: whether the table has it, not only the log."""
        key = key_of(table, row)
        named = Damage(table, key, reason, self._client(table, row), self._topic(table, row))
        self.saved.damaged.append(named)
        self.set_aside.append(row if stored else None)
        if not stored:
            self.logged[table][key] = None

    def _client(self, table: Table, row: Row) -> str | None:
        """Return the client identifier of the session that a row belongs to, or None if it cannot be told."""
        if table is Table.SESSIONS:
            return row[1] if isinstance(row[1], str) else None
        if table in (Table.MESSAGES, Table.RETAINED, Table.HELD):
            return None
        session = self._sessions.get(row[1 if table in (Table.COPIES, Table.RELEASES) else 0])
        return None if session is None else session.client_id

    def _topic(self, table: Table, row: Row) -> str | None:
        """Return the topic or topic filter of a row, or None if it cannot be read."""
        if table is Table.SUBSCRIPTIONS:
            return row[1] if isinstance(row[1], str) else None
        if table is Table.RETAINED:
            return row[0] if isinstance(row[0], str) else None
        if table is Table.MESSAGES:
            return _topic_in(row[1])
        if table is Table.COPIES:
            return self._topic_of(row[2])
        return None

    def _topic_of(self, message: Any) -> str | None:
        saved = self.saved.messages.get(message)
        if saved is not None:
            return saved.message.topic
        found = (d.topic for d in self.saved.damaged if d.table is Table.MESSAGES and d.key == message)
        return next(found, None)

    def _drop_unclaimed(self) -> None:
        """Treat as damaged the messages to which no intact copy refers: their sessions are unknown."""
        claimed = {copy.message for session in self.saved.sessions for copy in session.copies}
        for number in self.saved.messages.keys() - claimed:
            if (logged := self.logged[Table.MESSAGES].get(number)) is not None:
                self._damage(Table.MESSAGES, logged, UNCLAIMED, stored=False)
                del self.saved.messages[number]
                continue
            row = None
            with self._looking("messages"):
                row = self._records.message(number)
            if row is None:
                self.lost.append(f"messages: record {number} is not in its place")
            else:
                self._damage(Table.MESSAGES, row, UNCLAIMED)
            del self.saved.messages[number], self.sums[Table.MESSAGES][number]


def _fault(take: Callable[[Row], None], row: Row) -> str | None:
    """Take a row. Return why it cannot be taken, or None."""
    try:
        take(row)
    except (msgspec.MsgspecError, TypeError, KeyError):
        return UNREADABLE
    except _OrphanError as orphan:
        return str(orphan)
    return None


class _OrphanError(Exception):
    """Raised for a record that refers to a damaged record."""


class _Looking:
    """A context that adds the engine's `faults` to `lost`, and lets the reader continue after it. `at`: the part of
    the storage that is read."""

    def __init__(self, lost: list[str], at: str, faults: tuple[type[Exception], ...]) -> None:
        self._lost = lost
        self._at = at
        self._faults = faults

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, self._faults):
            self._lost.append(f"{self._at}: {error}")
            return True
        return False


def _topic_in(body: Any) -> str | None:
    try:
        return _decode(body, type=Message).topic
    except (msgspec.MsgspecError, TypeError):
        return None
