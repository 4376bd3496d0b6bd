"""Stores the former brokers of the sessions here in this broker's file, as it may start again during a cut."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from saps.overlay.frames.copies import Heirloom
from saps.storage.journal import Journal, Table

OWNER = "heritage"
"""In place of the owner of a copy (`saps.overlay.sessions.replicas.shelf`), whose name has spaces."""
_encode = msgspec.msgpack.Encoder().encode


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """The former brokers of one client's session."""

    at: float
    """When this was written, in seconds since the epoch."""
    cut: bool
    """Whether brokers were known to be cut off."""
    heritage: list[Heirloom]
    """The former brokers, and this one, at that time."""


class HeritageRows:
    """The rows of all sessions here."""

    def __init__(self, journal: Journal, wall: Callable[[], float]) -> None:
        """`wall` returns the time in seconds since the epoch."""
        self._journal = journal
        self._wall = wall
        self._clients: set[str] = set()

    def read(self, rows: dict[str, bytes], jump: float) -> dict[str, Stored]:
        """Return the contents of the file's rows by client, brought up to now. `jump`: seconds by which this broker's
        clock has jumped since they were written."""
        self._clients.update(rows)
        return {client: self._aged(msgspec.msgpack.decode(raw, type=Stored), jump) for client, raw in rows.items()}

    def _aged(self, stored: Stored, jump: float) -> Stored:
        now = self._wall()
        past = max(0.0, now - stored.at - jump)
        heritage = [
            msgspec.structs.replace(each, age=each.age + past, came=each.came + past) for each in stored.heritage
        ]
        return Stored(now, stored.cut, heritage)

    def put(self, client: str, heritage: list[Heirloom], cut: bool) -> None:
        """Write the former brokers of a client's session, and this one."""
        self._clients.add(client)
        row = OWNER, client, _encode(Stored(self._wall(), cut, heritage))
        self._journal.put(Table.HELD, (OWNER, client), row)

    def drop_but(self, clients: set[str]) -> None:
        """Drop the rows of all other clients."""
        for client in self._clients - clients:
            self._journal.drop(Table.HELD, (OWNER, client))
        self._clients &= clients
