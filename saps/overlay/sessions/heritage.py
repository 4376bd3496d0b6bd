"""What sessions that have moved here during a cut have missed at their former brokers.

The brokers beyond the cut do not know of the move. To them the former broker had the filters; the new one has them only
from the move on. When they ask what it has missed, it also names the former broker, as an heir names the dead owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

UNNOTICED = 15.0
"""Seconds for which moves are remembered before a cut is noticed."""
KEPT = 86400.0
"""Seconds for which moves during a cut are remembered: as long as others keep what was missed."""


class Heritage:
    """The sessions that have moved to this broker, by their former brokers."""

    def __init__(self, port: Port, cut: Callable[[], bool]) -> None:
        """`cut` returns whether some broker is lost, or was lately."""
        self._port = port
        self._cut = cut
        self._moved: dict[BrokerRef, dict[str, float]] = {}
        """By former broker: the sessions' plain filters, each with the time of the last move."""
        self._looked = port.now
        """When old moves were last forgotten."""

    def add(self, owner: BrokerRef, topic_filters: Iterable[str]) -> None:
        """Note that a session with these plain filters has come from `owner`."""
        now = self._port.now
        if now - self._looked >= UNNOTICED:
            self._looked = now
            self._forget(now - (KEPT if self._cut() else UNNOTICED))
        self._moved.setdefault(owner, {}).update(dict.fromkeys(topic_filters, now))

    def _forget(self, since: float) -> None:
        """Forget moves from before `since`."""
        moved = {
            owner: {topic_filter: at for topic_filter, at in known.items() if at >= since}
            for owner, known in self._moved.items()
        }
        self._moved = {owner: known for owner, known in moved.items() if known}

    def filters(self) -> list[tuple[BrokerRef, dict[str, float]]]:
        """Return the former brokers, each with the filters of the sessions that have come from it, and the times of
        their last moves, in seconds of the port's clock."""
        return list(self._moved.items())
