"""Limits how many trees are re-routed without need: at most a share of them in any minute, so that the network stays
calm."""

from __future__ import annotations

from collections import deque

MINUTE = 60.0


class Moderation:
    """Counts re-routed trees. Times are in seconds of any clock that does not step back."""

    def __init__(self, share: float) -> None:
        """`share` is the most trees re-routed in a minute, as a share of all; at least one tree if it is greater than
        0. A larger share balances sooner and changes more tables."""
        self.share = share
        self._moved: deque[float] = deque()

    def left(self, now: float, trees: int) -> int:
        """Return how many of `trees` trees may still be re-routed now."""
        while self._moved and self._moved[0] <= now - MINUTE:
            self._moved.popleft()
        most = max(1, int(self.share * trees)) if self.share > 0 else 0
        return max(0, most - len(self._moved))

    def moved(self, now: float) -> None:
        """Count one re-routed tree."""
        self._moved.append(now)
