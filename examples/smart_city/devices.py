"""The devices: one MQTT client (aiomqtt) for each publisher and subscriber of the scene."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiomqtt import Client, MqttError, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from examples.common.clients import ANSWER_TIMEOUT, NO_DELAY, while_listening
from examples.smart_city.readings import Payload, Reading, decode, encode
from examples.smart_city.recorder import Recorder
from examples.smart_city.scene import Protocol, Publisher, Qos, Subscriber, group_of, readings_of

PROTOCOLS: Mapping[Protocol, ProtocolVersion] = {"3.1.1": ProtocolVersion.V311, "5.0": ProtocolVersion.V5}


class DeviceError(Exception):
    """A device lost its broker, or the broker refused it. The text names both."""


@dataclass
class Stage:
    """What the devices share: where the brokers are, the recorder, and the signs to begin and to end."""

    addresses: Mapping[str, tuple[str, int]]
    """MQTT host and port of each broker, by its name."""
    recorder: Recorder
    run_id: str
    """Makes client identifiers unique, so that two runs can share an external broker."""
    begin: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    """No publication starts any more."""
    arrival: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each arrival; whoever waits clears it."""
    clients: Counter[str] = field(default_factory=Counter)
    """Connected clients, by the broker's name."""
    readings_of: Callable[[str, random.Random], Iterator[Reading]] = readings_of
    """What publishers say on a topic."""


async def publish(device: Publisher, stage: Stage, rng: random.Random, connected: asyncio.Event) -> None:
    """Connect; from `begin` to `end` publish on the topics in turn, at its rate. Raises DeviceError."""
    async with _client(device, stage) as client:
        connected.set()
        await while_listening(client, lambda message: None, _publish_in_turn(client, device, stage, rng))


async def _publish_in_turn(client: Client, device: Publisher, stage: Stage, rng: random.Random) -> None:
    sources = [stage.readings_of(topic, rng) for topic in device.topics]
    await stage.begin.wait()
    due = time.monotonic() + rng.random() * len(device.topics) / device.rate
    turn = 0
    while not await ended_before(stage.end, due):
        topic, source = device.topics[turn], sources[turn]
        sequence = stage.recorder.publishing(device, topic)
        payload = Payload(device.name, sequence, time.monotonic_ns(), next(source))
        await client.publish(topic, encode(payload), device.qos, properties=_properties(device, topic))
        turn = (turn + 1) % len(device.topics)
        # A slow acknowledgement delays the device; it does not catch up in a burst.
        due = max(due, time.monotonic()) + rng.uniform(0.8, 1.2) / device.rate


async def subscribe(device: Subscriber, stage: Stage, subscribed: asyncio.Event) -> None:
    """Connect, subscribe, and report every arrival to the recorder until cancelled. Raises DeviceError."""
    async with _client(device, stage) as client:
        stage.recorder.subscribing(device)
        _check(await client.subscribe(_subscriptions(device)), device)
        stage.recorder.subscribed(device)
        subscribed.set()
        async for message in client.messages:
            now = time.monotonic_ns()
            topic = message.topic.value
            payload = decode(message.payload)
            if payload is None:
                stage.recorder.stray(device, topic)
            else:
                latency = (now - payload.sent) / 1e9
                stage.recorder.arrived(device, topic, payload.publisher, payload.sequence, latency)
            stage.arrival.set()


@asynccontextmanager
async def _client(device: Publisher | Subscriber, stage: Stage) -> AsyncIterator[Client]:
    host, port = stage.addresses[device.broker.name]
    client = Client(
        host,
        port,
        identifier=f"{device.name}-{stage.run_id}",
        protocol=PROTOCOLS[device.protocol],
        timeout=ANSWER_TIMEOUT,
        socket_options=NO_DELAY,
    )
    try:
        async with client:
            stage.clients[device.broker.name] += 1
            try:
                yield client
            finally:
                stage.clients[device.broker.name] -= 1
    except MqttError as error:
        raise DeviceError(f"{device.name} at broker {device.broker.name} ({host}:{port}): {error}") from error


async def ended_before(end: asyncio.Event, due: float) -> bool:
    """Wait until `due` on the monotonic clock, or for the end. True if it is the end."""
    try:
        async with asyncio.timeout(max(0.0, due - time.monotonic())):
            await end.wait()
    except TimeoutError:
        pass
    return end.is_set()


def _properties(device: Publisher, topic: str) -> Properties | None:
    """An alert says so to whoever looks: MQTT 5.0 user property ``priority`` (3.3.2.3.7)."""
    if device.protocol != "5.0" or group_of(topic) != "alert":
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("priority", "emergency")]
    return properties


def _subscriptions(device: Subscriber) -> list[tuple[str, int]] | list[tuple[str, SubscribeOptions]]:
    if device.protocol == "5.0":
        return [(topic_filter, SubscribeOptions(qos=device.qos)) for topic_filter in device.filters]
    qos: int = device.qos
    return [(topic_filter, qos) for topic_filter in device.filters]


def _check(granted: Sequence[int | ReasonCode], device: Subscriber) -> None:
    """DeviceError unless every filter was granted with the QoS asked for (MQTT 5.0, 3.9.3)."""
    codes = [code.value if isinstance(code, ReasonCode) else code for code in granted]
    wanted: list[Qos] = [device.qos] * len(device.filters)
    if codes != wanted:
        raise DeviceError(f"{device.name} at broker {device.broker.name}: asked for QoS {wanted}, got {codes}")
