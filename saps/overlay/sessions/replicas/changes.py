"""Converts a commit of the journal into the changes of lasting sessions that a frame carries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from saps.overlay.frames.copies import Changes, Heirloom, MessageCopy, QueuedCopy, SessionCopy, SubscriptionCopy
from saps.storage.journal import Batch, Change, Row, Table

PART = 1 << 16
"""Bytes of payloads, and of what sessions remember, at which a part of a snapshot is complete."""
ROWS = 128
"""Number of rows at which a part of a snapshot is complete."""
_EXPIRY = 3
"""Column of the expiry interval in a session's row."""
_GONE = {
    Table.SESSIONS: "no_sessions",
    Table.SUBSCRIPTIONS: "no_subscriptions",
    Table.MESSAGES: "no_messages",
    Table.COPIES: "no_copies",
    Table.RELEASES: "no_releases",
    Table.INCOMING: "no_incoming",
    Table.HAD: None,  # goes with its session
}


class Owned(NamedTuple):
    """What the overlay knows of a session here."""

    stamp: int
    """Of the lease."""
    heritage: list[Heirloom]
    """The former brokers and this one (`saps.overlay.sessions.heritage.Heritage.of`)."""


Ownership = Callable[[str], Owned]
"""Returns what is known of a client's session."""


class Owner(Protocol):
    """The sessions of a broker that has copies made."""

    def owned(self, client: str) -> Owned:
        """Return what is known of a client's session."""

    def rows(self) -> Iterable[Iterable[Change]]:
        """Return the journal's rows of each lasting session, to be read in its turn."""

    def fenced(self) -> None:
        """Handle that another broker has adopted the sessions."""


Snapshot = Iterator[tuple[list[Changes], bool]]
"""Yields parts of a frame each, read at one moment, and whether they are the last."""


def changes_of(batch: Batch, owned: Ownership) -> Changes:
    """Return the changes of a batch.

    A session without an expiry interval counts as removed."""
    changes = Changes()
    for table, rows in batch.items():
        if table not in _GONE:
            continue
        gone = _GONE[table]
        for key, row in rows.items():
            if row is None or (table is Table.SESSIONS and not row[_EXPIRY]):
                if gone is not None:
                    getattr(changes, gone).append(key)
            else:
                _add(changes, table, row, owned)
    return changes


def snapshot(sessions: Iterable[Iterable[Change]], owned: Ownership) -> Snapshot:
    """Yield the rows of all sessions as changes, in order, those of some sessions at a time.

    Each session is read in one go when it is asked for; until the next one is, the owner may go on and commit. A
    message of several sessions is in the parts of the first one: it still exists when a later session has it."""
    seen: set[Any] = set()
    parts, size, count = [Changes()], 0, 0
    for rows in sessions:
        for table, key, row in rows:
            if table is Table.MESSAGES:
                if key in seen:
                    continue
                seen.add(key)
                size += len(row[1].payload)
            elif table is Table.HAD:
                size += sum(map(len, row[1]))
            if count >= ROWS or size >= PART:
                parts.append(Changes())
                size = count = 0
            _add(parts[-1], table, row, owned)
            count += 1
        if len(parts) > 1:
            yield parts, False
            parts, size, count = [Changes()], 0, 0
    yield parts, True


def urgent(changes: Changes) -> bool:
    """Return whether an acknowledgement depends on the changes. None depends on the removal of delivered messages."""
    return bool(
        changes.messages or changes.copies or changes.releases or changes.incoming
        or changes.sessions or changes.subscriptions
        or changes.no_sessions or changes.no_subscriptions or changes.no_releases or changes.no_incoming
    )  # fmt: skip


def some(changes: Changes) -> bool:
    """Return whether there are any changes."""
    return urgent(changes) or bool(changes.no_messages or changes.no_copies or changes.had)


def _add(changes: Changes, table: Table, row: Row, owned: Ownership) -> None:
    if table is Table.SESSIONS:
        number, client, user, expiry, ends, _, _, _, birth = row
        ends = None if ends is None else max(0.0, ends)
        stamp, heritage = owned(client)
        former = heritage if len(heritage) > 1 else []
        changes.sessions.append(SessionCopy(number, client, user, expiry, ends, birth, stamp, heritage=former))
    elif table is Table.SUBSCRIPTIONS:
        number, _, each = row
        options = each.qos, each.no_local, each.retain_as_published, each.retain_handling, each.identifier
        changes.subscriptions.append(SubscriptionCopy(number, each.filter, *options))
    elif table is Table.MESSAGES:
        number, message, expires, origin = row
        expires = None if expires is None else max(0.0, expires)
        changes.messages.append(MessageCopy(number, message, expires, origin))
    elif table is Table.COPIES:
        serial, session, number, packet_id, form = row
        copy = QueuedCopy(serial, session, number, packet_id, form.qos, form.retain, form.identifiers)
        changes.copies.append(copy)
    elif table is Table.RELEASES:
        changes.releases.append(row)
    elif table is Table.HAD:
        changes.had.append(row)
    else:
        changes.incoming.append(row)
