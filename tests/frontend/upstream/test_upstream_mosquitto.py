"""A real Mosquitto as the upstream of real broker processes: both directions, restarts, loops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.properties import Properties

from tests.frontend.upstream.sites import TIMEOUT, Mosquitto, Peer, Saps

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180), pytest.mark.xdist_group("processes")]


@pytest.fixture
async def mosquitto(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    async with Mosquitto(tmp_path / "mosquitto") as server:
        yield server


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def publish_through(port: int, topic: str, payloads: list[str]) -> None:
    """Publish all in order with QoS 1, each until it is acknowledged, whatever happens to the broker meanwhile."""
    left = list(payloads)
    async with asyncio.timeout(TIMEOUT):
        while left:
            with suppress(aiomqtt.MqttError):
                async with aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5, timeout=2) as client:
                    while left:
                        await client.publish(topic, left[0], qos=1)
                        del left[0]
            await asyncio.sleep(0.01)  # between two attempts to connect


class Collector:
    """A subscriber at Mosquitto with a session that outlives its connections, and Mosquitto's restarts."""

    def __init__(self, port: int, topic_filter: str) -> None:
        self.port, self.filter = port, topic_filter
        self.payloads: list[str] = []

    def _client(self) -> aiomqtt.Client:
        connect = Properties(1)  # type: ignore[no-untyped-call]
        connect.SessionExpiryInterval = 3600
        return aiomqtt.Client(
            "127.0.0.1",
            self.port,
            identifier="collector",
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=connect,
        )

    async def begin(self) -> None:
        async with self._client() as client:
            await client.subscribe(self.filter, qos=1)

    async def collect(self, wanted: set[str]) -> None:
        """Everything that was kept, until all of `wanted` has come."""
        async with asyncio.timeout(TIMEOUT), self._client() as client:
            async for message in client.messages:
                self.payloads.append(bytes(message.payload).decode())
                if wanted <= set(self.payloads):
                    return


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_messages_of_each_quality_both_ways_through_the_mesh(mosquitto: Mosquitto, protocol: str) -> None:
    topics = 'upstream.topics=up/+/t in 1 site/ "",down/# out 1,talk/#'
    options = ("--set", topics, "--set", f"upstream.protocol={protocol}")
    async with (
        Saps("a", *options, upstream=mosquitto.url) as a,
        Saps("b", join=a) as b,
        Peer(mosquitto.port) as outside,
        Peer(b.port) as inside,
    ):
        await a.connected()
        await outside.subscribe("#")
        await inside.subscribe("#")
        for qos in (0, 1, 2):
            await outside.publish("up/x/t", f"q{qos}", qos)
            await inside.publish("down/x", f"q{qos}", qos)
            await outside.publish("talk", f"out{qos}", qos)
            await inside.publish("talk", f"in{qos}", qos)
        await inside.publish("up/x/t", "not out", 1)
        await outside.publish("down/x", "not in", 1)
        await outside.publish("talk", "end", 1)
        await inside.publish("talk", "end too", 1)
        both = [*(f"{side}{qos}" for side in ("in", "out") for qos in (0, 1, 2)), "end", "end too"]
        await inside.has("talk", *both)
        await outside.has("talk", *both)
        await inside.has("site/up/x/t", "q0", "q1", "q2")
        await outside.has("down/x", "q0", "q1", "q2", "not in")
        once = dict.fromkeys(both, 1)
        assert inside.counted("talk") == outside.counted("talk") == once
        assert not outside.counted("site/up/x/t")
        assert "not out" not in outside.counted("up/x/t")
        assert "not in" not in inside.counted("down/x")
        qualities = {bytes(m.payload).decode(): m.qos for m in inside.received if m.topic.value == "site/up/x/t"}
        assert qualities == {"q0": 0, "q1": 1, "q2": 1}


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_retained_messages_go_both_ways(mosquitto: Mosquitto, protocol: str) -> None:
    async with Peer(mosquitto.port) as outside:
        await outside.publish("r/outside", "before", retain=True)
        await outside.subscribe("r/inside")
        async with (
            Saps("a", "--set", f"upstream.protocol={protocol}", upstream=mosquitto.url) as a,
            Peer(a.port) as inside,
        ):
            await a.connected()
            await inside.publish("r/inside", "kept", retain=True)
            await inside.subscribe("r/#")
            await inside.has("r/outside", "before")
            await outside.has("r/inside", "kept")
        async with Peer(mosquitto.port) as later:
            await later.subscribe("r/#")
            await later.has("r/inside", "kept")
        assert [m.retain for m in later.received if m.topic.value == "r/inside"] == [True]


