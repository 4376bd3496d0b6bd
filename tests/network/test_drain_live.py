"""A mesh is upgraded broker by broker while MQTT 5 clients (Eclipse Paho) publish and subscribe; `saps drain`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import paho.mqtt.client as paho
import pytest
import trustme
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from typer.testing import CliRunner, Result

from examples.smart_city.processes import BrokerProcess, free_ports, saps_broker
from saps.broker.broker import Broker
from saps.broker.web import obstacles
from saps.cli.commands import app
from saps.cli.look.http_client import WebPort
from saps.config import Address, BrokerSettings
from saps.config.drain import DrainSettings
from saps.config.settings import OverlaySettings
from saps.config.sources_io import load
from saps.config.storage import StorageSettings
from saps.drain.values import Drained, Order, Stage
from saps.frontend.mqtt.driver.access_files import edit_users

pytestmark = pytest.mark.network

TIMEOUT = 60.0
WINDOW = 8
"""Publications of a client that are not acknowledged, at most."""


async def reached(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Wanderer:
    """A client that keeps its session and goes where it is told to, else to its next broker; in a thread of its own."""

    def __init__(self, name: str, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.present: list[bool] = []
        self.refused: list[int] = []
        self.ended: list[int] = []
        self.told: list[int] = []
        """Ports it was sent to."""
        self._next: list[int] = []
        self._over = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self.client.disconnect()

    def ready(self) -> None:
        """It is connected."""

    def step(self) -> None:
        """Something to be done now and then while it is connected."""

    def _run(self) -> None:
        kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = 3600
        turn = 0
        while not self._over.is_set():
            if not self._next:
                self._next = [self.ports[turn % len(self.ports)]]
                turn += 1
            try:
                self.client.connect("127.0.0.1", self._next.pop(0), 60, clean_start=False, properties=kept)
            except OSError:
                self._over.wait(0.05)
                continue
            while self.client.loop(0.01) == paho.MQTT_ERR_SUCCESS and not self._over.is_set():
                self.step()
            self._over.wait(0.02)

    def _connected(self, client: object, data: object, flags: paho.ConnectFlags, code: object, p: object) -> None:
        if code.is_failure:  # type: ignore[attr-defined]
            self.refused.append(code.value)  # type: ignore[attr-defined]
            self._go(p)
        else:
            self.present.append(flags.session_present)
            self.ready()

    def _disconnected(self, client: object, data: object, flags: paho.DisconnectFlags, code: object, p: object) -> None:
        if flags.is_disconnect_packet_from_server:
            self.ended.append(code.value)  # type: ignore[attr-defined]
            self._go(p)

    def _go(self, properties: object) -> None:
        told = [int(each.rpartition(":")[2]) for each in getattr(properties, "ServerReference", "").split()]
        self.told += told
        self._next = told


class Listener(Wanderer):
    """Subscribes once, and remembers how often each number came."""

    def __init__(self, name: str, ports: Sequence[int], topic_filter: str) -> None:
        super().__init__(name, ports)
        self.got: Counter[int] = Counter()
        self.subscribed = threading.Event()
        self._filter = topic_filter
        self.client.on_message = self._take
        self.client.on_subscribe = lambda *args: self.subscribed.set()

    def ready(self) -> None:
        if not self.subscribed.is_set():
            self.client.subscribe(self._filter, qos=2)

    def _take(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.got[int(message.payload)] += 1


class Speaker(Wanderer):
    """Publishes numbers: odd ones with QoS 1, even ones with QoS 2."""

    def __init__(self, name: str, ports: Sequence[int], topic: str) -> None:
        super().__init__(name, ports)
        self.last = 0
        self.acknowledged: set[int] = set()
        self.silent = threading.Event()
        self._topic = topic
        self._open: dict[int, int] = {}
        self.client.on_publish = self._published

    @property
    def finished(self) -> bool:
        return self.silent.is_set() and len(self.acknowledged) == self.last

    def step(self) -> None:
        while self.client.is_connected() and not self.silent.is_set() and len(self._open) < WINDOW:
            self.last += 1
            sent = self.client.publish(self._topic, str(self.last), qos=1 if self.last % 2 else 2)
            self._open[sent.mid] = self.last
            self._over.wait(0.01)

    def _published(self, client: object, data: object, mid: int, code: object, p: object) -> None:
        self.acknowledged.add(self._open.pop(mid))


class Site:
    """One broker at fixed addresses, with storage, in its lives."""

    def __init__(self, number: int, folder: Path, mqtt: int, overlays: Sequence[int]) -> None:
        self.mqtt = mqtt
        self.others = [Address("127.0.0.1", port) for port in overlays if port != overlays[number]]
        self.settings = BrokerSettings(
            name=f"b{number}",
            mqtt=Address("127.0.0.1", mqtt),
            overlay=OverlaySettings(listen=Address("127.0.0.1", overlays[number])),
            storage=StorageSettings(file=str(folder / f"b{number}.db"), sync="off"),
            drain=DrainSettings(rate=20.0, grace=0.3),
        )
        self.broker: Broker
        self.left = asyncio.Event()

    async def start(self, *, first: bool = False) -> None:
        join = () if first else tuple(self.others)
        self.broker = Broker(msgspec.structs.replace(self.settings, join=join))
        await self.broker.start(self.left.set)

    async def drain(self) -> None:
        """Returns when it has left."""
        drain = self.broker.drain
        assert drain is not None
        drain.obey(Order())
        async with asyncio.timeout(TIMEOUT):
            await self.left.wait()
        assert drain.drain.stage is Stage.LEFT
        await self.broker.stop()


async def test_a_mesh_is_restarted_broker_by_broker_without_loss(tmp_path: Path) -> None:
    """Clients follow the Server References, and their sessions follow them. Nothing is lost, nothing of QoS 2 comes
    twice."""
    ports = free_ports(6, random.Random())
    sites = [Site(number, tmp_path, ports[number], ports[3:]) for number in range(3)]
    clients: list[Wanderer] = []
    async with AsyncExitStack() as stack:
        for site in sites:
            await site.start(first=site is sites[0])
            stack.push_async_callback(lambda site=site: site.broker.stop())  # type: ignore[misc]
        pairs = []
        for number, site in enumerate(sites):
            pair = Listener(f"s{number}", [site.mqtt], f"n/{number}"), Speaker(f"p{number}", [site.mqtt], f"n/{number}")
            pairs.append(pair)
            clients += pair
            for each in pair:
                each.start()
                stack.callback(each.stop)
                await reached(lambda each=each: bool(each.present))  # type: ignore[misc]
            await reached(pair[0].subscribed.is_set)

        async def more() -> None:
            before = [sum(listener.got.values()) for listener, _ in pairs]
            for before_it, (listener, _) in zip(before, pairs, strict=True):
                await reached(lambda b=before_it, it=listener: sum(it.got.values()) > b + 10)  # type: ignore[misc]

        for client in clients:
            client.ports = [site.mqtt for site in sites]
        for number, site in enumerate(sites):
            left_behind = Listener(f"away{number}", [site.mqtt], "n/#")
            left_behind.start()
            await reached(left_behind.subscribed.is_set)
            left_behind.stop()
            await more()
            await site.drain()
            await site.start()
        await more()
        for _, speaker in pairs:
            speaker.silent.set()
        for listener, speaker in pairs:
            await reached(lambda it=speaker: it.finished)  # type: ignore[misc]
            await reached(lambda it=listener, n=speaker.last: len(it.got) == n)  # type: ignore[misc]
            assert set(listener.got) == set(range(1, speaker.last + 1))
            assert not [n for n, times in listener.got.items() if times > 1 and n % 2 == 0], "QoS 2 came twice"
        # A speaker's session may be empty when it moves: then there is nothing to be had elsewhere.
        assert all(all(listener.present[1:]) for listener, _ in pairs), "a session was lost"
        assert {code for client in clients for code in client.ended} == {0x9C}
        assert {port for client in clients for port in client.told} == {site.mqtt for site in sites}
        for number in range(3):
            assert sum(f"away{number}" in site.broker.server.frontend.sessions for site in sites) == 1


async def test_a_signal_is_the_same_order_and_the_process_ends_in_order() -> None:
    any_port = "127.0.0.1:0"
    async with AsyncExitStack() as stack:
        staying = saps_broker("b0", "c", any_port, any_port)
        stack.push_async_callback(staying.stop)
        await staying.start(TIMEOUT)
        leaving = saps_broker("b1", "c", any_port, any_port, [told(staying)["overlay"]])
        leaving.command = (*leaving.command, "--web", any_port)
        stack.push_async_callback(leaving.stop)
        await leaving.start(TIMEOUT)
        port, goal = (int(told(broker)["mqtt"].rpartition(":")[2]) for broker in (leaving, staying))
        found = [Listener(f"c{number}", [port], "a/#") for number in range(6)]
        for client in found:
            client.start()
            stack.callback(client.stop)
        await reached(lambda: all(client.subscribed.is_set() for client in found))
        door = WebPort(f"http://{told(leaving)['web']}")
        drained = await asyncio.to_thread(door.post, "/v1/drain", Order(rate=2.0, grace=0.2), Drained)
        assert drained.broker == "b1"
        result = await saps("drain", "--pid", str(leaving.pid), "--timeout", str(TIMEOUT))
        assert result.exit_code == 0, result.output
        await reached(lambda: not leaving.running)
        assert leaving.exit_status == 0
        await reached(lambda: all(client.present == [False, True] for client in found))
        assert {at for client in found for at in client.told} == {goal}
        assert "cannot be signalled" in (await saps("drain", "--pid", str(leaving.pid))).stderr


def told(process: BrokerProcess) -> dict[str, str]:
    """The fields of the ready line."""
    return dict(field.split("=", 1) for field in process.ready_line.split()[1:])


async def saps(*arguments: str) -> Result:
    """The command, in a thread of this process, whose event loop serves it meanwhile."""
    clean: dict[str, str | None] = {key: None for key in os.environ if key.startswith("SAPS_")}
    return await asyncio.to_thread(CliRunner().invoke, app, arguments, env=clean)


async def test_the_command_shows_how_far_it_is_and_can_end_a_drain(tmp_path: Path) -> None:
    edit_users(tmp_path / "users", "ann", b"secret")
    (tmp_path / "wrong").write_text("guess\n")
    any_port = "127.0.0.1:0"
    flags = {"mqtt": any_port, "overlay.listen": any_port, "web.listen": any_port}
    flags["auth.passwords"] = str(tmp_path / "users")
    authority, trusting = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusting)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    flags |= {"tls.listen": any_port, "tls.certificate": str(tmp_path / "broker.pem")}
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for number in range(2):
            join = {"join": brokers[0].ref.address} if brokers else {}
            broker = Broker(load({"name": f"b{number}", **flags, **join}, {}).settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        (staying, leaving), ports = brokers, [broker.server.address[1] for broker in brokers]
        assert leaving.web is not None
        web = ("--web", "{}:{}".format(*leaving.web.addresses[0]))
        for refused, why in (
            (("--user", "ann", "--password-file", str(tmp_path / "wrong")), "401"),
            (("b0",), "is b1, not b0"),
        ):
            result = await saps("drain", *refused, *web)
            assert (result.exit_code, why in result.stderr) == (2, True), result.output
        sealed = [broker.server.tls_addresses[0][1] for broker in brokers]
        client, secret = Listener("c", [ports[1]], "a/#"), Listener("secret", [sealed[1]], "a/#")
        secret.client.tls_set_context(trusting)
        for each in (client, secret):
            each.start()
            stack.callback(each.stop)
            await reached(each.subscribed.is_set)
        slow = await saps("drain", "b1", "--no-wait", "--rate", "0.01", "--json", *web)
        assert (slow.exit_code, json.loads(slow.stdout)["stage"]) == (0, "draining")
        assert obstacles(leaving) == ["it is drained"]
        ended = await saps("drain", "--cancel", *web)
        assert (ended.exit_code, ended.stdout) == (0, "b1 is serving\n")
        assert obstacles(leaving) == []
        result = await saps("drain", "--json", "--grace", "0.2", *web)
        assert result.exit_code == 0, result.output
        looks = [json.loads(line) for line in result.stdout.splitlines()]
        assert (looks[0]["stage"], looks[-1]["stage"]) == ("draining", "left")
        assert (looks[-1]["clients"], looks[-1]["sessions"], looks[-1]["keys"]) == (0, 0, 0)
        await reached(lambda: client.present == secret.present == [False, True])
        assert (client.told, secret.told) == ([ports[0]], [sealed[0]])
        assert staying.server.frontend.sessions.keys() == {"c", "secret"}


async def test_a_broker_alone_keeps_what_is_stored_and_waits_for_who_watches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for one that looks rarely, since the machine is busy."""
    any_port = "127.0.0.1:0"
    flags = {"name": "b1", "mqtt": any_port, "overlay.listen": any_port, "web.listen": any_port}
    flags["storage.file"] = str(tmp_path / "b1.db")
    monkeypatch.setattr("saps.cli.drain.EVERY", 4.0)
    left = asyncio.Event()
    broker = Broker(load(flags, {}).settings)

    async def end() -> None:
        await left.wait()
        await broker.stop()

    async with AsyncExitStack() as stack:
        await broker.start(left.set)
        stack.push_async_callback(broker.stop)
        away = Listener("away", [broker.server.address[1]], "a/#")
        away.start()
        stack.callback(away.stop)
        await reached(away.subscribed.is_set)
        away.stop()
        await reached(lambda: broker.server.frontend.sessions["away"].connection is None)
        assert broker.web is not None
        ended = asyncio.create_task(end())
        stack.callback(ended.cancel)
        result = await saps("drain", "--json", "--web", "{}:{}".format(*broker.web.addresses[0]))
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout.splitlines()[-1])["stage"] == "left"
        await asyncio.wait_for(ended, TIMEOUT)
    again = Broker(load(flags, {}).settings)
    await again.start()
    try:
        assert again.server.frontend.sessions.keys() == {"away"}
    finally:
        await again.stop()
