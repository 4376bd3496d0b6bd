"""Doors for programs (targets ``northbound``, ``decisions``): the controller's, and OFGate's for decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from saps.agents.ofgate.decisions_io import DecisionHandler, Decisions, DecisionServer
from saps.agents.ofgate.decisions_io import Tree as DecidedTree
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.server import NorthboundServer
from saps.ofm.northbound.schema import Demand, OfmIntent
from tests.fuzzing.http import Visit, request
from tests.fuzzing.pipes import play
from tests.fuzzing.supply import Builder, Supply
from tests.fuzzing.target import Target
from tests.ofm.controller.worlds import rules

BROKERS = [BrokerAddress(f"10.0.0.{i}", f"02:00:00:00:00:0{i}", 7000 + i) for i in range(1, 5)]
TEXTS = [
    "a/b",
    "10.0.0.1",
    "02:00:00:00:00:01",
    "::1",
    "fd00::1",
    "a/#",
    "",
    "\0",
    "x" * 70_000,
    "ffffffffffff",
    "239.0.0.1",
    "0.0.0.0",
    "not an address",
    "é",
]
NAMES = ["wait", "run", "after", "topic", "x", "wait[]"]
VALUES = ["0", "1", "60", "61", "-1", "nan", "inf", "1e400", "9" * 5000, "%00", "%ff", "x", "", "0x1", "\u0661"]
HEADERS = [
    "Authorization: Bearer token",
    "Authorization: Bearer",
    "Authorization: Basic eA==",
    "Content-Type: application/json",
    "Transfer-Encoding: chunked",
    "Content-Encoding: gzip",
    "Content-Encoding: deflate",
    "Expect: 100-continue",
    "Connection: close",
    "Content-Length: 5",
    "Range: bytes=1-2",
    "Upgrade: websocket",
    "Accept-Encoding: gzip",
    "Authorization: Bearer \xff\xe9",
]


def bodies(kind: Any, pools: dict[Any, list[Any]]) -> Callable[[Supply], bytes]:
    """JSON of a type, JSON that is not, and other bytes."""
    described = msgspec.inspect.type_info(kind)

    def body(supply: Supply) -> bytes:
        match supply.byte() % 4:
            case 0:
                return b""
            case 1:
                return supply.chunk()
            case _:
                try:
                    value = Builder(supply, TEXTS, [b"x"], pools).build(described)
                except ValueError:
                    return b"{}"  # what its own type refuses to be
                whole = msgspec.json.encode(value)
                if supply.byte() % 4 == 0:
                    at = supply.byte() % len(whole)
                    return whole[:at] + supply.chunk() + whole[at + 1 :]
                return whole

    return body


def _protocol(runner: web.AppRunner) -> asyncio.Protocol:
    """Of a new connection."""
    assert runner.server is not None
    return runner.server()


async def _visits(
    supply: Supply, handler: Callable[[], Any], piece: Callable[[], bytes], check: Callable[[Visit], Awaitable[None]]
) -> None:
    visits = [Visit(handler)]
    while supply:
        which = supply.byte()
        if visits[-1].pipe.closed or which > 240:
            visits.append(Visit(handler))
        await visits[-1 - which % min(2, len(visits))].say(supply.chunk() if which % 16 == 9 else piece())
    await check(Visit(handler))


async def _northbound(supply: Supply) -> None:
    token = "token" if supply.byte() % 4 == 3 else ""
    service = ControllerService(Controller(rules()), grace=1.0)
    server = NorthboundServer(service, ip_version=4, token=token)
    await server._runner.setup()
    body = bodies(OfmIntent, {BrokerAddress: BROKERS})
    paths = ["/v1/ofms", "/v1/ofms/a%2Fb", "/v1/ofms/", "/v1/changes", "/v1/topology", "/v1/budgets", "/v1/ports"]
    paths += ["/v1/ofms/a%2Fb/stats", "/openapi.json", "/", "//", "/v1/ofms/%23", "/v1/ofms/%00", "/v1/ofms/%FF%FE"]
    methods = ["GET", "PUT", "DELETE", "POST", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT"]

    async def check(visit: Visit) -> None:
        assert await visit.say(
            b"GET /v1/ofms HTTP/1.1\r\nHost: 127.0.0.1:2\r\nAuthorization: Bearer token\r\n\r\n"
        ) == [200]

    await _visits(
        supply,
        partial(_protocol, server._runner),
        lambda: request(supply, methods, paths, NAMES, VALUES, HEADERS, body),
        check,
    )
    await service.close()


class Gate:
    """What the door wants of OFGate: it has the trees that it is told to have."""

    def __init__(self) -> None:
        self.topics: set[str] = set()

    def leads(self) -> bool:
        return True

    async def exploit(self, topic: str) -> None:
        self.topics.add(topic)

    def release(self, topic: str) -> None:
        self.topics.discard(topic)

    def remeasure(self, topic: str) -> None:
        pass

    def spread(self, loads: dict[str, float]) -> None:
        assert all(load >= 0 for load in loads.values())

    def wanted(self) -> set[str]:
        return set(self.topics)

    def describe(self) -> dict[str, Any]:
        return {"topics": sorted(self.topics)}


async def _decisions(supply: Supply) -> None:
    gate = Gate()
    request_handler = DecisionHandler(gate, set)
    door = DecisionServer(request_handler, gate, "token" if supply.byte() % 4 == 3 else "")
    await door._runner.setup()
    trees = [DecidedTree("a/b", rate=5.0), DecidedTree("a/c", 1.0, 2.0, 3, "why")]
    body = bodies(Decisions, {DecidedTree: trees, Demand: []})
    paths = ["/v1/decisions", "/v1/topics", "/", "/v1/decisions/"]

    async def check(visit: Visit) -> None:
        for path in (b"decisions", b"topics"):
            answer = await visit.say(
                b"GET /v1/%s HTTP/1.1\r\nHost: 127.0.0.1:2\r\nAuthorization: Bearer token\r\n\r\n" % path
            )
            assert answer == [200]
        for topic in ("a/b", "a/c"):
            request_handler.demand(topic)

    await _visits(
        supply,
        partial(_protocol, door._runner),
        lambda: request(supply, ["PUT", "GET", "DELETE"], paths, NAMES, VALUES, HEADERS, body),
        check,
    )


def fuzz_northbound(data: bytes) -> None:
    """No request is an internal error, and the next visitor is answered."""
    play(_northbound(Supply(data)))


def fuzz_decisions(data: bytes) -> None:
    """The same for the door for decisions."""
    play(_decisions(Supply(data)))


def seeds() -> list[bytes]:
    """Requests of every method, to every path, with the first parameters and headers."""
    found = [
        bytes((0, 0, path, 1, 1, path % 6, path % 15, method, 1, path, 2)) + bytes(range(5, 30))
        for path in range(14)
        for method in range(4)
    ]
    return [*found, b"".join(found[::7])]


TARGETS = [
    Target("northbound", "who asks the controller by HTTP", fuzz_northbound, seeds, timeout=2.0),
    Target("decisions", "who brings OFGate decisions by HTTP", fuzz_decisions, seeds, timeout=2.0),
]
