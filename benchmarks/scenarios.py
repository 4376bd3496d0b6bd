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
SHAPES = ((1, 1), (1, 10), (1, 100), (10, 1))
"""Topics (with one publisher each) and subscribers of each topic."""
IDLE = 4000
"""Idle connections that count."""
HELD = 9000
"""The same where, with those that do not count, 10,000 are to be held."""
CROWD = 1000
"""Pairs of a publisher and a subscriber."""
LEAVES = 16
"""Topics of a publisher that changes its topic with every message."""


class Scenario(NamedTuple):
    """One row of the table."""

    name: str
    group: str
    kind: str
    """throughput or idle (see load.Load)."""
    topics: int
    subscribers: int
    qos: int
    window: int = WINDOW
    vary: int = 0
    """Bytes by which payloads differ from PAYLOAD at most."""
    pair: bool = False
    """Publishers on one broker, subscribers on another."""
    quick: bool = False
    """Part of a quick run."""
    leaves: int = 1
    """Topics each publisher goes through, another with every message."""
    lasting: bool = False
    """Sessions outlive their connections."""

    def load(self, site: Site, pids: list[int], warm_up: float, measure: float) -> Load:
        """The generator's orders."""
        return Load(
            kind=self.kind,
            publish_port=site.publish_port,
            subscribe_port=site.subscribe_port,
            pids=pids,
            topics=self.topics,
            subscribers=self.subscribers,
            qos=self.qos,
            payload=PAYLOAD,
            vary=self.vary,
            leaves=self.leaves,
            lasting=self.lasting,
            window=self.window,
            warm_up=warm_up,
            measure=measure,
        )

    def value(self, outcome: Outcome) -> float:
        """The figure to compare: deliveries per second, or bytes."""
        match self.kind:
            case "throughput":
                return outcome.deliveries / outcome.seconds
            case _:
                return outcome.idle_bytes


def _throughput(topics: int, subscribers: int, qos: int, *, vary: int = 0, quick: bool = False) -> Scenario:
    name = f"{topics}:{topics * subscribers}-q{qos}" + ("-mixed" if vary else "")
    group = "mixed" if vary else "throughput"
    return Scenario(name, group, "throughput", topics, subscribers, qos, vary=vary, quick=quick)


ALL: tuple[Scenario, ...] = (
    *(_throughput(t, n, 0, vary=VARY, quick=True) for t, n in SHAPES),
    *(_throughput(t, n, 1, vary=VARY, quick=(t, n) == (1, 10)) for t, n in SHAPES),
    *(_throughput(t, n, 0, quick=(t, n) == (1, 10)) for t, n in SHAPES),
    *(_throughput(t, n, 1) for t, n in SHAPES),
    *(
        Scenario(f"1:{n}-q{qos}-changing", "changing", "throughput", 1, n, qos, vary=VARY, leaves=LEAVES)
        for qos in (0, 1)
        for n in (1, 10, 100)
    ),
    *(
        Scenario(f"1:{n}-q0-mixed-window{w}", "window", "throughput", 1, n, 0, window=w, vary=VARY)
        for n in (1, 10)
        for w in (1, 10, 100)
    ),
    *(
        Scenario(f"{CROWD}:{CROWD}-q{qos}-mixed-window1", "crowd", "throughput", CROWD, 1, qos, window=1, vary=VARY)
        for qos in (0, 1)
    ),
    Scenario("idle", "memory", "idle", 1, IDLE, 0, quick=True),
    Scenario("idle-10000", "memory", "idle", 1, HELD, 0),
    *(
        Scenario(f"cross-1:10-q{qos}-mixed", "cross", "throughput", 1, 10, qos, vary=VARY, pair=True, quick=not qos)
        for qos in (0, 1)
    ),
    *(Scenario(f"cross-1:10-q{qos}", "cross", "throughput", 1, 10, qos, pair=True) for qos in (0, 1)),
    *(
        Scenario(f"cross-1:10-q{qos}-changing", "cross", "throughput", 1, 10, qos, vary=VARY, leaves=LEAVES, pair=True)
        for qos in (0, 1)
    ),
)
