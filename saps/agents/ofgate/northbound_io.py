"""The controller as OFGate's state machine needs it: calls that answer by a callback, on top of the northbound
client."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from saps.ofm.northbound.driver.client import Northbound, NorthboundError, UnreachableError
from saps.ofm.northbound.schema import Demand, OfmRequest, OfmState, Status

logger = logging.getLogger(__name__)

AGAIN = 1.0
"""Delay in seconds until an unreachable controller is asked for its changes again."""
WAIT = 2.0
"""Time in seconds after which the controller must answer, even if it is still at work. Less than OFGate's timeout."""

T = TypeVar("T")
Act = Callable[[Callable[[], None]], None]


class LiveController:
    """The `saps.agents.switchover.Controller` of a live OFGate. `act` runs the reaction to an answer at the broker's
    node."""

    def __init__(
        self,
        northbound: Northbound,
        act: Act,
        priority: Callable[[str], int | None] = lambda topic: None,
        demand: Callable[[str], Demand | None] = lambda topic: None,
    ) -> None:
        """`priority` returns the level of a topic, by which the network treats its packets. `demand` returns what is
        expected of the topic. Either returns None if there is none."""
        self._northbound = northbound
        self._priority, self._demand = priority, demand
        self._act = act
        self._tasks: set[asyncio.Task[None]] = set()
        self._reachable = True

    def put(self, request: OfmRequest, done: Callable[[OfmState | None], None]) -> None:
        def refused(error: NorthboundError) -> OfmState:
            return OfmState(topic=request.topic, status=Status.REFUSED, reason=str(error))

        topic = request.topic
        request = msgspec.structs.replace(request, priority=self._priority(topic), demand=self._demand(topic))
        self._start(self._northbound.put(request, WAIT), done, refused)

    def delete(self, topic: str, done: Callable[[OfmState | None], None]) -> None:
        self._start(self._northbound.delete(topic, WAIT), done, lambda error: None)

    def list(self, done: Callable[[builtins.list[OfmState] | None], None]) -> None:
        self._start(self._northbound.list(), done, lambda error: None)

    def watch(self, changed: Callable[[OfmState], None]) -> Callable[[], None]:
        task = asyncio.ensure_future(self._watch(changed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def end() -> None:
            task.cancel()

        return end

    async def _watch(self, changed: Callable[[OfmState], None]) -> None:
        while True:
            try:
                async for state in self._northbound.watch():
                    self._say(True, "")
                    self._act(partial(changed, state))
            except NorthboundError as error:
                logger.warning("cannot follow the controller's changes: %s", error)
            except UnreachableError as error:
                self._say(False, str(error))
            await asyncio.sleep(AGAIN)

    async def close(self) -> None:
        """Cancel all unanswered calls, and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._northbound.close()

    def _start(
        self,
        call: Awaitable[T],
        done: Callable[[T | None], None],
        refused: Callable[[NorthboundError], T | None],
    ) -> None:
        task = asyncio.ensure_future(self._finish(call, done, refused))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self,
        call: Awaitable[T],
        done: Callable[[T | None], None],
        refused: Callable[[NorthboundError], T | None],
    ) -> None:
        answer: T | None
        try:
            answer = await call
            self._say(True, "")
        except NorthboundError as error:
            logger.warning("the controller refuses: %s", error)
            answer = refused(error)
        except UnreachableError as error:
            self._say(False, str(error))
            answer = None
        self._act(lambda: done(answer))

    def _say(self, reachable: bool, why: str) -> None:
        """Log one line when the controller becomes unreachable, and one when it is back."""
        if reachable != self._reachable:
            self._reachable = reachable
            if reachable:
                logger.info("the controller is back")
            else:
                logger.warning("the controller cannot be reached: %s", why)
