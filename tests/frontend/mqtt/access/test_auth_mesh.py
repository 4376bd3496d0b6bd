"""Rules hold for what comes from other brokers: a mesh of two, of which one has an ACL."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from saps.broker.broker import Broker
from saps.config import Address
from saps.config.access import AuthSettings
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Connect, Will
from tests.network.meshes import Client, cut, settings

pytestmark = pytest.mark.network

ACL = """
[[rule]]
deny = "subscribe"
topics = ["secret/#", "+/secret"]
[[rule]]
allow = "both"
topics = "#"
"""


async def test_a_subscriber_does_not_get_what_it_may_not_read_from_another_broker(tmp_path: Path) -> None:
    acl = tmp_path / "acl.toml"
    acl.write_text(ACL)
    async with AsyncExitStack() as stack:
        free = Broker(settings("free", "c"))
        stack.push_async_callback(cut, free)
        await free.start()
        contact = Address.parse(free.ref.address)
        ruled = Broker(msgspec.structs.replace(settings("ruled", "d", [contact]), auth=AuthSettings(acl=str(acl))))
        stack.push_async_callback(cut, ruled)
        await ruled.start()
        reader = await stack.enter_async_context(Client(ruled.server.address))
        other = await stack.enter_async_context(Client(free.server.address))
        for watcher in (reader, other):
            await watcher.subscribe("#", "secret/+", "a/+", qos=1)
        reading, dying = await asyncio.open_connection(*free.server.address)
        dying.write(encode(Connect("dying", will=Will("a/secret", b"will")), V5))
        await reading.readexactly(4)
        sent = [("secret/a", b"1"), ("a/b", b"2"), ("secret", b"3"), ("a/secret", b"4")]
        for topic, payload in sent:
            for qos in (0, 1):
                await other.publish(topic, payload, qos)
        dying.close()
        await other.expect("a/secret", b"will")
        await other.publish("end/of/it", b"5", 1)
        for watcher in (reader, other):
            await watcher.expect("end/of/it", b"5")
        assert reader.received == [("a/b", b"2"), ("a/b", b"2"), ("end/of/it", b"5")]
        assert set(other.received) == {*sent, ("a/secret", b"will"), ("end/of/it", b"5")}
        assert ruled.hub.received >= len(sent) * 2  # they came, and were withheld
