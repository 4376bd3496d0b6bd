"""docs/moving.md: Mosquitto with the left column of its table, SAPS with the right one, and one exchange with both."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.processes import free_port
from tests.frontend.upstream.sites import Mosquitto, Peer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "moving.md").read_text()
SAPS = Path(sys.executable).with_name("saps")
TIMEOUT = 60.0
MQTT, TLS, WEBSOCKET, HEADQUARTERS, OVERLAY = 1883, 8883, 9001, 1884, 7300
PASSWORDS = {"operator": "battery-staple", "sensor-1": "correct-horse"}

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        shutil.which("mosquitto_passwd") is None or shutil.which("mosquitto", path="/usr/sbin:/usr/bin") is None,
        reason="mosquitto is not installed (Debian packages mosquitto and mosquitto-clients)",
    ),
]


def columns() -> tuple[str, str]:
    """mosquitto.conf and b1.toml, as the table has them."""
    table = PAGE.partition("| mosquitto.conf | b1.toml |\n| --- | --- |\n")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (?:`(.*?)` )?\| (?:`(.*?)` )?\|$", table, re.MULTILINE)
    assert len(cells) == len(table.splitlines())
    left, right = zip(*cells, strict=True)
    return "\n".join([*filter(None, left), ""]), "\n".join([*filter(None, right), ""])


def block(kind: str) -> str:
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


class Site:
    """A folder with both brokers' files, on free ports."""

    def __init__(self, folder: Path, headquarters: Mosquitto) -> None:
        self.folder = folder
        self.ports = {port: free_port() for port in (MQTT, TLS, WEBSOCKET, OVERLAY)}
        self.ports[HEADQUARTERS] = headquarters.port
        subprocess.run([SAPS, "ca", "init", "ca"], cwd=folder, check=True, capture_output=True)
        subprocess.run([SAPS, "ca", "server", "b1", "--host", "127.0.0.1"], cwd=folder, check=True, capture_output=True)
        shutil.copy(folder / "ca" / "issued" / "b1.server.pem", folder / "server.pem")
        for number, (user, password) in enumerate(PASSWORDS.items()):
            flags = ["-b", "-c"] if number == 0 else ["-b"]
            subprocess.run(["mosquitto_passwd", *flags, "passwords", user, password], cwd=folder, check=True)
        configuration, toml = map(self._moved, columns())
        (folder / "mosquitto.conf").write_text(
            f"user root\n{configuration}"
        )  # else root's Mosquitto gives up its rights
        (folder / "b1.toml").write_text(toml)
        (folder / "acl").write_text(block("text"))
        (folder / "acl.toml").write_text(block("toml"))
        for name in ("acl", "passwords", "server.pem"):
            (folder / name).chmod(0o600)

    def _moved(self, text: str) -> str:
        return re.sub(r"\b(1883|8883|9001|1884|7300)\b", lambda found: str(self.ports[int(found[0])]), text)

    @asynccontextmanager
    async def running(self, command: list[str]) -> AsyncIterator[None]:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                while not await self._listens(self.ports[MQTT]):
                    assert process.returncode is None
                    await asyncio.sleep(0.05)  # between two attempts, not instead of a signal
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    async def _listens(self, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    def client(self, user: str | None, port: int = MQTT, **options: Any) -> aiomqtt.Client:
        name = {} if user is None else {"username": user, "password": PASSWORDS[user]}
        options = {"protocol": aiomqtt.ProtocolVersion.V5, "identifier": f"{user}-{port}", **name, **options}
        return aiomqtt.Client("127.0.0.1", self.ports[port], **options)

    def operator_by_tls(self, **options: Any) -> aiomqtt.Client:
        context = ssl.create_default_context(cafile=self.folder / "ca" / "authority.pem")
        return self.client("operator", TLS, tls_context=context, **options)


async def refused(client: aiomqtt.Client) -> str:
    """The reason code of CONNACK."""
    with pytest.raises(aiomqtt.MqttCodeError) as error:
        await client.__aenter__()
    return str(error.value.rc)


async def exchange(site: Site, command: list[str], headquarters: Mosquitto) -> list[object]:
    """What clients of this broker see; the broker is restarted in the midst of it."""
    seen: list[object] = []
    expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    expiry.SessionExpiryInterval = 3600
    lasting: dict[str, Any] = {"clean_start": False, "properties": expiry}
    async with Peer(headquarters.port) as head:
        await head.subscribe("ward1/#", qos=1)
        async with site.running(command):
            seen.append(await refused(site.client(None)))
            seen.append(await refused(site.client("operator", password="wrong")))
            async with site.operator_by_tls(**lasting) as operator:
                await operator.subscribe("air/#", qos=1)
                async with site.client("sensor-1") as sensor:
                    await sensor.publish("air/sensor-2/pm25", "forged", qos=1, timeout=TIMEOUT)
                    await sensor.publish("air/sensor-1/pm25", "21.5", qos=1, retain=True, timeout=TIMEOUT)
                seen.append(await received(operator))
            await head.has("ward1/air/sensor-1/pm25", "21.5")
            async with site.client("sensor-1", WEBSOCKET, transport="websockets", websocket_path="/mqtt") as sensor:
                await sensor.publish("air/sensor-1/pm25", "22.0", qos=1, timeout=TIMEOUT)  # its subscriber is away
        async with site.running(command):
            async with site.operator_by_tls(**lasting) as operator:
                seen.append(await received(operator))
            async with site.client("operator") as operator:
                await operator.subscribe("air/#", qos=1)
                seen.append(await received(operator))
    seen.append(sorted(head.counted("ward1/air/sensor-2/pm25")))
    return seen


async def received(client: aiomqtt.Client) -> tuple[str, bytes, int, bool]:
    async with asyncio.timeout(TIMEOUT):
        message = await anext(aiter(client.messages))
    return message.topic.value, bytes(message.payload), message.qos, message.retain


async def test_a_converted_configuration_serves_the_same_exchange(tmp_path: Path) -> None:
    results = []
    for name, command in (
        ("mosquitto", [str(shutil.which("mosquitto", path="/usr/sbin:/usr/bin")), "-c", "mosquitto.conf"]),
        ("saps", [str(SAPS), "broker", "--config", "b1.toml"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        async with Mosquitto(folder / "headquarters") as headquarters:
            results.append(await exchange(Site(folder, headquarters), command, headquarters))
    mosquitto, saps = results
    assert mosquitto[:2] == ["Not authorized", "Not authorized"]
    assert saps[:2] == ["Not authorized", "Bad user name or password"]
    assert saps[2:] == mosquitto[2:]
    assert saps[2:] == [
        ("air/sensor-1/pm25", b"21.5", 1, False),
        ("air/sensor-1/pm25", b"22.0", 1, False),
        ("air/sensor-1/pm25", b"21.5", 1, True),
        [],
    ]


def test_the_converted_configuration_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / "b1.toml").write_text(columns()[1])
    command = [str(SAPS), "check-config", "--alone", "b1.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
