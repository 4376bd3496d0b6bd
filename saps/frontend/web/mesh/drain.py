"""``/v1/drain``: how far a broker's drain is (GET), and orders to begin or end one (POST).

An order is for operators (`saps.frontend.web.http.visitors`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from aiohttp import web

from saps.drain.values import Drained, Order
from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import changed

LARGEST = 4096
"""Bytes of an order."""


class Drainable(Protocol):
    """What is drained (`saps.broker.drain.BrokerDrain`)."""

    def obey(self, order: Order) -> None: ...

    def progress(self) -> Drained: ...


class DrainRoutes:
    """Answers for one broker."""

    def __init__(self, drain: Callable[[], Drainable | None]) -> None:
        """`drain`: None while the broker has not started."""
        self._drain = drain

    async def show(self, request: web.Request) -> web.Response:
        Parameters(request, ())
        return answer(self._found().progress())

    async def act(self, request: web.Request) -> web.Response:
        drain, order = self._found(), await _order(request)
        drain.obey(order)
        found = drain.progress()
        changed(request, subject=found.broker, after=msgspec.to_builtins(order))
        return answer(found)

    def _found(self) -> Drainable:
        drain = self._drain()
        if drain is None:
            raise ProblemError(503, "Not ready", "the broker has not started yet")
        return drain


async def _order(request: web.Request) -> Order:
    """The body of the request. Raises `ProblemError`."""
    Parameters(request, ())
    body = await request.read()
    if len(body) > LARGEST:
        raise ProblemError(413, "Too large", f"an order has {LARGEST} bytes at most")
    try:
        order = msgspec.json.decode(body or b"{}", type=Order)
    except msgspec.MsgspecError as error:
        raise ProblemError(400, "Bad order", str(error)) from None
    if (fault := order.fault()) is not None:
        raise ProblemError(400, "Bad order", "not a number that can be used", field=fault)
    return order
