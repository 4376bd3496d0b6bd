"""What is measured: the shape of the traffic, and the unit of its result."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.load import Load, Outcome
from benchmarks.peers import Site

PAYLOAD = 200
"""Bytes."""
WINDOW = 1000
"""Messages of each publisher in flight."""
VARY = 50
"""Bytes by which mixed payloads differ from PAYLOAD at most."""


class Scenario(NamedTuple):
    """One row of the table."""

    name: str
    group: str
    topics: int
    """With one publisher each."""
    subscribers: int
    """Of each topic."""
    qos: int
    window: int = WINDOW
    vary: int = 0
    """Bytes by which payloads differ from PAYLOAD at most."""
    lasting: bool = False
    """Sessions outlive their connections."""

    def load(self, site: Site, pids: list[int], warm_up: float, measure: float) -> Load:
        """The generator's orders."""
        return Load(
            publish_port=site.publish_port,
            subscribe_port=site.subscribe_port,
            pids=pids,
            topics=self.topics,
            subscribers=self.subscribers,
            qos=self.qos,
            payload=PAYLOAD,
            vary=self.vary,
            lasting=self.lasting,
            window=self.window,
            warm_up=warm_up,
            measure=measure,
        )

    def value(self, outcome: Outcome) -> float:
        """The figure to compare: deliveries per second."""
        return outcome.deliveries / outcome.seconds
