"""Stores the records of all brokers of a site in PostgreSQL (`saps.storage.driver.engine.Engine`), in shared tables.

An **advisory lock** shows that a broker's process is alive. The server releases the lock with the connection, which it
ends after `LEASE` seconds of silence; a new process waits that long at most. The **fence** keeps an old process out: it
counts the processes that have taken over the rows, and a transaction changes rows only under its own process's fence.
A process that stood still or was cut off may come back, but all its commits fail.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec
import psycopg
from psycopg import conninfo, errors, pq
from psycopg.adapt import Dumper

from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver.clock import Moment
from saps.storage.driver.engine import Aside, Change, SetAside
from saps.storage.driver.files import Sync
from saps.storage.driver.reading import Reader
from saps.storage.journal import Row, Table
from saps.storage.place import Server
from saps.storage.records import KINDS, SEEDS, State, array, key_of, seal, seal_state, state_of

logger = logging.getLogger(__name__)

FORMAT = 3
"""Version of the row format, increased when an earlier version of SAPS can no longer read the rows."""
OLDEST = 140_000
"""Oldest usable server, PostgreSQL 14: the first with ``idle_session_timeout``."""
LEASE = 10.0
"""Seconds of silence after which the server ends a connection, so that another process may take over the rows. A
shorter lease costs more queries; a longer one makes the next process wait longer."""
_AT_ONCE = 2000
"""Rows fetched in one round trip."""
_TIMEOUTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Timeouts for an unreachable server unless the URL sets them; all in seconds, ``tcp_user_timeout`` in milliseconds."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS saps_brokers (broker text PRIMARY KEY, format int NOT NULL, fence bigint NOT NULL,
    store bytea NOT NULL, number bigint NOT NULL, totals bytea NOT NULL, sum bigint NOT NULL, moment bytea NOT NULL)
    WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS saps_records (broker text, kind text, key bytea, content bytea NOT NULL,
    PRIMARY KEY (broker, kind, key));
CREATE TABLE IF NOT EXISTS saps_quarantine (broker text, kind text, reason text, content bytea);
CREATE INDEX IF NOT EXISTS saps_quarantine_broker ON saps_quarantine (broker);
"""
"""Keys and contents are MessagePack; a content includes its checksum. Numbers as keys sort as bytes like as numbers."""

_COMMIT = """
WITH fence AS (
    UPDATE saps_brokers SET number = %(number)s, totals = %(totals)s, sum = %(sum)s, moment = %(moment)s
    WHERE broker = %(broker)s AND fence = %(fence)s AND number = %(number)s - 1 RETURNING true
), old AS (
    SELECT coalesce(sum(r.size), 0)::bigint AS size FROM unnest(%(old_kinds)s, %(old_keys)s) AS o (kind, key), LATERAL (
        SELECT length(key) + length(content) AS size FROM saps_records
        WHERE broker = %(broker)s AND kind = o.kind AND key = o.key OFFSET 0) AS r
), gone AS (
    DELETE FROM saps_records WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM fence, unnest(%(gone_kinds)s, %(gone_keys)s) AS g (kind, key), LATERAL (
            SELECT ctid FROM saps_records
            WHERE broker = %(broker)s AND kind = g.kind AND key = g.key OFFSET 0) AS r))
), put AS (
    INSERT INTO saps_records SELECT %(broker)s, p.kind, p.key, p.content FROM fence,
        unnest(%(kinds)s, %(keys)s, %(contents)s) AS p (kind, key, content)
    ON CONFLICT (broker, kind, key) DO UPDATE SET content = excluded.content
), aside AS (
    INSERT INTO saps_quarantine SELECT %(broker)s, r.kind, a.reason, r.content FROM fence,
        unnest(%(aside_kinds)s, %(aside_keys)s, %(reasons)s) AS a (kind, key, reason), LATERAL (
            SELECT kind, content FROM saps_records
            WHERE broker = %(broker)s AND kind = a.kind AND key = a.key OFFSET 0) AS r
)
SELECT (SELECT count(*) FROM fence), (SELECT size FROM old)
"""
"""A transaction in one statement, which costs one round trip. If the fence's row does not match, nothing changes.
OFFSET keeps the planner from reversing the join: it has no statistics of tables that have just begun to grow."""

