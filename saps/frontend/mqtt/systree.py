"""Publishes the ``$SYS`` tree of a broker's status, with Mosquitto's names where the meaning is the same.

Each broker has its own tree, which the mesh does not forward. A new subscriber gets the current values at once, and
then the changed values once an interval, with QoS 0. Clients cannot publish to the tree (`is_reserved`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from saps.frontend.mqtt.load import LoadAverage
from saps.frontend.mqtt.totals import Totals, totals
from saps.messages import Message
from saps.routing.batch import Batch
from saps.topics import matches

if TYPE_CHECKING:
    from saps.frontend.mqtt.frontend import Frontend

Value = int | float | str
Source = Callable[[], Mapping[str, Value]]
"""Function that returns further values by topic below ``$SYS/``."""

LOADS = {
    "load/messages/received": "messages/received",
    "load/messages/sent": "messages/sent",
    "load/publish/received": "publish/messages/received",
    "load/publish/sent": "publish/messages/sent",
    "load/publish/dropped": "publish/messages/dropped",
    "load/bytes/received": "bytes/received",
    "load/bytes/sent": "bytes/sent",
}
"""By name of a load average: its counter, both below ``$SYS/broker/``."""


class SysTree:
    """Publishes the tree of one frontend. The constructor starts its rounds on the frontend's timers."""

    def __init__(self, frontend: Frontend, interval: float, version: str, sources: list[Source]) -> None:
        """Start the rounds. `interval`: seconds between two rounds, above 0. `sources`: sources of further values."""
        self._frontend = frontend
        self._interval = interval
        self._version = version
        self._sources = sources
        self._started = self._last = frontend.clock()
        self._loads = {name: LoadAverage() for name in (*LOADS, "load/connections", "load/sockets")}
        self._told: dict[str, bytes] = {}
        """By topic: the payload of the last round."""
        frontend.timers.at(self._started + interval, self._round)

    def values(self) -> dict[str, str]:
        """Return all topics with their current values."""
        found = {f"$SYS/broker/{name}": value for name, value in self._broker().items()}
        for source in self._sources:
            found |= {f"$SYS/{name}": value for name, value in source().items()}
        return {topic: f"{value:.2f}" if isinstance(value, float) else str(value) for topic, value in found.items()}

    def matching(self, topic_filter: str) -> list[Batch]:
        """Return the messages for a new subscription with this filter, like retained messages."""
        if not topic_filter.startswith("$SYS/"):
            return []
        found = [
            Batch.of(Message(topic, v.encode())) for topic, v in self.values().items() if matches(topic_filter, topic)
        ]
        for batch in found:
            batch.replayed = True
        return found

    def _round(self, now: float) -> None:
        frontend = self._frontend
        frontend.timers.at(now + self._interval, self._round)
        self._update_loads(max(now - self._last, 1e-3))
        self._last = now
        for topic, value in self.values().items():
            payload = value.encode()
            if self._told.get(topic) == payload:
                continue
            self._told[topic] = payload
            frontend.hub.tell(Message(topic, payload))

    def _update_loads(self, elapsed: float) -> None:
        counters = self._counters(totals(self._frontend))
        sources = {name: value for source in self._sources for name, value in source().items()}
        for name, counter in LOADS.items():
            value = counters.get(counter, sources.get(f"broker/{counter}"))
            if isinstance(value, (int, float)):
                self._loads[name].update(value, elapsed)
        self._loads["load/connections"].update(self._frontend.counts.connects, elapsed)
        sockets = sources.get("saps/sockets/accepted", 0)
        assert isinstance(sockets, (int, float))
        self._loads["load/sockets"].update(sockets, elapsed)

    def _counters(self, found: Totals) -> dict[str, Value]:
        """Return the counters below ``$SYS/broker/``, which only grow."""
        counts = self._frontend.counts
        return {
            "messages/received": found.published + counts.handled + counts.connects,
            "messages/sent": found.delivered + counts.answered,
            "publish/messages/received": found.published,
            "publish/messages/sent": found.delivered,
            "publish/messages/dropped": found.dropped,
        }

    def _broker(self) -> dict[str, Value]:
        """Return the frontend's values below ``$SYS/broker/``."""
        frontend, found = self._frontend, totals(self._frontend)
        counts, hub = frontend.counts, frontend.hub
        counts.most = max(counts.most, found.connected)
        loads = {
            f"{name}/{window}min": value for name, load in self._loads.items() for window, value in load.minutes.items()
        }
        return {
            "version": f"saps version {self._version}",
            "uptime": f"{int(frontend.clock() - self._started)} seconds",
            "clients/connected": found.connected,
            "clients/disconnected": found.away,
            "clients/total": found.connected + found.away,
            "clients/maximum": counts.most,
            "clients/expired": counts.expired,
            **self._counters(found),
            "messages/inflight": found.inflight,
            "store/messages/count": found.queued + len(hub.retained),
            "retained messages/count": len(hub.retained),
            "subscriptions/count": found.subscriptions,
            **loads,
        }
