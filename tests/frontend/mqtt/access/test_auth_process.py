"""The examples of docs/security.md with a real broker: its settings, its rules, ``saps passwd``, and SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
import trustme
from aiohttp import web

from saps.frontend.mqtt.access.acl import Rights
from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.driver.access_files import edit_users
from tests.frontend.mqtt.access.balancer import balancer
from tests.frontend.mqtt.access.tokens import Issuer, key_set
from tests.frontend.mqtt.peers import need, run

pytestmark = pytest.mark.interop

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "security.md").read_text()
SAPS = Path(sys.executable).with_name("saps")
TIMEOUT = 30


def example(beginning: str) -> str:
    """The indented block of the page that begins so."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE)
    (block,) = [block for block in blocks if block.strip().startswith(beginning)]
    return "\n".join(line[4:] for line in block.strip("\n").split("\n")) + "\n"


RULES = example('default = "deny"')


class Running:
    """A broker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.fields: dict[str, str] = {}

    async def ready(self) -> None:
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        assert line.startswith("ready "), line
        self.fields = dict(field.split("=", 1) for field in line.split()[1:])

    async def logs(self, text: str) -> str:
        """The next line of its log with this text."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"the broker has ended without a line with {text!r}")

    def client(self, **options: Any) -> aiomqtt.Client:
        host, _, port = self.fields["mqtts" if "tls_context" in options else "mqtt"].rpartition(":")
        options.setdefault("protocol", aiomqtt.ProtocolVersion.V5)
        return aiomqtt.Client("localhost" if host == "0.0.0.0" else host, int(port), timeout=TIMEOUT, **options)


@asynccontextmanager
async def broker(folder: Path, **environment: str) -> AsyncIterator[Running]:
    """`saps broker` with the settings of the page, in this folder, on free ports."""
    free = {"SAPS_MQTT": "127.0.0.1:0", "SAPS_OVERLAY": "127.0.0.1:0", "SAPS_TLS__LISTEN": "0.0.0.0:0"}
    process = await asyncio.create_subprocess_exec(
        *(str(SAPS), "broker", "--config", "saps.toml"),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_without_settings(os.environ) | free | environment,
    )
    running = Running(process)
    try:
        async with asyncio.timeout(TIMEOUT):
            await running.ready()
            yield running
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("SAPS_")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files the settings of the page name."""
    ca, client_ca = trustme.CA(), trustme.CA()
    server = ca.issue_cert("localhost")
    server.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    for number, blob in enumerate(server.cert_chain_pems):
        blob.write_to_path(str(tmp_path / "server.pem"), append=number > 0)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    client_ca.cert_pem.write_to_path(str(tmp_path / "clients-ca.pem"))
    client_ca.issue_cert("x@example.org", common_name="dash").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "dash.pem")
    )
    (tmp_path / "saps.toml").write_text(example('name = "b1"'))
    (tmp_path / "acl.toml").write_text(RULES)
    for user in ("sensor-7", "alarm-centre"):
        edit_users(tmp_path / "passwords", user, b"secret")
    return tmp_path


def certified(folder: Path) -> ssl.SSLContext:
    """A TLS context with the certificate of the user dash."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(str(folder / "dash.pem"))
    return context


async def next_topic(client: aiomqtt.Client) -> str:
    return str((await asyncio.wait_for(anext(aiter(client.messages)), TIMEOUT)).topic)


