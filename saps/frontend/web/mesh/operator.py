"""Serves ``/v1/brokers``, ``/v1/topics``, ``/v1/trees``, ``/v1/trace/{topic}``, ``/v1/addresses/{address}`` and
``/v1/decisions`` for operators."""

from __future__ import annotations

from aiohttp import web

from saps.frontend.web.clients.topics import answer, topic_of
from saps.frontend.web.http.parameters import Parameters, check_filter
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.mesh.mesh import Snapshots
from saps.frontend.web.mesh.network import DecisionView, NetworkView
from saps.frontend.web.mesh.report import MODES, MOST_ROWS, SORTS, Brokers, Forgotten, TopicList, TopicRow
from saps.ofm.stateless.address import parse
from saps.topics import matches


class Operator:
    """Handles operators' requests at one broker. The handlers raise `ProblemError`."""

    def __init__(self, mesh: Snapshots, network: NetworkView, decisions: DecisionView) -> None:
        self._mesh = mesh
        self._network = network
        self._decisions = decisions

    async def brokers(self, request: web.Request) -> web.Response:
        """Answer with all brokers, those that are away, and the latest broker events."""
        Parameters(request, ())
        state = await self._mesh.state()
        return answer(
            Brokers(
                at=state.at,
                seen_from=state.seen_from,
                complete=state.complete,
                brokers=state.brokers,
                away=state.away,
                events=state.events,
            )
        )

    async def forget(self, request: web.Request) -> web.Response:
        """Make all brokers forget a broker that is away."""
        Parameters(request, ())
        name = request.match_info["broker"]
        await self._mesh.forget(name)
        return answer(Forgotten(forgotten=name))

    async def topics(self, request: web.Request) -> web.Response:
        """Answer with the topics that match the query, in the order requested."""
        asked = Parameters(request, ("search", "filter", "mode", "sort", "limit"))
        limit, wanted = asked.number("limit", MOST_ROWS), asked.get("filter")
        sort, mode, search = asked.text("sort") or "rate", asked.get("mode"), asked.text("search").lower()
        if sort not in SORTS:
            raise ProblemError(400, "Bad parameter", f"one of {', '.join(SORTS)}", field="sort")
        if mode is not None and mode not in MODES:
            raise ProblemError(400, "Bad parameter", f"one of {', '.join(MODES)}", field="mode")
        check_filter(wanted)
        await self._network.now()
        state = await self._mesh.state()
        rows = [row for row in state.topics if (mode is None or row.mode == mode) and search in row.topic.lower()]
        if wanted is not None:
            rows = [row for row in rows if matches(wanted, row.topic)]
        rows.sort(key=lambda row: _order(row, sort))
        shown = rows[: 1000 if limit is None else limit]
        return answer(TopicList(at=state.at, complete=state.complete, total=len(rows), topics=shown))

    async def trees(self, request: web.Request) -> web.Response:
        """Answer with the OpenFlow network."""
        Parameters(request, ())
        return answer(await self._network.now())

    async def trace(self, request: web.Request) -> web.Response:
        """Answer with the way of a message to the topic."""
        asked = Parameters(request, ("from",))
        return answer(await self._mesh.trace(topic_of(request), asked.get("from")))

    async def address(self, request: web.Request) -> web.Response:
        """Answer with what an address of stateless delivery means."""
        asked = Parameters(request, ("from",))
        try:
            named = parse(request.match_info["address"])
        except ValueError as error:
            raise ProblemError(400, "Bad address", str(error), field="address") from None
        brokers = (await self._mesh.state()).brokers
        elements = {row.name: row.ofm for row in brokers if row.ofm is not None}
        return answer(await self._network.decoded(named, elements, asked.get("from")))

    async def decisions(self, request: web.Request) -> web.Response:
        """Answer with the decisions about trees."""
        Parameters(request, ())
        return answer(await self._decisions.now())


def _order(row: TopicRow, sort: str) -> tuple[float, str]:
    match sort:
        case "rate":
            return -row.rate, row.topic
        case "subscribers":
            return -row.subscribers, row.topic
        case "latency":
            return -(row.latency[1] if row.latency is not None else -1.0), row.topic
        case _:
            return 0.0, row.topic
