"""The OpenFlow network and the decisions, from a northbound and a door for decisions over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saps.agents.ofgate.decisions_io import DecisionHandler, Decisions, DecisionServer, Job, Revoked, Tree
from saps.ofm.controller.events import Intent
from saps.ofm.network.topology import BrokerAddress, Topology
from saps.ofm.northbound.driver.server import NorthboundServer
from saps.ofm.northbound.schema import (
    BrokerCount,
    Changes,
    DecodedAddress,
    OfmState,
    OfmStats,
    PortTraffic,
    Quota,
    Status,
    SwitchBudget,
    SwitchCount,
)
from saps.ofm.stateless.address import Receivers
from tests.frontend.web.conftest import Start
from tests.frontend.web.test_web_mesh import until

BROKER = BrokerAddress("10.0.0.1", "02:00:00:00:00:01", 4000)
DPIDS = [f"{number:016x}" for number in (1, 2, 3)]
STEP = 1000
"""Bytes by which counters grow from one question to the next."""


class Network:
    """What a controller would answer: three switches in a line, a tree over two of them."""

    def __init__(self) -> None:
        self.asked = 0

    async def intent(self, topic: str, intent: Intent | None, wait: float = 0.0) -> OfmState:
        raise NotImplementedError

    async def state(self, topic: str, wait: float = 0.0) -> OfmState:
        raise NotImplementedError

    async def changes(self, run: str, after: int, wait: float = 0.0) -> Changes:
        raise NotImplementedError

    def states(self) -> list[OfmState]:
        built = OfmState(topic="air", status=Status.CONSTRUCTED, address="239.77.0.1:5000", brokers=[BROKER])
        return [built, OfmState(topic="noise", status=Status.REFUSED, reason="no room on the switch of c2")]

    def budgets(self) -> list[SwitchBudget]:
        quota = Quota(used=3, budget=10)
        return [SwitchBudget(dpid=dpid, connected=True, entries=quota, buckets=quota) for dpid in DPIDS]

    async def stats(self, topic: str) -> OfmStats:
        self.asked += 1
        counts = [
            SwitchCount(dpid=d, packets=self.asked, bytes=STEP * self.asked * n)
            for n, d in ((1, DPIDS[0]), (3, DPIDS[1]))
        ]
        return OfmStats(topic=topic, switches=counts, senders=[BrokerCount(broker=BROKER, packets=1, bytes=1)])

    async def ports(self) -> list[PortTraffic]:
        """The first link carries twice as much one way as the other, the second nothing."""
        moved = {(DPIDS[0], 1): 2, (DPIDS[1], 1): 1, (DPIDS[1], 2): 0, (DPIDS[2], 2): 0}
        sent = STEP * self.asked
        return [
            PortTraffic(dpid=d, port=p, rx_packets=0, tx_packets=0, rx_bytes=0, tx_bytes=n * sent, dropped=0)
            for (d, p), n in moved.items()
        ]

    def decoded(self, named: Receivers, sender: str | None) -> DecodedAddress:
        raise NotImplementedError

    def picture(self) -> dict[str, Any]:
        ends = [{"dpid": dpid, "port": port} for dpid, port in zip(DPIDS, (1, 1, 2), strict=True)]
        picture = {
            "version": 1,
            "switches": [{"dpid": d, "ports": [{"port": p, "up": True} for p in (1, 2, 3)]} for d in DPIDS],
            "links": [{"a": ends[0], "b": ends[1]}, {"a": {"dpid": DPIDS[1], "port": 2}, "b": ends[2]}],
            "hosts": [{"mac": BROKER.mac, "at": {"dpid": DPIDS[0], "port": 3}}],
            "brokers": [{"ip": BROKER.ip, "mac": BROKER.mac, "port": BROKER.port}],
        }
        return Topology.from_json(picture).to_json()


@asynccontextmanager
async def controller(network: Network, token: str = "") -> AsyncIterator[str]:
    server = NorthboundServer(network, ip_version=4, token=token)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.close()


async def test_trees_budgets_and_loads_are_the_controllers(start: Start, tmp_path: Any) -> None:
    network = Network()
    (tmp_path / "token").write_text("secret\n")
    async with controller(network, "secret") as url:
        site = await start(web__controller=url, web__controller_token_file=tmp_path / "token")
        found = await site.json("/v1/trees")
        assert (found["configured"], found.get("fault")) == (True, None)
        assert [row["dpid"] for row in found["switches"]] == DPIDS
        assert [(row["entries"], row["entries_budget"]) for row in found["switches"]] == [(3, 10)] * 3
        assert found["places"] == [{"address": "10.0.0.1:4000", "dpid": DPIDS[0], "port": 3}]
        assert [link["load"] for link in found["links"]] == [None, None]  # rates take a second look
        rated = await until(lambda: site.json("/v1/trees"), lambda found: found["links"][0]["load"] is not None)
        assert [(link["trees"], link["load"] > 0) for link in rated["links"]] == [(1, True), (0, False)]
        assert [(t["topic"], t["status"], t["switches"]) for t in rated["trees"]] == [
            ("air", "constructed", DPIDS[:2]),
            ("noise", "refused", []),
        ]
        topics = (await site.json("/v1/topics?sort=topic"))["topics"]
        assert [(t["topic"], t["mode"], t["reason"]) for t in topics] == [
            ("air", "constructed", None),
            ("noise", "refused", "no room on the switch of c2"),
        ]
    gone = await until(lambda: site.json("/v1/trees"), lambda found: "fault" in found and found["fault"])
    assert len(gone["switches"]) == 3, "what was known stays"


class Gate:
    """An OFGate that has nothing to do."""

    def leads(self) -> bool:
        return False

    async def exploit(self, topic: str) -> Any:
        raise NotImplementedError

    def release(self, topic: str) -> Any:
        raise NotImplementedError

    def remeasure(self, topic: str) -> None:
        raise NotImplementedError

    def spread(self, loads: dict[str, float]) -> None:
        assert not loads

    def wanted(self) -> set[str]:
        return set()

    def describe(self) -> dict[str, Any]:
        return {"topics": [{"topic": "air", "status": "constructed", "reason": None}]}


async def test_decisions_are_told_with_their_reasons_and_remembered_as_they_change(start: Start) -> None:
    request_handler = DecisionHandler(Gate(), set)
    door = DecisionServer(request_handler, Gate())
    port = await door.start("127.0.0.1", 0)
    try:
        site = await start(web__ofgate=f"http://127.0.0.1:{port}")
        assert (await site.json("/v1/decisions"))["epoch"] is None
        tree = Tree("air", 9600.0, 8.0, 1, "a tree saves 9.6 kB/s", saved=5e6, predicted=7e6)
        await request_handler.take(Decisions(1, 1, "x", [tree], job=Job(batches=4, late=2, saved=5e6)))
        first = await until(lambda: site.json("/v1/decisions"), lambda found: found["epoch"] == 1)
        assert first["trees"][0]["reason"] == "a tree saves 9.6 kB/s"
        assert first["topics"][0]["status"] == "constructed"
        assert (first["trees"][0]["saved"], first["trees"][0]["predicted"]) == (5e6, 7e6)
        assert (first["job"]["batches"], first["job"]["late"], first["job"]["saved"]) == (4, 2, 5e6)
        later = await start("later", web__ofgate=f"http://127.0.0.1:{port}")
        known = await later.json("/v1/decisions")
        assert ([tree["topic"] for tree in known["trees"]], known["history"]) == (["air"], []), "it was there before"
        await request_handler.take(Decisions(1, 2, "y", [], [Revoked("air", "taken back: it saved 0 B")]))
        second = await until(lambda: site.json("/v1/decisions"), lambda found: found["epoch"] == 2)
        assert second["revoked"] == [{"topic": "air", "reason": "taken back: it saved 0 B"}]
        assert [(c["action"], c["reason"]) for c in second["history"]] == [
            ("revoke", "taken back: it saved 0 B"), ("build", "a tree saves 9.6 kB/s"),
        ]  # fmt: skip
    finally:
        await door.close()


async def test_without_controller_and_ofgate_it_is_said_so(start: Start) -> None:
    site = await start()
    assert await site.json("/v1/trees") == {
        "configured": False, "fault": None, "switches": [], "links": [], "places": [], "trees": [],
    }  # fmt: skip
    assert not (await site.json("/v1/decisions"))["configured"]


@pytest.mark.parametrize("setting", ["web.controller", "web.ofgate"])
def test_an_address_that_is_none_is_refused(setting: str) -> None:
    from saps.config import SettingError
    from saps.config.sources_io import load

    with pytest.raises(SettingError) as caught:
        load({"name": "b1", setting: "ftp://example.org"})
    assert caught.value.setting == setting