async def test_the_settings_and_rules_of_the_page_run_and_obey_sighup(folder: Path) -> None:
    async with broker(folder) as running:
        sensor_7 = {"username": "sensor-7", "password": "secret", "identifier": "sensor-7-x"}
        centre = {"username": "alarm-centre", "password": "secret"}
        async with (
            running.client(**sensor_7) as sensor,
            running.client(**centre) as alarms,
            running.client() as local,
            running.client(tls_context=certified(folder)) as dash,
        ):
            for watcher in (local, dash):
                await watcher.subscribe("#", qos=1)
            for topic in ("alarm/x", "air/other/t", "status/sensor-7-x", "air/sensor-7/t"):
                await sensor.publish(topic, "1", qos=1)
            await alarms.publish("alarm/x", "1", qos=1)
            await sensor.publish("air/sensor-7/end", "1", qos=1)
            assert [await next_topic(local) for _ in range(2)] == ["air/sensor-7/t", "air/sensor-7/end"]
            assert [await next_topic(dash) for _ in range(3)] == ["air/sensor-7/t", "alarm/x", "air/sensor-7/end"]

            acl = folder / "acl.toml"
            acl.write_text(RULES.replace('topics = "air/#"', 'topics = "air/#/x"'))
            running.process.send_signal(signal.SIGHUP)
            fault = await running.logs("auth.acl")
            line = 1 + RULES[: RULES.index('topics = "air/#"')].count("\n")
            assert f"acl.toml:{line}: topics: 'air/#/x' is not a topic filter: # must stand alone" in fault
            await running.logs("reload refused")
            await sensor.publish("air/sensor-7/still", "1", qos=1)
            assert await next_topic(local) == "air/sensor-7/still"

            acl.write_text(RULES.replace('topics = "air/#"', 'topics = "air/+/open"'))
            running.process.send_signal(signal.SIGHUP)
            await running.logs("reload done: 2 users, 6 access rules")
            for topic in ("air/sensor-7/shut", "air/sensor-7/open"):
                await sensor.publish(topic, "1", qos=1)
            assert await next_topic(local) == "air/sensor-7/open"


async def test_saps_passwd_beside_a_running_broker(folder: Path) -> None:
    async with broker(folder, SAPS_AUTH__ANONYMOUS="never") as running:
        with pytest.raises(aiomqtt.MqttError):
            await running.client().__aenter__()
        edit_users(folder / "passwords", "joe", b"secret")
        with pytest.raises(aiomqtt.MqttError):
            await running.client(username="joe", password="secret").__aenter__()
        running.process.send_signal(signal.SIGHUP)
        await running.logs("reload done: 3 users")
        client = await running.client(username="joe", password="secret").__aenter__()
        edit_users(folder / "passwords", "joe", b"other")
        running.process.send_signal(signal.SIGHUP)
        await running.logs("its password has been changed or taken away")
        with contextlib.suppress(aiomqtt.MqttError):  # the broker has closed it
            await client.__aexit__(None, None, None)


async def test_the_tokens_and_load_balancers_of_the_page(folder: Path) -> None:
    need("mosquitto_pub", "mosquitto-clients")
    issuer = Issuer()
    (folder / "jwks.json").write_bytes(key_set(issuer))
    tokens = example("[auth.jwt]").replace("https://id.city.example/jwks.json", "jwks.json")
    proxy = example("[proxy]").replace("10.0.0.1:1884", "127.0.0.1:0").replace("10.0.0.5", "127.0.0.1")
    (folder / "saps.toml").write_text(example('name = "b1"') + tokens + proxy)
    claims = {**json.loads(example('{"sub"')), "exp": time.time() + 60, "aud": "mqtt"}
    async with broker(folder, SAPS_AUTH__ACL="") as running, running.client() as local:
        await local.subscribe("#", qos=1)
        host, _, port = running.fields["proxy"].rpartition(":")
        async with balancer((host, int(port))) as port_of_clients:
            for user, issued_by in (("other", "id.city.example"), ("pump-7", "another"), ("pump-7", "id.city.example")):
                token = issuer.token(**claims, iss=f"https://{issued_by}").decode()
                address = ("-h", "localhost", "-p", str(port_of_clients), "-i", "pump", "-u", user, "-P", token)
                for topic in ("water/other/level", "water/pump-7/level"):
                    try:
                        await run("mosquitto_pub", *address, "-q", "1", "-t", topic, "-m", "3.1")
                    except AssertionError:
                        assert "MQTT client 192.0.2.7:5 closed" in await running.logs("closed")
        assert await next_topic(local) == "water/pump-7/level"


