"""Connects the two controllers of a pair, and lets OFGate find the master.

Two paths join the northbound's own, under the same token or certificates. `/v1/pair` returns the role of a controller.
`/v1/pair/state` returns what a standby needs to take over, in the form of the state file (`saps.ofm.controller.saved`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from saps.ofm.controller.leader_election import ElectionState, Post
from saps.ofm.network.topology import Topology
from saps.ofm.northbound.driver.client import Budgets, Client, NorthboundError, Ports, States, UnreachableError, follow
from saps.ofm.northbound.schema import Changes, DecodedAddress, OfmRequest, OfmState, OfmStats
from saps.ofm.stateless.address import Receivers

PATH = "/v1/pair"
STATE_PATH = PATH + "/state"
GLANCE = 1.0
"""Timeout in seconds for a controller to state its role, and the period of checks for a new master during a call."""
LINGER = 0.1
"""Seconds that other controllers have to answer after one has claimed to be master, since a deposed master may not know
yet."""

T = TypeVar("T")


class PeerClient(Client):
    """A client of a controller that may be one of two."""

    async def election(self, run: str = "", revision: int = 0, wait: float = 0.0) -> ElectionState:
        """Return the controller's role once its state differs from that revision of that run, but after at most `wait`
        seconds. Raises `NorthboundError` and `UnreachableError`; with status 404 if the controller is not one of a
        pair."""
        return await self._call("GET", f"{PATH}?run={run}&after={revision}", ElectionState, wait=wait)

    async def saved(self) -> bytes:
        """Return the controller's state as in a state file, empty if it has none yet. Raises the same errors as
        `election`."""
        found = bytes(await self._call("GET", STATE_PATH, msgspec.Raw))
        return b"" if found == b"null" else found


class _MovedError(Exception):
    """Another controller has become master during a call."""


class Failover:
    """A `Northbound` over several controllers: it asks the master, and the next master after a crash.

    A call under way is repeated at the new master, which changes nothing if the call had taken effect. Without a
    master, calls raise `UnreachableError`, as if the only controller were gone."""

    def __init__(self, clients: Sequence[PeerClient]) -> None:
        self._clients = tuple(clients)
        self._master: PeerClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, request: OfmRequest, wait: float = 0.0) -> OfmState:
        """See `Northbound`, also for the methods that follow."""
        return await self._call(lambda client: client.put(request, wait))

    async def get(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._call(lambda client: client.get(topic, wait))

    async def list(self) -> States:
        return await self._call(lambda client: client.list())

    async def delete(self, topic: str, wait: float = 0.0) -> OfmState:
        return await self._call(lambda client: client.delete(topic, wait))

    def watch(self) -> AsyncIterator[OfmState]:
        return follow(self._changes)

    async def _changes(self, run: str, after: int) -> Changes:
        return await self._call(lambda client: client.changes(run, after))

    async def topology(self) -> Topology:
        return await self._call(lambda client: client.topology())

    async def budgets(self) -> Budgets:
        return await self._call(lambda client: client.budgets())

    async def stats(self, topic: str) -> OfmStats:
        return await self._call(lambda client: client.stats(topic))

    async def ports(self) -> Ports:
        return await self._call(lambda client: client.ports())

    async def decoded(self, named: Receivers, sender: str | None = None) -> DecodedAddress:
        return await self._call(lambda client: client.decoded(named, sender))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _call(self, ask: Callable[[PeerClient], Awaitable[T]]) -> T:
        for _ in self._clients:
            client = self._master = self._master or await self._find()
            try:
                return await self._unless_moved(client, ask)
            except (UnreachableError, _MovedError):
                self._master = None
        client = self._master = await self._find()
        return await ask(client)

    async def _unless_moved(self, client: PeerClient, ask: Callable[[PeerClient], Awaitable[T]]) -> T:
        """Return the answer, or raise `_MovedError` if another controller becomes master. A hung controller sends no
        error, so the others are asked every `GLANCE` seconds."""
        answer = asyncio.ensure_future(ask(client))
        try:
            while True:
                done, _ = await asyncio.wait({answer}, timeout=GLANCE)
                if done:
                    return answer.result()
                try:
                    now = await self._find()
                except UnreachableError:
                    continue
                if now is not client:
                    raise _MovedError
        finally:
            answer.cancel()

    async def _find(self) -> PeerClient:
        """Return the master of the highest generation. Raises `UnreachableError` if there is none."""
        asking = {asyncio.ensure_future(_glance(client)): client for client in self._clients}
        waiting = set(asking)
        masters: list[tuple[int, PeerClient]] = []
        while waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=LINGER if masters else None, return_when=asyncio.FIRST_COMPLETED
            )
            states = ((each.result(), asking[each]) for each in done)
            masters += [(state.generation, client) for state, client in states if state and state.post is Post.MASTER]
            if not done:
                break
        for each in waiting:
            each.cancel()
        if not masters:
            raise UnreachableError(f"none of {len(self._clients)} controllers is master")
        return max(masters, key=lambda found: found[0])[1]


def northbound(urls: Sequence[str], token: str | None, tls: ssl.SSLContext | None = None) -> Client | Failover:
    """Return a client of the controllers at these addresses; with several addresses, it asks the one that is master.
    `tls` is as for `Client`."""
    clients = [PeerClient(url, token=token, tls=tls) for url in urls]
    return clients[0] if len(clients) == 1 else Failover(clients)


async def _glance(client: PeerClient) -> ElectionState | None:
    """Return the role that a controller states, or None without an answer. A controller without a pair counts as
    master."""
    try:
        async with asyncio.timeout(GLANCE):
            return await client.election()
    except NorthboundError as error:
        return ElectionState(run="", post=Post.MASTER) if error.problem.status == 404 else None
    except (UnreachableError, TimeoutError):
        return None
