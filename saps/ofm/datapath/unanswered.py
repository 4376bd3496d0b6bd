"""The publications that members of one tree have not acknowledged, and the members that do not acknowledge."""

from __future__ import annotations

import math
from collections import deque

from saps.ofm.datapath.flights import RoundTrip
from saps.ofm.datapath.loads import Unacknowledged
from saps.overlay.frames.delivery import Ack, OfmAck
from saps.overlay.ring.keys import BrokerRef

DEAF = 8
"""Publications with QoS 1 or 2 that a member fails to acknowledge in a row before ALM serves it."""


class Unanswered:
    """The unacknowledged publications with QoS 1 and 2, by origin in the order sent."""

    def __init__(self, repeat: float) -> None:
        """`repeat` is the least time in seconds after which a member that has not acknowledged is late."""
        self.time = RoundTrip(repeat)
        self._own: deque[Unacknowledged] = deque()
        self._relayed: dict[BrokerRef, deque[Unacknowledged]] = {}
        """Origin in another domain -> its unacknowledged publications."""
        self._silent: dict[BrokerRef, int] = {}
        """Member -> publications in a row that the member has not acknowledged in time."""

    def add(self, each: Unacknowledged, origin: BrokerRef | None) -> None:
        """Add publications that await acknowledgements. `origin` is given if it is in another domain."""
        queue = self._own if origin is None else self._relayed.setdefault(origin, deque())
        queue.append(each)

    def remove(self, each: Unacknowledged, origin: BrokerRef | None) -> bool:
        """Remove publications that are answered for in another way. Returns False if they are gone: all their members
        died."""
        queue = self._own if origin is None else self._relayed.get(origin)
        if queue is None or each not in queue:
            return False
        queue.remove(each)
        return True

    def acknowledged(self, sender: BrokerRef, ack: OfmAck, now: float) -> list[Unacknowledged]:
        """Handle a member's acknowledgement of everything up to a number. Returns the publications that all members
        have now."""
        self._silent.pop(sender, None)
        queue = self._own if ack.origin is None else self._relayed.get(ack.origin)
        if not queue:
            return []
        for each in queue:
            if each.last > ack.seq or each.sent == math.inf:  # nobody can have what has not left
                break
            if sender in each.waiting:
                del each.waiting[sender]
                self.time.measured(now - each.sent)
                each.pending.add(Ack(0, [(1, ack.subscribers)], []))
        return _answered(queue)

    def members(self) -> set[BrokerRef]:
        """Return the members that have not acknowledged all of this broker's own publications."""
        return {member for each in self._own for member in each.waiting}

    def forget(self, broker: BrokerRef) -> list[Unacknowledged]:
        """Expect nothing more of a broker. Returns the publications that all other members have."""
        found: list[Unacknowledged] = []
        for queue in (self._own, *self._relayed.values()):
            for each in queue:
                each.waiting.pop(broker, None)
            found += _answered(queue)
        self._silent.pop(broker, None)
        self._relayed = {origin: queue for origin, queue in self._relayed.items() if queue}
        return found

    def second_try(self, now: float) -> list[tuple[Unacknowledged, BrokerRef | None, float]]:
        """Return the publications that are late for the first time, with their origin and the time they left. The
        caller sends them again now, and their timeout starts anew."""
        before = now - self.time.timeout + 1e-9
        found: list[tuple[Unacknowledged, BrokerRef | None, float]] = []
        origins: list[BrokerRef | None] = [None, *self._relayed]
        for origin, queue in zip(origins, (self._own, *self._relayed.values()), strict=True):
            for each in queue:
                if each.sent > before:
                    break
                if not each.again:
                    found.append((each, origin, each.sent))
                    each.again, each.sent = True, now
        return found

    def overdue(self, now: float) -> list[Unacknowledged]:
        """Remove and return the publications that some members have not acknowledged in time."""
        before, found = now - self.time.timeout + 1e-9, list[Unacknowledged]()
        queues = [queue for queue in (self._own, *self._relayed.values()) if queue and queue[0].sent <= before]
        if queues:
            self.time.late()
        for queue in queues:
            while queue and queue[0].sent <= before:
                for member in queue[0].waiting:
                    self._silent[member] = self._silent.get(member, 0) + 1
                found.append(queue.popleft())
        return found

    def deaf(self) -> list[BrokerRef]:
        """Return the members that have missed `DEAF` publications in a row: ALM is to serve them. Their counts start
        anew."""
        found = [member for member, missed in self._silent.items() if missed >= DEAF]
        for member in found:
            del self._silent[member]
        return found

    def clear(self) -> list[Unacknowledged]:
        """Remove and return all publications."""
        found = [each for queue in (self._own, *self._relayed.values()) for each in queue]
        self._own, self._relayed = deque(), {}
        return found

    @property
    def due(self) -> float:
        """Time at which the oldest publication times out. Infinite if there is none, or if it has not left."""
        oldest = min((q[0].sent for q in (self._own, *self._relayed.values()) if q), default=float("inf"))
        return oldest + self.time.timeout


def _answered(queue: deque[Unacknowledged]) -> list[Unacknowledged]:
    """Remove and return the first publications that no member must acknowledge any more."""
    found: list[Unacknowledged] = []
    while queue and not queue[0].waiting:
        found.append(queue.popleft())
    return found