_SESSION = """
SELECT set_config('idle_session_timeout', %(lease)s, false),
    set_config('idle_in_transaction_session_timeout', %(lease)s, false),
    set_config('lock_timeout', %(lease)s, false),
    set_config('enable_seqscan', 'off', false),
    set_config('synchronous_commit', CASE WHEN NOT %(full)s THEN 'off'
        ELSE coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on') END, false)
"""
_LOCK = "pg_try_advisory_lock(hashtextextended(%(broker)s, 'saps_brokers'::regclass::oid::bigint))"
_OWN = "SELECT fence, format, store, number, totals, sum, moment FROM saps_brokers WHERE broker = %s"
_SIZE = "SELECT coalesce(sum(length(key) + length(content)), 0)::bigint FROM saps_records WHERE broker = %s"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.decode
Connection: TypeAlias = "psycopg.Connection[Any]"


class FencedError(StorageError):
    """Raised when another process has taken over the rows."""


class _Own(NamedTuple):
    """A broker's row in ``saps_brokers``."""

    fence: int
    format: int
    state: State | None
    moment: Moment


def _own(connection: Connection, broker: str) -> _Own | None:
    found = connection.execute(_OWN, (broker,), binary=True).fetchone()
    if found is None:
        return None
    fence, version, *state, moment = found
    return _Own(fence, version, state_of((1, *state)), _decode(moment, type=Moment))


class ServerRecords:
    """The rows of one broker, read in a transaction with one snapshot. (A `saps.storage.driver.engine.Records`.)"""

    faults: tuple[type[Exception], ...] = (errors.DataCorrupted, errors.IndexCorrupted, errors.InFailedSqlTransaction)

    def __init__(self, connection: Connection, broker: str) -> None:
        self._connection = connection
        self._broker = broker
        self.size = 0
        """Bytes of all keys and contents read so far."""

    def check(self) -> list[str]:
        """Return no faults: PostgreSQL itself checks pages as it reads them, if data checksums are enabled."""
        return []

    def state(self) -> State | None:
        own = _own(self._connection, self._broker)
        return None if own is None else own.state

    def rows(self, table: Table, lost: list[str]) -> Iterator[Row]:
        query = "SELECT key, content FROM saps_records WHERE broker = %s AND kind = %s ORDER BY key"
        try:
            with psycopg.ServerCursor(self._connection, f"saps {table.value}") as cursor:
                cursor.itersize = _AT_ONCE
                cursor.execute(query, (self._broker, table.value), binary=True)
                for key, content in cursor:
                    self.size += len(key) + len(content)
                    row = _row(table, key, content)
                    if row is None:
                        lost.append(f"{table.value}: a record has the key {key.hex()}, which is none")
                    else:
                        yield row
        except self.faults as error:
            lost.append(f"{table.value}: {_line(error)}")

    def message(self, number: int) -> Row | None:
        query = "SELECT key, content FROM saps_records WHERE broker = %s AND kind = %s AND key = %s"
        values = (self._broker, Table.MESSAGES.value, _encode(number))
        found = self._connection.execute(query, values, binary=True).fetchone()
        return None if found is None else _row(Table.MESSAGES, *found)

    def quarantine(self) -> Iterator[SetAside]:
        query = "SELECT kind, reason, content FROM saps_quarantine WHERE broker = %s"
        for row in self._connection.execute(query, (self._broker,), binary=True):
            yield SetAside(*row)


