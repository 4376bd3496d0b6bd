"""The channel against a real Open vSwitch: tables, errors, discovery, counters, roles, switches that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import (
    IN_PORT,
    NORMAL,
    Barrier,
    Bucket,
    Change,
    DropFlow,
    DropGroup,
    DropMeter,
    Flow,
    Group,
    GroupKind,
    Match,
    Meter,
    Output,
    PutFlow,
    PutGroup,
    PutMeter,
    SetField,
    Tables,
    ToGroup,
    ipv4,
)
from saps.ofm.network.probe import announcement
from saps.ofm.network.topology import Link, Port
from saps.ofm.openflow.base import BASE_FLOWS, COOKIE, LIMITED, STORM
from saps.ofm.openflow.driver.server import ServerSettings
from saps.ofm.openflow.errors import RefusedError
from saps.ofm.openflow.hosts import HostSeen
from saps.ofm.openflow.values import PortChange, PortStatus, Role
from tests.ofm.openflow import frames
from tests.ofm.openflow.ovs import Ovs, needs_ovs, open_vswitch
from tests.ofm.openflow.recorder import TIMEOUT, RecordedServer, Recorder

pytestmark = [pytest.mark.network, needs_ovs]

OURS = 0x5A95_0000_0000_0000
OURS_MASK = 0xFFFF << 48
OFTEN = ServerSettings(probe_interval=0.25)
NEVER = ServerSettings(probe_interval=3600)
"""Links are found by what happens, not by rounds of probes."""


@pytest.fixture
def ovs() -> Iterator[Ovs]:
    """A fresh Open vSwitch without bridges."""
    with open_vswitch() as running:
        yield running


@asynccontextmanager
async def controller(port: int = 0, settings: ServerSettings = OFTEN) -> AsyncIterator[tuple[int, Recorder]]:
    """A server with its listener, on a free port or a given one."""
    heard = Recorder()
    server = RecordedServer("127.0.0.1", port, heard, settings)
    port = await server.start()
    try:
        yield port, heard
    finally:
        await server.close()


def address(number: int) -> Match:
    """Packets to the OFM address of a number."""
    return Match.of(eth_type=0x0800, ip_proto=17, ipv4_dst=ipv4("239.77.0.0") + number, udp_dst=5000)


def unicast(ip: str, mac: int, out: int) -> Bucket:
    """A copy for a broker at the last hop."""
    return Bucket((SetField("eth_dst", mac), SetField("ipv4_dst", ipv4(ip)), SetField("udp_dst", 9000), Output(out)))


def tree(number: int, outs: tuple[int, ...]) -> Tables:
    """What a switch of a tree holds: a group of copies, a flow that uses it, and the sender's with the loopback."""
    group = Group(number, tuple(unicast(f"10.0.0.{out}", 0x020000000000 + out, out) for out in outs))
    loopback = (ToGroup(number), SetField("ipv4_src", ipv4("10.0.9.9")), Output(IN_PORT))
    sender = Match.of(in_port=1, eth_type=0x0800, ip_proto=17, ipv4_dst=ipv4("239.77.0.0") + number, udp_dst=5000)
    return Tables.of(
        [
            Flow(100, address(number), (ToGroup(number),), cookie=OURS | number),
            Flow(200, sender, loopback, cookie=OURS | number),
        ],
        [group],
    )


# ---- switches come and go


async def test_a_switch_comes_with_its_ports_and_gets_the_base_flows(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 0xABCD, ["p1", "p2"], port)
        switch = await heard.connected(0xABCD)
        assert {port.name: port.up for number, port in switch.ports.items() if number < 100} == {"p1": True, "p2": True}
        assert await switch.tables(COOKIE, (1 << 64) - 1) == Tables.of(LIMITED)
        assert [line.partition("priority=")[2] for line in ovs.flows("one")] == [
            "65000,dl_type=0x88cc actions=CONTROLLER:65535",
            "64000,arp actions=meter:4121624577,CONTROLLER:65535,NORMAL",
            "64000,icmp6,ipv6_dst=ff02::1:ff00:0/104 actions=meter:4121624577,CONTROLLER:65535,NORMAL",
            "0 actions=NORMAL",
        ]


async def test_stale_tables_of_a_switch_that_comes_back_are_reconciled(ovs: Ovs) -> None:
    wanted = tree(1, (2, 3)).with_(tree(3, (2,)))
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1", "p2", "p3"], port)
        switch = await heard.connected(1)
        old = tree(1, (2,)).with_(tree(2, (3,)))
        await switch.apply(difference(Tables(), old))
    assert len(ovs.groups("one")) == 2, "tables stay when the controller is gone"
    async with controller(port) as (_, heard):
        switch = await heard.connected(1)
        actual = await switch.tables(OURS, OURS_MASK)
        assert actual == old
        await switch.apply(difference(actual, wanted))
        assert await switch.tables(OURS, OURS_MASK) == wanted
        assert difference(await switch.tables(OURS, OURS_MASK), wanted) == []
        assert set((await switch.tables()).flows) == set(wanted.flows) | {flow.name for flow in BASE_FLOWS}


