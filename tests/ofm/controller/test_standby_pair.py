"""Two controllers without switches, in one process, over HTTPS with certificates: who answers, and who does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trustme

from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.driver.standby_service import PairedController
from saps.ofm.controller.leader_election import Passed, Post
from saps.ofm.controller.program import northbound_tls, peer_tls
from saps.ofm.controller.saved import restore
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.client import UnreachableError
from saps.ofm.northbound.driver.pair import Failover, PeerClient
from saps.ofm.northbound.driver.server import NorthboundServer
from saps.ofm.northbound.schema import OfmRequest, Status
from saps.ofm.openflow.driver.server import OpenFlowServer
from tests.ofm.controller.worlds import rules

TIMEOUT = 60.0
BROKERS = [BrokerAddress("10.0.0.1", "02:00:00:00:00:01", 7000)]


def service(state: bytes) -> ControllerService:
    machine = Controller(rules())
    if state:
        restore(machine, state)
    return ControllerService(machine, grace=1.0)


@pytest.fixture
def secured(tmp_path: Path) -> ControllerSettings:
    """What both controllers are given: they show each other certificates of one authority."""
    ca = trustme.CA()
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = ControllerSettings(certificate=tmp_path / "own.pem", clients=tmp_path / "ca.pem")
    return msgspec.structs.replace(settings, peer="https://127.0.0.1")


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            if await true():
                return
            await asyncio.sleep(0.02)


class Both:
    """The two, and clients of them."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self.clients = [self.client() for _ in range(2)]
        self._peers = [self.client() for _ in range(2)]
        self.controllers = [PairedController(service, peer, 1.0) for peer in self._peers]
        self.northbounds: list[NorthboundServer] = []

    def client(self) -> PeerClient:
        return PeerClient("https://127.0.0.1", tls=peer_tls(self._settings))

    async def start(self, stack: AsyncExitStack) -> None:
        for number, controller in enumerate(self.controllers):
            server = OpenFlowServer("127.0.0.1", 0, controller, roles=controller)
            await stack.enter_async_context(server)
            tls = northbound_tls(self._settings)
            northbound = NorthboundServer(controller, ip_version=4, tls=tls, pair=controller)
            # Which port it is, is known only now.
            port = await northbound.start("127.0.0.1", 0)
            for client in (self.clients[number], self._peers[1 - number]):
                client._url = f"https://127.0.0.1:{port}"
            stack.push_async_callback(self.clients[number].close)
            stack.push_async_callback(northbound.close)
            stack.push_async_callback(controller.close)
            self.northbounds.append(northbound)
            await controller.start(server)

    async def settled(self) -> list[Post]:
        """What the two are, once one is master and the other follows."""
        posts: list[Post] = []

        async def true() -> bool:
            posts[:] = [(await client.election()).post for client in self.clients]
            return sorted(posts) == [Post.MASTER, Post.STANDBY]

        await until(true)
        return posts


@asynccontextmanager
async def pair(settings: ControllerSettings) -> AsyncIterator[Both]:
    both = Both(settings)
    async with AsyncExitStack() as stack:
        await both.start(stack)
        yield both


async def test_one_answers_and_the_other_knows_all_that_it_knows(secured: ControllerSettings) -> None:
    async with pair(secured) as both:
        posts = await both.settled()
        master = both.clients[posts.index(Post.MASTER)]
        standby = both.clients[posts.index(Post.STANDBY)]
        async with Failover(both.clients) as northbound:
            assert (await northbound.put(OfmRequest("a/b", BROKERS))).status is Status.CONSTRUCTING
            for refused in (standby.list, standby.budgets, standby.topology, lambda: standby.get("a/b")):
                with pytest.raises(UnreachableError, match="ask the other one"):
                    await refused()
            with pytest.raises(UnreachableError, match="ask the other one"):
                await standby.put(OfmRequest("a/b", BROKERS))

            async def replicated() -> bool:
                found = await standby.saved()
                return b'"a/b"' in found and found == await master.saved()

            await until(replicated)
            place = posts.index(Post.MASTER)
            await both.controllers[place].close()
            await both.northbounds[place].close()

            async def taken_over() -> bool:
                return (await standby.election()).post is Post.MASTER

            await until(taken_over)
            [state] = await northbound.list()
            assert (state.topic, state.status) == ("a/b", Status.CONSTRUCTING)
            assert (await northbound.put(OfmRequest("b", BROKERS))).version > 1 << 20


async def test_of_two_masters_the_later_one_stays_and_who_waits_at_the_other_is_told(
    secured: ControllerSettings,
) -> None:
    async with pair(secured) as both:
        posts = await both.settled()
        first, second = posts.index(Post.MASTER), posts.index(Post.STANDBY)
        known = await both.clients[first].changes("", 0)
        hanging = asyncio.ensure_future(both.clients[first].changes(known.run, known.revision))
        # The second hears nothing of the first for longer than it takes, as behind a link that is down for a while.
        both.controllers[second]._handle(Passed(1.0, True, 0))
        with pytest.raises(UnreachableError, match="ask the other one"):
            await hanging
        assert await both.settled() == posts[::-1]