class PostgreSQL:
    """The rows of one broker, taken over by this process. (A `saps.storage.driver.engine.Engine`.)"""

    rest: float | None = LEASE / 4

    def __init__(self, server: Server, sync: Sync, now: Moment) -> None:
        """Take over the broker's rows, or make its first one. Raises `DamagedError` if the state is damaged,
        `StorageError` if the server cannot be reached or another process that uses the rows is alive."""
        self.name = str(server)
        self._server = server
        self._sync = sync
        self._locked = self._fenced = False
        self.size = 0
        with told(server):
            self._connection = connect(server, sync)
            try:
                _make_tables(self._connection)
                _wait(self._connection, server)
                self._fence, self.state, self.then = _begin(self._connection, server, now)
            except BaseException:
                self._connection.close()
                raise
        self._locked = True

    @contextmanager
    def told(self) -> Iterator[None]:
        with told(self._server):
            yield

    @contextmanager
    def records(self) -> Iterator[ServerRecords]:
        with reading(self._live(), self._server.broker) as records:
            yield records
            self.size = records.size

    def keep(self) -> None:
        try:
            self._live().execute("SELECT")
        except (psycopg.Error, StorageError):  # the next transaction reports it
            self._drop_broken()

    def reached(self) -> int:
        """Implement `Engine.reached`; wait for a transaction that an earlier connection left unfinished."""
        query = "SELECT number FROM saps_brokers WHERE broker = %s AND fence = %s FOR UPDATE"
        found = self._ask(query, (self._server.broker, self._fence))
        if found is None:
            raise self._lost()
        size = self._ask(_SIZE, (self._server.broker,))
        assert size is not None
        self.size = size[0]
        number: int = found[0]
        return number

    def commit(self, state: State, changes: Sequence[Change], now: Moment, aside: Sequence[Aside] = ()) -> None:
        values = _values(changes, aside)
        added = values.pop("added")
        _, _, number, totals, checksum = seal_state(state)
        values |= {"broker": self._server.broker, "fence": self._fence, "number": number, "totals": totals}
        found = self._ask(_COMMIT, values | {"sum": checksum, "moment": _encode(now)})
        assert found is not None
        if not found[0]:
            if self.reached() == number:
                raise psycopg.OperationalError("the transaction before it was still under way")
            raise self._lost()
        self.state, self.size = state, self.size + added - found[1]

    def fault(self, error: Exception) -> tuple[bool, str]:
        return isinstance(error, errors.DiskFull), _line(error)

    def close(self, now: Moment) -> None:
        with suppress(psycopg.Error), self._connection as connection:  # so that the next process need not wait
            connection.execute("SELECT pg_advisory_unlock_all()")

    def _ask(self, query: str, values: Any) -> tuple[Any, ...] | None:
        try:
            found: tuple[Any, ...] | None = self._live().execute(query, values, prepare=True, binary=True).fetchone()
        except psycopg.Error:
            self._drop_broken()
            raise
        return found

    def _live(self) -> Connection:
        """Return the connection, or a new one if it is lost. Raises `FencedError`, `StorageError`, `psycopg.Error`."""
        if self._fenced:
            raise self._lost()
        if self._connection.closed:
            self._connection, self._locked = connect(self._server, self._sync), False
        if not self._locked:
            query = f"SELECT {_LOCK} FROM saps_brokers WHERE broker = %(broker)s AND fence = %(fence)s"
            values = {"broker": self._server.broker, "fence": self._fence}
            found = self._connection.execute(query, values).fetchone()
            if found is None:
                raise self._lost()
            self._locked = found[0]  # False while the server has not ended the earlier connection yet
        return self._connection

    def _lost(self) -> FencedError:
        """Give up the rows, which another process has taken over. Returns the error to raise."""
        self._fenced = True
        self._connection.close()
        return FencedError("another process has begun with these rows")

    def _drop_broken(self) -> None:
        if self._connection.broken:
            self._connection.close()