async def test_the_service_and_the_scram_user_of_the_page(folder: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def login(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer of-the-broker"
        asked.append(await request.json())
        anonymous = asked[-1]["user"] is None  # sees it all
        return web.json_response({"allow": True} if anonymous else json.loads(example('{"allow"')))

    async def topics(request: web.Request) -> web.Response:
        wish = await request.json()
        assert set(wish) == set(json.loads(example('{"user": "ann"')))
        return web.json_response({"allow": wish["topic"] != "water/ann/y"})

    app = web.Application()
    app.router.add_post("/mqtt/topics", topics)
    app.router.add_post("/mqtt/login", login)
    app.router.add_post("/mqtt/rights", login)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        settings = example("[auth.http]").replace(
            "https://id.city.example", f"http://127.0.0.1:{runner.addresses[0][1]}"
        )
        (folder / "saps.toml").write_text(example('name = "b1"') + settings)
        (folder / "service.token").write_text("of-the-broker\n")
        path = {**os.environ, "PATH": f"{SAPS.parent}:{os.environ['PATH']}"}
        shell = await asyncio.create_subprocess_shell(example("echo staple"), cwd=folder, env=path, stdout=-1)
        assert (await shell.communicate())[0] == b"passwords: added pump-8\n"
        ann, pump = {"username": "ann", "password": "x"}, {"username": "pump-8", "password": "staple"}
        async with broker(folder, SAPS_AUTH__ACL="") as running, running.client() as local:
            await local.subscribe("#", qos=1)
            for who in (ann, pump):
                async with running.client(**who) as publisher:
                    for topic in ("air/x", "water/ann/y", "water/ann/x"):
                        await publisher.publish(topic, "1", qos=1)
            assert await next_topic(local) == "water/ann/x"
            await local.publish("end", "1", qos=1)
            assert await next_topic(local) == "end"
    finally:
        await runner.cleanup()
    logins = [each["user"] for each in asked if each["password"] is not None]
    assert logins == ["ann"]  # the other one is in the file


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "acl.toml",
            "[[rule]]\nallow = 'all'\ntopics = 'a'\n",
            "saps: auth.acl (saps.toml:6): acl.toml:2: allow must be",
        ),
        ("passwords", "ann:secret\n", "saps: auth.passwords (saps.toml:5): passwords:1: not a password hash"),
        ("server.pem", "", "saps: tls.key (saps.toml:11): server.pem: "),
    ],
)
async def test_a_broker_does_not_start_with_a_fault_in_a_file(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(str(SAPS), "broker", "--config", "saps.toml"), cwd=folder, stderr=-1, env=_without_settings(os.environ)
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode().startswith(said)


def rights(user: str | None, client_id: str) -> Rights:
    return parse_acl(RULES).rights(user, client_id)


@pytest.mark.parametrize(
    ("user", "client_id", "publishes", "reads"),
    [
        ("sensor-7", "sensor-7-x", {"air/sensor-7/t", "status/sensor-7-x"}, {"air/sensor-7/t", "alarm/x", "$SYS/a"}),
        ("sensor-7", "other", set(), {"air/sensor-7/t", "alarm/x", "$SYS/a"}),
        ("alarm-centre", "c", {"alarm/x"}, {"air/sensor-7/t", "alarm/x", "$SYS/a"}),
        (None, "c", set(), {"air/sensor-7/t"}),
    ],
)
def test_the_rules_of_the_page_say_what_their_comments_say(
    user: str | None, client_id: str, publishes: set[str], reads: set[str]
) -> None:
    topics = {"air/sensor-7/t", "status/sensor-7-x", "alarm/x", "$SYS/a"}
    found = rights(user, client_id)
    assert {topic for topic in topics if found.may_publish(topic)} == publishes
    assert {topic for topic in topics if found.may_read(topic)} == reads
