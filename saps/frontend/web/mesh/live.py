"""Serves ``/v1/live``: pushes the state of the mesh over a WebSocket, first all of it, then the changes.

One loop gathers states for all watchers, and only while there are any. A slow watcher gets fewer updates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError
from aiohttp.http import WSCloseCode, WSMsgType

from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.mesh.mesh import Snapshots
from saps.frontend.web.mesh.network import DecisionView, NetworkView
from saps.frontend.web.mesh.report import State

logger = logging.getLogger(__name__)

INTERVAL = 2.0
"""Seconds between two states."""
HEARTBEAT = 30.0
"""Seconds between two pings; a watcher that does not answer is disconnected."""


class News(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One update: the whole state if `full` is set, else the changes. Rows replace those with the same key: brokers by
    ``name``, topics by ``topic``."""

    at: float
    """Time of the state, in seconds since 1970; 0 if there is none yet, only a `fault`."""
    seen_from: str
    complete: bool
    topics_total: int
    full: bool = False
    brokers: list[Any] = []
    topics: list[Any] = []
    brokers_gone: list[str] = []
    away: Any = None
    """All brokers that are away; None if unchanged."""
    events: Any = None
    """The latest broker events; None if unchanged."""
    topics_gone: list[str] = []
    network: Any = None
    """The OpenFlow network; None if unchanged."""
    decisions: Any = None
    """The decisions; None if unchanged."""
    fault: str | None = None
    """The reason why there is no newer state."""


class Picture:
    """A state of the mesh, with its rows by key."""

    __slots__ = ("brokers", "decisions", "network", "state", "topics")

    def __init__(self, state: State, network: Any, decisions: Any) -> None:
        self.state = state
        self.network = network
        self.decisions = decisions
        self.brokers = {broker.name: broker for broker in state.brokers}
        self.topics = {row.topic: row for row in state.topics}


def news(before: Picture | None, now: Picture) -> News:
    """Return the update for a watcher that has seen `before`; None for a new watcher."""
    state = now.state
    told = News(
        at=state.at,
        seen_from=state.seen_from,
        complete=state.complete,
        topics_total=state.topics_total,
        full=before is None,
        brokers=state.brokers,
        topics=state.topics,
        away=state.away,
        events=state.events,
        network=now.network,
        decisions=now.decisions,
    )
    if before is None:
        return told
    return msgspec.structs.replace(
        told,
        brokers=[row for name, row in now.brokers.items() if before.brokers.get(name) != row],
        topics=[row for name, row in now.topics.items() if before.topics.get(name) != row],
        brokers_gone=[name for name in before.brokers if name not in now.brokers],
        topics_gone=[name for name in before.topics if name not in now.topics],
        away=state.away if state.away != before.state.away else None,
        events=state.events if state.events != before.state.events else None,
        network=now.network if now.network != before.network else None,
        decisions=now.decisions if now.decisions != before.decisions else None,
    )


def _encoded(before: Picture | None, now: Picture | None, fault: str | None) -> bytes:
    """Return the update as JSON. Takes some milliseconds for 10,000 topics, so it must not run in the event loop.
    `now`: None before the first state."""
    if now is None:
        return msgspec.json.encode(News(at=0.0, seen_from="", complete=False, topics_total=0, fault=fault))
    return msgspec.json.encode(msgspec.structs.replace(news(before, now), fault=fault))


class Live:
    """Sends updates to all watchers."""

    def __init__(self, mesh: Snapshots, network: NetworkView, decisions: DecisionView) -> None:
        self._mesh = mesh
        self._network = network
        self._decisions = decisions
        self._watchers: set[web.WebSocketResponse] = set()
        self._loop: asyncio.Task[None] | None = None
        self._picture: Picture | None = None
        self._fault: str | None = None
        self._turn = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one watcher, from its request to the end of its WebSocket."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise ProblemError(426, "WebSocket only", "this address takes WebSockets only")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=4096)
        await socket.prepare(request)
        self._watchers.add(socket)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._watch())
        telling = asyncio.create_task(self._tell(socket))
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
        finally:
            self._watchers.discard(socket)
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        return socket

    async def close(self) -> None:
        """Stop gathering states, and close all WebSockets."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        for socket in list(self._watchers):
            await socket.close(code=WSCloseCode.GOING_AWAY)

    async def _watch(self) -> None:
        while self._watchers:
            try:
                network = await self._network.now()
                decisions = await self._decisions.now()
                self._picture = Picture(await self._mesh.state(), network, decisions)
                self._fault = None
            except ProblemError as error:
                self._fault = f"{error.problem.title}: {error.problem.detail}"
            except Exception:
                logger.exception("cannot get the state of the mesh")
                self._fault = "internal error"
            async with self._turn:
                self._turn.notify_all()
            await asyncio.sleep(INTERVAL)
        self._picture = self._fault = None

    async def _tell(self, socket: web.WebSocketResponse) -> None:
        seen: Picture | None = None
        with contextlib.suppress(ClientConnectionResetError, ConnectionError):
            while True:
                picture = self._picture
                if picture is not seen or self._fault is not None:
                    await socket.send_bytes(await asyncio.to_thread(_encoded, seen, picture, self._fault))
                    seen = picture
                async with self._turn:
                    if picture is self._picture:
                        await self._turn.wait()