def connect(server: Server, sync: Sync = "full") -> Connection:
    """Return a connection. Raises `StorageError` or `psycopg.Error`, without the password in their texts."""
    try:
        given = conninfo.conninfo_to_dict(server.url)
    except psycopg.ProgrammingError as error:  # libpq quotes the invalid part, which may be the password
        reason = re.sub(r'"[^"]*"', "a part of it", _line(error))
        raise StorageError(f"{server}: {reason}") from None
    given |= {"password": server.password} if server.password else {}
    about = {"application_name": f"saps {server.broker}", "client_encoding": "utf8"}
    connection: Connection = psycopg.connect(**(_TIMEOUTS | about | given), autocommit=True)
    try:
        if connection.info.server_version < OLDEST:
            raise StorageError(f"{server}: needs PostgreSQL {OLDEST // 10_000} or later")
        connection.adapters.register_dumper(_Bytes, _BytesDumper)
        connection.adapters.register_dumper(_Texts, _TextsDumper)
        connection.execute(_SESSION, {"lease": str(round(LEASE * 1000)), "full": sync == "full"})
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def told(server: Server) -> Iterator[None]:
    """Turn errors of the server into a `StorageError` that names the rows; damage raises `DamagedError`."""
    try:
        yield
    except (errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise DamagedError(server, [_line(error)]) from None
    except psycopg.Error as error:
        raise StorageError(f"{server}: {_line(error)}") from None


@contextmanager
def reading(connection: Connection, broker: str) -> Iterator[ServerRecords]:
    """Yield a snapshot of a broker's rows, also while another process writes them."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield ServerRecords(connection, broker)
    finally:
        if not connection.closed:
            connection.execute("ROLLBACK")


@contextmanager
def opened(server: Server) -> Iterator[ServerRecords]:
    """Yield a snapshot of a broker's rows, without taking them over. Raises `StorageError`."""
    with told(server), closing(connect(server)) as connection:
        if server.broker not in _brokers(connection, records=True):
            raise _nothing(server, _brokers(connection))
        with reading(connection, server.broker) as records:
            yield records


def brokers(server: Server) -> list[str]:
    """Return the names of the brokers that have rows. Raises `StorageError`."""
    with told(server), closing(connect(server)) as connection:
        return _brokers(connection)


def replace(server: Server, aside: str, now: Moment) -> Reader:
    """Replace all rows of a broker by the intact ones; keep the old rows under the name `aside`. Returns what
    was read. Raises `StorageError`, also if a process that uses the rows is alive."""
    with told(server), closing(connect(server)) as connection:
        if server.broker not in _brokers(connection, records=True):
            raise _nothing(server, _brokers(connection))
        _wait(connection, server, timeout=0)
        with reading(connection, server.broker) as records:
            reader = Reader(records)
            reader.read()
        content, totals = reader.saved.rows(), {}
        with connection.transaction():
            for name in ("saps_brokers", "saps_records", "saps_quarantine"):
                connection.execute(f"UPDATE {name} SET broker = %s WHERE broker = %s", (aside, server.broker))
            with connection.cursor().copy("COPY saps_records FROM STDIN") as copy:
                for table, rows in content.items():
                    sealed = [seal(row, SEEDS[table]) for row in rows.values() if row is not None]
                    totals[table.value] = len(sealed), sum(columns[-1] for columns in sealed)
                    for columns in sealed:
                        key = _encode(key_of(table, columns))
                        copy.write_row((server.broker, table.value, key, _encode(columns)))
            number = reader.state.number if reader.state is not None else 0
            _insert(connection, server.broker, State(os.urandom(16), number, totals), now)
    return reader


def _brokers(connection: Connection, records: bool = False) -> list[str]:
    """Return the names of the brokers that have rows; with `records` also of those without a row of their own."""
    if not _has_tables(connection):
        return []
    also = "UNION SELECT broker FROM saps_records" if records else ""
    return [name for (name,) in connection.execute(f"SELECT broker FROM saps_brokers {also} ORDER BY broker")]


def _nothing(server: Server, known: list[str]) -> StorageError:
    listed = ", ".join(map(repr, known)) or "nobody"
    return StorageError(f"{server}: it has nothing of this broker, but of {listed}")


def _insert(connection: Connection, broker: str, state: State, now: Moment) -> None:
    """Insert a broker's row into ``saps_brokers``, unless it has one."""
    _, *columns = seal_state(state)
    connection.execute(
        "INSERT INTO saps_brokers SELECT %s, %s, 1, %s, %s, %s, %s, %s ON CONFLICT DO NOTHING",
        (broker, FORMAT, *columns, _encode(now)),
    )


def _begin(connection: Connection, server: Server, now: Moment) -> tuple[int, State, Moment]:
    """Take over a broker's rows. Returns its fence, state, and last transaction's time. Raises `StorageError`."""
    query = "SELECT EXISTS (SELECT FROM saps_records WHERE broker = %s)"
    own = _own(connection, server.broker)
    if own is None and connection.execute(query, (server.broker,)).fetchone() == (False,):
        _insert(connection, server.broker, State(os.urandom(16), 0, {}), now)
        own = _own(connection, server.broker)
    if own is not None and own.format != FORMAT:
        raise StorageError(f"{server}: its rows have format {own.format}, this version reads {FORMAT}")
    if own is None or own.state is None:
        raise DamagedError(server, ["the record that says what must be there is damaged"])
    query = "UPDATE saps_brokers SET fence = fence + 1 WHERE broker = %s AND fence = %s RETURNING fence"
    found = connection.execute(query, (server.broker, own.fence)).fetchone()
    if found is None:
        raise StorageError(f"{server}: another process has begun with it at this moment")
    return found[0], own.state, own.moment


def _wait(connection: Connection, server: Server, timeout: float = LEASE + 2) -> None:
    """Wait for the lock of the rows. Raises `StorageError` if another process keeps it for `timeout` seconds."""
    end = time.monotonic() + timeout
    while connection.execute(f"SELECT {_LOCK}", {"broker": server.broker}).fetchone() != (True,):
        if time.monotonic() >= end:
            raise StorageError(f"{server}: another process uses it")
        time.sleep(0.05)


def _has_tables(connection: Connection) -> bool:
    found: bool = connection.execute("SELECT to_regclass('saps_brokers') IS NOT NULL").fetchone()[0]
    return found


def _make_tables(connection: Connection) -> None:
    """Create the tables, at the start of a site's first broker. The lock keeps two first brokers apart."""
    if _has_tables(connection):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('saps tables', 0))")
        connection.execute(SCHEMA)