async def test_a_restarted_switch_comes_back_empty_and_is_filled_again(ovs: Ovs) -> None:
    wanted = tree(1, (2, 3))
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1", "p2", "p3"], port)
        before = await heard.connected(1)
        await before.apply(difference(Tables(), wanted))
        ovs.kill_switch()
        await heard.until(lambda: 1 not in heard.switches)
        ovs.start_switch()
        after = await heard.connected(1, after=before)
        assert await after.tables(OURS, OURS_MASK) == Tables()
        assert await after.tables(COOKIE, OURS_MASK) == Tables.of(LIMITED)
        await after.apply(difference(Tables(), wanted))
        assert await after.tables(OURS, OURS_MASK) == wanted


# ---- tables


async def test_changes_done_twice_are_done_once(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        changes = difference(Tables(), tree(1, (2, 3)))
        await switch.apply(changes)
        once = ovs.flows("one"), ovs.groups("one")
        await switch.apply(changes)
        assert (ovs.flows("one"), ovs.groups("one")) == once
        undo = difference(tree(1, (2, 3)), Tables())
        await switch.apply(undo)
        await switch.apply(undo)
        assert await switch.tables(OURS, OURS_MASK) == Tables()


@pytest.mark.parametrize("model", ["Open vSwitch", "another"])
async def test_groups_are_added_and_changed_in_place(ovs: Ovs, model: str) -> None:
    """Also on a switch that does not know `PutGroup`."""
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        switch.model = model
        first, second, third = (Group(number, (unicast("10.0.0.1", 1, 1),)) for number in (1, 2, 3))
        flow = Flow(1, address(1), (ToGroup(1),), cookie=OURS)
        await switch.apply([PutGroup(first), PutGroup(second), Barrier(), PutFlow(flow)])
        changed = Group(1, (unicast("10.0.0.2", 2, 2), unicast("10.0.0.3", 3, 3)), GroupKind.ALL)
        await switch.apply([PutGroup(changed), PutGroup(third)])
        assert await switch.tables(OURS, OURS_MASK) == Tables.of([flow], [changed, second, third])


async def test_a_refused_change_is_named_and_the_others_of_its_stage_are_done(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        good = [PutFlow(Flow(9, address(number), (Output(1),), cookie=OURS)) for number in range(300)]
        bad = PutFlow(Flow(9, address(1000), (ToGroup(77),), cookie=OURS))
        later = PutFlow(Flow(9, address(2000), (Output(1),), cookie=OURS))
        changes: list[Change] = [*good[:200], bad, *good[200:], Barrier(), later]
        with pytest.raises(RefusedError, match="OFPBAC_BAD_OUT_GROUP") as caught:
            await switch.apply(changes)
        assert caught.value.request == bad
        assert set((await switch.tables(OURS, OURS_MASK)).flows) == {put.flow.name for put in good}


async def test_only_our_own_flows_are_read_and_dropped(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        ours, others = (Flow(9, address(number), (Output(1),), cookie=number << 48) for number in (1, 2))
        await switch.apply([PutFlow(ours), PutFlow(others)])
        assert await switch.tables(1 << 48, OURS_MASK) == Tables.of([ours])
        await switch.apply([DropFlow(Flow(9, address(2), (), cookie=1 << 48))])
        assert await switch.tables(2 << 48, OURS_MASK) == Tables.of([others]), "another cookie"
        await switch.remove(1 << 48, OURS_MASK)
        assert (await switch.tables(1 << 48, OURS_MASK)).flows == {}
        assert len(ovs.flows("one")) == len(BASE_FLOWS) + 1


async def test_dropping_a_group_drops_the_flows_that_use_it(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        await switch.apply(difference(Tables(), tree(1, (2,))))
        await switch.apply([DropGroup(1)])
        assert await switch.tables(OURS, OURS_MASK) == Tables()


async def test_a_reply_of_many_messages_is_read_whole(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        many = [Flow(9, address(number), (Output(1),), cookie=OURS | number) for number in range(3000)]
        await switch.apply([PutFlow(flow) for flow in many])
        assert await switch.tables(OURS, OURS_MASK) == Tables.of(many)


# ---- ports, links, hosts


async def test_links_are_found_and_lost_with_their_ports(ovs: Ovs) -> None:
    async with controller(settings=NEVER) as (port, heard):
        for dpid, name in enumerate(("one", "two", "three"), 1):
            ovs.bridge(name, dpid, [f"{name}-p1"], port)
            await heard.connected(dpid)
        ovs.patch("one", 10, "two", 11)
        ovs.patch("two", 12, "three", 13)
        left, right = Link.of(Port(1, 10), Port(2, 11)), Link.of(Port(2, 12), Port(3, 13))
        await heard.until(lambda: heard.links == {left, right})
        ovs.vsctl("del-port", "one", "one-two")
        await heard.until(lambda: heard.links == {right})
        statuses = [what[2] for what in heard.heard if what[0] == "port_status" and what[1] == 1]
        last = statuses[-1]
        assert isinstance(last, PortStatus)
        assert (last.change, last.port.name) == (PortChange.REMOVED, "one-two")


async def test_links_are_found_again_when_the_controller_comes_back(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        for dpid, name in enumerate(("one", "two"), 1):
            ovs.bridge(name, dpid, [], port)
        ovs.patch("one", 10, "two", 11)
        await heard.until(lambda: len(heard.links) == 1)
        found = set(heard.links)
    async with controller(port, NEVER) as (_, again):
        await again.until(lambda: again.links == found)


async def test_a_link_that_swallows_probes_is_lost_though_its_ports_are_up(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        for dpid, name in enumerate(("one", "two"), 1):
            ovs.bridge(name, dpid, [], port)
        ovs.patch("one", 10, "two", 11)
        await heard.until(lambda: len(heard.links) == 1)
        switch = heard.switches[2]
        swallow = Flow(65001, Match.of(in_port=11, eth_type=0x88CC), (), cookie=OURS)
        await switch.apply([PutFlow(swallow)])
        await heard.until(lambda: heard.links == set())
        await switch.apply([DropFlow(swallow)])
        await heard.until(lambda: len(heard.links) == 1)


async def test_what_changed_while_a_switch_was_away_is_noticed(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        for dpid, name in enumerate(("one", "two"), 1):
            ovs.bridge(name, dpid, [f"{name}-p1"], port)
        ovs.patch("one", 10, "two", 11)
        await heard.until(lambda: len(heard.links) == 1)
        ovs.receive("one-p1", frames.arp(7, "10.0.0.7"))
        await heard.until(lambda: len(heard.hosts) == 1)
        ovs.vsctl("del-controller", "one")
        await heard.until(lambda: 1 not in heard.switches)
        assert len(heard.links) == 1, "it forwards on"
        ovs.vsctl("del-port", "one", "one-two", "--", "del-port", "one", "one-p1")
        ovs.connect("one", port)
        await heard.until(lambda: (heard.links, heard.hosts) == (set(), {}))


async def test_a_slave_sends_no_probes(ovs: Ovs, caplog: pytest.LogCaptureFixture) -> None:
    async with controller() as (one, first), controller() as (other, second):
        for dpid, name in enumerate(("one", "two"), 1):
            ovs.bridge(name, dpid, [])
            ovs.vsctl("set-controller", name, f"tcp:127.0.0.1:{one}", f"tcp:127.0.0.1:{other}")
            slave, master = await first.connected(dpid), await second.connected(dpid)
            await slave.role(Role.SLAVE, 1)
            await master.role(Role.MASTER, 1)
        ovs.patch("one", 10, "two", 11)
        await second.until(lambda: len(second.links) == 1)
        assert first.links == set(), "packets go to the master only"
        assert "OFPBRC_IS_SLAVE" not in caplog.text


async def test_a_port_that_loses_its_carrier_is_down(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1"], port)
        switch = await heard.connected(1)
        ovs.carrier("p1", False)
        await heard.until(lambda: not switch.ports[1].up)
        ovs.carrier("p1", True)
        await heard.until(lambda: switch.ports[1].up)


async def test_hosts_are_seen_where_they_are_attached(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        for dpid, name in enumerate(("one", "two"), 1):
            ovs.bridge(name, dpid, [f"{name}-p1", f"{name}-p2"], port)
        ovs.patch("one", 10, "two", 11)
        await heard.until(lambda: len(heard.links) == 1)
        ovs.receive("one-p1", frames.arp(7, "10.0.0.7"))
        ovs.receive("two-p2", frames.solicitation(8, "2001:db8::8"))
        seven, eight = 0x020000000007, 0x020000000008
        await heard.until(lambda: heard.hosts.keys() == {seven, eight})
        await heard.until(lambda: sum(packet.port in (10, 11) for _, packet in heard.packets) >= 2)
        assert {key: host.at for key, host in heard.hosts.items()} == {seven: Port(1, 1), eight: Port(2, 2)}
        ovs.receive("two-p1", frames.arp(7, "10.0.0.7"))
        await heard.until(lambda: heard.hosts[seven] == HostSeen(seven, Port(2, 1)))
        ovs.carrier("two-p1", False)
        await heard.until(lambda: seven not in heard.hosts)


async def test_a_packet_sent_out_arrives_at_the_next_switch(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        for dpid, name in enumerate(("one", "two"), 1):
            ovs.bridge(name, dpid, [], port)
        ovs.patch("one", 10, "two", 11)
        await heard.until(lambda: len(heard.links) == 1)
        frame = frames.arp(9, "10.0.0.9")
        heard.switches[1].packet_out(10, frame)
        await heard.until(lambda: any(p.frame == frame and (d, p.port) == (2, 11) for d, p in heard.packets))
        heard.switches[1].packet_out(NORMAL, announcement("02:00:00:00:00:07"), 10)
        await heard.switches[1].barrier()
        rows = [row.split()[:3] for row in ovs.appctl("fdb/show", "one").splitlines()]
        assert ["10", "0", "02:00:00:00:00:07"] in rows


# ---- statistics, meters, roles


async def test_ports_flows_and_groups_are_counted(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1", "p2", "p3"], port)
        switch = await heard.connected(1)
        await switch.apply(difference(Tables(), tree(1, (2, 3))))
        frame = frames.udp4(7, "10.0.0.7", "239.77.0.1", 5000)
        for _ in range(5):
            ovs.receive("p1", frame)
        async with asyncio.timeout(TIMEOUT):
            # The datapath's counts reach the tables up to half a second late.
            while [count.packets for count in await switch.group_stats()] != [5]:
                pass
        [group] = await switch.group_stats()
        assert (group.flows, group.bytes, [packets for packets, _ in group.buckets]) == (2, 5 * len(frame), [5, 5])
        flows = {count.flow.priority: count.packets for count in await switch.flow_stats(OURS, OURS_MASK)}
        assert flows == {100: 0, 200: 5}
        ports = {count.port: count for count in await switch.port_stats()}
        assert (ports[1].rx_packets, ports[1].rx_bytes) == (5, 5 * len(frame))
        # The loopback leaves by p1, a copy each by p2 and p3; probes leave by all three.
        assert all((ports[number].tx_bytes or 0) >= 5 * len(frame) for number in (1, 2, 3))
        assert ports[1].rx_errors is None, "dummy devices do not count errors"


async def test_a_meter_is_counted_and_goes_with_its_flows(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1", "p2"], port)
        switch = await heard.connected(1)
        flow = Flow(9, Match.of(in_port=1), (Output(2),), cookie=OURS, meter=0xEFFF_FFFF)
        await switch.apply([PutMeter(Meter(0xEFFF_FFFF, 5, 1)), PutMeter(Meter(0xEFFF_FFFF, 1, 1)), PutFlow(flow)])
        frame = frames.udp4(7, "10.0.0.7", "239.77.0.1", 5000)
        for _ in range(20):
            ovs.receive("p1", frame)
        async with asyncio.timeout(TIMEOUT):
            while (1, 20) not in [(count.flows, count.packets) for count in await switch.meter_stats()]:
                pass
        await switch.apply([DropMeter(0xEFFF_FFFF), DropMeter(0xEFFF_FFFF)])
        assert await switch.tables(OURS, OURS_MASK) == Tables()


async def test_a_storm_of_arp_does_not_come_to_the_controller(ovs: Ovs) -> None:
    async with controller() as (port, heard):
        ovs.bridge("one", 1, ["p1", "p2"], port)
        switch = await heard.connected(1)
        await switch.apply([PutMeter(Meter(STORM.id, 1, 1))])  # as if it were one: frames come slowly here
        for number in range(20):
            ovs.receive("p1", frames.arp(7, f"10.0.0.{number + 1}"))
        async with asyncio.timeout(TIMEOUT):
            while (2, 20) not in [(count.flows, count.packets) for count in await switch.meter_stats()]:
                pass
        assert 1 <= len(heard.packets) < 20


async def test_of_two_controllers_the_later_elected_is_master(ovs: Ovs) -> None:
    async with controller() as (one, first), controller() as (other, second):
        ovs.bridge("one", 1, ["p1"])
        ovs.vsctl("set-controller", "one", f"tcp:127.0.0.1:{one}", f"tcp:127.0.0.1:{other}")
        master, rival = await first.connected(1), await second.connected(1)
        assert (await master.role(Role.MASTER, 7)).role is Role.MASTER
        with pytest.raises(RefusedError, match="OFPRRFC_STALE"):
            await rival.role(Role.MASTER, 6)
        assert (await rival.role(Role.MASTER, 8)).generation == 8
        assert (await master.role(Role.UNCHANGED)).role is Role.SLAVE
        with pytest.raises(RefusedError, match="OFPBRC_IS_SLAVE"):
            await master.apply([PutFlow(Flow(1, address(1), ()))])
        assert await rival.tables(OURS, OURS_MASK) == Tables()
