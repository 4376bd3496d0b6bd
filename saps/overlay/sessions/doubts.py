"""The sessions here that other brokers may have adopted, as they took this broker for dead or it was down."""

from __future__ import annotations

from typing import Protocol

from saps.mesh import SessionHost
from saps.overlay.port import Port
from saps.overlay.sessions.claiming import Claiming


class _Migrations(Protocol):
    def keep_all(self) -> None: ...


class _Sessions(Protocol):
    """The sessions of this broker (`saps.overlay.sessions.sessions`)."""

    host: SessionHost | None

    @property
    def migrations(self) -> _Migrations: ...

    def goes_on(self, client: str) -> bool: ...

    def rejoined(self) -> None: ...

    def sync(self) -> None: ...


class Doubts:
    """The clients whose sessions here may have gone on elsewhere, until the holders of the directory answer."""

    def __init__(self, port: Port, stall: float, sessions: _Sessions) -> None:
        """`stall`: seconds without a turn after which other brokers may have declared this one dead."""
        self._port = port
        self._stall = stall
        self._sessions = sessions
        self._looked = port.now
        self._since = 0.0
        """Time of the last doubt."""
        self._clients: set[str] = set()
        self.unsure: set[str] = set()
        """Clients of sessions from an earlier incarnation, which may have a later session elsewhere."""

    def __contains__(self, client: str) -> bool:
        return client in self._clients or client in self.unsure

    def outdated(self, claiming: Claiming) -> bool:
        """Return whether a claim began before the last doubt, and note that it begins anew now."""
        self.look()
        before, claiming.since = claiming.since, self._port.now
        return before < self._since

    def discard(self, client: str) -> None:
        """End the doubt: the session here is the later one, or has ended."""
        self._clients.discard(client)
        self.unsure.discard(client)

    def look(self) -> None:
        """Doubt all sessions and the leases here if this broker has stood still.

        To be called each heartbeat, and before a CONNECT, which may have waited meanwhile, is answered."""
        now = self._port.now
        late, self._looked = now - self._looked, now
        if late >= self._stall:
            self._doubt()
            self._sessions.rejoined()

    def fenced(self) -> None:
        """Keep, doubt and report all sessions here, as another broker has adopted them. Targets of migrations may have
        given this broker up, too."""
        self._sessions.migrations.keep_all()
        self._doubt()
        self._sessions.sync()

    def _doubt(self) -> None:
        self._since = self._port.now
        if (host := self._sessions.host) is not None:
            self._clients.update(filter(self._sessions.goes_on, host.clients()))
