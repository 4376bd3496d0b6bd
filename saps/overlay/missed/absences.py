"""When other brokers were lost, and when they were back, as the log of what they missed has it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from saps.overlay.ring.keys import BrokerRef

ROUNDS = 16
"""Most absences of a broker that are remembered."""
NEAR = 5.0
"""Seconds before a session came to the first broker that is known of, in which what went to that broker may not have
come to the session. What is older went to the brokers before."""
UNNOTICED = 15.0
"""Longest time between a broker's death and its detection here, in seconds."""


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

    def lost_at(self, broker: BrokerRef, adopted: float) -> float | None:
        """Return when a broker was lost that was away as its sessions were adopted; None if it was not. Others may have
        noticed it up to `NEAR` seconds earlier, and it may have been back for `UNNOTICED` seconds."""
        for lost, back in self.of(broker):
            if lost <= adopted + NEAR:
                return lost if back >= adopted - UNNOTICED else None
        return None

    def of(self, broker: BrokerRef) -> Iterator[tuple[float, float]]:
        """Yield when a broker was lost, and when it was back, or infinity: the last times, the latest first."""
        yield from reversed(self._of.get(broker, ()))

    def clear(self) -> None:
        """Forget all of them."""
        self._of.clear()
