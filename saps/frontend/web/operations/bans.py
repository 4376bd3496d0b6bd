"""Serves ``/v1/bans``: the bans in force (GET), and orders to ban (POST) and to lift a ban (DELETE)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec
from aiohttp import web

from saps.agents.api import Answers
from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.answers import answers_to
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import VISITOR, changed
from saps.operations.bans import KINDS, Ban, BanList, Banned, BanOrder, Bans, named

LARGEST = 128 * 1024
"""Most bytes of an order; a client identifier has at most 64 KiB."""


class Spread(Protocol):
    """The bans of a broker (`saps.broker.bans.LiveBans`). `order` sends a change to all brokers, and calls `done` with
    their answers."""

    table: Bans

    def order(self, ban: Ban, done: Callable[[Answers], None]) -> None: ...


class BanRoutes:
    """Handles requests for bans at one broker, which has the bans of the whole mesh."""

    def __init__(self, broker: str, bans: Spread) -> None:
        self._broker = broker
        self._bans = bans

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the bans in force."""
        Parameters(request, ())
        return answer(BanList(at=round(time.time(), 3), bans=self._bans.table.live()))

    async def ban(self, request: web.Request) -> web.Response:
        """Ban a client, a user or an address."""
        order = await _order(request)
        name = _named(order.kind, order.name)
        until = None if order.seconds is None else round(time.time() + order.seconds, 3)
        return await self._spread(request, Ban(
            kind=order.kind, name=name, until=until, reason=order.reason, at=self._stamp(order.kind, name),
            by=_by(request), broker=self._broker,
        ))  # fmt: skip

    async def lift(self, request: web.Request) -> web.Response:
        """End a ban before its time."""
        Parameters(request, ())
        kind, name = request.match_info["kind"], request.match_info["name"]
        if kind not in KINDS:
            raise ProblemError(400, "Bad ban", f"one of {', '.join(KINDS)}", field="kind")
        name = _named(kind, name)
        known = self._bans.table.get(kind, name)
        if known is None:
            raise ProblemError(404, "No such ban", f"the {kind} {name!r} is not banned")
        lifted = msgspec.structs.replace(
            known, lifted=True, at=self._stamp(kind, name), by=_by(request), broker=self._broker
        )
        return await self._spread(request, lifted)

    def _stamp(self, kind: str, name: str) -> float:
        """Return a time for a change, in seconds since 1970, which is later than the ban's last change."""
        known = [ban.at for ban in self._bans.table.all() if ban.key == (kind, name)]
        return round(max([time.time(), *[at + 0.001 for at in known]]), 3)

    async def _spread(self, request: web.Request, ban: Ban) -> web.Response:
        """Send a change to all brokers, record it, and answer with a `Banned`. Raises `ProblemError`: 503 if all
        brokers refuse, 504 if none answers in time."""
        before = self._bans.table.get(ban.kind, ban.name)
        answers = await answers_to(lambda done: self._bans.order(ban, done))
        counts = [count for _, (_, count) in answers.of(tuple[str, int])]
        faults = [each.error for each in answers if each.error is not None]
        if not counts and faults:
            raise ProblemError(503, "Not banned", faults[0])
        changed(
            request,
            subject=f"{ban.kind} {ban.name}",
            before=None if before is None else before.terms(),
            after=None if ban.lifted else ban.terms(),
            change=ban.at,
        )
        complete = answers.complete and not faults
        return answer(Banned(ban=ban, brokers=len(counts), disconnected=sum(counts), complete=complete))


def _by(request: web.Request) -> str:
    return request[VISITOR].user or ""


def _named(kind: str, name: str) -> str:
    """Return the name in the form in which it is kept. Raises `ProblemError` for an invalid address."""
    try:
        return named(kind, name)
    except ValueError as error:
        raise ProblemError(400, "Bad ban", str(error), field="name") from None


async def _order(request: web.Request) -> BanOrder:
    """Return the order in the request's body. Raises `ProblemError` if it is too large or invalid."""
    Parameters(request, ())
    body = await request.read()
    if len(body) > LARGEST:
        raise ProblemError(413, "Too large", f"an order has {LARGEST} bytes at most")
    try:
        return msgspec.json.decode(body, type=BanOrder)
    except msgspec.MsgspecError as error:
        raise ProblemError(400, "Bad ban", str(error)) from None
