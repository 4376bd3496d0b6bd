"""Parallel links on Open vSwitch (`--parallel-links select`): all are used, in order, and one that fails costs only
what is under way."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from lab import Lab
from lab.commands import wait_until
from saps.ofm.controller.addresses import OfmAddress
from tests.ofm.controller.ofc import SWITCHES, TIMEOUT, Member, all_known, constructed, members, ofc, tables, usable

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

TOPIC = "alert/fire"
ROUNDS = 20
"""Datagrams of each publisher."""
TWIN = """
links = [["s1", "s2"], ["s1", "s2"], ["s2", "s3"]]
[switches]
s1 = { hosts = 5 }
s2 = { hosts = 1 }
s3 = { hosts = 5 }
"""


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("labs") / "d"
    with Lab(TWIN, name=f"twin{os.getpid()}", controller=SWITCHES, directory=directory) as made:
        yield made


async def test_publishers_use_both_links_and_each_keeps_its_order(twin: Lab) -> None:
    with ofc(twin, "--parallel-links", "select") as running:
        async with running.client() as client, members(twin) as brokers:
            await all_known(client, twin)
            to = await constructed(client, TOPIC, brokers.values())
            everyone = list(brokers.values())
            before = twin.counters()
            for number in range(ROUNDS):
                for sender in everyone:
                    sender.send(to, said(sender, number))
                for member in everyone:
                    await member.has({said(sender, number) for sender in everyone})
            seen = twin.counters() - before
            for member in everyone:
                assert set(member.got.values()) == {1}
                for sender in everyone:
                    came = [data for data in member.got if data.startswith(sender.name.encode() + b" ")]
                    assert came == [said(sender, number) for number in range(ROUNDS)], f"{sender.name} at {member.name}"
            for number in (1, 2):
                both = seen.across("s1", "s2", number).packets + seen.across("s2", "s1", number).packets
                assert both >= ROUNDS, f"link {number}"
            await client.delete(TOPIC, wait=TIMEOUT)
            assert not any(groups for _, groups in tables(twin).values())


class Chorus:
    """All send the same numbers, at a steady rate, until they are stopped."""

    def __init__(self, senders: list[Member], to: OfmAddress, rate: int = 20) -> None:
        self.senders, self.to = senders, to
        self.sent = 0
        self._pause = 1 / rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            for sender in self.senders:
                sender.socket.sendto(said(sender, self.sent), (self.to.ip, self.to.port))
            self.sent += 1

    async def sing(self, more: int) -> None:
        """Returns when so many more numbers have been sent."""
        wanted = self.sent + more
        await asyncio.to_thread(wait_until, lambda: self.sent >= wanted, "the chorus to sing on", TIMEOUT)

    async def heard(self) -> int:
        """Returns once a number has come from everyone to everyone: that number."""
        async with asyncio.timeout(TIMEOUT):
            number = self.sent
            while True:
                words = {said(sender, number) for sender in self.senders}
                if all(words <= member.got.keys() for member in self.senders):
                    return number
                if self.sent > number + 10:
                    number = self.sent
                await asyncio.sleep(self._pause)

    async def stop(self) -> None:
        """Ends it; the last number has come from everyone to everyone then."""
        self._over.set()
        await asyncio.to_thread(self._thread.join)
        last = {said(sender, self.sent - 1) for sender in self.senders}
        for member in self.senders:
            await member.has(last)


def said(sender: Member, number: int) -> bytes:
    return f"{sender.name} {number:06}".encode()


@pytest.mark.parametrize("how", ["select", "failover"])
async def test_a_link_that_fails_costs_only_what_is_under_way_with_a_controller_or_without(twin: Lab, how: str) -> None:
    """The second one fails when there is no controller: the switches go by themselves."""
    hosts = ["c1b1", "c1b2", "c1b3", "c2b1", "c3b1", "c3b2"]
    with ofc(twin, "--parallel-links", how) as running:
        async with running.client() as client, members(twin, hosts) as brokers:
            await all_known(client, twin)
            to = await constructed(client, TOPIC, brokers.values())
            chorus = Chorus(list(brokers.values()), to)
            excused: set[int] = set()

            async def set_link(number: int, up: bool) -> None:
                """Excused is what was sent until the switches have noticed."""
                first = max(0, chorus.sent - 1)
                await asyncio.to_thread(lambda: twin.set_link("s1", "s2", up=up, number=number))
                excused.update(range(first, await chorus.heard()))
                await chorus.sing(10)

            await chorus.heard()
            await set_link(1, up=False)
            assert usable(await client.get(TOPIC, wait=TIMEOUT)) == to
            await set_link(1, up=True)
            await until_spread(twin)
            await chorus.sing(10)
            running.kill()
            used = 2 if how == "select" else 1
            await set_link(used, up=False)
            await set_link(used, up=True)
            await chorus.stop()
            assert len(excused) < chorus.sent
            for member in chorus.senders:
                assert set(member.got.values()) == {1}
                for sender in chorus.senders:
                    numbers = {number for number in range(chorus.sent) if said(sender, number) in member.got}
                    assert set(range(chorus.sent)) - numbers <= excused, f"{sender.name} at {member.name}"


async def until_spread(lab: Lab) -> None:
    """Returns once both links are in use again."""

    def both() -> bool:
        [line] = [line for line in tables(lab)["s1"][1] if "type=select" in line or "type=f" in line]
        return line.count("output:") == 2

    await asyncio.to_thread(wait_until, both, "both links to be used", TIMEOUT)
