"""mosquitto_pub and mosquitto_sub, in both protocol versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from saps.frontend.mqtt.driver.server import MqttServer
from tests.frontend.mqtt.peers import need, run, running, servers_of

pytestmark = pytest.mark.interop

VERSIONS = ["mqttv311", "mqttv5"]


@pytest.fixture
async def server() -> AsyncIterator[MqttServer]:
    need("mosquitto_sub", "mosquitto-clients")
    async with running() as server:
        yield server


class Subscription:
    """A running mosquitto_sub."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._messages: list[str] = []

    async def _line(self) -> str:
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().rstrip("\n")
        assert line, "mosquitto_sub ended"
        if line.startswith("MSG "):
            self._messages.append(line.removeprefix("MSG "))
        return line

    async def ready(self) -> None:
        """Returns after SUBACK; messages may have come before."""
        while not (await self._line()).startswith("Subscribed"):
            pass

    async def message(self) -> str:
        while not self._messages:
            await self._line()
        return self._messages.pop(0)


@asynccontextmanager
async def subscribed(server: MqttServer, *arguments: str) -> AsyncIterator[Subscription]:
    """mosquitto_sub, once its SUBACK has come."""
    command = ["mosquitto_sub", "-p", str(server.address[1]), "-d", "-F", "MSG %t %p q%q r%r", *arguments]
    process = await asyncio.create_subprocess_exec("stdbuf", "-oL", *command, stdout=-1)
    subscription = Subscription(process)
    try:
        await subscription.ready()
        yield subscription
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def publish(server: MqttServer, *arguments: str) -> None:
    await run("mosquitto_pub", "-p", str(server.address[1]), *arguments)


@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize("sender", VERSIONS)
async def test_every_quality_between_every_version(server: MqttServer, sender: str, receiver: str) -> None:
    async with subscribed(server, "-V", receiver, "-q", "2", "-t", "city/+/air") as subscription:
        for qos in "012":
            await publish(server, "-V", sender, "-q", qos, "-t", "city/w1/air", "-m", f"m{qos}")
            assert await subscription.message() == f"city/w1/air m{qos} q{qos} r0"


@pytest.mark.parametrize("version", VERSIONS)
async def test_retained(server: MqttServer, version: str) -> None:
    await publish(server, "-V", version, "-q", "1", "-r", "-t", "state/lamp", "-m", "on")
    async with subscribed(server, "-V", version, "-q", "1", "-t", "state/#") as subscription:
        assert await subscription.message() == "state/lamp on q1 r1"
        await publish(server, "-V", version, "-r", "-n", "-t", "state/lamp")
        assert await subscription.message() == "state/lamp  q0 r0"
    assert not any(each.hub.retained.matching("#", None) for each in servers_of(server))
    assert not any(len(each.hub.retained) for each in servers_of(server))


@pytest.mark.parametrize("version", VERSIONS)
async def test_will(server: MqttServer, version: str) -> None:
    will = ["--will-topic", "gone", "--will-payload", "bye", "--will-qos", "1"]
    async with subscribed(server, "-V", version, "-q", "1", "-t", "gone") as watcher:
        async with subscribed(server, "-V", version, "-t", "x", *will) as dying:
            dying.process.kill()
        assert await watcher.message() == "gone bye q1 r0"


@pytest.mark.parametrize("version", VERSIONS)
async def test_kept_session_receives_what_was_missed(server: MqttServer, version: str) -> None:
    keep = ["-V", version, "-i", "keeper", "-c", "-q", "1", "-t", "a"]
    async with subscribed(server, *keep):
        pass
    for number in range(3):
        await publish(server, "-q", "1", "-t", "a", "-m", str(number))
    async with subscribed(server, *keep) as again:
        assert [await again.message() for _ in range(3)] == [f"a {number} q1 r0" for number in range(3)]


async def test_properties_of_5_0(server: MqttServer) -> None:
    form = ["-F", "MSG %t %p %C %R %D %E %P"]
    async with subscribed(server, "-V", "mqttv5", "-t", "a", *form) as subscription:
        properties = {
            "content-type": ["text/plain"],
            "response-topic": ["answer"],
            "correlation-data": ["id7"],
            "message-expiry-interval": ["60"],
            "user-property": ["key", "value"],
        }
        options = [word for name, values in properties.items() for word in ("-D", "publish", name, *values)]
        await publish(server, "-V", "mqttv5", "-t", "a", "-m", "x", *options)
        assert await subscription.message() == "a x text/plain answer id7 60 key:value"


async def test_topic_alias_of_the_client(server: MqttServer) -> None:
    async with subscribed(server, "-V", "mqttv5", "-t", "a") as subscription:
        await publish(server, "-V", "mqttv5", "-t", "a", "-m", "x", "-D", "publish", "topic-alias", "3")
        assert await subscription.message() == "a x q0 r0"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_large_message_in_pieces(
    server: MqttServer, version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("mqtt") / "payload"
    file.write_bytes(b"x" * 900_000)
    async with subscribed(server, "-V", version, "-q", "2", "-t", "big", "-F", "MSG %l") as subscription:
        await publish(server, "-V", version, "-q", "2", "-t", "big", "-f", str(file))
        assert await subscription.message() == "900000"
