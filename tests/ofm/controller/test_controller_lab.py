"""The controller on real switches: who gets what, while brokers come and go, and when something dies."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab
from lab.commands import wait_until
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.program import rules
from saps.ofm.controller.saved import restore
from saps.ofm.flows.tables import Tables
from saps.ofm.northbound.schema import OfmRequest, Status
from saps.ofm.openflow.base import STORM
from tests.ofm.controller.ofc import (
    SWITCHES,
    TIMEOUT,
    Stream,
    all_known,
    constructed,
    each_hears_all,
    heard_by_all,
    members,
    ofc,
    ofctl,
    ours,
    state_file,
    tables,
    usable,
    written,
)
from tests.ofm.openflow.ovs import open_vswitch

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

TOPIC = "alert/fire"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("labs") / "d"
    with Lab("tree:4x2", name=f"ofc{os.getpid()}", controller=SWITCHES, directory=directory) as made:
        yield made


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(
        "ring:4x1", name=f"ofcring{os.getpid()}", controller=SWITCHES, directory=tmp_path_factory.mktemp("rings") / "d"
    ) as made:
        yield made


async def test_each_broker_gets_each_packet_once_and_the_sender_its_loopback_packet(lab: Lab) -> None:
    with ofc(lab) as running:
        async with running.client() as client, members(lab) as brokers:
            to = await constructed(client, TOPIC, brokers.values())
            await each_hears_all(brokers, to)
            stats = await client.stats(TOPIC)
            assert {count.broker for count in stats.senders} == {member.address for member in brokers.values()}
            assert (await client.delete(TOPIC, wait=TIMEOUT)).status is Status.NONE
        assert not any(groups for _, groups in tables(lab).values())
        assert running.stop() == 0


async def test_who_stays_loses_and_doubles_nothing_while_others_join_and_leave(lab: Lab) -> None:
    stay = ["c1b1", "c2b1", "c3b1"]
    come_and_go = ["c1b2", "c2b2", "c4b1", "c3b2", "c4b2"]
    with ofc(lab) as running:
        async with running.client() as client, members(lab) as brokers:
            await all_known(client, lab)
            to = await constructed(client, TOPIC, [brokers[name] for name in stay])
            stream = Stream(brokers["c1b1"], to)
            joined: list[str] = []
            for round in range(20):
                name = come_and_go[round % len(come_and_go)]
                joined = [other for other in joined if other != name] if name in joined else [*joined, name]
                assert await constructed(client, TOPIC, [brokers[other] for other in (*stay, *joined)]) == to
            came = await stream.stop([brokers[name] for name in stay])
            for name in stay:
                assert set(came[name]) == set(range(stream.sent)), name
                assert set(came[name].values()) == {1}, name
            assert all(set(brokers[name].got.values()) <= {1} for name in come_and_go)


def saved(path: Path, brokers: int) -> None:
    """Returns once the state file has the tree over so many brokers."""

    def there() -> bool:
        return path.exists() and len(json.loads(path.read_text())["ofms"][0]["tree"]["brokers"]) == brokers

    wait_until(there, f"{path} to be written")


@pytest.mark.parametrize(
    "kept",
    [pytest.param(True, id="with a state file", marks=pytest.mark.soak), pytest.param(False, id="without")],
)
async def test_traffic_goes_on_without_the_controller_and_through_its_restart(
    lab: Lab, kept: bool, tmp_path: Path
) -> None:
    options = state_file(tmp_path) if kept else []
    async with members(lab) as brokers:
        request = OfmRequest(TOPIC, [member.address for member in brokers.values()])
        with ofc(lab, *options) as running:
            async with running.client() as client:
                # Some history, so that the tree is not what a fresh plan would be.
                await constructed(client, TOPIC, [brokers["c4b2"], brokers["c1b1"]])
                to = await constructed(client, TOPIC, brokers.values())
            before = tables(lab)
            if kept:
                await asyncio.to_thread(saved, Path(options[1]), len(brokers))
            running.kill()
        stream = Stream(brokers["c1b1"], to)
        await stream.reach(200)
        with ofc(lab, *options) as running:
            async with running.client() as client:
                if not kept:
                    await client.put(request)
                state = await client.get(TOPIC, wait=TIMEOUT)
                assert usable(state) == to
                # Past the grace period, when what belongs to nobody is cleared away.
                await stream.reach(stream.sent + 2000)
                came = await stream.stop(list(brokers.values()))
                assert tables(lab) == before
                assert (await client.get(TOPIC)).status is Status.CONSTRUCTED
                await client.delete(TOPIC, wait=TIMEOUT)
        for name in brokers:
            assert set(came[name]) == set(range(stream.sent)), name
            assert set(came[name].values()) == {1}, name


def desired(state: Path) -> dict[int, Tables]:
    """What each switch shall hold beside the base flows, planned anew from a state file."""
    machine = Controller(rules(ControllerSettings()))
    restore(machine, state.read_bytes())
    baseline = machine.network.baseline
    return {dpid: baseline.with_(machine.ledger.desired(dpid)) for dpid in machine.topology.switches}


async def test_whatever_was_applied_partly_twice_or_late_the_tables_end_as_planned(lab: Lab, tmp_path: Path) -> None:
    options = state_file(tmp_path)
    topics = ["alert/fire", "air/ward1", "a"]
    async with members(lab) as brokers:
        everyone = list(brokers.values())
        intents = dict(zip(topics, (everyone, everyone[3:7], everyone[4:8]), strict=True))
        with ofc(lab, *options) as running:
            async with running.client() as client:
                for topic in topics:
                    await constructed(client, topic, everyone[:5])
                late = ours(tables(lab))
                for number, topic in enumerate(topics):
                    await constructed(client, topic, everyone[number + 2 : number + 6])
                await client.put(OfmRequest(topics[0], [member.address for member in everyone]))
                running.kill()  # somewhere on the way there, and perhaps before the last intents are in the state file
        one, two, *_ = lab.topology.switches
        for flow in late[one.name][0]:
            ofctl(lab, "add-flow", one.name, flow)
        ofctl(lab, "del-groups", two.name)
        with ofc(lab, *options) as running:
            async with running.client() as client:
                for topic, intent in intents.items():
                    await constructed(client, topic, intent)

            def as_planned() -> bool:
                planned, found = desired(Path(options[1])), ours(tables(lab))
                with open_vswitch() as ovs:
                    return all(
                        found[switch.name] == written(ovs, switch.name, planned[switch.datapath_id])
                        for switch in lab.topology.switches
                    )

            # What the state file did not know of is nobody's, and goes after the grace period.
            wait_until(as_planned, "the tables to be as planned", TIMEOUT)
            assert running.stop() == 0
            assert as_planned()
    assert sum(len(groups) for _, groups in ours(tables(lab)).values()) > len(topics)
    for switch in lab.topology.switches:
        ofctl(lab, "del-groups", switch.name)


async def test_a_restarted_switch_is_filled_again(lab: Lab) -> None:
    with ofc(lab) as running:
        async with running.client() as client, members(lab) as brokers:
            to = await constructed(client, TOPIC, brokers.values())
            before = tables(lab)
            lab.restart_switch("core")
            others = [member for name, member in brokers.items() if name != "c1b1"]
            await heard_by_all(brokers["c1b1"], to, others, "after")
            assert usable(await client.get(TOPIC, wait=TIMEOUT)) == to
            assert tables(lab) == before
            await client.delete(TOPIC, wait=TIMEOUT)


async def test_a_link_of_the_tree_fails_and_the_tree_goes_another_way(ring: Lab) -> None:
    with ofc(ring) as running:
        async with running.client() as client, members(ring) as brokers:
            to = await constructed(client, TOPIC, brokers.values())
            names = list(brokers)
            others = [brokers[name] for name in names[1:]]
            await heard_by_all(brokers[names[0]], to, others, "before")
            for link in ring.topology.links:
                a, b = link.a, link.b
                ring.set_link(a, b, up=False)
                try:
                    await heard_by_all(brokers[names[0]], to, others, f"without {a}-{b}")
                    assert usable(await client.get(TOPIC, wait=TIMEOUT)) == to
                finally:
                    ring.set_link(a, b, up=True)
                await heard_by_all(brokers[names[0]], to, others, f"with {a}-{b}")
            assert all(set(member.got.values()) <= {1} for member in brokers.values())


async def test_beyond_a_switch_s_budget_it_is_refused_with_the_reason(lab: Lab) -> None:
    with ofc(lab, "--flow-budget", "5") as running:
        async with running.client() as client, members(lab) as brokers:
            everybody = OfmRequest(TOPIC, [member.address for member in brokers.values()])
            async with asyncio.timeout(TIMEOUT):  # until all hosts and links are known: a detour has no room either
                while (await client.put(everybody, wait=TIMEOUT)).status is Status.REFUSED:
                    await client.delete(TOPIC, wait=TIMEOUT)
            await client.delete(TOPIC, wait=TIMEOUT)
            to = await constructed(client, TOPIC, [brokers["c1b1"], brokers["c2b1"]])
            refused = await client.put(OfmRequest("other", [member.address for member in brokers.values()]), TIMEOUT)
            assert refused.status is Status.REFUSED
            assert refused.address is None
            assert refused.reason is not None
            assert "flow entries; its budget is 5" in refused.reason
            await heard_by_all(brokers["c1b1"], to, [brokers["c2b1"]], "still")
            for budget in await client.budgets():
                assert budget.entries.used <= budget.entries.budget == 5
            for flows, _ in ours(tables(lab)).values():
                assert len(flows) <= 5 + 1, "the budget, and the guard of the range"
            # When the first is gone there is room for the second, which is still wished for.
            await client.delete(TOPIC, wait=TIMEOUT)
            usable(await client.get("other", wait=TIMEOUT))


async def test_a_flood_in_a_broker_s_name_comes_through_at_the_meter_s_rate_and_nobody_else_pays(lab: Lab) -> None:
    """The publisher's host floods; a broker at another port of the same switch sends on."""
    rate, flood, switch = 50, 3000, lab.topology.host("c1b1").switch
    ofctl(lab, "add-meter", switch, "meter=1 pktps bands=type=drop rate=7")
    with ofc(lab, "--meter", str(rate)) as running:
        async with running.client() as client, members(lab, ["c1b1", "c1b2", "c2b1"]) as brokers:
            await all_known(client, lab)
            to = await constructed(client, TOPIC, brokers.values())
            flooder, other, far = brokers.values()
            assert lab.topology.host("c1b2").switch == switch
            began = time.monotonic()
            dropped = 0
            while not dropped:  # a slow machine may take a while to send more than the meter lets through
                assert time.monotonic() < began + TIMEOUT, "nothing is dropped"
                for number in range(flood):
                    flooder.send(to, b"flood %d" % number)
                await heard_by_all(other, to, [flooder, far], f"other at {time.monotonic()}")
                *others, (came, dropped) = sorted(metered(lab, switch))
            # A meter begins full: a second's worth.
            assert came - dropped <= rate * (time.monotonic() - began + 1) + 1
            assert not any(lost for _, lost in others)
            assert 0 < sum(data.startswith(b"flood") for data in far.got) <= came - dropped
            await client.delete(TOPIC, wait=TIMEOUT)
    assert metered(lab, switch) == [(0, 0)], "the operator's own stays"
    ofctl(lab, "del-meter", switch, "meter=1")


def metered(lab: Lab, switch: str) -> list[tuple[int, int]]:
    """Packets that came to each meter of a switch but that of ARP, and those dropped there."""
    text = ofctl(lab, "meter-stats", switch)
    found = re.findall(r"meter:(\d+) .*?packet_in_count:(\d+).*?\n0: packet_count:(\d+)", text)
    return [(int(came), int(dropped)) for id, came, dropped in found if int(id) != STORM.id]
