"""The sessions that were here when this broker joined: it is ready when the session directory knows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from saps.overlay.port import Port

logger = logging.getLogger(__name__)


class Untold:
    """The clients of these sessions that some holder of the directory may not know yet."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.clients: set[str] = set()
        self._told: Callable[[], None] = _nothing

    def begin(self, clients: Iterable[str], told: Callable[[], None], seconds: float) -> None:
        """Run `told` when the holders know all these, or after so many `seconds`."""
        self.clients, self._told = set(clients), told
        if self.clients:
            self._port.after(seconds, lambda: self._late(seconds))

    def settled(self, clients: Iterable[str]) -> None:
        """Note that the holders know these clients' sessions here, or that the sessions have ended."""
        self.clients.difference_update(clients)
        if not self.clients:
            self._run()

    def _late(self, seconds: float) -> None:
        if self.clients:
            logger.warning(
                "the mesh has not heard in %g s of all sessions that are here, %d are missing: clients of these that "
                "connect elsewhere may be served without",
                seconds,
                len(self.clients),
            )
        self._run()

    def _run(self) -> None:
        told, self._told = self._told, _nothing
        told()


def _nothing() -> None:
    pass
