"""Decisions at OFGate: an HTTP interface for tables from a job, or the small decider on the brokers' own counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saps.agents.ofgate.decisions_io import Beside, DecisionHandler, Decisions, DecisionServer, Revoked, Tree
from saps.agents.switchover import TopicStatus
from saps.config import SettingError
from saps.config.ofgate_io import OfgateSettings
from saps.config.sources_io import token
from saps.runtime import process
from saps.statistics import Row
from saps.statistics.agent import AT_ONCE, gather
from saps.statistics.switches_io import SwitchFiles

if TYPE_CHECKING:
    from monitoring.decisions.decider import Decider
    from saps.agents.ofgate.program.gateway import Gateway

logger = logging.getLogger(__name__)

LEAST = 1000.0
"""Bytes a second that a tree of the small decider must save beyond its cost, like `saps monitor --least`."""
SWITCHES = 60.0
"""Interval in seconds between two readings of the switches' counters."""
CARRY_OUT = 2.0
"""Delay in seconds until a tree is tried again that a table or an order wants and that could not be had yet."""


class GatewayGate:
    """The `saps.agents.ofgate.decisions_io.Gate` of the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def leads(self) -> bool:
        return self._gateway.gate.leading

    async def exploit(self, topic: str) -> TopicStatus | None:
        return await self._gateway.exploit(topic)

    def release(self, topic: str) -> TopicStatus | None:
        return self._gateway.release(topic)

    def remeasure(self, topic: str) -> None:
        self._gateway.broker.mesh.act(lambda: self._gateway.gate.remeasure(topic))

    def spread(self, loads: dict[str, float]) -> None:
        self._gateway.broker.mesh.act(lambda: self._gateway.gate.spread(loads))

    def wanted(self) -> set[str]:
        return self._gateway.gate.wanted()

    def describe(self) -> dict[str, Any]:
        return self._gateway.gate.describe()


class DecisionService:
    """The decisions of one OFGate process, from `start` to `stop`."""

    def __init__(self, gateway: Gateway, settings: OfgateSettings) -> None:
        """Raises `SettingError` if the file of the token cannot be read."""
        gate = GatewayGate(gateway)
        secret = token("ofgate.decisions_token_file", settings.decisions_token_file)
        self.request_handler = DecisionHandler(gate, lambda: gateway.pinned)
        self._door = DecisionServer(
            self.request_handler, gate, secret, gateway.broker.identity, settings.decisions_from
        )
        gateway.demand = self.request_handler.demand
        self._gateway = gateway
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self.port: int | None = None
        self._switches: SwitchFiles | None = None

    async def start(self) -> None:
        """Listen, and begin to decide and to carry out. Raises `SettingError` if the interface's address is not
        available."""
        listen = self._settings.decisions
        if listen is not None:
            try:
                self.port = await self._door.start(*listen)
            except OSError as error:
                raise SettingError("ofgate.decisions", process.refused(listen, error)) from None
        self._tasks.append(asyncio.ensure_future(self._carry_out()))
        if self._settings.decide is not None:
            self._tasks.append(
                asyncio.ensure_future(self._decide(_decider(self._settings.decide), self._settings.decide))
            )

        if self._settings.switch_counts is not None:
            self._switches = SwitchFiles(
                self._gateway.northbound, self._settings.switch_counts, SWITCHES, self._gateway.broker.ref.name
            )
            self._switches.start()

    async def stop(self) -> None:
        """Stop all tasks, and stop listening."""
        if self._switches is not None:
            await self._switches.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._door.close()

    async def _carry_out(self) -> None:
        while True:
            await self.request_handler.carry_out()
            await asyncio.sleep(CARRY_OUT)

    async def _decide(self, decider: Decider, interval: float) -> None:
        """Collect the counts of all brokers twice in each interval of `interval` seconds. Rows that come again count
        once."""
        while True:
            await asyncio.sleep(interval / 2)
            found = decider.feed(await self._counts())
            for name, by in found.skew.refused.items():
                logger.warning("the clock of %s is %.0f s ahead of this machine's: not counted", name, by / 1000)
            if found.impossible:
                logger.warning("%d impossible rows are not counted: %s", len(found.impossible), found.impossible[0])
            table = decider.decide()
            if table is not None and self._gateway.gate.leading:
                trees = [
                    Tree(d.topic, d.saving, d.cost, d.since, d.reason, d.rate, d.size, d.saved, d.predicted)
                    for d in table.decisions
                    if d.mode == "ofm"
                ]
                for decision in table.decisions:
                    if decision.action in ("build", "drop", "revoke"):
                        logger.info("%s the tree of %s: %s", decision.action, decision.topic, decision.reason)
                revoked = [Revoked(d.topic, d.reason) for d in table.decisions if d.action == "revoke"]
                beside = [Beside(d.topic, d.rate, d.size) for d in table.beside]
                await self.request_handler.take(Decisions(1, table.epoch, table.digest, trees, revoked, beside=beside))

    async def _counts(self) -> list[Row]:
        found: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()

        def done(rows: list[Row], complete: bool) -> None:
            if not found.done():
                found.set_result(rows)

        broker = self._gateway.broker
        act: Callable[[Callable[[], None]], None] = broker.mesh.act
        act(lambda: gather(broker.agents, AT_ONCE, done))
        return await found


def _decider(interval: float) -> Decider:
    from monitoring.decisions.decider import Decider
    from monitoring.settings import rules_for

    rules = rules_for(interval)
    return Decider(replace(rules, calm=rules.calm._replace(least=LEAST)))
