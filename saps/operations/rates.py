"""Computes each client's message rates between two requests. Without requests no counters are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from saps.frontend.mqtt.frontend import Frontend

SHORTEST, LONGEST = 1.0, 60.0
"""Bounds in seconds of the interval that a rate covers. After `LONGEST` seconds without a request, the counters are
forgotten."""


class Rate(NamedTuple):
    """Messages a second."""

    published: float
    delivered: float


class Rates:
    """The message rates of one frontend's sessions."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._at = self._looked = -LONGEST
        self._seen: dict[str, tuple[int, int]] = {}
        """Each session's counters at the last measurement: messages published and delivered."""
        self._rates: dict[str, Rate] = {}

    def now(self) -> dict[str, Rate]:
        """Return the rates by client identifier; empty at the first request. At most `SHORTEST` seconds old."""
        now, sessions = self._frontend.clock(), self._frontend.sessions
        elapsed, self._looked = now - self._at, now
        if elapsed < SHORTEST:
            return self._rates
        counted = {client: (each.publisher.published, each.delivered) for client, each in sessions.items()}
        if self._at < 0:  # the first request
            self._frontend.timers.at(now + LONGEST, self._forget)
        else:
            self._rates = {client: self._rate(client, each, elapsed) for client, each in counted.items()}
        self._seen, self._at = counted, now
        return self._rates

    def _rate(self, client: str, counted: tuple[int, int], elapsed: float) -> Rate:
        """Return a session's rates. A session without counters at the last measurement has begun since, at 0."""
        before = self._seen.get(client, (0, 0))
        return Rate(*[round(max(0, new - old) / elapsed, 2) for new, old in zip(counted, before, strict=True)])

    def _forget(self, now: float) -> None:
        """Forget the counters if there was no request for `LONGEST` seconds; else check again then."""
        if self._looked + LONGEST > now:
            self._frontend.timers.at(self._looked + LONGEST, self._forget)
        else:
            self._seen, self._rates, self._at = {}, {}, -LONGEST
