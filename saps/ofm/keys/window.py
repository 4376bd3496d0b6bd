"""Tells which numbers of one sender have been seen: an anti-replay window (RFC 4303, 3.4.3)."""

from __future__ import annotations

SIZE = 2048
"""Width of the window: numbers below the highest that are told apart. A datagram overtaken by more is refused, and
repaired like a lost one."""
_MASK = (1 << SIZE) - 1


class Window:
    """The window of one sender. Ask `fresh` before a datagram is authenticated, and `note` it afterwards."""

    __slots__ = ("_bits", "_top")

    def __init__(self) -> None:
        self._top = 0
        self._bits = 0

    def fresh(self, number: int) -> bool:
        """Return whether a number is new as far as can be told; 0 never is."""
        behind = self._top - number
        if behind < 0:
            return True
        return behind < SIZE and number > 0 and not self._bits >> behind & 1

    def note(self, number: int) -> None:
        """Record a fresh number. Call it with fresh numbers only."""
        ahead = number - self._top
        if ahead > 0:
            self._bits = (self._bits << ahead & _MASK if ahead < SIZE else 0) | 1
            self._top = number
        else:
            self._bits |= 1 << -ahead
