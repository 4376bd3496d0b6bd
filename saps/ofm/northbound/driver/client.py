"""Lets OFGate ask the controller. `Northbound` is any controller's interface; `Client` speaks to `saps controller`.

async with Client("http://127.0.0.1:8181", token="...") as ofc:
    state = await ofc.put(OfmRequest("alert/fire", brokers), wait=2.0)
    if state.status is Status.CONSTRUCTED:
        publishers_send_to(state.address)
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from saps.ofm.network.topology import Topology
from saps.ofm.northbound.schema import (
    STANDBY,
    Changes,
    DecodedAddress,
    OfmRequest,
    OfmState,
    OfmStats,
    PortTraffic,
    Problem,
    Status,
    SwitchBudget,
)
from saps.ofm.stateless.address import Receivers

TIMEOUT = 10.0
"""Timeout in seconds of a request that does not ask to wait."""
LONG_POLL = 25.0
"""Seconds that one request of `watch` waits for a change. Less than the usual idle timeout of middleboxes."""

T = TypeVar("T")
States: TypeAlias = list[OfmState]
Budgets: TypeAlias = list[SwitchBudget]
Ports: TypeAlias = list[PortTraffic]
AddrInfo: TypeAlias = tuple[int, int, int, str, Any]
"""An address to connect to, as `socket.getaddrinfo` returns it."""


class NorthboundError(Exception):
    """A request that the controller has refused; `problem` holds its answer."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.status} {problem.title}" + (f": {problem.detail}" if problem.detail else ""))


class UnreachableError(Exception):
    """A controller that does not answer, or not sensibly, so that the outcome of a change is unknown: ask again. Also a
    standby, which accepts no change."""


class Northbound(Protocol):
    """A controller as OFGate sees it. Calls raise `NorthboundError` and `UnreachableError`; each call may be
    repeated."""

    async def put(self, request: OfmRequest, wait: float = 0.0) -> OfmState:
        """Send an intent for an OFM, new or changed; the latest intent for a topic wins. `wait` is the longest wait in
        seconds until the OFM is constructed or refused. Return the state then: a refusal is a state, not an
        exception."""

    async def get(self, topic: str, wait: float = 0.0) -> OfmState:
        """Return the state of a topic's OFM, `Status.NONE` if there is none. `wait` is as for `put`."""

    async def list(self) -> States:
        """Return the states of all OFMs, by topic."""

    async def delete(self, topic: str, wait: float = 0.0) -> OfmState:
        """Delete an OFM, which need not exist. `wait` is the longest wait in seconds until it is gone from all
        switches. Return the state then."""

    def watch(self) -> AsyncIterator[OfmState]:
        """Yield the states of all OFMs, then each state that changes, without end. Overtaken states may be left out.
        After an error, which is raised as by the other calls, call it again."""

    async def topology(self) -> Topology:
        """Return the network as the controller sees it."""

    async def budgets(self) -> Budgets:
        """Return the use and limits of all switches, by dpid."""

    async def stats(self, topic: str) -> OfmStats:
        """Return the counters of a topic's OFM, read from the switches now."""

    async def ports(self) -> Ports:
        """Return the counters of all ports of the connected switches, read from them now."""

    async def decoded(self, named: Receivers, sender: str | None = None) -> DecodedAddress:
        """Return what an address of stateless delivery means now. `sender`: IP address of the sending broker."""

    async def close(self) -> None:
        """Close all connections."""


class Client:
    """A `Northbound` that speaks to `saps controller`; also an async context manager.

    `token` is sent with each request. `tls` holds the certificates for an `https` address: the trusted authority, and
    the client's own certificate where the controller asks for one. `sockets` makes the sockets to connect with, e.g. in
    another network namespace; None: the usual ones."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        sockets: Callable[[AddrInfo], socket.socket] | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._tls = tls
        self._sockets = sockets
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, request: OfmRequest, wait: float = 0.0) -> OfmState:
        """See `Northbound`, also for the methods that follow."""
        body = msgspec.json.encode(request.intent)
        return await self._call("PUT", _ofm(request.topic), OfmState, wait=wait, body=body)

    async def get(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._call("GET", _ofm(topic), OfmState, wait=wait)

    async def list(self) -> States:
        return await self._call("GET", "/v1/ofms", States)

    async def delete(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._call("DELETE", _ofm(topic), OfmState, wait=wait)

    def watch(self) -> AsyncIterator[OfmState]:
        return follow(self.changes)

    async def changes(self, run: str, after: int) -> Changes:
        """Return the changes after a revision of a run, once there are any, or after `LONG_POLL` seconds."""
        return await self._call("GET", f"/v1/changes?run={run}&after={after}", Changes, wait=LONG_POLL)

    async def topology(self) -> Topology:
        return Topology.from_json(await self._call("GET", "/v1/topology", dict[str, Any]))

    async def budgets(self) -> Budgets:
        return await self._call("GET", "/v1/budgets", Budgets)

    async def stats(self, topic: str) -> OfmStats:
        return await self._call("GET", _ofm(topic) + "/stats", OfmStats)

    async def ports(self) -> Ports:
        return await self._call("GET", "/v1/ports", Ports)

    async def decoded(self, named: Receivers, sender: str | None = None) -> DecodedAddress:
        source = "" if sender is None else f"?from={quote(sender, safe='')}"
        return await self._call("GET", f"/v1/addresses/{named.address}{source}", DecodedAddress)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(self, method: str, path: str, kind: type[T], *, wait: float = 0.0, body: bytes | None = None) -> T:
        """Send one request and return its decoded answer. A refusal that holds the wanted state is returned as an
        answer too."""
        if wait:
            path += f"{'&' if '?' in path else '?'}wait={wait:g}"
        try:
            async with self._open().request(
                method,
                URL(self._url + path, encoded=True),
                data=body,
                headers={"Content-Type": "application/json"} if body is not None else None,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT + wait),
            ) as response:
                answer = await response.read()
                return _read(answer, response.status, kind)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{self._url}: {error or type(error).__name__}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            connector = aiohttp.TCPConnector(
                ssl=self._tls if self._tls is not None else True, socket_factory=self._sockets
            )
            self._session = aiohttp.ClientSession(headers=headers, connector=connector)
        return self._session


async def follow(changes: Callable[[str, int], Awaitable[Changes]]) -> AsyncIterator[OfmState]:
    """Yield what `Northbound.watch` does, by a function that waits for changes after a revision of a run."""
    run, after = "", 0
    known: set[str] = set()
    while True:
        found = await changes(run, after)
        run, after = found.run, found.revision
        present = {state.topic for state in found.ofms if state.status is not Status.NONE}
        if found.complete:
            for topic in sorted(known - present):
                yield OfmState(topic=topic, status=Status.NONE)
            known = set()
        known = (known - {state.topic for state in found.ofms}) | present
        for state in found.ofms:
            yield state


def _ofm(topic: str) -> str:
    """Return the path of a topic's OFM. The topic's slashes are encoded, so its levels are not levels of the path."""
    return f"/v1/ofms/{quote(topic, safe='')}"


def _read(answer: bytes, status: int, kind: type[T]) -> T:
    try:
        if status < 400:
            return msgspec.json.decode(answer, type=kind)
        problem = msgspec.json.decode(answer, type=Problem)
    except msgspec.MsgspecError as error:
        raise UnreachableError(f"status {status}, and an unreadable answer: {error}") from error
    if kind is OfmState and isinstance(problem.ofm, kind):
        return problem.ofm
    if problem.type == STANDBY:
        raise UnreachableError(problem.detail or problem.title)
    raise NorthboundError(problem)
