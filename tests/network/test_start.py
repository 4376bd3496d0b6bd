"""All brokers of a site lose power and start again, configured as shipped: one mesh, whatever the order, by itself."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trustme

from examples.smart_city.processes import BrokerProcess, saps_program
from saps.broker.start import Members
from saps.frontend.mqtt.driver.access_files import edit_users
from saps.identity.secret import new_secret
from saps.overlay.ring.keys import BrokerRef
from tests.network.meshes import Client

pytestmark = pytest.mark.network

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "config"
WITHIN = 15.0
"""Seconds from the last start until all are one mesh."""
SLOW = 4.0
"""Times as long as that may take on a machine that does other things."""


class Site:
    """The brokers of one site, each with its files, on loopback addresses of this test's own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        octets = random.SystemRandom()
        self.net = f"127.{octets.randrange(1, 255)}.{octets.randrange(1, 255)}"
        self.folder = folder
        self.processes: dict[str, BrokerProcess] = {}
        self.mqtt: dict[str, tuple[str, int]] = {}

    def start(self, name: str) -> BrokerProcess:
        """Start a broker; not yet ready."""
        process = saps_program(name, "broker", "--config", str(self.folder / f"{name}.toml"), kind="broker")
        self.processes[name] = process
        return process

    async def power(self, names: list[str], delays: list[float]) -> float:
        """Start these, each so many seconds after now; when the last one was started."""
        began = time.monotonic()

        async def one(name: str, delay: float) -> None:
            await asyncio.sleep(delay)
            await self.start(name).start()

        await asyncio.gather(*(one(name, delay) for name, delay in zip(names, delays, strict=True)))
        return began + max(delays)

    async def lose_power(self) -> None:
        """kill -9, all of them."""
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        await asyncio.gather(*(process.stop(0) for process in self.processes.values()))
        self.processes.clear()

    def client(self, name: str, broker: str, expiry: int = 0) -> Client:
        return Client(self.mqtt[broker], name, user="device", expiry=expiry)

    async def one_mesh(self, word: str) -> None:
        """Wait until what a client publishes at any broker reaches clients at all."""
        async with AsyncExitStack() as stack:
            clients = {n: await stack.enter_async_context(self.client(f"{n}-{word}", n)) for n in self.processes}
            for client in clients.values():
                await client.subscribe(f"{word}/#")
            missing = {(one, other) for one in clients for other in clients}
            round_ = 0
            while missing:
                round_ += 1
                for name, client in clients.items():
                    await client.publish(f"{word}/{name}", str(round_), 1)
                await asyncio.sleep(0.2)
                missing = {
                    (one, other)
                    for one, other in missing
                    if not any(topic == f"{word}/{one}" for topic, _ in clients[other].received)
                }


def one_site(folder: Path, seed: int, *, join: bool) -> Site:
    """Three brokers as ``deploy/config/one-site`` has them, with other places; without `join` the first names nobody,
    and the others name it."""
    site = Site(folder, seed)
    (folder / "mesh.secret").write_text(new_secret())
    (folder / "mesh.secret").chmod(0o600)
    edit_users(folder / "passwords", "device", b"device")
    (folder / "acl.toml").write_text('default = "allow"\n')
    trustme.CA().issue_cert(f"{site.net}.1").private_key_and_cert_chain_pem.write_to_path(folder / "mqtt.pem")
    shipped = (CONFIG / "one-site" / "b1.toml").read_text()
    assert shipped.count("10.0.1.") >= 4
    for number in (1, 2, 3):
        others = [f"{site.net}.{n}:7300" for n in (1, 2, 3) if n != number and (join or n == 1)]
        text = re.sub(r"join = .*", f"join = {others}" if others else "", shipped).replace("'", '"')
        for old, new in {
            'name = "b1"': f'name = "b{number}"',
            "/var/lib/saps/b1.db": str(folder / f"b{number}.db"),
            "/etc/saps": str(folder),
            "10.0.1.1:7300": f"{site.net}.{number}:7300",
            "127.0.0.1:1883": f"{site.net}.{number}:1883",
            "0.0.0.0:8883": f"{site.net}.{number}:8883",
            "127.0.0.1:8080": f"{site.net}.{number}:8080",
        }.items():
            assert old in text, old
            text = text.replace(old, new)
        (folder / f"b{number}.toml").write_text(text)
        site.mqtt[f"b{number}"] = f"{site.net}.{number}", 1883
    return site


