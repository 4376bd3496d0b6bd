"""Every way in for a publication against the access rules: what one may not publish is not published, and what one may
not read does not come, however it came in and however one reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiomqtt
import pytest
from aiohttp import ClientSession, WSMsgType, encode_basic_auth

import saps
from saps.agents.ofgate.program.gateway import Gateway
from saps.broker.broker import Broker
from saps.config import Address
from saps.config.sources_io import load
from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Connack, Connect, Packet, Publish, Will
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.driver.access_files import edit_users
from saps.ofm.northbound.schema import Status
from tests.agents.city import TIMEOUT, City, Switch
from tests.agents.city import settings as gate_settings
from tests.frontend.upstream.sites import Mosquitto
from tests.network.meshes import Client, cut

pytestmark = pytest.mark.network

ACL = """
[[rule]]
allow = "both"
users = "chief"
topics = "#"

[[rule]]
allow = "publish"
users = "clerk"
topics = "open/#"

[[rule]]
allow = "subscribe"
users = "reader"
topics = "open/#"
"""
X = b"x"


class Site:
    """The brokers ``here``, to which a Mosquitto is joined, and ``there``. Both obey the rules."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.here: Broker
        self.there: Broker
        self.mosquitto: Mosquitto
        self.chief: Client
        """May do everything; its broker is there."""

    async def start(self) -> None:
        (self.folder / "acl.toml").write_text(ACL)
        for user in ("chief", "clerk", "reader"):
            edit_users(self.folder / "passwords", user, user.encode())
        self.mosquitto = await self.stack.enter_async_context(Mosquitto(self.folder / "mosquitto"))
        upstream = {"upstream.url": self.mosquitto.url, "upstream.topics": "+/upstream in"}
        self.here = await self.broker("here", upstream)
        self.there = await self.broker("there", {"join": self.here.ref.address})
        self.chief = await self.client("chief", self.there)
        await self.chief.subscribe("open/#", "shut/#")

    async def broker(self, name: str, more: dict[str, str]) -> Broker:
        broker = Broker(load({"name": name, **self.settings, **more}, {}).settings)
        await broker.start()
        self.stack.push_async_callback(cut, broker)
        return broker

    @property
    def settings(self) -> dict[str, str]:
        free = dict.fromkeys(("mqtt", "overlay.listen", "web.listen", "ofm.listen"), "127.0.0.1:0")
        rules = {"auth.passwords": str(self.folder / "passwords"), "auth.acl": str(self.folder / "acl.toml")}
        return {**free, **rules, "ofm.mac": "02:00:00:00:00:01"}

    async def client(self, user: str, at: Broker) -> Client:
        return await self.stack.enter_async_context(Client(at.server.address, user=user))

    async def raw(self, connect: Connect, at: Broker | None = None) -> Raw:
        """A client here, or at another broker, by bytes."""
        streams = await asyncio.open_connection(*(at or self.here).server.address)
        raw = Raw(*streams, connect.version)
        self.stack.callback(raw.writer.close)
        await raw.send(connect)
        return raw

    def web(self, scheme: str) -> str:
        assert self.here.web is not None
        return f"{scheme}://{Address(*self.here.web.addresses[0])}"


