"""The record of brokers that have come and gone, as one broker sees it, for operators. The overlay does not depend on
it.

A broker knows only about those that it watches (`saps.overlay.membership.failure_detector`), so the records of all
brokers together cover the mesh. A dead broker counts as away until it is back, an operator forgets it, or `FORGOTTEN`
seconds have passed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

FORGOTTEN = 86_400.0
"""Seconds after which a broker that is away is forgotten."""
KEPT = 100
"""Number of latest events that are kept."""
REMEMBERED = 1 << 16
"""Most brokers in the record: more than a mesh has."""
WINDOW = 10.0
LINES = 20
"""Most events that are logged one by one in `WINDOW` seconds; the others are summed up at its end."""


class What(StrEnum):
    """A change of a broker's state."""

    JOINED = "joined"
    SUSPECTED = "suspected"
    """Its link broke, and it has not answered since."""
    DETOUR = "detour"
    """It does not answer, and another broker reaches it (`saps.overlay.membership.detours`)."""
    DEAD = "dead"
    LEFT = "left"
    BACK = "back"
    """It was suspected or dead and is heard again, is reached directly again, or has restarted."""


class Event(NamedTuple):
    """A change of a broker's state, with its time in seconds since the epoch."""

    at: float
    what: What
    broker: BrokerRef


_WORDS = {
    What.JOINED: "broker %s (%s) joined, at %s",
    What.SUSPECTED: "broker %s (%s) is suspected: the link to it broke, at %s",
    What.DETOUR: "broker %s (%s) is reached through another one: no answer from %s",
    What.DEAD: "broker %s (%s) is taken for dead: no answer from %s",
    What.LEFT: "broker %s (%s) left, at %s",
    What.BACK: "broker %s (%s) is back, at %s",
}

Tell = Callable[[str, bool], None]
"""Takes a line for the log, and whether it is a warning."""


class Members:
    """The brokers that one broker knows, and the latest events."""

    def __init__(self, port: Port, wall: Callable[[], float], tell: Tell | None = None) -> None:
        """`wall` returns seconds since the epoch; `tell` takes a line for each event."""
        self._port = port
        self._wall = wall
        self._known: dict[str, Event] = {}
        """The last event of each broker by name, oldest first. Brokers older than this one are recorded as
        `What.JOINED` without an event."""
        self.events: deque[Event] = deque(maxlen=KEPT)
        self.counts: Counter[What] = Counter()
        self._tell = tell
        self._told = 0
        self._untold: Counter[What] = Counter()

    @property
    def away(self) -> list[Event]:
        """Return the deaths of the brokers that are away, sorted by name."""
        oldest = self._wall() - FORGOTTEN
        for event in list(self._known.values()):
            if event.what is What.DEAD and event.at < oldest:
                del self._known[event.broker.name]
        return sorted((e for e in self._known.values() if e.what is What.DEAD), key=lambda event: event.broker.name)

    def forget(self, name: str) -> bool:
        """Forget a dead broker for an operator. Returns False if it is not known as dead."""
        event = self._known.get(name)
        if event is None or event.what is not What.DEAD:
            return False
        del self._known[name]
        return True

    def heard(self, broker: BrokerRef) -> None:
        """Record a broker that is heard for the first time in its incarnation, or after it was suspected or dead."""
        last = self._known.get(broker.name)
        if last is not None and last.what is not What.LEFT:
            self._happened(What.BACK, broker)
        elif last is not None or broker.incarnation > self._port.me.incarnation:
            self._happened(What.JOINED, broker)
        else:
            self._keep(Event(self._wall(), What.JOINED, broker))

    def suspected(self, broker: BrokerRef) -> None:
        """Record a broker whose link broke; once for all incarnations of which a log has something."""
        last = self._known.get(broker.name)
        if last is None or last.what is not What.SUSPECTED:
            self._happened(What.SUSPECTED, broker)

    def detoured(self, broker: BrokerRef) -> None:
        """Record a broker that is reached through another one."""
        self._happened(What.DETOUR, broker)

    def died(self, broker: BrokerRef) -> None:
        """Record a broker that was declared dead."""
        self._happened(What.DEAD, broker)

    def left(self, broker: BrokerRef) -> None:
        """Record a broker that has left."""
        last = self._known.get(broker.name)
        if last is None or last.what is not What.LEFT:
            self._happened(What.LEFT, broker)

    def stop_telling(self) -> None:
        """Log no more events, as this broker leaves."""
        self._tell = None

    def _happened(self, what: What, broker: BrokerRef) -> None:
        event = Event(self._wall(), what, broker)
        self._keep(event)
        self.events.append(event)
        self.counts[what] += 1
        if self._tell is None:
            return
        if not self._told:
            self._port.after(WINDOW, self._add_up)
        self._told += 1
        if self._told > LINES:
            self._untold[what] += 1
        else:
            line = _WORDS[what] % (broker.name, broker.cluster or "no cluster", broker.address)
            self._tell(line, what in (What.SUSPECTED, What.DETOUR, What.DEAD))

    def _keep(self, event: Event) -> None:
        self._known.pop(event.broker.name, None)
        self._known[event.broker.name] = event
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def _add_up(self) -> None:
        untold, self._untold, self._told = self._untold, Counter(), 0
        if untold and self._tell is not None:
            parts = ", ".join(f"{number} {what.value}" for what, number in untold.items())
            self._tell(f"{untold.total()} more changes of brokers within {WINDOW:.0f} s: {parts}", True)
