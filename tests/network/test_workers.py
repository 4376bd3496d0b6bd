"""A broker of several processes on one listening port (`saps.workers`)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path

import aiomqtt
import pytest
import trustme

from examples.smart_city.processes import BrokerError, BrokerProcess, saps_broker
from saps.config import Address
from saps.config.settings import BrokerSettings, UpstreamSettings
from saps.config.storage import StorageSettings
from saps.workers import FIRST_PAUSE, LONGEST_PAUSE, Pauses, reserve, settings_of
from tests.network.meshes import Client

ANY = "127.0.0.1:0"
PATIENCE = 60.0
CROWD = 24
"""Clients, dealt out at random: the chance that one of two workers gets none of them is 1 in 8 million."""


def of_workers(count: int, *more: str, mqtt: str = ANY) -> BrokerProcess:
    """A broker of so many workers, not yet started."""
    process = saps_broker("b", "c", mqtt, ANY)
    process.command = (*process.command, "--workers", str(count), *more)
    return process


def told(process: BrokerProcess) -> dict[str, str]:
    """The fields of the ready line."""
    return dict(field.split("=", 1) for field in process.ready_line.split()[1:])


def address_of(process: BrokerProcess, field: str = "mqtt") -> tuple[str, int]:
    return Address.parse(told(process)[field])


def children_of(process: BrokerProcess) -> list[int]:
    """The processes of the workers, in the order of their start."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == process.pid and state != "Z":
                found.append(int(stat.parent.name))
    return sorted(found)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds, looked at again and again. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def crowd(stack: AsyncExitStack, address: tuple[str, int]) -> list[Client]:
    """Clients that take everything below ``all``."""
    clients = [await stack.enter_async_context(Client(address)) for _ in range(CROWD)]
    for client in clients:
        await client.subscribe("all/#")
    return clients


async def all_reach_all(clients: Sequence[Client], word: str) -> None:
    """Each message of each client comes to every one of them."""
    for client in clients:
        await client.publish(f"all/{client.name}", word, 1)
    for client in clients:
        for publisher in clients:
            await client.expect(f"all/{publisher.name}", word.encode())


async def answered_or_gone(client: Client) -> None:
    """Returns when its broker has acknowledged a message, or the client has heard that its connection is gone."""
    answer = asyncio.create_task(client.publish("none", "", 1))
    await until(lambda: answer.done() or not client.connected)
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)


async def without(broker: BrokerProcess, worker: int, clients: Sequence[Client]) -> list[Client]:
    """Kill a worker. The clients that were at another one."""
    os.kill(worker, signal.SIGKILL)
    await until(lambda: worker not in children_of(broker))
    await asyncio.gather(*map(answered_or_gone, clients))
    return [client for client in clients if client.connected]


@pytest.mark.network
async def test_clients_of_all_workers_are_in_one_mesh_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    authority, files = trustme.CA(), {name: tmp_path / f"{name}.pem" for name in ("certificate", "key")}
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(files["key"])
    issued.cert_chain_pems[0].write_to_path(files["certificate"])
    context = ssl.create_default_context()
    authority.configure_trust(context)
    tls = [f"--set=tls.{name}={value}" for name, value in {"listen": ANY, **files}.items()]
    async with of_workers(2, *tls, "--web", ANY) as broker, AsyncExitStack() as stack:
        assert list(told(broker)) == ["name", "cluster", "mqtt", "overlay", "mqtts", "web", "workers"]
        clients = await crowd(stack, address_of(broker))
        await all_reach_all(clients, "x")
        host, port = address_of(broker, "mqtts")
        async with aiomqtt.Client(host, port, tls_context=context) as secret:
            await secret.publish("all/tls", "y", qos=1)
        host, port = address_of(broker, "web")
        async with aiomqtt.Client(host, port, transport="websockets", websocket_path="/mqtt") as page:
            await page.publish("all/web", "z", qos=1)
        for client in clients:
            await client.expect("all/tls", b"y")
            await client.expect("all/web", b"z")
        workers = children_of(broker)
        assert len(workers) == 2
        broker.signal(signal.SIGINT)
        await until(lambda: not broker.running)
        assert broker.exit_status == 0, broker.errors
        for worker in workers:
            with pytest.raises(ProcessLookupError):
                os.kill(worker, 0)


