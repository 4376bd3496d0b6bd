"""Addresses of stateless delivery, decoded by a controller of three switches in a line, for the Web port, the terminal
and the network page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from saps.cli.commands import app
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.mesh.network import NetworkView
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.network.topology import Port, Topology
from saps.ofm.northbound.driver.client import Client
from saps.ofm.northbound.driver.server import NorthboundServer
from saps.ofm.stateless.address import EVERY_TOPIC, Receivers, parse
from tests.frontend.web.chromium import browser
from tests.frontend.web.conftest import Start
from tests.frontend.web.test_web_pages import READY
from tests.ofm.controller.test_controller_planes import world_of
from tests.ofm.networks import OUTSIDER, Network, broker_at

BROKERS = [broker_at(number, 6000 + number, True) for number in range(3)]
NAMES = {f"b{number}": f"{broker.ip}:{broker.port}" for number, broker in enumerate(BROKERS)}
DPIDS = [f"{number:016x}" for number in (1, 2, 3)]
LINES = [f"  {DPIDS[0]} port 1 - {DPIDS[1]} port 1", f"  {DPIDS[1]} port 2 - {DPIDS[2]} port 2"]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A northbound whose controller has planes: a broker at each of the switches 1 - 2 - 3."""
    topology = Topology()
    for dpid in (1, 2, 3):
        topology.switch_up(dpid, [OUTSIDER])
        topology.attach(BROKERS[dpid - 1], dpid, 3)
    topology.link_up(Port(1, 1), Port(2, 1))
    topology.link_up(Port(2, 2), Port(3, 2))
    world = world_of(Network(topology, BROKERS))
    world.intent(EVERY_TOPIC, frozenset(BROKERS))
    world.run()
    server = NorthboundServer(ControllerService(world.machine, grace=1.0), ip_version=6)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.close()


@pytest.fixture
async def network(url: str) -> AsyncIterator[NetworkView]:
    view = NetworkView(Client(url))
    yield view
    await view.close()


def named(*positions: int, plane: int = 0, number: int = 0) -> Receivers:
    return Receivers(number, plane, sum(1 << position for position in positions))


@pytest.mark.parametrize(
    ("address", "source", "brokers", "links"),
    [
        (named(0, 2), None, ["b0", "b2"], 2),
        (named(0, 1), "b2", ["b0", "b1"], 2),
        (named(2), None, ["b2"], 0),
        (named(2), "b1", ["b2"], 1),
        (named(0, 3), None, ["b0", None], 0),
    ],
)
async def test_the_brokers_and_the_links_to_them_are_told(
    network: NetworkView, address: Receivers, source: str | None, brokers: list[str | None], links: int
) -> None:
    found = await network.decoded(address, NAMES, source)
    assert [row.position for row in found.receivers] == address.positions
    assert [row.broker for row in found.receivers] == brokers
    assert [row.dpid for row in found.receivers] == [name and DPIDS[int(name[1])] for name in brokers]
    assert (found.set, found.plane, found.working, len(found.links)) == (0, 0, True, links)


async def test_a_plane_or_set_that_there_is_not_reaches_nobody(network: NetworkView) -> None:
    for address in (named(0, plane=9), named(0, number=9)):
        found = await network.decoded(address, NAMES, None)
        assert ([row.dpid for row in found.receivers], found.links) == ([None], [])
    assert not (await network.decoded(named(0, plane=9), NAMES, None)).working


@pytest.mark.parametrize(
    ("brokers", "source", "detail"),
    [
        (NAMES, "b9", "'b9' does not take part in OFM"),
        ({"b8": "fd00::8:6000"}, "b8", "plane 0 reaches no broker fd00::8"),
    ],
)
async def test_a_sender_that_there_is_not_is_said(
    network: NetworkView, brokers: Mapping[str, str], source: str, detail: str
) -> None:
    with pytest.raises(ProblemError) as refused:
        await network.decoded(named(0), brokers, source)
    assert (refused.value.problem.status, refused.value.problem.detail) == (404, detail)


@pytest.mark.parametrize("text", ["ff15::5", "[ff15::5]:7400", "FF15:0:0::5"])
def test_an_address_may_be_written_with_a_port(text: str) -> None:
    assert parse(text) == named(0, 2)


async def test_the_terminal_shows_what_an_address_means(start: Start, url: str) -> None:
    site = await start(web__controller=url)

    async def saps(*arguments: str) -> list[str]:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["trace", *arguments, "--web", site.url])
        return done.output.splitlines()

    shown = await saps("[ff15::d]:7400")
    assert shown[0].rstrip() == "ff15::d: set 0, plane 0"
    rows = [line.split() for line in shown[4:7]]
    assert [(row[0], row[-1]) for row in rows[:2]] == [("0", "3"), ("2", "3")]
    assert [row[-2] for row in rows[:2]] == [DPIDS[0], DPIDS[2]]
    assert rows[2] == ["3", "nobody", "not", "reached"]
    assert shown[-3:] == ["2 links between them:", *LINES]
    assert "which is not in use" in (await saps("ff15:9::1"))[0]
    assert "'b9' does not take part in OFM" in "".join(await saps("ff15::1", "--from", "b9"))


async def test_the_network_page_decodes_an_address(start: Start, url: str, tmp_path: Path) -> None:
    site = await start(web__controller=url)
    async with browser(tmp_path) as page:
        await page.open(f"{site.url}/")
        await page.until(READY)
        await page.press("3")
        await page.until("saps.store.network.switches.length === 3")
        search = "document.querySelector('#view-network input')"
        for text, told in (("ff15::5", "2 receivers, 2 links between them"), ("ff15::1", "1 receiver, 0 links")):
            await page.run(f"{search}.value = '{text}'; {search}.dispatchEvent(new Event('input'))")
            await page.until(f"document.querySelector('#view-network .note').innerText.includes('{told}')")
        await page.run(f"{search}.value = 'ff15:zz'; {search}.dispatchEvent(new Event('input'))")
        await page.until("document.querySelector('#view-network').innerText.includes('Bad address')")
        assert [fault for fault in page.faults if "400 (Bad Request)" not in fault] == []
