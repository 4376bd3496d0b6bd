"""A `Northbound` for controllers that know nothing of OFMs but offer Ryu's stock calls.

The planning is done here, by the same machine as in `saps controller`; `ofctl_desk` carries it to the switches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from saps.ofm.controller import Controller
from saps.ofm.events import Wish
from saps.ofm.northbound.client import LONG_POLL, Budgets, NorthboundError, Ports, States, follow
from saps.ofm.northbound.ofctl_desk import LOOK, OfctlDesk
from saps.ofm.northbound.schema import OfmRequest, OfmState, OfmStats, Problem
from saps.ofm.northbound.wishes import wish_fault
from saps.ofm.topology import Topology


class OfctlNorthbound:
    """OFMs by way of such a controller, from `start` to `close`; also an async context manager."""

    def __init__(self, machine: Controller, url: str, *, look: float = LOOK) -> None:
        self._desk = OfctlDesk(machine, url, look=look)

    async def start(self) -> None:
        """Begin. Raises `client.UnreachableError` if the controller does not answer."""
        await self._desk.start()

    async def close(self) -> None:
        """End. The switches keep what they have."""
        await self._desk.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, request: OfmRequest, wait: float = 0.0) -> OfmState:
        """See `client.Northbound`, as for all that follow."""
        brokers = frozenset(request.brokers)
        rate = request.demand.bits if request.demand is not None else None
        wish = Wish(brokers, frozenset(request.senders) - brokers, request.priority, rate)
        if (fault := wish_fault(wish, self._desk.machine.pool.range.network.version)) is not None:
            raise NorthboundError(Problem(status=400, title="Bad request", detail=fault))
        return await self._desk.wish(request.topic, wish, wait)

    async def get(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._desk.state(topic, wait)

    async def list(self) -> States:
        return self._desk.states()

    async def delete(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._desk.wish(topic, None, wait)

    def watch(self) -> AsyncIterator[OfmState]:
        return follow(lambda run, after: self._desk.changes(run, after, LONG_POLL))

    async def topology(self) -> Topology:
        return self._desk.machine.topology.copy()

    async def budgets(self) -> Budgets:
        return self._desk.budgets()

    async def stats(self, topic: str) -> OfmStats:
        return await self._desk.stats(topic)

    async def ports(self) -> Ports:
        return await self._desk.ports()