@pytest.mark.network
async def test_a_killed_worker_comes_back_into_the_mesh() -> None:
    """Also the first one, whose overlay address the others have joined."""
    async with of_workers(2) as broker, AsyncExitStack() as stack:
        clients = await crowd(stack, address_of(broker))
        first, second = children_of(broker)
        left = await without(broker, first, clients)
        assert 0 < len(left) < CROWD
        await all_reach_all(left, "alone")
        await until(lambda: len(children_of(broker)) == 2 and "is back" in broker.errors)
        clients = left + await crowd(stack, address_of(broker))
        await all_reach_all(clients, "again")
        left = await without(broker, second, clients)
        assert left, "nobody was at the worker that came back"
        await all_reach_all(left, "alone again")


@pytest.mark.network
async def test_a_port_in_use_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        address = "{}:{}".format(*other.getsockname())
        broker = of_workers(2, mqtt=address)
        with pytest.raises(BrokerError):
            await broker.start()
    assert broker.exit_status == 2
    assert broker.errors == f"saps: mqtt (flag --mqtt): cannot listen on {address}: Address already in use"


@pytest.mark.network
async def test_what_a_worker_refuses_is_told_as_of_a_single_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "{}:{}".format(*other.getsockname())
        broker = saps_broker("b", "c", ANY, address)
        broker.command = (*broker.command, "--workers", "2")
        with pytest.raises(BrokerError):
            await broker.start()
    assert broker.exit_status == 2
    assert broker.errors == f"saps: overlay.listen (flag --overlay): cannot listen on {address}: Address already in use"


@pytest.mark.parametrize("shared", [False, True])
def test_an_address_is_not_reserved_beside_another_listener(shared: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=shared) as other, pytest.raises(OSError, match="in use"):
        reserve(Address(*other.getsockname()))


def test_workers_can_listen_where_a_port_is_reserved() -> None:
    address, held = reserve(Address("127.0.0.1", 0))
    try:
        with (
            socket.create_server(address, reuse_port=True),
            socket.create_server(address, reuse_port=True),
            socket.create_connection(address),
        ):
            assert address.port != 0
    finally:
        for sock in held:
            sock.close()


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_long_life() -> None:
    pauses = Pauses()
    seen = [pauses.after(1.0) for _ in range(10)]
    assert seen[0] == FIRST_PAUSE
    assert all(b == min(2 * a, LONGEST_PAUSE) for a, b in pairwise(seen))
    assert seen[-1] == LONGEST_PAUSE
    assert pauses.after(LONGEST_PAUSE + 1) == FIRST_PAUSE
    assert pauses.after(1.0) == 2 * FIRST_PAUSE


def test_no_two_workers_use_the_same_name_file_address_or_upstream() -> None:
    storage = StorageSettings(file="data/b.db")
    upstream = UpstreamSettings(url="mqtt://127.0.0.1:1")
    given = BrokerSettings(name="b", workers=3, storage=storage, upstream=upstream)
    own = [settings_of(given, number) for number in (1, 2, 3)]
    assert [s.name for s in own] == ["b.1", "b.2", "b.3"]
    assert [s.storage.file for s in own] == ["data/b.1.db", "data/b.2.db", "data/b.3.db"]
    assert [s.overlay.listen.port for s in own] == [given.overlay.listen.port, 0, 0]
    assert [s.upstream.url for s in own] == [upstream.url, "", ""]
    assert {s.mqtt for s in own} == {given.mqtt}
