"""When other brokers were lost, and when they were back, as the log of what they missed has it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from saps.overlay.ring.keys import BrokerRef

ROUNDS = 16
"""Most absences of a broker that are remembered."""


class Absences:
    """The absences of all brokers. Times are in seconds of this broker's clock."""

    def __init__(self) -> None:
        self._of: dict[BrokerRef, list[tuple[float, float]]] = {}

    def began(self, broker: BrokerRef, at: float) -> None:
        """Note that a broker is lost, unless it was lost before and is not back."""
        found = self._of.setdefault(broker, [])
        if not found or found[-1][1] < math.inf:
            found.append((at, math.inf))
            del found[:-ROUNDS]

    def ended(self, broker: BrokerRef, at: float) -> None:
        """Note that a lost broker is back."""
        if found := self._of.get(broker):
            found[-1] = found[-1][0], min(found[-1][1], at)

    def of(self, broker: BrokerRef) -> Iterator[tuple[float, float]]:
        """Yield when a broker was lost, and when it was back, or infinity: the last times, the latest first."""
        yield from reversed(self._of.get(broker, ()))

    def clear(self) -> None:
        """Forget all of them."""
        self._of.clear()
