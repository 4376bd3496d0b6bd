"""Serves ``/v1/drain``: the progress of a broker's drain (GET), and orders to begin or cancel a drain (POST).

``?broker=`` names another broker. Orders need the role operator (`saps.frontend.web.http.visitors`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from aiohttp import web

from saps.agents.api import Answers
from saps.drain.agent import DRAIN
from saps.drain.values import Drained, Order
from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import changed

LARGEST = 4096
"""Most bytes of an order."""


class Drainable(Protocol):
    """A broker that can be drained (`saps.broker.drain.BrokerDrain`)."""

    def obey(self, order: Order) -> None: ...

    def watched(self) -> Drained: ...


class DrainRoutes:
    """Handles requests for drains at one broker."""

    def __init__(self, drain: Callable[[], Drainable | None], call: Callable[..., Awaitable[Answers]]) -> None:
        """`drain` returns this broker's drain, or None before the broker has started. `call` calls agents of other
        brokers."""
        self._drain = drain
        self._call = call

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the progress of a drain. Raises `ProblemError`."""
        broker = Parameters(request, ("broker",)).get("broker")
        return answer(self._found().watched() if broker is None else await self._ask(broker, "progress"))

    async def act(self, request: web.Request) -> web.Response:
        """Carry out an order, and answer with the progress of the drain. Raises `ProblemError`."""
        broker, order = Parameters(request, ("broker",)).get("broker"), await _order(request)
        plain = msgspec.to_builtins(order)
        if broker is None:
            drain = self._found()
            drain.obey(order)
            found = drain.watched()
        else:
            found = await self._ask(broker, "obey", plain)
        changed(request, subject=found.broker, after=plain)
        return answer(found)

    async def _ask(self, broker: str, method: str, *args: Any) -> Drained:
        """Call `method` of another broker's drain agent. Raises `ProblemError`: 404 if the broker does not answer, 503
        if it refuses."""
        for each in await self._call(f"{broker}!{DRAIN}", method, *args):
            if each.error is not None:
                raise ProblemError(503, "Not drained", each.error)
            return msgspec.convert(each.value, Drained)
        raise ProblemError(404, "No such broker", f"{broker!r} does not answer", field="broker")

    def _found(self) -> Drainable:
        drain = self._drain()
        if drain is None:
            raise ProblemError(503, "Not ready", "the broker has not started yet")
        return drain


async def _order(request: web.Request) -> Order:
    """Return the order in the request's body. Raises `ProblemError` if it is too large or invalid."""
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
