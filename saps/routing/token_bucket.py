"""A token bucket: it admits at most burst + rate * t in any time t. The caller provides the clock."""

from __future__ import annotations


class TokenBucket:
    """A token bucket that starts full."""

    __slots__ = ("_full_at", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        """`rate`: tokens per second, above 0; `burst`: most tokens in the bucket."""
        self.rate, self.burst = rate, burst
        self._full_at = float("-inf")
        """When the bucket will be full if nothing is taken until then, in seconds of a monotonic clock."""

    def spend(self, tokens: float, now: float) -> None:
        """Take tokens, even more than the bucket has."""
        self._full_at = max(self._full_at, now) + tokens / self.rate

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until the bucket has so many tokens; 0 if it has them now."""
        return max(0.0, max(self._full_at, now) + (tokens - self.burst) / self.rate - now)

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take tokens if the bucket has them; return whether it had."""
        if self.wait(now, tokens) > 0:
            return False
        self.spend(tokens, now)
        return True

    def full(self, now: float) -> bool:
        """Return whether the bucket is full, so that it need not be kept."""
        return self._full_at <= now


class Buckets:
    """A bucket for each of many names (clients, users, addresses). Full buckets take no memory."""

    def __init__(self, rate: float, burst: float, most: int = 4096) -> None:
        """`most`: most buckets kept. Beyond that, full ones are dropped, then the oldest ones, which start anew."""
        self._rate, self._burst, self._most = rate, burst, most
        self._of: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, name: str, now: float) -> TokenBucket:
        """Return the bucket of a name."""
        bucket = self._of.get(name)
        if bucket is None:
            if len(self._of) >= self._most:
                self._of = {name: each for name, each in self._of.items() if not each.full(now)}
                while len(self._of) >= self._most:
                    del self._of[next(iter(self._of))]
            bucket = self._of[name] = TokenBucket(self._rate, self._burst)
        return bucket
