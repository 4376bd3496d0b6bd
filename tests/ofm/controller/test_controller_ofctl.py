"""OFMs by way of Ryu's stock calls, to real switches (Open vSwitch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.lib import ofctl_v1_3  # type: ignore[import-untyped]
from os_ken.ofproto import ofproto_v1_3 as ofproto  # type: ignore[import-untyped]
from os_ken.ofproto import ofproto_v1_3_parser as parser

from saps.ofm.controller import Controller
from saps.ofm.northbound import ryu
from saps.ofm.northbound.client import NorthboundError
from saps.ofm.northbound.ofctl import OfctlNorthbound
from saps.ofm.northbound.schema import OfmRequest, Status
from saps.ofm.plan import plan
from saps.ofm.tables import Flow
from saps.ofm.topology import BrokerAddress, Link, Port
from saps.ofm.tree import SharedTree
from tests.ofm.controller.ryu_like import ryu_like
from tests.ofm.controller.worlds import rules
from tests.ofm.networks import networks, ofms
from tests.ofm.openflow.ovs import Ovs, needs_ovs, open_vswitch

BROKERS = [BrokerAddress(f"10.0.0.{n}", f"02:00:00:00:00:0{n}", 7000) for n in (1, 2, 3)]
PATIENCE = 45.0


class Recording:
    """A switch for Ryu's code that keeps what it is sent."""

    id = 1
    ofproto, ofproto_parser = ofproto, parser

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def set_xid(self, message: Any) -> None:
        message.set_xid(1)

    def send_msg(self, message: Any) -> None:
        self.sent.append(message)


def answer_for(flow: Flow) -> dict[str, Any]:
    """How Ryu tells of a flow that it was asked to add."""
    dp = Recording()
    ofctl_v1_3.mod_flow_entry(dp, ryu.flow_entry(1, flow), ofproto.OFPFC_ADD)
    [mod] = dp.sent
    return {
        "priority": mod.priority,
        "cookie": mod.cookie,
        "table_id": mod.table_id,
        "actions": ofctl_v1_3.actions_to_str(mod.instructions),
        "match": ofctl_v1_3.match_to_str(mod.match),
        "packet_count": 0,
        "byte_count": 0,
        "duration_sec": 1,
        "duration_nsec": 0,
    }


@given(st.data(), st.booleans())
def test_what_ryu_is_told_it_tells_again(data: st.DataObject, six: bool) -> None:
    network, ofm = data.draw(networks(six)), replace(data.draw(ofms(six)), limit=0)  # it is asked for no meters
    made = plan(ofm, SharedTree().plan(network.topology, network.brokers))
    for tables in made.tables.values():
        dp = Recording()
        for group in tables.groups.values():
            ofctl_v1_3.mod_group_entry(dp, ryu.group_entry(1, group), ofproto.OFPGC_ADD)
        groups = [
            {
                "type": "ALL",
                "group_id": mod.group_id,
                "buckets": [
                    {"weight": bucket.weight, "actions": [ofctl_v1_3.action_to_str(act) for act in bucket.actions]}
                    for bucket in mod.buckets
                ],
            }
            for mod in dp.sent
        ]
        assert ryu.tables(map(answer_for, tables.flows.values()), groups) == tables


@pytest.fixture
def ovs() -> Iterator[Ovs]:
    with open_vswitch() as running:
        yield running


@pytest.mark.network
@needs_ovs
async def test_an_ofm_is_made_changed_and_deleted_beside_a_stock_ryu(ovs: Ovs) -> None:
    async with ryu_like() as (controller, port, url):
        for number in (1, 2, 3):
            ovs.bridge(f"s{number}", number, [f"h{number}"], port)
        ovs.patch("s1", 2, "s2", 2)
        ovs.patch("s2", 3, "s3", 2)
        controller.links = [Link.of(Port(1, 2), Port(2, 2)), Link.of(Port(2, 3), Port(3, 2))]
        controller.hosts = {broker.mac: Port(number, 1) for number, broker in enumerate(BROKERS[:2], 1)}
        async with OfctlNorthbound(Controller(rules(entries=5)), url, look=0.1) as ofc:
            state = await ofc.put(OfmRequest("fire", BROKERS[:2], priority=5), wait=PATIENCE)
            assert (state.status, state.brokers) == (Status.CONSTRUCTED, BROKERS[:2])
            assert [len(ovs.groups(f"s{number}")) for number in (1, 2, 3)] == [1, 1, 0]
            state = await ofc.put(OfmRequest("fire", BROKERS, priority=5), wait=0.5)
            assert (state.status, state.reason) == (Status.UPDATING, "waiting for 02:00:00:00:00:03")
            controller.hosts[BROKERS[2].mac] = Port(3, 1)
            state = await ofc.get("fire", wait=PATIENCE)
            assert (state.status, state.brokers) == (Status.CONSTRUCTED, BROKERS)
            trace = ovs.appctl(
                "ofproto/trace",
                "s1",
                f"in_port=1,udp,dl_src={BROKERS[0].mac},nw_src={BROKERS[0].ip},nw_dst={str(state.address).split(':')[0]},"
                f"udp_src=7000,udp_dst={str(state.address).split(':')[1]}",
            )
            for broker in BROKERS:
                assert f"set_field:{broker.ip}->ip_dst" in trace
            controller.commands.clear()
            assert await ofc.put(OfmRequest("fire", BROKERS, priority=5), wait=PATIENCE) == state
            assert controller.commands == [], "repeated, it changes nothing"
            refused = await ofc.put(OfmRequest("other", BROKERS), wait=PATIENCE)
            assert refused.status is Status.REFUSED
            with pytest.raises(NorthboundError, match="needs a broker"):
                await ofc.put(OfmRequest("none", []))
            counts = await ofc.stats("fire")
            assert [count.dpid[-1] for count in counts.switches] == ["1", "2", "3"]
            assert [count.broker for count in counts.senders] == BROKERS
            ports = await ofc.ports()
            assert {each.dpid[-1] for each in ports} == {"1", "2", "3"}
            assert len({(each.dpid, each.port) for each in ports}) == len(ports) > 3
            await ofc.delete("other", wait=PATIENCE)
            assert (await ofc.delete("fire", wait=PATIENCE)).status is Status.NONE
            assert [ovs.groups(f"s{number}") for number in (1, 2, 3)] == [[], [], []]
            assert all("priority=4096" in line for number in (1, 2, 3) for line in ovs.flows(f"s{number}"))
