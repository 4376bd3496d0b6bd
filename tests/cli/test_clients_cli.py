"""`saps clients` and `saps client` against real brokers in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import aiomqtt
import msgspec
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from saps.broker.broker import Broker
from saps.cli.look.audit import audit_table
from saps.cli.look.follow import shown
from saps.config.sources_io import load
from saps.messages import Message
from saps.operations.audit import Entry
from saps.operations.following import Event
from saps.routing.batch import Batch
from tests.cli.test_terminal import ANY, TIMEOUT, answer, refusal, saps, web


@pytest.fixture
async def brokers() -> AsyncIterator[list[Broker]]:
    """A mesh of two."""
    async with AsyncExitStack() as stack:
        found: list[Broker] = []
        for name in ("b0", "b1"):
            flags = {"mqtt": ANY, "overlay.listen": ANY, "web.listen": ANY, "overlay.leave_timeout": "2"}
            if found:
                flags["join"] = found[0].ref.address
            broker = Broker(load({"name": name, **flags}, {}).settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            found.append(broker)
        yield found


def lasting(seconds: int) -> Properties:
    """Properties of a CONNECT whose session outlives the connection."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = seconds
    return properties


async def test_a_client_is_found_and_disconnected_from_the_terminal(brokers: list[Broker]) -> None:
    here = ("--web", web(brokers[0]))
    host, port = brokers[1].server.address
    will = aiomqtt.Will("gone", b"\x1b[31m", 1, retain=True)
    client = aiomqtt.Client(
        host, port, identifier="sensor-7", protocol=aiomqtt.ProtocolVersion.V5, will=will, properties=lasting(600)
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(suppress(aiomqtt.MqttError))  # it is disconnected
        await stack.enter_async_context(client)
        await client.subscribe("air/+", qos=1)
        found = answer(await saps("clients", "SENSOR", "--filter", "air/x", "--json", *here))
        assert [(row["client"], row["broker"]) for row in found["clients"]] == [("sensor-7", "b1")]
        shown = (await saps("clients", "--broker", "b1", "--sort", "rate", *here)).stdout
        assert "1 client" in shown
        assert "sensor-7" in shown
        shown = (await saps("client", "sensor-7", *here)).stdout
        assert "sensor-7, anonymous, is connected to b1 from 127.0.0.1:" in shown
        assert "MQTT 5 over TCP" in shown
        assert "kept for 10 min after the connection" in shown
        assert "last will: gone '\\x1b[31m', QoS 1, retained" in shown
        assert "air/+" in shown
        done = await saps("client", "sensor-7", "--disconnect", *here)
        assert done.stdout == "sensor-7 was disconnected from b1\n"
        with pytest.raises(aiomqtt.MqttError):
            await anext(aiter(client.messages))
    assert "away from b1 since" in (await saps("client", "sensor-7", *here)).stdout
    done = await saps("client", "sensor-7", "--disconnect", "--end-session", *here)
    assert done.stdout == "sensor-7 was not connected to b1; its session has ended\n"
    assert "no broker has a session of 'sensor-7'" in refusal(await saps("client", "sensor-7", *here))
    assert "sort" in refusal(await saps("clients", "--sort", "color", *here))


async def test_bans_are_ordered_listed_and_lifted_and_the_audit_log_says_who(brokers: list[Broker]) -> None:
    here = ("--web", web(brokers[0]))
    done = await saps("ban", "address", "192.0.2.7/24", "--for", "2h", "--reason", "scans", *here)
    assert re.match(r"the address 192\.0\.2\.0/24 is banned at 2 brokers until 20", done.stdout)
    listed = (await saps("ban", "--web", web(brokers[1]))).stdout
    assert "1 ban" in listed
    assert "scans" in listed
    assert "192.0.2.0/24" in listed
    done = await saps("ban", "address", "192.0.2.0/24", "--lift", *here)
    assert done.stdout == "the address 192.0.2.0/24 is banned no more, at 2 brokers\n"
    assert answer(await saps("ban", "--json", *here))["bans"] == []
    assert "'soon' is not of the form 90s" in refusal(await saps("ban", "user", "u", "--for", "soon", *here))
    assert "'host' is not one of client, user, address" in refusal(await saps("ban", "host", "x", *here))
    assert "which user" in refusal(await saps("ban", "user", *here))
    assert "10.0.0" in refusal(await saps("ban", "address", "10.0.0", *here))
    elsewhere = ("--web", web(brokers[1]))
    entries = answer(await saps("audit", "192.0.2", "--json", *elsewhere))["entries"]
    assert [(entry["broker"], entry["what"]) for entry in entries] == [("b0", "lift ban"), ("b0", "ban")]
    assert brokers[1].operations is not None
    at_b1 = [
        (entry.what, entry.source)
        for entry in msgspec.convert(brokers[1].operations.audit.latest("", 9, False), list[Entry])
    ]
    assert at_b1 == [("ban lifted elsewhere", "b0"), ("ban from elsewhere", "b0")]
    listed = (await saps("audit", *here)).stdout
    assert "anonymous (administrator)" in listed
    assert "address 192.0.2.0/24" in listed


async def test_a_topic_is_followed_from_the_terminal(brokers: list[Broker]) -> None:
    following = asyncio.create_task(saps("follow", "--filter", "air/#", "--seconds", "5", "--web", web(brokers[0])))
    async with asyncio.timeout(TIMEOUT):
        while brokers[1].hub.tracer is None:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0.02)
    brokers[1].hub.publish(Batch.of(Message("air/\x1b", b"21.5")))
    assert "b1 published air/\\x1b QoS 0 4 B '21.5': to other brokers, if they want it" in (await following).stdout
    here = ("--web", web(brokers[0]))
    assert "--client, --filter or both" in refusal(await saps("follow", *here))
    assert "not a topic filter" in refusal(await saps("follow", "--filter", "#/a", *here))


def test_of_a_refused_publication_neither_qos_nor_size_is_said() -> None:
    event = Event(at=0.0, broker="b1", what="refused", client="c", packet="PUBLISH", topic="air", why="no right")
    assert shown(event).plain.endswith("b1 refused c PUBLISH air: no right")


def test_an_order_by_signal_is_not_said_to_be_anonymous() -> None:
    rows = audit_table([Entry(at=0.0, broker="b1", what="reload", source="signal")], "1 entry")
    assert [str(cell) for cell in rows.columns[1].cells] == ["a signal"]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"rules": 1, "users": 4}, {"rules": 2, "users": 4, "taken": True}, "rules 1 -> 2; taken yes"),
        (None, {"until": None, "reason": "scans", "taken": False}, "reason scans"),
        ({"reason": "scans"}, None, "reason was scans"),
        ({"reason": "a"}, {"reason": ""}, "reason was a"),
        (3, 4, "3 -> 4"),
    ],
)
def test_of_a_change_is_shown_what_was_and_what_is(before: object, after: object, shown: str) -> None:
    entry = Entry(at=0.0, broker="b1", what="x", subject="y", before=before, after=after)
    assert [str(cell) for cell in audit_table([entry], "1 entry").columns[-1].cells] == [shown]
    narrow = audit_table([entry], "1 entry", 80)
    assert [str(cell) for cell in narrow.columns[-1].cells] == [f"x y: {shown}"]
    assert len(narrow.columns) == 4
