"""Five brokers on loopback sockets: what a publication costs, what a SUBACK promises, and an orderly leave."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Literal

import pytest

from saps.broker.broker import Broker
from tests.network.meshes import Client, data_messages, mesh, sources

pytestmark = pytest.mark.network

ORDERS: list[Literal["la", "plain"]] = ["la", "plain"]
COUNT = 10
"""Publications counted at a time."""

FILTERS = {
    "exact": [["city/air/1"]] * 4,
    "wildcard": [["city/+/1"], ["city/#"], ["city/air/+"], ["#"]],
    "overlapping": [
        ["city/air/1", "city/+/1", "city/#"],
        ["+/+/+", "#"],
        ["city/#", "city/air/#"],
        ["city/air/1", "#"],
    ],
}
"""For each kind, the filters at the brokers b1 to b4."""


async def cost(brokers: list[Broker], publisher: Client, subscribers: list[Client], qos: int) -> int:
    """Data messages between brokers for `COUNT` publications of `qos` and one of QoS 1 that closes the count."""
    before = data_messages(brokers)
    start = [len(subscriber.received) for subscriber in subscribers]
    for number in range(COUNT):
        await publisher.publish("city/air/1", f"{qos} {number}", qos)
    await publisher.publish("city/air/1", "end", 1)
    payloads = [b"%d %d" % (qos, number) for number in range(COUNT)] + [b"end"]
    for subscriber, at in zip(subscribers, start, strict=True):
        await subscriber.expect("city/air/1", b"end")
        assert [payload for _, payload in subscriber.received[at:]] == payloads
        subscriber.received.clear()
    return data_messages(brokers) - before


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", FILTERS)
async def test_k_subscribing_brokers_cost_k_data_messages(order: Literal["la", "plain"], kind: str) -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh(order=order))
        clients = [await stack.enter_async_context(Client(broker.server.address)) for broker in brokers]
        publisher, *others = clients
        # A subscriber at the publisher's own broker costs nothing.
        at_home = await stack.enter_async_context(Client(brokers[0].server.address))
        await at_home.subscribe("city/air/1")
        subscribed = [at_home]
        for k in range(5):
            for qos in (0, 1):
                assert await cost(brokers, publisher, subscribed, qos) == k * (COUNT + 1), (k, qos)
            if k < 4:
                await others[k].subscribe(*FILTERS[kind][k])
                subscribed.append(others[k])
        while len(subscribed) > 1:  # and back again
            client = subscribed.pop()
            for topic_filter in FILTERS[kind][len(subscribed) - 1]:
                await client.unsubscribe(topic_filter)
            await settled(brokers, len(subscribed) - 1)
            k = len(subscribed) - 1
            assert await cost(brokers, publisher, subscribed, 1) == k * (COUNT + 1), k


async def settled(brokers: list[Broker], k: int) -> None:
    """Wait until the first broker counts `k` members: an UNSUBACK does not wait for the mesh to hear of it."""
    publishers = brokers[0].mesh.node.rendezvous.publishers
    stream = publishers.stream("city/air/1")
    async with asyncio.timeout(10):
        while True:
            publishers.route(stream)
            if len(stream.members or ()) == k:
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("order", ORDERS)
async def test_several_clients_at_a_broker_cost_one_data_message(order: Literal["la", "plain"]) -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh(order=order))
        publisher = await stack.enter_async_context(Client(brokers[2].server.address))
        crowd = [await stack.enter_async_context(Client(brokers[4].server.address)) for _ in range(3)]
        for client, topic_filter in zip(crowd, ("city/air/1", "city/#", "+/air/1"), strict=True):
            await client.subscribe(topic_filter)
        assert await cost(brokers, publisher, crowd, 0) == COUNT + 1


@pytest.mark.parametrize("order", ORDERS)
async def test_a_topic_without_remote_subscribers_costs_nothing(order: Literal["la", "plain"]) -> None:
    """Others subscribe to what stands around it in the order of the keys."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh(order=order))
        for broker in brokers[1:]:
            client = await stack.enter_async_context(Client(broker.server.address))
            await client.subscribe("city/air/0", "city/air/1/x", "city/air/2", "city/+", "$SYS/#")
        publisher = await stack.enter_async_context(Client(brokers[0].server.address))
        await publisher.subscribe("city/air/9")
        for qos in (0, 1):
            for topic in ("city/air/9", "city", "other/x", "/"):
                await publisher.publish(topic, b"x", qos)
        await publisher.publish("city/air/9", b"end", 1)
        await publisher.expect("city/air/9", b"end")
        assert data_messages(brokers) == 0


@pytest.mark.parametrize("order", ORDERS)
async def test_after_suback_everything_published_anywhere_arrives_in_order_and_once(
    order: Literal["la", "plain"],
) -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh(order=order))
        watchers = []
        async with sources(brokers, "city/air/1") as running:
            for broker, topic_filter in zip(brokers, ("city/air/1", "city/+/1", "#", "city/#", "+/air/1"), strict=True):
                await running[0].further(8)
                client = await stack.enter_async_context(Client(broker.server.address))
                await client.subscribe(topic_filter)
                owed = {source.name: source.last + 1 for source in running}
                watchers.append((client, owed))
            await asyncio.gather(*(source.further(16) for source in running))
        for client, owed in watchers:
            for source in running:
                await client.expect("city/air/1", f"{source.name} {source.last}".encode())
                numbers = client.by_publisher()[source.name]
                assert numbers == list(range(numbers[0], source.last + 1)), source.name
                assert numbers[0] <= owed[source.name]


@pytest.mark.parametrize("leaver", [0, 4], ids=["the one all joined through", "the last one"])
async def test_a_broker_that_leaves_in_order_costs_the_others_no_message(leaver: int) -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh())
        staying = [broker for number, broker in enumerate(brokers) if number != leaver]
        watchers = [await stack.enter_async_context(Client(broker.server.address)) for broker in staying]
        for client in watchers:
            await client.subscribe("city/#")
        goer = await stack.enter_async_context(Client(brokers[leaver].server.address, "goer"))
        await goer.subscribe("city/#")
        await goer.publish("city/air/1", "goer 1", 1)
        async with sources(staying, "city/air/1") as running:
            await asyncio.gather(*(source.further(16) for source in running))
            await brokers.pop(leaver).stop()
            await asyncio.gather(*(source.further(16) for source in running))
        assert goer.received
        for client in watchers:
            for source in running:
                await client.expect("city/air/1", f"{source.name} {source.last}".encode())
            numbers = client.by_publisher()
            assert numbers.pop("goer") == [1]
            assert numbers == {source.name: list(range(1, source.last + 1)) for source in running}


async def test_what_a_leaving_broker_was_given_still_arrives() -> None:
    """QoS 0 and 1 messages taken from a client just before the broker leaves."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh())
        watcher = await stack.enter_async_context(Client(brokers[3].server.address))
        await watcher.subscribe("city/#")
        async with Client(brokers[1].server.address) as client:
            for number in range(30):
                await client.publish(f"city/{number}", b"x", number % 2)
        await brokers.pop(1).stop()
        await watcher.until(lambda: len(watcher.received) >= 30)
        assert sorted(watcher.received) == sorted((f"city/{number}", b"x") for number in range(30))
