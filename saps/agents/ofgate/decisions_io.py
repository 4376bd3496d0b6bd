"""OFGate's HTTP interface for decisions, described in docs/monitoring.md.

``PUT /v1/decisions`` takes a whole table, ``{"version": 1, "epoch": E, "digest": D, "trees": [{"topic": T, ...},
...]}``: the topics that shall have trees. A topic loses its tree if it is not in the table and the operator has not
ordered it. ``beside`` has the busiest topics without a tree, which OFGate spreads over the planes. The same table again
changes nothing; an older table is refused. ``GET /v1/decisions`` returns the last table, and ``GET /v1/topics`` the
state of each topic, and what each plane is expected to carry.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web

from saps.agents.switchover import TopicStatus
from saps.ofm.northbound.schema import Demand
from saps.runtime.http import has_token, problem_response
from saps.topics import topic_fault

if TYPE_CHECKING:
    from saps.identity.listener import SealedListener
    from saps.identity.live import LinkIdentity

logger = logging.getLogger(__name__)

CHANGE = 0.2
"""Relative change of a topic's bit/s after which the controller is told the demand again. A smaller share makes more
requests."""
LARGEST = 64 << 20
"""Most bytes of a table: some 200,000 trees."""


class Tree(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic that shall have a tree."""

    topic: str
    saving: float = 0.0
    cost: float = 0.0
    since: int = 0
    reason: str = ""
    rate: float | None = None
    """Expected messages a second."""
    size: float = 0.0
    """Mean size of a message's payload in bytes; 0 if unknown."""
    saved: float = 0.0
    predicted: float = 0.0
    """Predicted saving in bytes between clusters since the tree was built; `saved` is the measured one."""

    @property
    def demand(self) -> Demand | None:
        """The expected demand of the topic. None if the table does not say it."""
        return None if self.rate is None else _expected(self.rate, self.size)


class Beside(msgspec.Struct, frozen=True):
    """A busy topic without a tree: one that leaves by a plane, if at all by OFM."""

    topic: str
    rate: float
    """Expected messages a second."""
    size: float = 0.0
    """Mean size of a message's payload in bytes; 0 if unknown."""

    @property
    def load(self) -> float:
        """Expected bytes a second."""
        return _expected(self.rate, self.size).bits / 8


class Revoked(msgspec.Struct, frozen=True):
    """A topic whose tree is taken back, because the tree kept missing its prediction."""

    topic: str
    reason: str


class Job(msgspec.Struct, frozen=True):
    """The state of the deciding job, for the operator's page: sums since the job's start, times in seconds since
    1970."""

    batches: float = 0.0
    failures: float = 0.0
    rows: float = 0.0
    late: float = 0.0
    waiting: float = 0.0
    """Files in the job's inbox."""
    bad_files: float = 0.0
    bad_rows: float = 0.0
    window: float = 0.0
    """Length of a window in seconds."""
    closed: float = 0.0
    """Time up to which all windows are closed."""
    decided: float = 0.0
    """Time of the latest table."""
    saved: float = 0.0
    predicted: float = 0.0
    """Predicted saving in bytes between clusters, over all trees so far; `saved` is the measured one."""


