"""Addresses that are codes, on Open vSwitch: one entry serves a subtree, each topic reaches its own brokers only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lab import Lab
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.northbound.driver.client import Client
from saps.ofm.northbound.schema import OfmRequest
from tests.ofm.controller.ofc import SWITCHES, TIMEOUT, Member, members, ofc, ours, tables, usable

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

OPTIONS = ("--addresses", "coded", "--loopback", "fd77:0:0:ffff::fffe")


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("coded") / "d"
    with Lab("ring:3x2", name=f"coded{os.getpid()}", controller=SWITCHES, directory=directory, ipv6=True) as made:
        yield made


async def built(client: Client, topic: str, brokers: list[Member]) -> OfmAddress:
    return usable(await client.put(OfmRequest(topic, [member.address for member in brokers]), wait=TIMEOUT))


async def test_one_entry_serves_a_subtree_and_each_topic_reaches_its_own_brokers_only(lab: Lab) -> None:
    with ofc(lab, *OPTIONS) as running:
        async with running.client() as client, members(lab, ipv6=True) as brokers:
            all_of_them = list(brokers.values())
            few = [member for member in all_of_them if member.name.endswith("1")]
            wide = {
                topic: await built(client, topic, all_of_them) for topic in ("city", "city/a", "city/b", "city/b/c")
            }
            before = ours(tables(lab))
            more = await built(client, "city/d", all_of_them)
            assert ours(tables(lab)) == before, "the same entries serve it"
            narrow = await built(client, "city/b/e", few)
            for topic, to in {**wide, "city/d": more, "city/b/e": narrow}.items():
                for member in few:
                    member.send(to, f"{topic} {member.name}".encode())
            for member in all_of_them:
                senders = [sender.name for sender in few]
                topics = [*wide, "city/d", *(["city/b/e"] if member in few else [])]
                wanted = {f"{topic} {sender}".encode() for topic in topics for sender in senders}
                await member.has(wanted)
                assert member.got == dict.fromkeys(wanted, 1)
            budgets = await client.budgets()
            assert all(budget.entries.used < budget.alone for budget in budgets)
        assert running.stop() == 0