class Raw:
    """A connection that sends what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader = reader
        self.writer = writer
        self.packets = PacketReader(version)

    async def send(self, *packets: Packet) -> None:
        """In one write; returns when something has come back."""
        self.writer.write(b"".join(encode(packet, self.packets.version) for packet in packets))
        async with asyncio.timeout(TIMEOUT):
            self.answers = self.packets.feed(await self.reader.read(1 << 16))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        site = Site(stack, tmp_path)
        await site.start()
        yield site


# ---- the ways in: each publishes to a topic, most of them as the clerk


async def tcp(site: Site, topic: str) -> None:
    clerk = await site.client("clerk", site.here)
    for qos in (0, 1, 2):
        with suppress(aiomqtt.MqttError):
            await clerk.publish(topic, X, qos)


async def batch(site: Site, topic: str) -> None:
    """Among others that are permitted, from a client of MQTT 3.1.1."""
    clerk = await site.raw(Connect("old", V311, username="clerk", password=b"clerk"))
    topics = ["open/other", topic, "open/other", topic]
    await clerk.send(*[Publish(each, X, 1, packet_id=number) for number, each in enumerate(topics, 1)])


async def alias(site: Site, topic: str) -> None:
    clerk = await site.raw(Connect("alias", username="clerk", password=b"clerk"))
    named: PropertyMap = {Property.TOPIC_ALIAS: 1}
    await clerk.send(*[Publish(each, X, 1, packet_id=1, properties=named) for each in (topic, "")])


async def mqtt_over_websocket(site: Site, topic: str) -> None:
    async with ClientSession() as session, session.ws_connect(site.web("ws") + "/mqtt", protocols=["mqtt"]) as socket:
        for packet in (Connect("ws", username="clerk", password=b"clerk"), Publish(topic, X, 1, packet_id=1)):
            await socket.send_bytes(encode(packet, V5))
            assert (await socket.receive(TIMEOUT)).type is WSMsgType.BINARY


async def websocket(site: Site, topic: str) -> None:
    async with as_clerk() as session, session.ws_connect(site.web("ws") + "/v1/socket") as socket:
        await socket.send_json({"op": "publish", "topic": topic, "payload": "x", "qos": 1})
        answers = [(await socket.receive_json(timeout=TIMEOUT))["op"] for _ in range(2)]
        assert answers == ["welcome", "published" if topic.startswith("open") else "problem"]


async def http(site: Site, topic: str) -> None:
    url = f"{site.web('http')}/v1/topics/{topic}?qos=1"
    async with as_clerk() as session, session.post(url, data=X) as response:
        assert response.status == (200 if topic.startswith("open") else 403)


def as_clerk() -> ClientSession:
    return ClientSession(headers={"Authorization": encode_basic_auth("clerk", "clerk")})


async def will(site: Site, topic: str, at: Broker | None = None) -> Raw:
    clerk = await site.raw(Connect("dying", username="clerk", password=b"clerk", will=Will(topic, X, 1)), at)
    (connack,) = clerk.answers
    assert isinstance(connack, Connack)
    assert connack.reason == (Reason.SUCCESS if topic.startswith("open") else Reason.NOT_AUTHORIZED)
    if at is None:
        clerk.writer.close()
    return clerk


async def will_of_a_dead_broker(site: Site, topic: str) -> None:
    """Its guardians publish it."""
    dying = await site.broker(f"dying-{topic[:4]}", {"join": site.here.ref.address})
    await will(site, topic, dying)
    async with asyncio.timeout(TIMEOUT):
        while topic.startswith("open") and dying.ref.name not in site.here.mesh.node.wills.watched():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    dying.mesh.close()
    await dying.links.close()  # without a leave


async def retained(site: Site, topic: str) -> None:
    await (await site.client("clerk", site.here)).publish(topic, X, 1, retain=True)


async def moved(site: Site, topic: str) -> None:
    """By a client whose session was at the other broker."""
    for number, broker in enumerate((site.there, site.here)):
        client = aiomqtt.Client(
            *broker.server.address, identifier="nomad", username="clerk", password="clerk", clean_session=False
        )
        async with client:
            if number:
                await client.publish(topic, X, 1)


async def overlay(site: Site, topic: str) -> None:
    await site.chief.publish(topic, X, 1)


async def kept_elsewhere(site: Site, topic: str) -> None:
    """Retained, by one who may, at the other broker."""
    await site.chief.publish(topic, X, 1, retain=True)


async def embedded(site: Site, topic: str) -> None:
    """By a program, which is trusted, in a broker of its own."""
    async with saps.Broker(f"app-{topic[:4]}", join=site.here.ref.address) as broker:
        await broker.publish(topic, X, qos=1)


async def upstream(site: Site, topic: str) -> None:
    """By a client of the Mosquitto that is joined."""
    async with aiomqtt.Client("127.0.0.1", site.mosquitto.port) as client:
        await client.publish(topic, X, 1)


async def ofm(site: Site, topic: str) -> None:
    """By one who may, at the other broker, along a tree of switches."""
    switch = Switch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saps.agents.ofgate.program.gateway.northbound", lambda *_: switch)
        gateway = Gateway(gate_settings("gate", "both", Address.parse(site.here.ref.address), ""), ["http://ofc"])
        await gateway.start()
    try:
        async with asyncio.timeout(TIMEOUT):
            await gateway.leads.wait()
            await site.chief.publish(topic, X)
            await gateway.exploit(topic)
            await City([site.here, site.there], gateway, switch).status(topic, Status.CONSTRUCTED)
            while not switch.copied:
                await site.chief.publish(topic, X, 1)
    finally:
        await gateway.stop()


Way = Callable[[Site, str], Awaitable[object]]
AS_CLERK: list[Way] = [
    *(tcp, batch, alias, mqtt_over_websocket, websocket, http, will, will_of_a_dead_broker, retained, moved),
]
TRUSTED: list[Way] = [overlay, kept_elsewhere, embedded, upstream, ofm]


@pytest.mark.parametrize("way", [*AS_CLERK, *TRUSTED], ids=lambda way: way.__name__)
async def test_what_is_not_permitted_neither_gets_in_nor_out(site: Site, way: Way) -> None:
    here, name = site.here, way.__name__
    live, member, late = [await site.client("reader", here) for _ in range(3)]
    await live.subscribe("#", f"shut/{name}", "+/+")
    await member.subscribe("$share/team/#")
    away = Client(here.server.address, "away", user="reader", expiry=60)
    async with away:
        await away.subscribe("#")
    for topic in (f"shut/{name}", f"open/{name}"):
        await way(site, topic)
    for client in (live, member, site.chief):
        await client.expect(f"open/{name}", X)
    await late.subscribe("#")
    await site.chief.publish("open/end", X, 1)
    async with Client(site.there.server.address, "away", user="reader", expiry=60) as back:
        for client in (live, member, late, back, site.chief):
            await client.expect("open/end", X)
        readers = {client: {topic for topic, _ in client.received} for client in (live, member, late, back)}
    for client, topics in readers.items():
        assert all(topic.startswith("open/") for topic in topics), (client.name, topics)
    assert f"open/{name}" in readers[back]
    assert ((f"shut/{name}", X) in site.chief.received) == (way in TRUSTED)
    assert all(not retained.topic.startswith("shut/") or way in TRUSTED for retained in here.hub.retained_for("#"))


async def test_a_will_is_not_published_once_it_is_not_permitted_any_more(site: Site) -> None:
    dying = await site.raw(Connect("dying", username="clerk", password=b"clerk", will=Will("open/will", X, 1)))
    (site.folder / "acl.toml").write_text(
        ACL.replace('users = "clerk"\ntopics = "open/#"', 'users = "clerk"\ntopics = "a"')
    )
    reloading = site.here.server.reload()
    assert reloading is not None
    assert await reloading
    dying.writer.close()
    await site.chief.publish("open/end", X, 1)
    await site.chief.expect("open/end", X)
    assert ("open/will", X) not in site.chief.received
