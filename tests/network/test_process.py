"""`saps broker` as a process among others: its ready line, how it ends, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from examples.smart_city.processes import BrokerError, BrokerProcess, free_ports, saps_broker
from tests.network.meshes import Client

pytestmark = pytest.mark.network

ANY = "127.0.0.1:0"
TIMEOUT = 20.0
CONNECT_V5 = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c"
DISCONNECT_SHUTTING_DOWN = b"\xe0\x02\x8b\x00"
"""MQTT 5.0, 3.14: reason 0x8B, no properties."""
DISCONNECT_SHORT = b"\xe0\x01\x8b"
"""The same; a property length of 0 may be left out (3.14.2.2.1)."""


def told(process: BrokerProcess) -> dict[str, str]:
    """The fields of the ready line."""
    word, *fields = process.ready_line.split()
    assert word == "ready"
    return dict(field.split("=", 1) for field in fields)


def mqtt(process: BrokerProcess) -> tuple[str, int]:
    """Where the broker says that clients attach."""
    host, port = told(process)["mqtt"].rsplit(":", 1)
    return host, int(port)


@asynccontextmanager
async def processes(count: int) -> AsyncIterator[list[BrokerProcess]]:
    """Brokers b0, b1, ... in one mesh, on ports the system chose; killed at the end if still there."""
    async with AsyncExitStack() as stack:
        started: list[BrokerProcess] = []
        for number in range(count):
            join = [told(started[0])["overlay"]] if started else []
            process = saps_broker(f"b{number}", f"c{number % 2}", ANY, ANY, join)
            started.append(await stack.enter_async_context(process))
            stack.push_async_callback(process.stop, 0)
        yield started


async def refused(process: BrokerProcess) -> str:
    """The one line with which a broker refuses to start, with exit status 2."""
    with pytest.raises(BrokerError):
        await process.start()
    assert process.exit_status == 2
    (line,) = process.errors.splitlines()
    return line


async def test_the_ready_line_says_where_to_connect() -> None:
    async with processes(2) as (first, second):
        for number, process in enumerate((first, second)):
            fields = told(process)
            assert list(fields) == ["name", "cluster", "mqtt", "overlay"]
            assert (fields["name"], fields["cluster"]) == (f"b{number}", f"c{number}")
        async with Client(mqtt(first)) as subscriber, Client(mqtt(second)) as publisher:
            await subscriber.subscribe("a/b")
            await publisher.publish("a/b", b"x", 1)
            await subscriber.expect("a/b", b"x")


async def test_sigterm_tells_an_mqtt_5_client_that_the_server_shuts_down() -> None:
    async with processes(2) as (_, leaving), asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(*mqtt(leaving))
        writer.write(CONNECT_V5)
        connack = await reader.readexactly(2)
        assert connack[0] == 0x20
        await reader.readexactly(connack[1])
        leaving.signal(signal.SIGTERM)
        rest = await reader.read()
        writer.close()
        assert rest in (DISCONNECT_SHUTTING_DOWN, DISCONNECT_SHORT)
        assert await leaving.stop() == 0


async def test_all_brokers_stopped_at_once_end_in_order() -> None:
    async with processes(4) as brokers, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(mqtt(broker))) for broker in brokers]
        for client in clients:
            await client.subscribe("city/#")
        for client in clients:
            await client.publish(f"city/{client.name}", b"x", 1)
        for broker in brokers:
            broker.signal(signal.SIGTERM)
        assert await asyncio.gather(*(broker.stop(TIMEOUT) for broker in brokers)) == [0] * len(brokers)


async def test_sigterm_while_it_still_tries_to_join_ends_it_in_order() -> None:
    (port,) = free_ports(1, random.Random(os.urandom(8)))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        process = saps_broker("b", "c", f"127.0.0.1:{port}", ANY, [at])
        starting = asyncio.create_task(process.start())
        silent.setblocking(False)
        async with asyncio.timeout(TIMEOUT):
            accepted, _ = await asyncio.get_running_loop().sock_accept(silent)  # it asks who is there
        with accepted:
            process.signal(signal.SIGTERM)
            with pytest.raises(BrokerError):
                await starting
        assert process.exit_status == 0, process.errors


async def test_a_name_that_is_taken_is_refused_by_its_setting() -> None:
    """Directly, and by way of another broker."""
    async with processes(2) as brokers:
        for contact in brokers:
            twin = saps_broker("b0", "c1", ANY, ANY, [told(contact)["overlay"]])
            twin.command = (*twin.command, "--set", "overlay.join_timeout=1")
            async with AsyncExitStack() as stack:
                stack.push_async_callback(twin.stop)
                line = await refused(twin)
            assert line.startswith("saps: join (flag --join): ")
            assert "there is a broker with the same name, 'b0'" in line
        async with Client(mqtt(brokers[0])) as subscriber, Client(mqtt(brokers[1])) as publisher:
            await subscriber.subscribe("a/b")
            await publisher.publish("a/b", b"x", 1)
            await subscriber.expect("a/b", b"x")


async def test_a_mesh_with_another_key_order_cannot_be_joined() -> None:
    async with processes(1) as (first,):
        other = saps_broker("b1", "c1", ANY, ANY, [told(first)["overlay"]])
        other.command = (
            *other.command,
            "--set",
            "overlay.join_timeout=0.5",
            "--set",
            "overlay.alm_order=plain",
        )
        line = await refused(other)
        assert line.startswith("saps: join (flag --join): ")
        assert "orders its keys by 'cluster', this one by 'alm'" in line


async def test_the_port_of_a_running_broker_is_refused_by_the_name_of_its_setting() -> None:
    async with processes(1) as (first,):
        fields = told(first)
        assert (await refused(saps_broker("b1", "c1", fields["mqtt"], ANY))).startswith("saps: mqtt (flag --mqtt): ")
        line = await refused(saps_broker("b1", "c1", ANY, fields["overlay"]))
        assert line.startswith("saps: overlay.listen (flag --overlay): ")
