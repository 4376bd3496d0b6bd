"""Compares what arrives with what was played: order, gaps, doubles, strangers. Pure.

The messages are as they were recorded, nothing is added to them: a message is known by its topic, its place in the
topic's order, and its payload.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec


class Faults(msgspec.Struct, frozen=True):
    """What a receiver missed, or should not have got."""

    missing: int = 0
    again: int = 0
    """Came once more, or later than one that was played after it."""
    strange: int = 0
    """Never played, or not subscribed."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.again or self.strange)


class Follower:
    """One receiver's view. `played` has the payloads of each topic in their order, and grows."""

    def __init__(self, played: dict[str, list[bytes]]) -> None:
        self._played = played
        self._next: Counter[str] = Counter()
        """By topic, the place of the message that should come next."""
        self._skipped: dict[str, set[int]] = defaultdict(set)
        self.right = 0
        """Messages that came in their place."""
        self._again = self._strange = 0

    def arrived(self, topic: str, payload: bytes) -> int | None:
        """A message; its place in its topic if it is the next one, or the next after a gap, else None."""
        played, due = self._played.get(topic, []), self._next[topic]
        place = _find(played, payload, due)
        if place is not None:
            self._skipped[topic].update(range(due, place))
            self._next[topic] = place + 1
            self.right += 1
            return place
        if _find(played[:due], payload, 0) is None:
            self._strange += 1
        else:
            self._again += 1
        return None

    def missing(self, topics: Sequence[str]) -> int:
        """Of these topics, messages that were played and have not come in their place (some may be under way)."""
        return sum(len(self._played.get(each, ())) - self._next[each] + len(self._skipped[each]) for each in topics)

    def faults(self, topics: Sequence[str]) -> Faults:
        """What is wrong, once nothing is under way."""
        return Faults(self.missing(topics), self._again, self._strange)


def _find(payloads: Sequence[bytes], wanted: bytes, start: int) -> int | None:
    """The first place from `start` on."""
    return next((place for place in range(start, len(payloads)) if payloads[place] == wanted), None)
