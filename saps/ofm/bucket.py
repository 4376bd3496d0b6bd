"""A token bucket: in any time t it lets at most burst + rate * t through. The clock is the caller's."""

from __future__ import annotations


class TokenBucket:
    """Full at the beginning."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """`rate`: tokens a second; `burst`: tokens it has room for; `now`: seconds of a clock that does not go back."""
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float) -> bool:
        """Takes a token, if there is a whole one."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
