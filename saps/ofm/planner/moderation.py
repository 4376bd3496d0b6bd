"""How many trees may be re-routed without need: at most a share of them in any minute, so that the network is calm."""

from __future__ import annotations

from collections import deque

MINUTE = 60.0


class Moderation:
    """Counts re-routed trees; times in seconds, of any clock that does not go back."""

    def __init__(self, share: float) -> None:
        """`share` of all trees in a minute, and at least one if it is greater than 0. More: sooner even, more changes
        of tables."""
        self.share = share
        self._moved: deque[float] = deque()

    def left(self, now: float, trees: int) -> int:
        """How many more may be re-routed now, of so many trees."""
        while self._moved and self._moved[0] <= now - MINUTE:
            self._moved.popleft()
        most = max(1, int(self.share * trees)) if self.share > 0 else 0
        return max(0, most - len(self._moved))

    def moved(self, now: float) -> None:
        """One was re-routed."""
        self._moved.append(now)
