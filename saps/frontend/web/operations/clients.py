"""Serves ``/v1/clients``: queries for clients in the mesh, the details of a client, and orders to disconnect it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from saps.agents.api import Answers
from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.parameters import Parameters, check_filter
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import VISITOR, changed
from saps.operations.clients import CLIENTS, MOST_STARS
from saps.operations.rates import SHORTEST
from saps.operations.roles import Role
from saps.operations.values import (
    MOST_CLIENTS,
    SORTS,
    Client,
    ClientList,
    ClientRow,
    Disconnected,
    MessageRow,
    Question,
    cursor,
    order,
    place,
    unpacked,
)
from saps.topics import subscription_fault

Call = Callable[..., Awaitable[Answers]]
"""Calls agents by name (`saps.frontend.web.mesh.mesh.Mesh.call`)."""
STATES = {"connected": True, "away": False}
PARAMETERS = ("search", "client", "user", "address", "broker", "filter", "state", "sort", "limit", "after")


class ClientRoutes:
    """Handles requests for clients of the whole mesh at one broker."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def find(self, request: web.Request) -> web.Response:
        """Answer with one page of the clients that match the query."""
        broker, question = _question(request)
        found = await self._find(broker, question)
        if question.sort in ("rate", "delivered") and any(row.published_rate is None for row in found.clients):
            await asyncio.sleep(SHORTEST)  # rates need a second request
            found = await self._find(broker, question)
        return answer(found)

    async def _find(self, broker: str, question: Question) -> ClientList:
        wanted = msgspec.structs.replace(question, limit=question.limit + 1)  # one more shows if there is a next page
        answers = await self._call(f"{broker}!{CLIENTS}", "find", msgspec.to_builtins(wanted))
        if broker and not answers:
            raise ProblemError(404, "No such broker", f"{broker!r} does not answer", field="broker")
        total, rows = 0, list[ClientRow]()
        for _, (count, values) in answers.of(tuple[int, list[Any]]):
            total += count
            rows += unpacked(values)
        rows.sort(key=lambda row: order(row, question.sort))
        shown = rows[: question.limit]
        more = cursor(shown[-1], question.sort) if shown and len(rows) > len(shown) else None
        return ClientList(at=round(time.time(), 3), complete=answers.whole, total=total, clients=shown, next=more)

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the details of one client; viewers get no payloads."""
        Parameters(request, ())
        found = await self._client(request.match_info["client"])
        return answer(found if request[VISITOR].role >= Role.OPERATOR else _without_payloads(found))

    async def _client(self, name: str) -> Client:
        """Return the details of a client. Of several sessions, a connected one counts, then the latest. Raises
        `ProblemError` (404) if no broker has a session."""
        answers = await self._call(f"!{CLIENTS}", "describe", name)
        found = [client for _, client in answers.of(Client)]
        if not found:
            unsure = "" if answers.complete else ", but not all brokers have answered"
            raise ProblemError(404, "No such client", f"no broker has a session of {name!r}{unsure}")
        return max(found, key=lambda client: (client.row.connected, client.row.since))

    async def disconnect(self, request: web.Request) -> web.Response:
        """Close the client's connection, and with ``?session=end`` end its session."""
        end = _choice(Parameters(request, ("session",)), "session", {"keep": False, "end": True}) or False
        name = request.match_info["client"]
        answers = await self._call(f"!{CLIENTS}", "disconnect", name, end)
        for _, (broker, connected, ended) in answers.of(tuple[str, bool, bool]):
            changed(request, before={"broker": broker, "connected": connected}, after={"session_ended": ended})
            return answer(Disconnected(client=name, broker=broker, connected=connected, session_ended=ended))
        raise ProblemError(404, "No such client", f"no broker has a session of {name!r}")


def _question(request: web.Request) -> tuple[str, Question]:
    """Return the broker to ask (empty for all) and the query in a request. Raises `ProblemError`."""
    asked = Parameters(request, PARAMETERS)
    topic_filter, sort = asked.get("filter"), asked.text("sort") or "client"
    check_filter(topic_filter, subscription_fault)
    if sort not in SORTS:
        raise ProblemError(400, "Bad parameter", f"one of {', '.join(SORTS)}", field="sort")
    for name in ("client", "user", "address"):
        if asked.text(name).count("*") > MOST_STARS:
            raise ProblemError(400, "Bad parameter", f"at most {MOST_STARS} stars", field=name)
    limit, after = asked.number("limit", MOST_CLIENTS), asked.get("after")
    try:
        begin = None if after is None else place(after, sort)
    except ValueError as error:
        raise ProblemError(400, "Bad parameter", str(error), field="after") from None
    return asked.text("broker"), Question(
        search=asked.text("search"),
        client=asked.get("client"),
        user=asked.get("user"),
        address=asked.get("address"),
        topic_filter=topic_filter,
        connected=_choice(asked, "state", STATES),
        sort=sort,
        limit=100 if limit is None else limit,
        after=begin,
    )


def _without_payloads(client: Client) -> Client:
    """Return the client without the payloads of its messages."""

    def bare(rows: list[MessageRow]) -> list[MessageRow]:
        return [msgspec.structs.replace(row, text="") for row in rows]

    will = None if client.will is None else msgspec.structs.replace(client.will, text="")
    return msgspec.structs.replace(client, will=will, inflight=bare(client.inflight), queue=bare(client.queue))


def _choice(asked: Parameters, name: str, choices: dict[str, Any]) -> Any:
    """Return the value of the word given for a parameter, or None if it is not given. Raises `ProblemError` for a word
    that is not among the `choices`."""
    word = asked.get(name)
    if word is not None and word not in choices:
        raise ProblemError(400, "Bad parameter", f"one of {', '.join(choices)}", field=name)
    return None if word is None else choices[word]
