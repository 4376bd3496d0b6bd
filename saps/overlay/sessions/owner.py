"""The sessions of a broker, as the log of their copies needs them."""

from __future__ import annotations

from collections.abc import Iterable

from saps.overlay.sessions.replicas.changes import Owned
from saps.overlay.sessions.sessions import Sessions
from saps.storage.journal import Change


class SessionOwner:
    """The sessions of one broker. (A `saps.overlay.sessions.replicas.changes.Owner`.)"""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def owned(self, client: str) -> Owned:
        return Owned(self._sessions.leases.get(client, 0), self._sessions.migrations.heritage.of(client))

    def rows(self) -> Iterable[Iterable[Change]]:
        host = self._sessions.host
        return () if host is None else host.rows()

    def fenced(self) -> None:
        self._sessions.doubts.fenced()
