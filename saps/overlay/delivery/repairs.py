"""Repeats for brokers that ask for what they miss: each publication once a while, however often they ask.

Who asks asks again until it is there (`saps.overlay.delivery.order`). On links with a backlog the answer takes longer
than that: to answer each question would make the backlog grow.
"""

from __future__ import annotations

from collections import OrderedDict

from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef

AGAIN = 1.0
"""Seconds after which the same publications are repeated once more. Shorter finds a lost repeat sooner; longer costs
less while links are congested. (`saps.overlay.delivery.order.GIVE_UP` must be longer.)"""
REMEMBERED = 1024
"""Brokers and topics at a time; beyond it the oldest is forgotten."""


class Repairs:
    """What one broker has repeated of its own publications."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[BrokerRef, str], tuple[int, int, float]] = OrderedDict()
        """By who has asked, and topic: first and last number, and when."""

    def due(self, to: BrokerRef, topic: str, bodies: list[Publish], now: float) -> list[Publish]:
        """Those of these publications to one topic that have not been repeated for this broker of late. They are
        about to be."""
        first, last, when = self._last.get((to, topic), (0, 0, 0.0))
        if now - when >= AGAIN:
            first = last = 0
        due = [body for body in bodies if not first <= body.seqs[0] <= body.seqs[-1] <= last]
        if due:
            began = when if last else now
            found = [seq for body in due for seq in (body.seqs[0], body.seqs[-1])]
            self._last.pop((to, topic), None)
            self._last[to, topic] = min(found + [first] * (first > 0)), max(found + [last] * (last > 0)), began
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)
        return due
