"""Serves the northbound over HTTP (aiohttp): answers OFGate for a controller."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import hdrs, web

from saps.frontend.mqtt.access.origin import is_loopback
from saps.frontend.web.http.metrics import Metrics, Sample
from saps.ofm.controller.events import Intent
from saps.ofm.controller.leader_election import ElectionState
from saps.ofm.northbound.driver.metrics import samples
from saps.ofm.northbound.driver.pair import PATH, STATE_PATH
from saps.ofm.northbound.openapi import document
from saps.ofm.northbound.requests import intent_fault
from saps.ofm.northbound.schema import (
    Changes,
    DecodedAddress,
    OfmIntent,
    OfmState,
    OfmStats,
    PortTraffic,
    Problem,
    Status,
    SwitchBudget,
)
from saps.ofm.openflow.errors import ChannelError
from saps.ofm.stateless.address import Receivers, parse
from saps.runtime.http import has_token, problem_response
from saps.topics import topic_fault
from saps.version import __version__

if TYPE_CHECKING:
    from saps.identity.https import Visitors

logger = logging.getLogger(__name__)

LONGEST_WAIT = 60.0
"""Longest wait of one request in seconds."""
LONGEST_LINE = 256 << 10
"""Longest request line in bytes: a topic of 64 KiB, every byte percent-encoded."""
LARGEST_BODY = 4 << 20
"""Largest body in bytes: some 50,000 brokers."""
OPEN = ("/openapi.json", "/healthz")
"""Paths that need no token."""
SHUTDOWN = 1.0
"""Seconds that requests under way get when the server stops."""

T = TypeVar("T")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(Protocol):
    """The interface of the controller that the northbound uses (`service.ControllerService`)."""

    async def intent(self, topic: str, intent: Intent | None, wait: float = 0.0) -> OfmState: ...
    async def state(self, topic: str, wait: float = 0.0) -> OfmState: ...
    def states(self) -> list[OfmState]: ...
    async def changes(self, run: str, after: int, wait: float = 0.0) -> Changes: ...
    def budgets(self) -> list[SwitchBudget]: ...
    async def stats(self, topic: str) -> OfmStats: ...
    async def ports(self) -> list[PortTraffic]: ...
    def picture(self) -> dict[str, Any]: ...
    def decoded(self, named: Receivers, sender: str | None) -> DecodedAddress: ...


class OfPair(Protocol):
    """The interface of one controller of a pair, for the other one and for clients that look for the master
    (`pair.PeerClient`)."""

    async def election(self, run: str, revision: int, wait: float) -> ElectionState: ...
    def saved(self) -> bytes: ...


class ProblemError(Exception):
    """A request that is answered by a problem."""

    def __init__(self, status: int, title: str, detail: str | None = None, **more: Any) -> None:
        super().__init__(title)
        self.problem = Problem(status=status, title=title, detail=detail, **more)


class NorthboundServer:
    """The northbound's HTTP server. It listens from `start` to `close`."""

    def __init__(
        self,
        asked: Asked,
        *,
        ip_version: int,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        pair: OfPair | None = None,
        visitors: Visitors | None = None,
    ) -> None:
        """`token` must come with each request, unless its connection shows a certificate that `tls` accepts. `pair` is
        for a controller that is one of two. `visitors` checks a certificate further."""
        self._visitors = visitors
        self._asked = asked
        self._ip_version = ip_version
        self._token = token.encode()
        self._tls = tls
        self._document = msgspec.json.encode(document(__version__, pair=pair is not None))
        app = web.Application(middlewares=[self._guard], client_max_size=LARGEST_BODY)
        topic = "/v1/ofms/{topic}"
        app.add_routes(
            [
                web.get("/openapi.json", self._openapi),
                web.get("/healthz", self._alive),
                web.get("/metrics", Metrics(self._samples, {"version": __version__}).handle),
                web.get("/v1/ofms", self._list),
                web.get(topic, self._get),
                web.put(topic, self._put),
                web.delete(topic, self._delete),
                web.get(topic + "/stats", self._stats),
                web.get("/v1/changes", self._changes),
                web.get("/v1/topology", self._topology),
                web.get("/v1/budgets", self._budgets),
                web.get("/v1/ports", self._ports),
                web.get("/v1/addresses/{address}", self._address),
                *(
                    []
                    if pair is None
                    else [web.get(PATH, partial(_word, pair)), web.get(STATE_PATH, partial(_saved, pair))]
                ),
            ]
        )
        self._runner = web.AppRunner(
            app, access_log=None, max_line_size=LONGEST_LINE, shutdown_timeout=SHUTDOWN, handle_signals=False
        )

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises `OSError` if the address is not available."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening and end all requests."""
        await self._runner.cleanup()

    # ---- around all requests

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Check the caller's rights, and turn every error into a problem."""
        try:
            self._look_at(request)
            _refuse_pages(request)
            if self._token and request.path not in OPEN:
                self._authenticate(request)
            return await handler(request)
        except ProblemError as error:
            return _answer_problem(error.problem)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return _answer_problem(Problem(status=error.status, title=error.reason), headers)
        except web.RequestPayloadError as error:
            return _answer_problem(Problem(status=400, title="Bad request", detail=str(error)))
        except ChannelError as error:
            return _answer_problem(Problem(status=503, title="A switch does not answer", detail=str(error)))
        except Exception:
            logger.exception("%s %s", request.method, request.path)
            return _answer_problem(Problem(status=500, title="Internal error"))

    def _look_at(self, request: web.Request) -> None:
        """Check the visitor's certificate if there is one. Raises `ProblemError`."""
        if self._visitors is not None and request.get_extra_info("peercert"):
            fault = self._visitors.fault(request.transport)
            if fault is not None:
                raise ProblemError(403, "Forbidden", fault)

    def _authenticate(self, request: web.Request) -> None:
        if request.get_extra_info("peercert"):
            return  # the certificate was checked, also by `visitors`
        if not has_token(request, self._token):
            raise ProblemError(401, "Unauthorized", "send the token as Authorization: Bearer")

    # ---- requests

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._document, content_type="application/json")

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    def _samples(self) -> Iterator[Sample]:
        return samples(self._asked.states(), self._asked.budgets())

    async def _list(self, _request: web.Request) -> web.Response:
        return _answer(self._asked.states())

    async def _get(self, request: web.Request) -> web.Response:
        return _answer(await self._asked.state(_topic(request), _wait(request)))

    async def _put(self, request: web.Request) -> web.Response:
        topic, wait = _topic(request), _wait(request)
        intent = self._intent(await request.read())
        return _answer_state(await self._asked.intent(topic, intent, wait))

    async def _delete(self, request: web.Request) -> web.Response:
        return _answer_state(await self._asked.intent(_topic(request), None, _wait(request)))

    async def _stats(self, request: web.Request) -> web.Response:
        return _answer(await self._asked.stats(_topic(request)))

    async def _changes(self, request: web.Request) -> web.Response:
        return _answer(await self._asked.changes(request.query.get("run", ""), _after(request), _wait(request)))

    async def _topology(self, _request: web.Request) -> web.Response:
        return _answer(self._asked.picture())

    async def _budgets(self, _request: web.Request) -> web.Response:
        return _answer(self._asked.budgets())

    async def _ports(self, _request: web.Request) -> web.Response:
        return _answer(await self._asked.ports())

    async def _address(self, request: web.Request) -> web.Response:
        try:
            return _answer(self._asked.decoded(parse(request.match_info["address"]), request.query.get("from")))
        except ValueError as error:
            raise ProblemError(400, "Bad request", str(error)) from None
        except LookupError as error:
            raise ProblemError(404, "Not found", str(error)) from None

    def _intent(self, body: bytes) -> Intent:
        """Return an intent that can be planned. Raises `ProblemError` for any other body."""
        try:
            intended = msgspec.json.decode(body, type=OfmIntent)
        except msgspec.MsgspecError as error:
            raise ProblemError(400, "Bad request", str(error)) from None
        brokers = frozenset(intended.brokers)
        rate = intended.demand.bits if intended.demand is not None else None
        intent = Intent(brokers, frozenset(intended.senders) - brokers, intended.priority, rate)
        if (fault := intent_fault(intent, self._ip_version)) is not None:
            raise ProblemError(400, "Bad request", fault)
        return intent


