"""Passes requests of OFGate and events of switches on to the controller's service while this controller is master
(asyncio).

A standby refuses all requests, even reading ones, since its answers would be outdated. It ignores events of switches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.events import Intent
from saps.ofm.network.topology import Link, Port
from saps.ofm.northbound.driver.server import ProblemError
from saps.ofm.northbound.schema import STANDBY, Changes, DecodedAddress, OfmState, OfmStats, PortTraffic, SwitchBudget
from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.hosts import HostGone, HostSeen
from saps.ofm.openflow.values import PortStatus, Role
from saps.ofm.stateless.address import Receivers

T = TypeVar("T")


class MasterProxy:
    """Passes requests and events on to `service`, which subclasses set. (A `server.Listener`, and the northbound's
    `Asked`.)"""

    def __init__(self) -> None:
        self.service: ControllerService | None = None
        """The service at work if this controller is the master; None otherwise."""
        self._ours: dict[int, Switch] = {}
        """Connections of the switches at which the service works."""
        self._changed = asyncio.Event()
        """Set, and replaced by a new event, when something about the service has changed."""

    async def make_sure(self) -> None:
        """Check whether this controller is still master, if that may have changed."""
        raise NotImplementedError

    # ---- what OFGate asks

    def _served(self) -> ControllerService:
        if self.service is None:
            raise _elsewhere()
        return self.service

    async def _leading(self, ask: Callable[[ControllerService], Awaitable[T]]) -> T:
        """Return the answer. Raises `ProblemError` if this controller is not master, or ceases to be before the answer
        comes."""
        service = self._served()
        answer = asyncio.ensure_future(ask(service))
        try:
            while not answer.done():
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({answer, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if self.service is not service:
                    raise _elsewhere()
            return answer.result()
        finally:
            answer.cancel()

    async def intent(self, topic: str, intent: Intent | None, wait: float = 0.0) -> OfmState:
        """See `northbound.server.Asked`, also for the methods that follow."""
        await self.make_sure()
        return await self._leading(lambda service: service.intent(topic, intent, wait))

    async def state(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._leading(lambda service: service.state(topic, wait))

    def states(self) -> list[OfmState]:
        return self._served().states()

    async def changes(self, run: str, after: int, wait: float = 0.0) -> Changes:
        return await self._leading(lambda service: service.changes(run, after, wait))

    def budgets(self) -> list[SwitchBudget]:
        return self._served().budgets()

    async def stats(self, topic: str) -> OfmStats:
        return await self._leading(lambda service: service.stats(topic))

    async def ports(self) -> list[PortTraffic]:
        return await self._leading(lambda service: service.ports())

    def picture(self) -> dict[str, Any]:
        return self._served().picture()

    def decoded(self, named: Receivers, sender: str | None) -> DecodedAddress:
        return self._served().decoded(named, sender)

    # ---- what switches tell

    def switch_up(self, switch: Switch) -> None:
        """See `server.Listener`, also for the methods that follow."""
        if self.service is not None and switch.granted is Role.MASTER:
            self._ours[switch.dpid] = switch
            self.service.switch_up(switch)

    def switch_down(self, dpid: int) -> None:
        if self.service is not None and self._ours.pop(dpid, None) is not None:
            self.service.switch_down(dpid)

    def switch_gone(self, dpid: int) -> None:
        if self.service is not None:
            self.service.switch_gone(dpid)

    def port_status(self, dpid: int, status: PortStatus) -> None:
        if self.service is not None:
            self.service.port_status(dpid, status)

    def link_up(self, link: Link) -> None:
        if self.service is not None:
            self.service.link_up(link)

    def link_down(self, link: Link) -> None:
        if self.service is not None:
            self.service.link_down(link)

    def host_seen(self, host: HostSeen) -> None:
        if self.service is not None:
            self.service.host_seen(host)

    def host_gone(self, host: HostGone) -> None:
        if self.service is not None:
            self.service.host_gone(host)

    def loop_found(self, a: Port, b: Port) -> None:
        if self.service is not None:
            self.service.loop_found(a, b)


def _elsewhere() -> ProblemError:
    return ProblemError(
        503, "Standby", "this controller is not the master of the switches: ask the other one", type=STANDBY
    )
