"""A broker inside a program: `saps.Broker`, on real links, beside other brokers and MQTT clients."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Coroutine
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.reasoncodes import ReasonCode

import saps

TIMEOUT = 60.0
"""Seconds a test waits for what must come."""
FAST = {"overlay.leave_timeout": 2.0, "sys_interval": 0}


def broker(name: str, **more: object) -> saps.Broker:
    return saps.Broker(name, settings=FAST, **more)  # type: ignore[arg-type]


async def taken(messages: saps.Messages, number: int) -> list[bytes]:
    """The payloads of the next messages."""
    found: list[bytes] = []
    async with asyncio.timeout(TIMEOUT), aclosing(aiter(messages)) as loop:  # type: ignore[type-var]
        while len(found) < number:
            found.append((await anext(loop)).payload)
    return found


async def test_messages_go_between_programs_and_mqtt_clients() -> None:
    async with broker("b1") as one, broker("b2", join=one.overlay) as two:
        async with one.subscribe("air/#", qos=1) as messages:
            reached = await two.publish("air/ward1", "21.5", qos=1)
            assert reached == saps.Reached(brokers=1, subscribers=1)
            host, _, port = two.mqtt.partition(":")
            async with aiomqtt.Client(host, int(port), identifier="sensor") as sensor:
                await sensor.subscribe("alert")
                await sensor.publish("air/ward2", b"20.9", qos=1)
                assert (await one.publish("alert", b"fire", qos=2)).subscribers == 1
                async with asyncio.timeout(TIMEOUT):
                    assert (await anext(aiter(sensor.messages))).payload == b"fire"
            assert await taken(messages, 2) == [b"21.5", b"20.9"]
        assert (await two.publish("air/ward1", b"", qos=1)).subscribers == 0


async def test_a_program_decides_who_may_log_in() -> None:
    asked: list[str] = []

    async def authenticate(user: str, password: str) -> bool:
        asked.append(user)
        if user == "broken":
            raise KeyError(user)
        return password == f"of {user}"

    one = saps.Broker("b1", settings=FAST | {"auth.anonymous": "never"}, authenticate=authenticate)
    async with one:
        for user, password, said in (
            ("pump", "of pump", 0),
            ("pump", "of pump", 0),
            ("pump", "wrong", 134),
            ("broken", "of broken", 136),
            (None, None, 135),
        ):
            assert await login(one, user, password) == said
    assert asked == ["pump", "pump", "broken"]  # the second time its answer was kept
    with pytest.raises(saps.SettingError, match=r"auth\.http\.login"):
        saps.Broker("b2", settings={"auth.http.login": "http://127.0.0.1:1/"}, authenticate=authenticate)


async def login(at: saps.Broker, user: str | None, password: str | None) -> int:
    """The reason code of the CONNACK."""
    host, _, port = at.mqtt.partition(":")
    client = aiomqtt.Client(host, int(port), username=user, password=password, protocol=aiomqtt.ProtocolVersion.V5)
    try:
        async with client:
            return 0
    except aiomqtt.MqttCodeError as error:
        return error.rc.value if isinstance(error.rc, ReasonCode) else -1


async def test_a_loop_without_a_block_subscribes_and_ends_the_subscription_when_it_is_left() -> None:
    async with broker("b1") as one:
        await one.publish("state", b"kept", retain=True)
        await one.publish("other", b"kept", retain=True)

        async def first() -> saps.Message:
            async for message in one.subscribe("state"):
                return message
            raise AssertionError("the loop ended")

        message = await asyncio.wait_for(first(), TIMEOUT)
        assert (message.payload, message.retain, message.properties) == (b"kept", True, None)
        async with asyncio.timeout(TIMEOUT):
            while (await one.publish("state", b"", qos=1)).subscribers:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0)  # the loop's end takes a turn of the event loop


async def test_what_there_is_no_room_for_is_dropped_or_told_as_its_quality_demands() -> None:
    async with broker("b1") as one, one.subscribe("t", qos=1, room=3) as messages:
        for number in range(5):
            await one.publish("t", str(number))
        assert messages.dropped == 2
        assert await taken(messages, 3) == [b"0", b"1", b"2"]
    async with broker("b1") as one, one.subscribe("t", qos=1, room=3) as messages:
        for number in range(5):
            await one.publish("t", str(number), qos=1)
        loop = aiter(messages)
        assert [(await anext(loop)).payload for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(saps.TooSlowError):
            await anext(loop)
        assert (await one.publish("t", b"", qos=1)).subscribers == 0


async def test_what_is_retained_waits_where_it_is_kept_and_takes_no_room() -> None:
    async with broker("b1") as one, broker("b2", join=one.overlay) as two:
        topics = [f"state/{number}" for number in range(100)]
        for topic in topics:
            await one.publish(topic, b"old", qos=1, retain=True)
        async with two.subscribe("state/+", qos=1, room=1) as messages, asyncio.timeout(TIMEOUT):
            loop = aiter(messages)
            first = await anext(loop)
            late = next(topic for topic in topics if topic != first.topic)
            await one.publish(late, b"new", qos=1, retain=True)
            rest = [await anext(loop) for _ in topics[1:]]
        assert sorted(message.topic for message in (first, *rest)) == sorted(topics)
        assert [(m.payload, m.retain) for m in rest if m.topic == late] == [(b"new", False)]  # not the old one, too
        assert {(m.payload, m.retain, m.qos) for m in rest if m.topic != late} == {(b"old", True, 1)}
        assert messages.dropped == 0


async def test_properties_come_along_and_an_expired_message_does_not_come() -> None:
    sent = saps.Properties(message_expiry=1000, content_type="text/plain", user=(("place", "roof"),))
    async with broker("b1") as one, broker("b2", join=one.overlay) as two, two.subscribe("t", qos=2) as messages:
        assert (await one.publish("t", b"gone", qos=1, properties=saps.Properties(message_expiry=0))).subscribers == 1
        await one.publish("t", b"kept", qos=2, retain=True, properties=sent)
        async with asyncio.timeout(TIMEOUT):
            message = await anext(aiter(messages))
        assert (message.payload, message.qos, message.retain, messages.dropped) == (b"kept", 2, False, 1)
        assert message.properties is not None
        assert (message.properties.content_type, message.properties.user) == (sent.content_type, sent.user)
        assert message.properties.stamp is None
        assert 0 < (message.properties.message_expiry or 0) <= 1000


async def test_publishers_wait_while_the_broker_holds_them_back() -> None:
    async with broker("b1") as one:
        one._core.hold("links", True)
        waiting = asyncio.ensure_future(one.publish("t", b""))
        done, _ = await asyncio.wait({waiting}, timeout=0)
        assert not done
        await asyncio.sleep(0)
        assert one._core.hub.published == 0
        one._core.hold("links", False)
        assert await asyncio.wait_for(waiting, TIMEOUT) == saps.Reached(0, 0)
        one._core.hold("links", True)
        waiting = asyncio.ensure_future(one.publish("t", b"", qos=1))
        await asyncio.sleep(0)
        await one.stop()
        with pytest.raises(saps.ClosedError):
            await asyncio.wait_for(waiting, TIMEOUT)


async def test_members_of_a_group_take_turns_and_inherit_what_a_full_or_ended_one_had() -> None:
    async with broker("b1") as one, AsyncExitStack() as stack:
        name = "$share/group/t"
        full = await stack.enter_async_context(one.subscribe(name, qos=1, room=2))
        heir = await stack.enter_async_context(one.subscribe(name, qos=1, room=100))
        for number in range(10):
            await one.publish("t", str(number), qos=1)
        full.close()
        assert sorted(await taken(heir, 10)) == [str(number).encode() for number in range(10)]


async def test_the_end_of_the_broker_ends_loops_and_refuses_what_comes_later() -> None:
    one = broker("b1")
    with pytest.raises(saps.ClosedError):
        await one.publish("t", b"")
    await one.start()
    messages = one.subscribe("t")
    async with messages:
        loop = asyncio.ensure_future(_all(messages))
        await one.publish("t", b"1", qos=1)
        await asyncio.sleep(0)
        await one.stop()
        assert await asyncio.wait_for(loop, TIMEOUT) in ([b"1"], [])
    with pytest.raises(saps.ClosedError):
        await one.publish("t", b"")
    with pytest.raises(saps.ClosedError):
        await _all(one.subscribe("t"))


async def test_a_stopped_broker_does_nothing_more_and_is_forgotten_by_the_loop() -> None:
    began = asyncio.all_tasks()
    async with broker("b1") as one, broker("b2", join=one.overlay) as two:
        node = weakref.ref(one._core.mesh.node)
    assert asyncio.all_tasks() == began
    del one, two
    async with asyncio.timeout(TIMEOUT):
        while node() is not None:  # until its connections have been closed
            await asyncio.sleep(0.01)
            gc.collect()


async def _all(messages: saps.Messages) -> list[bytes]:
    return [message.payload async for message in messages]


async def test_a_start_that_fails_names_the_setting_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(saps.SettingError, match=r"^overlay.dead_after: '-1' does not fit"):
        saps.Broker("b1", settings={"overlay.dead_after": "-1"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken_port = f"127.0.0.1:{server.getsockname()[1]}"
        failed = broker("b1", mqtt=taken_port)
        with pytest.raises(saps.SettingError, match=f"^mqtt: cannot listen on {taken_port}"):
            await failed.start()
    host, _, port = failed.overlay.partition(":")
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), timeout=TIMEOUT)
    (tmp_path / "b1.toml").write_text(f'mqtt = "{taken_port}"\ncluster = "tokyo/ward1"\n')
    async with broker("b1", config=tmp_path / "b1.toml") as one:
        assert one.mqtt == taken_port


def _sockets() -> int:
    """Open ones of this process."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return found


