"""Decides when the next batches of changes begin at switches: at once if somebody waits for one, otherwise when nothing
else is to be done, or when enough OFMs have been advanced. Each batch costs a message and a barrier."""

from __future__ import annotations

from collections.abc import Iterable

TOGETHER = 128
"""Number of OFMs advanced since the last batches at which the next begin, although more OFMs are left. A larger value
makes fewer and larger batches; the first OFM waits longer."""


class Batches:
    """The switches whose next batch is due."""

    def __init__(self) -> None:
        self._due: dict[int, None] = {}
        self._advanced = 0
        self._hurry = False

    def due(self, dpids: Iterable[int], *, hurry: bool = False) -> None:
        """Note switches with changes; with `hurry` their batches shall not wait for more."""
        these = dict.fromkeys(dpids)
        self._due |= these
        self._hurry |= hurry and bool(these)

    def advanced(self, *, hurry: bool) -> None:
        """Note that one more OFM has been advanced; with `hurry` somebody waits for it."""
        self._advanced += 1
        self._hurry |= hurry

    def begin(self, more: bool) -> list[int]:
        """Return the switches whose next batch begins now, empty if none does. `more`: OFMs are left that something has
        happened to."""
        if more and not self._hurry and self._advanced < TOGETHER:
            return []
        due, self._due = list(self._due), {}
        self._advanced, self._hurry = 0, False
        return due