async def test_properties_pass(mosquitto: Mosquitto) -> None:
    async with (
        Saps("a", upstream=mosquitto.url) as a,
        Peer(mosquitto.port) as outside,
        Peer(a.port) as inside,
    ):
        await a.connected()
        await outside.subscribe("#")
        await inside.subscribe("#")
        sent = Properties(3)  # type: ignore[no-untyped-call]
        sent.ContentType, sent.CorrelationData, sent.MessageExpiryInterval = "text", b"7", 100
        sent.UserProperty = [("k", "v")]
        await outside._client.publish("p/1", b"x", qos=1, properties=sent)
        await inside._client.publish("p/2", b"x", qos=1, properties=sent)
        await inside.has("p/1", "x")
        await outside.has("p/2", "x")
        for peer, topic in ((inside, "p/1"), (outside, "p/2")):
            (got,) = (m.properties for m in peer.received if m.topic.value == topic)
            had: dict[str, Any] = vars(got)
            assert (had["ContentType"], had["CorrelationData"]) == ("text", b"7")
            assert had["UserProperty"] == [("k", "v"), ("saps-path", "saps-a")]
            assert 0 < had["MessageExpiryInterval"] <= 100


async def test_a_restart_of_mosquitto_under_traffic_loses_nothing(mosquitto: Mosquitto) -> None:
    collector = Collector(mosquitto.port, "out/#")
    await collector.begin()
    async with (
        Saps("a", upstream=mosquitto.url) as a,
        Saps("b", join=a) as b,
        Peer(b.port) as inside,
    ):
        await a.connected()
        await inside.subscribe("in/#")
        payloads = numbers(1, 600)
        traffic = asyncio.gather(
            publish_through(b.port, "out/t", payloads), publish_through(mosquitto.port, "in/t", payloads)
        )
        for restart in (1, 2):
            await inside.has("in/t", str(100 * restart))
            await mosquitto.stop()
            await mosquitto.start()
            await a.connected(1 + restart)
        await traffic
        await inside.has("in/t", *payloads)
        await collector.collect(set(payloads))
        first_arrivals = list(dict.fromkeys(collector.payloads))
        assert first_arrivals == payloads


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL])
async def test_a_restart_of_our_broker_loses_nothing_mosquitto_holds(mosquitto: Mosquitto, number: int) -> None:
    async with Saps("a") as a, Saps("b", join=a, upstream=mosquitto.url) as b, Peer(a.port) as inside:
        await b.connected()
        await inside.subscribe("in/#")
        payloads = numbers(1, 600)
        traffic = asyncio.create_task(publish_through(mosquitto.port, "in/t", payloads))
        await inside.has("in/t", "100")
        await b.stop(number)
        await publish_through(mosquitto.port, "in/t", ["while away"])
        await b.start()
        await b.connected()
        await traffic
        await inside.has("in/t", "while away", *payloads)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_two_brokers_with_one_upstream_do_not_loop(mosquitto: Mosquitto, protocol: str) -> None:
    option = ("--set", f"upstream.protocol={protocol}")
    async with (
        Saps("a", *option, upstream=mosquitto.url) as a,
        Saps("b", *option, join=a, upstream=mosquitto.url) as b,
    ):
        await a.connected()
        await b.connected()
        await count_copies(mosquitto.port, b.port, at_most=3)


@pytest.mark.parametrize("marks", ["kept", "lost"])
async def test_two_mosquittos_bridged_with_each_other_do_not_loop(tmp_path: Path, marks: str) -> None:
    version, window = ("mqttv50", "0") if marks == "kept" else ("mqttv311", "5")
    option = ("--set", f"upstream.echo_window={window}")
    async with Mosquitto(tmp_path / "x") as x:
        bridge = ("connection x", f"address 127.0.0.1:{x.port}", "topic # both 1", f"bridge_protocol_version {version}")
        async with (
            Mosquitto(tmp_path / "y", *bridge) as y,
            Saps("a", *option, upstream=x.url) as a,
            Saps("b", *option, join=a, upstream=y.url) as b,
        ):
            await a.connected()
            await b.connected()
            await count_copies(x.port, b.port, at_most=4)


async def count_copies(outside_port: int, inside_port: int, at_most: int) -> None:
    """Publish on both sides; each side gets each message, and a bounded number of copies. A loop would go on and on."""
    async with Peer(outside_port) as outside, Peer(inside_port) as inside:
        await outside.subscribe("#")
        await inside.subscribe("#")
        for number in numbers(1, 20):
            await outside.publish("t", f"outside {number}")
            await inside.publish("t", f"inside {number}")
        for number in numbers(1, 60):  # long enough for a loop to show: each waits for a crossing both ways
            await outside.publish("ping", number)
            await inside.has("ping", number)
            await inside.publish("pong", number)
            await outside.has("pong", number)
        for peer in (outside, inside):
            counts = peer.counted("t")
            assert counts.keys() == {f"{side} {n}" for side in ("outside", "inside") for n in numbers(1, 20)}
            assert max(counts.values()) <= at_most
