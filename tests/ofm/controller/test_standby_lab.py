"""Two controllers at the switches of a lab: the master is stopped, then killed, under traffic that must not notice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from lab import Lab
from saps.ofm.controller.leader_election import ElectionState, Post
from saps.ofm.northbound.driver.client import UnreachableError
from saps.ofm.northbound.driver.pair import Failover, PeerClient
from saps.ofm.northbound.schema import STANDBY, OfmRequest, OfmState, Status
from tests.ofm.controller.ofc import TIMEOUT, Ofc, Stream, members, ours, tables, usable

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

TAKEOVER = "3"
"""Seconds: a machine under load must not look dead too often."""


class Pair:
    """Two controllers beside the switches, and a client that finds the master."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        token = folder / "token"
        token.write_text("secret\n")
        urls = [f"http://127.0.0.1:{8181 + number}" for number in range(2)]
        self._options = [
            [
                *("--listen", f"127.0.0.1:{6653 + number}", "--northbound", url.removeprefix("http://")),
                *("--peer", urls[1 - number], "--takeover", TAKEOVER, "--token-file", str(token)),
                *("--grace", "3", "--probe-interval", "0.5"),
            ]
            for number, url in enumerate(urls)
        ]
        self.running: list[Ofc] = []

    async def start(self) -> None:
        self.running += await asyncio.gather(*(asyncio.to_thread(self.started, number) for number in range(2)))

    def started(self, number: int) -> Ofc:
        return Ofc(self.lab, *self._options[number])

    def clients(self) -> list[PeerClient]:
        return [
            PeerClient(running.url, token="secret", sockets=running._socket)  # where the switches are
            for running in self.running
        ]

    def kill(self) -> None:
        for running in self.running:
            running.process.send_signal(signal.SIGCONT)
            running.kill()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("labs") / "d"
    two = [("127.0.0.1", 6653), ("127.0.0.1", 6654)]
    with Lab("tree:3x2", name=f"pair{os.getpid()}", controller=two, directory=directory) as made:
        yield made


async def leadership(clients: list[PeerClient]) -> int:
    """Which of them is master, once one is, and the other is ready to take its place or does not answer."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            states = [await glance(client) for client in clients]
            posts = [state.post for state in states if state is not None]
            same = len({(state.version, state.able) for state in states if state is not None}) == 1
            if posts.count(Post.MASTER) == 1 and same:
                return [state is not None and state.post is Post.MASTER for state in states].index(True)
            await asyncio.sleep(0.05)


async def glance(client: PeerClient) -> ElectionState | None:
    try:
        async with asyncio.timeout(1):
            return await client.election()
    except (UnreachableError, TimeoutError):
        return None


async def intended(client: Failover, request: OfmRequest) -> OfmState:
    """As OFGate does: asked again until a controller has taken it in."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                state = await client.put(request, wait=TIMEOUT)
                if state.status is Status.CONSTRUCTED:
                    return state
            except UnreachableError:
                await asyncio.sleep(0.1)


async def test_the_standby_takes_over_from_a_stopped_and_from_a_killed_master(lab: Lab, tmp_path: Path) -> None:
    pair = Pair(lab, tmp_path)
    await pair.start()
    clients = pair.clients()
    try:
        async with Failover(pair.clients()) as northbound, members(lab) as brokers:
            everyone = [member.address for member in brokers.values()]
            to = usable(await intended(northbound, OfmRequest("one", everyone)))
            stream = Stream(brokers["c1b1"], to)
            await stream.reach(200)
            begun = stream.sent  # the tree is said to be there some 30 ms before Open vSwitch's cache has it everywhere
            before = ours(tables(lab))

            first = await leadership(clients)
            pair.running[first].process.send_signal(signal.SIGSTOP)
            assert await leadership(clients) == 1 - first
            assert usable(await intended(northbound, OfmRequest("two", everyone[1:]))) != to
            pair.running[first].process.send_signal(signal.SIGCONT)
            assert (await refused(pair.running[first].url, lab))["type"] == STANDBY
            assert await leadership(clients) == 1 - first
            assert usable(await intended(northbound, OfmRequest("one", everyone))) == to
            assert (await northbound.delete("two", wait=TIMEOUT)).status is Status.NONE
            assert ours(tables(lab)) == before

            usable(await intended(northbound, OfmRequest("three", everyone[2:])))
            with_three = ours(tables(lab))
            master = await leadership(clients)
            pair.running[master].kill()
            assert await leadership(clients) == 1 - master
            usable(await intended(northbound, OfmRequest("four", everyone)))
            assert usable(await intended(northbound, OfmRequest("one", everyone))) == to
            assert (await northbound.delete("four", wait=TIMEOUT)).status is Status.NONE
            assert ours(tables(lab)) == with_three
            assert {state.topic for state in await northbound.list()} == {"one", "three"}

            pair.running[master] = pair.started(master)
            clients[master] = pair.clients()[master]
            assert await leadership(clients) == 1 - master
            came = await stream.stop(list(brokers.values()))
        for name in brokers:
            assert set(came[name]) >= set(range(begun, stream.sent)), name
            assert set(came[name].values()) == {1}, name
    finally:
        for client in clients:
            await client.close()
        pair.kill()


async def refused(url: str, lab: Lab) -> dict[str, str]:
    """The problem that answers an intent."""
    connector = aiohttp.TCPConnector(socket_factory=lambda info: lab.switches.socket(info[0], info[1], info[2]))
    headers = {"Authorization": "Bearer secret"}
    body = b'{"brokers": [{"ip": "10.77.1.1", "mac": "02:00:00:00:00:01", "port": 1}]}'
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.put(f"{url}/v1/ofms/late", data=body) as response,
    ):
        assert (response.status, response.content_type) == (503, "application/problem+json")
        return dict(await response.json(content_type=None))
