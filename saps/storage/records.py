"""The format of stored records: columns, and a checksum over a record's table, key and content.

The checksum is computed where a record becomes bytes, before the engine gets it, and compared at every read. It covers
the key, so that a record in the place of another one is found, too. CRC-32 detects every change within 32 neighbouring
bits, and misses one in 4 billion of all other changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from saps.storage.journal import Row, Table


class Kind(NamedTuple):
    """The columns of a table: its key, then the rest. They have no types, so that SQLite returns each value
    unchanged."""

    keys: tuple[str, ...]
    rest: tuple[str, ...]


KINDS = {
    Table.SESSIONS: Kind(("id",), ("client", "user", "expiry", "ends", "will", "will_delay", "will_due", "birth")),
    Table.SUBSCRIPTIONS: Kind(("session", "filter"), ("subscription",)),
    Table.MESSAGES: Kind(("id",), ("message", "expires", "origin")),
    Table.COPIES: Kind(("serial",), ("session", "message", "packet", "form")),
    Table.RELEASES: Kind(("serial",), ("session", "packet")),
    Table.INCOMING: Kind(("session", "packet"), ("reached",)),
    Table.HAD: Kind(("session",), ("publications",)),
    Table.RETAINED: Kind(("topic",), ("record",)),
    Table.HELD: Kind(("owner", "name"), ("content",)),
    Table.LOG: Kind(("id",), ("changes",)),
}
_BY_NUMBER = frozenset(table for table, kind in KINDS.items() if kind.keys in (("id",), ("serial",)))
SEEDS = {table: crc32(table.value.encode()) for table in Table}
"""Initial CRC-32 of each table's checksums, so that no record passes for one of another table."""
_STATE_SEED = crc32(b"state")
_PLAIN = (int, str, float, bytes, type(None))
_encode = msgspec.msgpack.Encoder().encode


def _definition(table: Table) -> str:
    keys, rest = KINDS[table]
    if table in _BY_NUMBER:
        return f"CREATE TABLE {table.value} ({keys[0]} INTEGER PRIMARY KEY, {', '.join(rest)}, sum);"
    columns = ", ".join(keys + rest)
    return f"CREATE TABLE {table.value} ({columns}, sum, PRIMARY KEY ({', '.join(keys)})) WITHOUT ROWID;"


SCHEMA = "".join(
    (
        *map(_definition, KINDS),
        "CREATE TABLE state (id INTEGER PRIMARY KEY, store, number, totals, sum);",
        "CREATE TABLE quarantine (id INTEGER PRIMARY KEY, origin, reason, content);",
    )
)
"""The tables of a storage file. ``state`` has one row (`State`), which each transaction replaces; ``quarantine`` has
the damaged records."""
PUT = {
    table: f"INSERT OR REPLACE INTO {table.value} VALUES ({', '.join('?' * (len(keys) + len(rest) + 1))})"
    for table, (keys, rest) in KINDS.items()
}
DROP = {
    table: f"DELETE FROM {table.value} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"
    for table, (keys, _) in KINDS.items()
}
SELECT = {table: f"SELECT {', '.join(keys + rest)}, sum FROM {table.value}" for table, (keys, rest) in KINDS.items()}
SELECT_STATE = "SELECT id, store, number, totals, sum FROM state"
PUT_STATE = "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)"


class State(NamedTuple):
    """The record in which a storage describes itself."""

    store: bytes
    """Random identity, drawn when the storage was made; only copies share it."""
    number: int
    """Number of transactions so far."""
    totals: dict[str, tuple[int, int]]
    """By table: the number of records and the sum of their checksums. The totals reveal a missing record, and an old
    record in the place of a newer one."""


def seal(row: Row, seed: int) -> list[Any]:
    """Return a row's columns for the engine, followed by their checksum. A value that is not None, a number, a text or
    bytes becomes MessagePack. `seed`: the table's entry in `SEEDS`."""
    columns = plain(row)
    columns.append(crc32(_encode(columns), seed))
    return columns


def plain(row: Row) -> list[Any]:
    """Return a row's columns as an engine has them."""
    return [value if type(value) in _PLAIN else _encode(value) for value in row]


def intact(row: Row, seed: int) -> bool:
    """Return whether a row, with its checksum as last column, is as `seal` made it. `seed`: the table's entry in
    `SEEDS`."""
    try:
        return bool(crc32(_encode(row[:-1]), seed) == row[-1])
    except UnicodeEncodeError:  # damage has made the text invalid UTF-8
        return False


def key_of(table: Table, row: Sequence[Any]) -> Any:
    """Return the row's key as in the journal: the value of a single key column, else a tuple."""
    return row[0] if len(KINDS[table].keys) == 1 else tuple(row[:2])


def keys(table: Table, wanted: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the journal's keys as parameters of SQLite: a tuple for each key."""
    return [(key,) for key in wanted] if len(KINDS[table].keys) == 1 else list(wanted)


def seal_state(state: State) -> list[Any]:
    """Return the row of the table ``state``, with its checksum."""
    columns = [1, state.store, state.number, _encode(state.totals)]
    columns.append(crc32(_encode(columns), _STATE_SEED))
    return columns


def state_of(row: Row | None) -> State | None:
    """Return the state in a row of the table ``state``, or None if the row is missing or damaged."""
    if row is None or not intact(row, _STATE_SEED):
        return None
    totals: dict[str, tuple[int, int]] = msgspec.msgpack.decode(row[3], type=dict[str, tuple[int, int]])
    return State(row[1], row[2], totals)


def array(values: list[bytes], element: int = 17) -> bytes:
    """Encode a one-dimensional array in PostgreSQL's binary format. `element`: OID of the element type; 17 is
    ``bytea``."""
    parts = [pack(">iii", bool(values), 0, element)]
    parts += [pack(">ii", len(values), 1)] if values else []
    for value in values:
        parts += (pack(">i", len(value)), value)
    return b"".join(parts)
