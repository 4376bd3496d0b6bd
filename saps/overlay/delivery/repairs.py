"""Limits repeats for brokers that ask for missing publications: each publication at most once per `AGAIN` seconds.

A broker asks again until the publication has come (`saps.overlay.delivery.order`). On a link with a backlog the repeat
takes longer than the interval between requests. A repeat for each request would make the backlog grow.
"""

from __future__ import annotations

from collections import OrderedDict

from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef

AGAIN = 1.0
"""Seconds after which the same publications may be repeated again. A shorter time replaces a lost repeat sooner; a
longer one costs less while links are congested. (`saps.overlay.delivery.order.GIVE_UP` must be longer.)"""
REMEMBERED = 1024
"""Most pairs of broker and topic remembered; beyond it the oldest is forgotten."""


class Repairs:
    """The recent repeats of one broker's own publications."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[BrokerRef, str], tuple[int, int, float]] = OrderedDict()
        """First and last repeated sequence number, and the time of the repeat, by asking broker and topic."""

    def due(self, to: BrokerRef, topic: str, bodies: list[Publish], now: float) -> list[Publish]:
        """Return the publications to one topic that have not been repeated for this broker within `AGAIN`, and record
        them as repeated. The caller must send them. `now` is in seconds."""
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
