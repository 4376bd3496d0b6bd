"""How far the scene's messages go: probes on its own topics, to its own subscribers, one at a time.

A probe is larger than anything else on the network, so the ports' counters tell its copies from the rest, and the
kernel's counts of each TCP connection tell who passed it on to whom (`lab.traffic`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

from aiomqtt import Client

from examples.common.clients import NO_DELAY
from examples.smart_city.devices import PROTOCOLS
from examples.smart_city.scene import Broker, Publisher, Scene, Subscriber, group_of
from lab import Counters, LabError
from lab.programs import OVERLAY, Mesh
from lab.traffic import (
    Background,
    alm_packet,
    broker_hops,
    copies,
    data_packets,
    link_hops,
    ofm_packet,
    passed_on,
    sent_bytes,
)
from saps.topics import matches

PAYLOAD = 1200
"""Bytes of a probe: one packet."""
PROBES = 5
"""For each topic."""
TIMEOUT = 60.0
"""Seconds a probe may take to arrive, and a publisher until it uses the tree."""


class Reach(NamedTuple):
    """What the probes of one topic came to, for each of them."""

    copies: int
    """Packets on links that join clusters."""
    hops: int
    """Links between clusters on the way to the subscriber that is farthest by them."""


def probed(scene: Scene) -> Iterator[tuple[Publisher, str]]:
    """A topic of the air and of the alerts at each broker that has such."""
    seen: set[tuple[Broker, str]] = set()
    for publisher in scene.publishers:
        topic = publisher.topics[0]
        group = group_of(topic)
        if group in ("air", "alert") and (publisher.broker, group) not in seen:
            seen.add((publisher.broker, group))
            yield publisher, topic


class Prober:
    """The scene's subscribers, and a client at each broker to publish by. An async context manager: others may publish
    to the topics meanwhile, but not while a topic is probed."""

    def __init__(self, mesh: Mesh, scene: Scene, background: Background, *, ofm: bool) -> None:
        self._mesh, self._scene, self._background, self._ofm = mesh, scene, background, ofm
        self._stack = AsyncExitStack()
        self._publishers: dict[str, Client] = {}
        self._arrivals: asyncio.Queue[str] = asyncio.Queue()
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Prober:
        async with AsyncExitStack() as stack:
            for subscriber in self._scene.subscribers:
                client = await stack.enter_async_context(self._client(subscriber.broker, subscriber.name))
                await client.subscribe([(topic_filter, 0) for topic_filter in subscriber.filters])
                self._readers.append(asyncio.create_task(self._read(client)))
            for broker in self._scene.brokers:
                self._publishers[broker.name] = await stack.enter_async_context(self._client(broker, "publisher"))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self._stack.aclose()

    async def reach(self, publisher: Publisher, topic: str) -> Reach:
        """Probe a topic. Raises `LabError` if a probe does not arrive."""
        try:
            return await self._reach(publisher, topic)
        except TimeoutError:
            raise LabError(f"no probe of {topic} from {publisher.broker.name} has gone as it should") from None

    async def _reach(self, publisher: Publisher, topic: str) -> Reach:
        subscribers = [each for each in self._scene.subscribers if _wants(each, topic)]
        host = publisher.broker.name
        await self._warm_up(host, topic, len(subscribers))
        lab, hosts = self._mesh.lab, self._mesh.hosts
        edges = await asyncio.to_thread(sent_bytes, lab, hosts, OVERLAY)
        before, began = lab.counters(), time.monotonic()
        for _ in range(PROBES):
            await self._publish(host, topic, len(subscribers))
        seen, took = lab.counters() - before, time.monotonic() - began
        later = await asyncio.to_thread(sent_bytes, lab, hosts, OVERLAY)
        found = copies(seen, PROBES, self._size(topic), self._background, took)
        if self._ofm:
            depths = link_hops(lab.topology, host, found.links)
        else:
            depths = broker_hops(lab.topology, host, passed_on(edges, later, PROBES * PAYLOAD))
        return Reach(found.inter_cluster, max(depths[each.broker.name] for each in subscribers))

    async def _warm_up(self, host: str, topic: str, subscribers: int) -> None:
        """Until the probes go as they will: with OFM, as one datagram that comes back."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                before = self._mesh.lab.counters()
                await self._publish(host, topic, subscribers)
                if not self._ofm or self._by_tree(self._mesh.lab.counters() - before, host, topic):
                    return

    def _by_tree(self, seen: Counters, host: str, topic: str) -> bool:
        size = self._size(topic)
        return [round(data_packets(part, size)) for part in (seen.from_host(host), seen.to_host(host))] == [1, 1]

    async def _publish(self, host: str, topic: str, subscribers: int) -> None:
        await self._publishers[host].publish(topic, bytes(PAYLOAD))
        async with asyncio.timeout(TIMEOUT):
            for _ in range(subscribers):
                assert await self._arrivals.get() == topic

    async def _read(self, client: Client) -> None:
        async for message in client.messages:
            if len(message.payload) == PAYLOAD:
                self._arrivals.put_nowait(message.topic.value)

    def _size(self, topic: str) -> int:
        return ofm_packet(topic, PAYLOAD) if self._ofm else alm_packet(topic, PAYLOAD)

    def _client(self, broker: Broker, name: str) -> Client:
        host, port = self._mesh.clients[broker.name]
        identifier = f"probe-{name}-{broker.name}"
        return Client(host, port, identifier=identifier, protocol=PROTOCOLS["5.0"], socket_options=NO_DELAY)


def _wants(subscriber: Subscriber, topic: str) -> bool:
    return any(matches(topic_filter, topic) for topic_filter in subscriber.filters)