class Decisions(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table of decisions."""

    version: int
    epoch: int
    """Time of the table in ms since 1970: of two tables the later has the greater epoch."""
    digest: str
    trees: list[Tree]
    revoked: list[Revoked] = []
    job: Job | None = None
    beside: list[Beside] = []


class Gate(Protocol):
    """The part of OFGate that the interface needs (`saps.agents.ofgate.program.gateway.Gateway`)."""

    def leads(self) -> bool: ...

    async def exploit(self, topic: str) -> TopicStatus | None: ...

    def release(self, topic: str) -> TopicStatus | None: ...

    def remeasure(self, topic: str) -> None: ...

    def spread(self, loads: dict[str, float]) -> None: ...

    def wanted(self) -> set[str]: ...

    def describe(self) -> dict[str, Any]: ...


class StaleError(Exception):
    """The table is older than the one in force, or differs from it at the same epoch."""


class DecisionHandler:
    """Carries out tables. `pinned` returns the topics that the operator has ordered."""

    def __init__(self, gate: Gate, pinned: Callable[[], set[str]]) -> None:
        self._gate = gate
        self._pinned = pinned
        self.table: Decisions | None = None
        """The last table."""
        self.repeated = 0
        """Count of repeated tables."""
        self._demands: dict[str, Demand] = {}
        """Topic -> expected demand in the last table."""
        self._told: dict[str, Demand] = {}
        """Topic -> demand that the controller was last told."""

    async def take(self, table: Decisions) -> dict[str, Any]:
        """Carry out a table. Returns the topics to ``build`` and to ``drop``. Raises `StaleError`."""
        last = self.table
        if last is not None and (table.epoch, table.digest) == (last.epoch, last.digest):
            self.repeated += 1
        elif last is not None and table.epoch <= last.epoch:
            raise StaleError(f"epoch {table.epoch} is not after {last.epoch}, which is in force")
        self.table = table
        self._demands = {tree.topic: tree.demand for tree in table.trees if tree.demand is not None}
        for topic in [topic for topic in self._told if topic not in self._demands]:
            del self._told[topic]
        for topic, told in self._told.items() if self._gate.leads() else ():
            if abs(self._demands[topic].bits - told.bits) > CHANGE * told.bits:
                self._gate.remeasure(topic)
        self._gate.spread({each.topic: each.load for each in table.beside})
        return await self.carry_out()

    def demand(self, topic: str) -> Demand | None:
        """Return the expected demand of a topic, and note it as told: the caller passes it to the controller now."""
        demand = self._demands.get(topic)
        if demand is not None:
            self._told[topic] = demand
        return demand

    async def carry_out(self) -> dict[str, Any]:
        """Build the trees of the last table and the pinned ones, and drop all others. Without a table all trees stay.
        Returns the topics to ``build`` and to ``drop``. Call this again now and then: OFGate may not have led at first,
        or a topic may have had no subscriber."""
        if not self._gate.leads():
            return {"build": [], "drop": []}
        pinned, has = self._pinned(), self._gate.wanted()
        decided = {tree.topic for tree in self.table.trees} if self.table is not None else has
        build, drop = sorted((decided | pinned) - has), sorted(has - decided - pinned)
        for topic in drop:
            self._gate.release(topic)
        for topic in build:
            await self._gate.exploit(topic)
        if build or drop:
            source = f"decisions of epoch {self.table.epoch}" if self.table is not None else "orders"
            logger.info("%s: %d trees to build, %d to drop", source, len(build), len(drop))
        return {"build": build, "drop": drop}


class DecisionServer:
    """The HTTP server of the decisions, from `start` to `close`."""

    def __init__(
        self,
        request_handler: DecisionHandler,
        gate: Gate,
        token: str = "",
        identity: LinkIdentity | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """`token` is what requests must carry as ``Authorization: Bearer``; an empty token asks for nothing. With an
        `identity` the interface is HTTPS, and a client must show a certificate of the mesh. If there are `names`, the
        certificate must have one of them."""
        self._identity = identity
        self._names = names
        self._listener: SealedListener | None = None
        self._request_handler = request_handler
        self._gate = gate
        self._token = token.encode()
        app = web.Application(client_max_size=LARGEST, middlewares=[self._guard])
        app.add_routes(
            [
                web.put("/v1/decisions", self._put),
                web.get("/v1/decisions", self._get),
                web.get("/v1/topics", self._topics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handle_signals=False)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises `OSError` if the address is not available."""
        await self._runner.setup()
        if self._identity is not None:
            assert self._runner.server is not None
            self._listener, port = await self._identity.listen(self._runner.server, host, port)
            return port
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._identity is not None:
            fault = self._identity.visitor_fault(request.transport, self._names)
            if fault is not None:
                return _problem(403, fault)
        if self._token and not has_token(request, self._token):
            return _problem(401, "send the token as Authorization: Bearer")
        try:
            return await handler(request)
        except web.RequestPayloadError as error:
            return _problem(400, str(error))

    async def _put(self, request: web.Request) -> web.Response:
        try:
            table = msgspec.json.decode(await request.read(), type=Decisions)
        except msgspec.MsgspecError as error:
            return _problem(400, str(error))
        if table.version != 1:
            return _problem(400, f"version {table.version} is not known, only 1")
        topics = [*(tree.topic for tree in table.trees), *(each.topic for each in table.beside)]
        faults = ((topic, topic_fault(topic)) for topic in topics)
        bad = next((f"{topic!r}: {fault}" for topic, fault in faults if fault is not None), None)
        if bad is not None:
            return _problem(400, bad)
        if not self._gate.leads():
            return _problem(503, "another OFGate leads, or none yet")
        try:
            return _answer(await self._request_handler.take(table))
        except StaleError as error:
            return _problem(409, str(error))

    async def _get(self, _request: web.Request) -> web.Response:
        return _answer(self._request_handler.table)

    async def _topics(self, _request: web.Request) -> web.Response:
        return _answer(self._gate.describe())


def _expected(rate: float, size: float) -> Demand:
    """Return the demand of a topic with this rate and size, as in `Tree`."""
    messages = max(rate, 0.0)
    return Demand(messages=messages, size=size) if size > 0 else Demand(messages=messages)


def _answer(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _problem(status: int, detail: str) -> web.Response:
    return problem_response(status, {"status": status, "detail": detail})
