"""The driver in this process, between a hub and a real Mosquitto: when it acknowledges, holds back, and stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from saps.agents.user import PublisherAgent
from saps.config.settings import UpstreamSettings
from saps.frontend.upstream.bridge_io import Upstream
from saps.mesh import Done, Recalled, TopicRoute
from saps.messages import Message, Properties, Reached
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from tests.frontend.upstream.sites import TIMEOUT, Mosquitto, Peer

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("processes")]


class Withholding:
    """A `Mesh` in which another broker wants everything, and confirms what it has only when told to."""

    def __init__(self) -> None:
        self.has: dict[str, Done | None] = {}
        self._changed = asyncio.Event()

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        done()

    def unsubscribe(self, topic_filter: str) -> None:
        pass

    def route(self, topic: str) -> TopicRoute:
        return TopicRoute(topic)

    def publish(self, batch: Batch, done: Done | None) -> None:
        for single in batch.singles:
            self.has[single.payload.decode()] = done
        self._changed.set()

    def guard_will(self, client: str, will: Message | None, delay: float) -> None:
        pass

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        raise AssertionError("nobody shares")

    def stamp(self, properties: Properties | None) -> Properties | None:
        return properties

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        done(())

    def confirm(self, payload: str) -> None:
        done = self.has[payload]
        assert done is not None
        done([Reached(1, 1)])

    async def until(self, *payloads: str) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not set(payloads) <= self.has.keys():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def mosquitto(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    async with Mosquitto(tmp_path / "mosquitto") as server:
        async with Peer(server.port) as peer:
            await peer.publish("ready", "ready", qos=1, retain=True)
        yield server


@asynccontextmanager
async def started(
    mosquitto: Mosquitto, hold: Callable[[bool], None] = lambda held: None, in_flight: int = 20
) -> AsyncIterator[tuple[Upstream, Withholding]]:
    """An upstream that is connected: Mosquitto's retained message has come. Stopped at the end."""
    mesh = Withholding()
    settings = UpstreamSettings(url=mosquitto.url, retry_limit=0.1, maximum_queued=100, in_flight=in_flight)
    upstream = Upstream(Hub(mesh, asyncio.get_running_loop().time), settings, "a", hold)
    upstream.start()
    try:
        await mesh.until("ready")
        mesh.confirm("ready")
        yield upstream, mesh
    finally:
        async with asyncio.timeout(TIMEOUT):
            await upstream.stop()


async def test_mosquitto_repeats_what_the_mesh_has_not_confirmed_and_nothing_else(mosquitto: Mosquitto) -> None:
    async with Peer(mosquitto.port) as outside:
        async with started(mosquitto) as (_, mesh):
            for number in range(6):
                await outside.publish("t", str(number))
            await mesh.until(*map(str, range(6)))
            for number in (1, 0, 5):  # 5 must wait for 2, 3 and 4: acknowledgements keep the order of the messages
                mesh.confirm(str(number))
        async with started(mosquitto) as (_, mesh):
            await outside.publish("t", "last")
            await mesh.until("last")
    assert sorted(mesh.has) == ["2", "3", "4", "5", "last", "ready"]


async def test_a_confirmation_that_comes_after_its_connection_has_gone_acknowledges_nothing(
    mosquitto: Mosquitto,
) -> None:
    async with started(mosquitto) as (_, mesh):
        async with Peer(mosquitto.port) as outside:
            await outside.publish("t", "early")
        await mesh.until("early")
        before = mesh.has.pop("early")
        await mosquitto.stop()
        await mosquitto.start()
        await mesh.until("early")  # repeated on the new connection
        assert before is not None
        before([Reached(1, 1)])
    async with started(mosquitto) as (_, mesh):
        await mesh.until("early")


async def test_publishers_are_held_back_while_mosquitto_is_too_slow(mosquitto: Mosquitto) -> None:
    released = asyncio.Event()
    held: list[bool] = []

    def hold(on: bool) -> None:
        held.append(on)
        if not on:
            released.set()

    async with started(mosquitto, hold) as (upstream, _), Peer(mosquitto.port) as outside:
        publisher = PublisherAgent(upstream._hub, "inside")
        await outside.subscribe("t/#")
        mosquitto.signal(signal.SIGSTOP)
        try:
            for number in range(60):
                publisher.publish(Message("t", str(number).encode(), 1))
            assert held == [True]
        finally:
            mosquitto.signal(signal.SIGCONT)
        async with asyncio.timeout(TIMEOUT):
            await released.wait()
        await outside.has("t", *map(str, range(60)))
        assert held == [True, False]


async def test_an_orderly_stop_sends_what_waits(mosquitto: Mosquitto) -> None:
    async with started(mosquitto) as (upstream, _), Peer(mosquitto.port) as outside:
        publisher = PublisherAgent(upstream._hub, "inside")
        await outside.subscribe("t")
        for number in range(40):
            publisher.publish(Message("t", str(number).encode(), 1))
        await upstream.stop()
        assert upstream.describe()["queued"] == 0
        await outside.has("t", *map(str, range(40)))


@pytest.mark.parametrize("upstream_goes", [False, True])
async def test_a_stop_does_not_wait_for_what_will_never_be_acknowledged(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch, upstream_goes: bool
) -> None:
    """The rest expires while one message is in flight, or the connection breaks."""
    monkeypatch.setattr("saps.frontend.upstream.bridge_io.DRAIN", 100 * TIMEOUT)
    held: list[bool] = []
    async with started(mosquitto, held.append, in_flight=1) as (upstream, _):
        publisher = PublisherAgent(upstream._hub, "inside")
        mosquitto.signal(signal.SIGSTOP)
        publisher.publish(Message("t", b"in flight", 1))
        for number in range(60):
            publisher.publish(Message("t", str(number).encode(), 1, properties=Properties(message_expiry=1)))
        await asyncio.sleep(1.1)
        assert held == [True]
        stopping = asyncio.create_task(upstream.stop())
        await asyncio.sleep(0)
        if upstream_goes:
            mosquitto.signal(signal.SIGKILL)
        mosquitto.signal(signal.SIGCONT)
        async with asyncio.timeout(TIMEOUT):
            await stopping
        assert held == [True, False] or upstream_goes
        assert upstream.describe()["dropped"] == 60 or upstream_goes


async def test_it_stops_whatever_state_its_connection_is_in(mosquitto: Mosquitto) -> None:
    for turns in range(6):
        async with started(mosquitto):
            await mosquitto.stop()
            for _ in range(turns):  # of the event loop: further into what follows a broken connection
                await asyncio.sleep(0)
        await mosquitto.start()
