"""A token bucket: in any time t it lets at most burst + rate * t through. The clock is the caller's."""

from __future__ import annotations


class TokenBucket:
    """Full at the beginning."""

    __slots__ = ("_full_at", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        """`rate`: tokens a second, above 0; `burst`: tokens it has room for."""
        self.rate, self.burst = rate, burst
        self._full_at = float("-inf")
        """When it will be full, if nothing is taken until then, in seconds of a clock that does not go back."""

    def spend(self, tokens: float, now: float) -> None:
        """Take so many, whether they are there or not."""
        self._full_at = max(self._full_at, now) + tokens / self.rate

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until so many are there; 0: now."""
        return max(0.0, max(self._full_at, now) + (tokens - self.burst) / self.rate - now)

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take so many, if they are there."""
        if self.wait(now, tokens) > 0:
            return False
        self.spend(tokens, now)
        return True

    def full(self, now: float) -> bool:
        """It is as at the beginning: nothing need be remembered of it."""
        return self._full_at <= now


class Buckets:
    """A bucket for each of many names (clients, users, addresses), of which only those that are not full take room."""

    def __init__(self, rate: float, burst: float, most: int = 4096) -> None:
        """`most`: names for which room is kept between two looks at which are full; beyond it, if none is, the oldest
        begins anew."""
        self._rate, self._burst, self._most = rate, burst, most
        self._of: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, name: str, now: float) -> TokenBucket:
        """The bucket of a name."""
        bucket = self._of.get(name)
        if bucket is None:
            if len(self._of) >= self._most:
                self._of = {name: each for name, each in self._of.items() if not each.full(now)}
                while len(self._of) >= self._most:
                    del self._of[next(iter(self._of))]
            bucket = self._of[name] = TokenBucket(self._rate, self._burst)
        return bucket
