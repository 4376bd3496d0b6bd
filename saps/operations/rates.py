"""How busy each client is: messages a second between two looks. Nothing is kept unless somebody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from saps.frontend.mqtt.frontend import Frontend

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds between two looks that a rate is of. After `LONGEST` seconds without a look all is forgotten."""


class Rate(NamedTuple):
    """Messages a second."""

    published: float
    delivered: float


class Rates:
    """Of the sessions of one frontend."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._at = self._looked = -LONGEST
        self._seen: dict[str, tuple[int, int]] = {}
        """What each session had counted at the last look."""
        self._rates: dict[str, Rate] = {}

    def now(self) -> dict[str, Rate]:
        """By client; empty at the first look."""
        now, sessions = self._frontend.clock(), self._frontend.sessions
        elapsed, self._looked = now - self._at, now
        if elapsed < SHORTEST:
            return self._rates
        counted = {client: (each.publisher.published, each.delivered) for client, each in sessions.items()}
        if self._at < 0:  # the first look
            self._frontend.timers.at(now + LONGEST, self._forget)
        else:
            self._rates = {client: self._rate(client, each, elapsed) for client, each in counted.items()}
        self._seen, self._at = counted, now
        return self._rates

    def _rate(self, client: str, counted: tuple[int, int], elapsed: float) -> Rate:
        """A session that was not here at the last look has begun since."""
        before = self._seen.get(client, (0, 0))
        return Rate(*[round(max(0, new - old) / elapsed, 2) for new, old in zip(counted, before, strict=True)])

    def _forget(self, now: float) -> None:
        """Nobody looks any more?"""
        if self._looked + LONGEST > now:
            self._frontend.timers.at(self._looked + LONGEST, self._forget)
        else:
            self._seen, self._rates, self._at = {}, {}, -LONGEST