class _Bytes(bytes):
    """An encoded array of ``bytea``. (psycopg would need three times the time of the rest of a commit to encode it.)"""


class _Texts(bytes):
    """An encoded array of ``text``."""


class _BytesDumper(Dumper):  # type: ignore[misc]
    format, oid = pq.Format.BINARY, 1001

    def dump(self, obj: bytes) -> bytes:
        return obj


class _TextsDumper(_BytesDumper):
    oid = 1009


def _texts(values: list[bytes]) -> _Texts:
    return _Texts(array(values, 25))


def _values(changes: Sequence[Change], aside: Sequence[Aside]) -> dict[str, Any]:
    """Return the array parameters of `_COMMIT`, and as ``added`` the bytes of all rows to put."""
    set_aside = [(each.table.value.encode(), _encode(key_of(each.table, each.row))) for each in aside]
    gone, replaced, put = [*set_aside], [], []
    for change in changes:
        kind, table = change.table.value.encode(), change.table
        gone += [(kind, _encode(key)) for key in change.gone]
        replaced += [(kind, _encode(key)) for key in change.replaced]
        put += [(kind, _encode(key_of(table, columns)), _encode(columns)) for columns in change.put]
    values: dict[str, Any] = {}
    for name, pairs in (("gone", gone), ("old", gone + replaced), ("aside", set_aside)):
        values[f"{name}_kinds"] = _texts([kind for kind, _ in pairs])
        values[f"{name}_keys"] = _Bytes(array([key for _, key in pairs]))
    return values | {
        "reasons": _texts([each.reason.replace("\0", "").encode(errors="replace") for each in aside]),
        "kinds": _texts([kind for kind, _, _ in put]),
        "keys": _Bytes(array([key for _, key, _ in put])),
        "contents": _Bytes(array([content for _, _, content in put])),
        "added": sum(len(key) + len(content) for _, key, content in put),
    }


def _row(table: Table, key: bytes, content: bytes) -> Row | None:
    """Return a row as it was sealed, or None if the key is invalid. A row whose content is unreadable or belongs to
    another key is returned with its key alone, so that its checksum is wrong."""
    wanted, rest = KINDS[table]
    try:
        named = _decode(key)
    except msgspec.MsgspecError:
        return None
    names = tuple(named) if isinstance(named, list) else (named,)
    if len(names) != len(wanted) or _encode(named) != key:
        return None
    try:
        columns = _decode(content)
    except msgspec.MsgspecError:
        columns = None
    width = len(wanted) + len(rest) + 1
    if not isinstance(columns, list) or len(columns) != width or tuple(columns[: len(wanted)]) != names:
        return (*names, *[None] * (width - len(names)))
    return tuple(columns)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