async def _cancelled(work: Coroutine[Any, Any, None], steps: int) -> None:
    """Cancel it after so many turns of the event loop."""
    task = asyncio.ensure_future(work)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, TIMEOUT)


async def _nothing_left(began: set[asyncio.Task[Any]], sockets: int) -> None:
    async with asyncio.timeout(TIMEOUT):
        while asyncio.all_tasks() != began or _sockets() > sockets:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)


async def test_whenever_a_start_or_stop_is_cancelled_nothing_is_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one opens the same file."""
    began, sockets = asyncio.all_tasks(), _sockets()
    settings = FAST | {"storage.file": str(tmp_path / "b1.db"), "sys_interval": 10}
    for steps in (0, 1, 2, 3, 5, 8, 13):
        one = saps.Broker("b1", settings=settings, web="127.0.0.1:0")
        await _cancelled(one.start(), steps)
        await one.stop()
        await _nothing_left(began, sockets)
        other = saps.Broker("b1", settings=settings, web="127.0.0.1:0")
        await other.start()
        host, _, port = other.mqtt.partition(":")
        client, writer = await asyncio.open_connection(host, int(port))
        await _cancelled(other.stop(), 1 + steps)
        assert await asyncio.wait_for(client.read(), TIMEOUT) == b""
        writer.close()
        await _nothing_left(began, sockets)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        joining = saps.Broker("b1", settings=FAST, join=f"127.0.0.1:{silent.getsockname()[1]}")
        await _cancelled(joining.start(), 10)
    await _nothing_left(began, sockets)
    gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text


@pytest.mark.parametrize("topic", ["", "a/#", "$SYS/x", "\0"])
async def test_what_cannot_be_published_or_subscribed_is_refused(topic: str) -> None:
    async with broker("b1") as one:
        with pytest.raises(TypeError, match="not int"):
            await one.publish("t", 5)  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            await one.publish(topic, b"")
        with pytest.raises(ValueError):
            one.subscribe("a/#/b")


def test_the_package_loads_nothing_until_it_is_asked() -> None:
    program = (
        "import sys, saps; loaded = {m.split('.')[1] for m in sys.modules if m.startswith('saps.')}"
        "; assert loaded <= {'runtime', 'version'}"
        "; print(saps.Broker.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.stdout == "Broker\n", done.stderr
    assert all(hasattr(saps, name) for name in saps.__all__)
    with pytest.raises(AttributeError, match="Brocker"):
        saps.Brocker  # noqa: B018
