"""The bench with a mesh behind it (``pytest --mesh 3``): simulated brokers, to which connections are dealt in turn."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any, NamedTuple

import pytest

from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.session import Session
from saps.simulator import Network
from tests.frontend.mqtt.bench import Bench, Dealt
from tests.overlay.roams import Roams

LATENCY = 1e-6, 2e-6
"""Seconds between brokers: so little that a test's clock does not notice."""
SETTLED = 1e-3
"""Seconds after which the brokers have done what an input asks of them."""

TIMEOUT = 10.0
"""Virtual seconds that an answer may take."""


class At(NamedTuple):
    """A `Dealt`."""

    frontend: Frontend
    act: Callable[[Callable[[], object]], None]


class MeshBench(Bench):
    """`Bench.brokers` brokers in one simulation. There is no hub or frontend that a test could look into: one that
    does is skipped."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._simulation = Roams(1, limits, network=Network(LATENCY))
        self._simulation.build(Bench.brokers)
        self._simulation.run_until(lambda: all(broker.ready for broker in self._simulation.alive()))
        for broker in self._simulation.alive():
            broker.node.port.timers.epoch = (
                0.0  # of two CONNECTs within the difference of two clocks either may win (guarantees.md)
            )
        self._benches = list(self._simulation.benches.values())
        self._next = cycle(self._benches)

    def deal(self) -> Dealt:
        bench = next(self._next)
        return At(bench.frontend, bench.broker.act)

    def flush(self) -> None:
        for bench in self._benches:
            bench.broker.act(bench.flush)
        self._simulation.run(SETTLED)

    def await_until(self, condition: Callable[[], bool]) -> None:
        end = self.now + TIMEOUT
        while not condition() and self.now < end:
            self._simulation.run(SETTLED)

    def advance(self, seconds: float) -> None:
        self._simulation.run(seconds)

    @property
    def now(self) -> float:  # type: ignore[override]
        return self._simulation.now

    @property
    def sessions(self) -> Mapping[str, Session]:
        return ChainMap(*(bench.frontend.sessions for bench in self._benches))

    @property
    def connections(self) -> list[ClientConnection]:
        return [connection for bench in self._benches for connection in bench.frontend.connections]

    def __getattr__(self, name: str) -> Any:
        if name in ("hub", "frontend"):
            pytest.skip("looks into one broker")
        raise AttributeError(name)
