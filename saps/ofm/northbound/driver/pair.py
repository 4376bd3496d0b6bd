"""How the two controllers of a pair speak to each other, and how OFGate finds the one that is master.

Beside the northbound's own paths, and under the same token or certificates: `/v1/pair` tells what a controller is, and
`/v1/pair/state` what a standby needs to go on, in the form of the state file (`saps.ofm.controller.saved`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from saps.ofm.controller.leader_election import Post, Word
from saps.ofm.network.topology import Topology
from saps.ofm.northbound.driver.client import Budgets, Client, NorthboundError, Ports, States, UnreachableError, follow
from saps.ofm.northbound.schema import Changes, OfmRequest, OfmState, OfmStats

PATH = "/v1/pair"
STATE_PATH = PATH + "/state"
GLANCE = 1.0
"""Seconds a controller has to say what it is, and after which one looks whether another has become master."""
LINGER = 0.1
"""Seconds that others have to say so too once one says that it is master: one that was deposed may not know it yet."""

T = TypeVar("T")


class PeerClient(Client):
    """A client of a controller that may be one of two."""

    async def word(self, run: str = "", revision: int = 0, wait: float = 0.0) -> Word:
        """What it is, once its state is another one than that revision of that run, but after at most `wait` seconds.
        Raises `NorthboundError` and `UnreachableError`; of status 404, if it is alone."""
        return await self._call("GET", f"{PATH}?run={run}&after={revision}", Word, wait=wait)

    async def saved(self) -> bytes:
        """What it knows, as in a state file; empty, if nothing yet. Raises as `word`."""
        found = bytes(await self._call("GET", STATE_PATH, msgspec.Raw))
        return b"" if found == b"null" else found


class _MovedError(Exception):
    """Another controller has become master while an answer was waited for."""


class Failover:
    """A `Northbound` over several controllers: asks the one that is master, and the next one when that has died.

    A call that was under way is repeated there, which changes nothing if it had been taken in. Without a master it
    raises `UnreachableError`, as if the only controller were gone."""

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
        """See `Northbound`, as for all that follow."""
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
        """The answer. A controller that hangs does not say so: what the others say tells."""
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
        """The master. Raises `UnreachableError` if there is none."""
        asking = {asyncio.ensure_future(_glance(client)): client for client in self._clients}
        waiting = set(asking)
        masters: list[tuple[int, PeerClient]] = []
        while waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=LINGER if masters else None, return_when=asyncio.FIRST_COMPLETED
            )
            words = ((each.result(), asking[each]) for each in done)
            masters += [(word.generation, client) for word, client in words if word and word.post is Post.MASTER]
            if not done:
                break
        for each in waiting:
            each.cancel()
        if not masters:
            raise UnreachableError(f"none of {len(self._clients)} controllers is master")
        return max(masters, key=lambda found: found[0])[1]


def northbound(urls: Sequence[str], token: str | None, tls: ssl.SSLContext | None = None) -> Client | Failover:
    """The controller at one of these addresses: if there are several, the one that is master. `tls` as for `Client`."""
    clients = [PeerClient(url, token=token, tls=tls) for url in urls]
    return clients[0] if len(clients) == 1 else Failover(clients)


async def _glance(client: PeerClient) -> Word | None:
    """What a controller says that it is; None: nothing."""
    try:
        async with asyncio.timeout(GLANCE):
            return await client.word()
    except NorthboundError as error:
        return Word(run="", post=Post.MASTER) if error.problem.status == 404 else None
    except (UnreachableError, TimeoutError):
        return None