def one_host(folder: Path, seed: int) -> Site:
    """Two brokers as ``deploy/config/one-host`` has them, with another loopback address."""
    site = Site(folder, seed)
    for name, port in (("b1", 1883), ("b2", 1884)):
        text = (CONFIG / "one-host" / f"{name}.toml").read_text().replace("127.0.0.1", f"{site.net}.1")
        (folder / f"{name}.toml").write_text(text)
        site.mqtt[name] = f"{site.net}.1", port
    return site


@asynccontextmanager
async def standing(site: Site) -> AsyncIterator[Site]:
    try:
        yield site
    finally:
        await site.lose_power()


AT_ONCE, LATE, LATE_TOGETHER = [0.0, 0.0, 0.0], [6.0, 0.0, 3.0], [0.0, 7.5, 7.5]
"""When each of the three has power again, in seconds."""


@pytest.mark.parametrize(
    ("join", "rounds"),
    [
        pytest.param(True, [LATE], id="join in every file"),
        pytest.param(False, [LATE_TOGETHER], id="the first without join"),
        pytest.param(True, [AT_ONCE, LATE, LATE_TOGETHER], id="join in every file, all", marks=pytest.mark.soak),
        pytest.param(False, [AT_ONCE, LATE, LATE_TOGETHER], id="the first without join, all", marks=pytest.mark.soak),
    ],
)
async def test_a_site_that_loses_power_is_one_mesh_again(tmp_path: Path, join: bool, rounds: list[list[float]]) -> None:
    async with standing(one_site(tmp_path, 1, join=join)) as site:
        names = sorted(site.mqtt)
        await site.power(names, [0.0, 0.0, 0.0])
        await asyncio.wait_for(site.one_mesh("first"), WITHIN * SLOW)
        for name in names:  # what is acknowledged for them is owed
            async with site.client(f"away-{name}", name, 3600) as device:
                await device.subscribe(f"owed/{name}/#")
        for number, delays in enumerate(rounds):
            order = site.rng.sample(names, 3)
            async with AsyncExitStack() as stack:
                for name in names:
                    writer = await stack.enter_async_context(site.client(f"writer{number}-{name}", name))
                    for other in names:
                        await writer.publish(f"owed/{other}/{name}", str(number), 1)
                    await writer.publish(f"state/{number}/{name}", "kept", 1, retain=True)
            await site.lose_power()
            last = await site.power(order, delays)
            await asyncio.wait_for(site.one_mesh(f"round{number}"), WITHIN * SLOW)
            print(f"one mesh {time.monotonic() - last:.1f} s after the last of {order} started, delays {delays}")
        for name in names:
            async with site.client(f"away-{name}", name, 3600) as device:
                owed = {(f"owed/{name}/{other}", b"%d" % n) for other in names for n in range(len(rounds))}
                await device.until(lambda device=device, owed=owed: owed <= {*device.received})  # type: ignore[misc]
        async with site.client("reader", names[0]) as reader:
            await reader.subscribe("state/#")
            kept = {(f"state/{n}/{name}", b"kept") for n in range(len(rounds)) for name in names}
            await reader.until(lambda: kept <= {*reader.received})


def test_members_that_may_be_starting_too_are_remembered(tmp_path: Path) -> None:
    file = str(tmp_path / "b1.db")
    members, b2 = Members(file), BrokerRef("b2", 1, "127.0.0.1:2", "")
    members.write([], {"127.0.0.1:3": "b3"})
    assert Members(file).read() == (0, {})
    members.write([b2], {"127.0.0.1:9": "b2", "127.0.0.1:3": "b3"})
    assert Members(file).read() == (0, {"127.0.0.1:2": "b2", "127.0.0.1:3": "b3"})
    members.write([], {})
    assert len(Members(file).read()[1]) == 2
    assert Path(f"{file}.members").stat().st_mode & 0o777 == 0o600
    members.begin(7)
    members.write([b2], {})
    assert Members(file).read() == (7, {"127.0.0.1:2": "b2"})
    Path(f"{file}.members").write_text('{"127.0.0.1:2":"b2"}')  # as the file was before it had the incarnation
    assert Members(file).read() == (0, {"127.0.0.1:2": "b2"})


async def test_two_brokers_of_one_host_are_one_mesh_whichever_starts_first(tmp_path: Path) -> None:
    async with standing(one_host(tmp_path, 1)) as site:
        for number, delays in enumerate(([7.0, 0.0], [0.0, 7.0])):
            last = await site.power(["b1", "b2"], list(delays))
            await asyncio.wait_for(site.one_mesh(f"round{number}"), WITHIN * SLOW)
            print(f"one mesh {time.monotonic() - last:.1f} s after the last started, delays {delays}")
            await site.lose_power()
