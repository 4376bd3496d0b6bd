"""A link whose upstream resets the connection: what came before is taken in, and the break is noticed at once. And one
that is cancelled just when an answer comes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiomqtt
import pytest

from saps.frontend.upstream.address import Endpoint
from saps.frontend.upstream.link_io import Access, Link
from saps.frontend.upstream.mapping import Mapping
from saps.messages import Message
from tests.frontend.upstream.sites import TIMEOUT, Mosquitto

CONNACK = bytes((0x20, 2, 0, 0))
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: closing resets."""


def publication(number: int) -> bytes:
    """A PUBLISH of MQTT 3.1.1 with QoS 1, topic ``t``, the number as packet identifier and as payload."""
    body = b"\0\1t" + number.to_bytes(2) + b"%d" % number
    return bytes((0x32, len(body))) + body


class Upstream:
    """An upstream that says and ends what the test tells it to, in one go: the link's loop sees it when all is done."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        endpoint = Endpoint.parse(f"mqtt://127.0.0.1:{self.listener.getsockname()[1]}")
        self.access = Access(endpoint, "link", None, None, None, False, 60, 60, 20)
        self._connection: socket.socket | None = None

    async def accept(self) -> None:
        """Take a connection and read its CONNECT."""
        loop = asyncio.get_running_loop()
        self._connection, _ = await loop.sock_accept(self.listener)
        assert (await loop.sock_recv(self._connection, 1000))[0] == 0x10

    def say(self, packets: bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(packets)

    def reset(self) -> None:
        assert self._connection is not None
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._connection.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    yield upstream
    upstream.listener.close()


@pytest.mark.parametrize("count", [0, 1, 10])
async def test_a_reset_is_noticed_after_what_came_before_it(
    upstream: Upstream, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[bytes] = []

    def receive(message: Message, confirm: Callable[[], None]) -> None:
        received.append(message.payload)
        confirm()

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        group.create_task(upstream.accept()).add_done_callback(lambda task: upstream.say(CONNACK))
        async with Link(upstream.access, receive) as link:
            upstream.say(b"".join(map(publication, range(1, count + 1))))
            upstream.reset()
            with pytest.raises(aiomqtt.MqttError):
                await link.broken()
    assert received == [b"%d" % number for number in range(1, count + 1)]
    assert not caplog.records


async def test_a_reset_right_after_the_answer_is_noticed(upstream: Upstream) -> None:
    def answer(task: asyncio.Task[None]) -> None:
        upstream.say(CONNACK)
        upstream.reset()

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        group.create_task(upstream.accept()).add_done_callback(answer)
        with pytest.raises(aiomqtt.MqttError):
            async with Link(upstream.access, lambda message, confirm: None) as link:
                await link.broken()


async def test_an_upstream_that_accepts_and_says_nothing_is_given_up(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saps.frontend.upstream.link_io.ANSWER", 0.05)
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(aiomqtt.MqttError, match="no answer within"):
            async with Link(upstream.access, lambda message, confirm: None):
                pass


@pytest.mark.interop
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("answer", ["on_connect", "on_subscribe", "on_publish"])
async def test_a_cancellation_that_comes_together_with_an_answer_is_not_lost(tmp_path: Path, answer: str) -> None:
    """As when a session's message, which comes with SUBACK, is what makes somebody stop."""

    async def serve(url: str) -> None:
        access = Access(Endpoint.parse(url), "link", None, None, None, True, 60, 60, 20)
        link = Link(access, lambda message, confirm: None)
        told = getattr(link._paho, answer)

        def both(*what: object) -> None:
            told(*what)
            serving.cancel()

        setattr(link._paho, answer, both)
        async with link:
            await link.subscribe(Mapping("t"), anew=True)
            await link.publish(Message("u", b"", 1), None)
            await asyncio.Event().wait()

    async with Mosquitto(tmp_path / "mosquitto") as mosquitto:
        serving = asyncio.create_task(serve(mosquitto.url))
        done, _ = await asyncio.wait((serving,), timeout=TIMEOUT)
        serving.cancel()
        assert done
        assert serving.cancelled()