def _refuse_pages(request: web.Request) -> None:
    """Refuse requests of web pages. No page needs the northbound, but a browser lets any page ask any address, with the
    rights of its machine. A page whose own name was pointed here (DNS rebinding) sends no `Origin`, but that name as
    `Host`, and has no token. Raises `ProblemError`."""
    if hdrs.ORIGIN in request.headers:
        raise ProblemError(403, "Foreign page", "requests of web pages are refused")
    peer = request.get_extra_info("peername")
    local = isinstance(peer, tuple) and is_loopback(str(peer[0]))
    trusted = hdrs.AUTHORIZATION in request.headers or request.get_extra_info("peercert")
    if local and not trusted and not _is_literal(request.host):
        raise ProblemError(421, "Unknown host", f"the controller is not known as {request.host!a}: ask by IP address")


def _is_literal(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


def _topic(request: web.Request) -> str:
    topic = request.match_info["topic"]
    if (fault := topic_fault(topic)) is not None:
        raise ProblemError(400, "Bad request", fault)
    return topic


def _after(request: web.Request) -> int:
    try:
        return int(request.query.get("after", "0"))
    except ValueError:
        raise ProblemError(400, "Bad request", "after is not a whole number") from None


def _wait(request: web.Request) -> float:
    text = request.query.get("wait", "0")
    try:
        wait = float(text)
    except ValueError:
        wait = math.nan
    if not 0 <= wait <= LONGEST_WAIT:
        raise ProblemError(400, "Bad request", f"wait must be 0 to {LONGEST_WAIT:g} seconds: {text!r}")
    return wait


async def _word(pair: OfPair, request: web.Request) -> web.Response:
    return _answer(await pair.election(request.query.get("run", ""), _after(request), _wait(request)))


async def _saved(pair: OfPair, _request: web.Request) -> web.Response:
    return web.Response(body=pair.saved() or b"null", content_type="application/json")


def _answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _answer_state(state: OfmState) -> web.Response:
    """Answer with a state. Status 200: as intended; 202: under way; 409: refused."""
    if state.status is Status.REFUSED:
        return _answer_problem(Problem(status=409, title="Refused", detail=state.reason, ofm=state))
    return _answer(state, 200 if state.status in (Status.CONSTRUCTED, Status.NONE) else 202)


def _answer_problem(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    more = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return problem_response(problem.status, problem, {**(headers or {}), **more})
