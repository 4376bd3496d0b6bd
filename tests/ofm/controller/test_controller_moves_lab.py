"""A tree moves to other links on Open vSwitch while its topic is in use: nobody misses a packet or gets one twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from lab import Lab
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.northbound.driver.client import Client
from saps.ofm.northbound.schema import Demand, OfmRequest, OfmState, Status
from tests.ofm.controller.ofc import SWITCHES, TIMEOUT, Stream, members, ofc

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

HEAVY = Demand(rate=4e9)


@pytest.fixture
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("moves") / "d"
    with Lab("ring:4x1", name=f"moves{os.getpid()}", controller=SWITCHES, directory=directory) as made:
        yield made


async def until(client: Client, topic: str, true: Callable[[OfmState], bool]) -> OfmState:
    """The state of a topic's OFM once it is constructed, and this is true of it."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            state = await client.get(topic, wait=1.0)
            if state.status is Status.CONSTRUCTED and true(state):
                return state
            await asyncio.sleep(0.05)


async def test_of_two_trees_on_one_link_one_moves_under_traffic_when_there_is_another_way(ring: Lab) -> None:
    with ofc(ring, "--planner", "balanced", "--move-overlap", "4") as running:
        async with running.client() as client, members(ring) as brokers:
            ends = [brokers["c1b1"], brokers["c3b1"]]
            listed = [member.address for member in ends]
            cut = ring.topology.links[0]
            ring.set_link(cut.a, cut.b, up=False)
            for topic in ("a", "b"):
                await client.put(OfmRequest(topic, listed, demand=HEAVY), wait=TIMEOUT)
            before = {topic: (await until(client, topic, lambda state: True)).address for topic in ("a", "b")}
            stream = Stream(ends[0], OfmAddress.parse(str(before["a"])))
            await stream.reach(100)
            ring.set_link(cut.a, cut.b, up=True)
            state = await until(client, "a", lambda state: state.address != before["a"])
            assert state.former == before["a"]
            await stream.reach(stream.sent + 200)
            stream.to = OfmAddress.parse(str(state.address))
            await until(client, "a", lambda state: state.former is None)
            await stream.reach(stream.sent + 200)
            came = await stream.stop(ends)
            for member in ends:
                assert set(came[member.name]) == set(range(stream.sent))
                assert set(came[member.name].values()) == {1}
            assert (await client.get("b")).address == before["b"]
        assert running.stop() == 0
