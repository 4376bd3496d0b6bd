"""docs/recipes.md: its commands typed, its configurations used by the programs they are for, and real clients of each.

Node-RED, the libraries of Sparkplug B and Home Assistant are fetched for their tests: those run in `make soak` only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from benchmarks.processes import free_port
from saps.config.sources_io import faults_of_file
from tests.docs.test_tutorial import ROOT, Typist
from tests.frontend.upstream.sites import Mosquitto, Peer, Saps

PAGE = (ROOT / "docs" / "recipes.md").read_text()
TIMEOUT = 60.0
FETCH = 300.0
"""Seconds for a download."""
NODE_RED = "node-red@4.1.0"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto's clients are not installed"),
]


def section(title: str) -> str:
    """What stands below a heading."""
    _, found, rest = PAGE.partition(f"\n## {title}\n")
    assert found, title
    return rest.partition("\n## ")[0]


def block(title: str, kind: str, number: int = 0) -> str:
    """A fenced block of a section."""
    return str(re.findall(rf"^```{kind}\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)[number])


@contextmanager
def at_the_terminal(commands: str, folder: Path) -> Iterator[Typist]:
    """Does what a page says; what it has started runs until the end."""
    typist = Typist(commands, folder)
    try:
        typist.do()
        yield typist
    finally:
        typist.terminal.kill()


def fetched(folder: Path, *distributions: str) -> str:
    """A folder with distributions of PyPI and all that they need."""
    target = f"{folder}/fetched"
    install = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, "--target", target]
    subprocess.run([*install, *distributions], check=True, timeout=FETCH)
    return target


BROKER = PAGE.partition("```sh\nmosquitto")[0]
"""The page as far as it starts a broker."""


# --- Sparkplug B ------------------------------------------------------------------------------------------


EDGE_NODE = """
import sys, time, pysparkplug as psp
metric = psp.Metric(timestamp=psp.get_current_timestamp(), name="pm25", datatype=psp.DataType.FLOAT, value=21.5)
node = psp.EdgeNode("city", "ward1", metrics=(metric,))
node.register(psp.Device("station 1", metrics=(metric,)))
node.connect("127.0.0.1", port=int(sys.argv[1]), blocking=True)
"""
"""Goes on until it is killed."""
CERTIFICATES = ("NBIRTH/ward1", "DBIRTH/ward1/station 1", "NDEATH/ward1")


async def keeps_certificates(folder: Path, edge_node: list[str], given: dict[str, str]) -> None:
    """A host that listens, and one that comes after the edge node was killed, see all certificates."""
    with at_the_terminal(section("Sparkplug B"), folder) as typist:
        port = int(typist.ports["1883"])
        async with Peer(port) as host:
            await host.subscribe("$sparkplug/certificates/spBv1.0/probe/#", qos=1)
            while not host.received:  # until the page's commands listen
                await host.publish("spBv1.0/probe/NBIRTH/x", "x", qos=1)
                await asyncio.sleep(0.1)
            await host.subscribe("spBv1.0/city/#", qos=1)
            process = await asyncio.create_subprocess_exec(*edge_node, str(port), env=os.environ | given)
            try:
                await came(host, *(f"spBv1.0/city/{each}" for each in CERTIFICATES[:2]))
            finally:
                process.kill()
                await process.wait()
            await came(host, f"spBv1.0/city/{CERTIFICATES[2]}")
        async with Peer(port) as late:
            await late.subscribe("$sparkplug/certificates/spBv1.0/city/#", qos=1)
            await came(late, *(f"$sparkplug/certificates/spBv1.0/city/{each}" for each in CERTIFICATES))
            kept = {message.topic.value: message.payload for message in late.received}
    heard = {f"$sparkplug/certificates/{message.topic.value}": message.payload for message in host.received}
    assert kept == {topic: heard[topic] for topic in kept}


PLAIN_NODE = """
import sys, paho.mqtt.client as mqtt
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.will_set("spBv1.0/city/NDEATH/ward1", b"\\0\\xff dead")
births = ("NBIRTH/ward1", "DBIRTH/ward1/station 1")
client.on_connect = lambda *_: [client.publish("spBv1.0/city/" + each, b"\\0\\xff born") for each in births]
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_forever()
"""
"""What an edge node does, with payloads that are no text."""


async def test_birth_and_death_certificates_are_kept(tmp_path: Path) -> None:
    await keeps_certificates(tmp_path, [sys.executable, "-c", PLAIN_NODE], {})


@pytest.mark.soak
async def test_those_of_pysparkplug_are_kept(tmp_path: Path) -> None:
    """In an environment of its own, as it needs an older paho-mqtt."""
    folder = await asyncio.to_thread(fetched, tmp_path, "pysparkplug==0.6.1")
    await keeps_certificates(tmp_path, [sys.executable, "-c", EDGE_NODE], {"PYTHONPATH": folder})


async def came(peer: Peer, *topics: str) -> None:
    await peer.until(lambda: set(topics) <= {message.topic.value for message in peer.received})


# --- Home Assistant ---------------------------------------------------------------------------------------


DEVICE_OF_HOME_ASSISTANT = """
import json, sys
from ha_mqtt_discoverable import DeviceInfo, Settings
from ha_mqtt_discoverable.sensors import BinarySensor, BinarySensorInfo, SensorInfo
SensorInfo(**{key: value for key, value in json.loads(sys.argv[2]).items() if not key.endswith("_topic")})
device = DeviceInfo(name="Ward 1", identifiers="ward1")
about = BinarySensorInfo(name="Door", device_class="door", unique_id="ward1-door", device=device)
mqtt = Settings.MQTT(host="127.0.0.1", port=int(sys.argv[1]))
BinarySensor(Settings(mqtt=mqtt, entity=about)).write_config().wait_for_publish(60)
"""


def announced() -> str:
    """What the page's device says of itself."""
    told = re.search(r"-t homeassistant/sensor/ward1-pm25/config -m '(.*?)'", section("Home Assistant"), re.DOTALL)
    assert told is not None
    return told[1]


def test_a_device_that_announces_itself_is_found_later(tmp_path: Path) -> None:
    with at_the_terminal(BROKER + section("Home Assistant"), tmp_path) as typist:
        found = retained(int(typist.ports["1883"]), "#", 3)
    config = json.loads(announced())
    assert json.loads(found.pop("homeassistant/sensor/ward1-pm25/config")) == config
    assert found == {config["availability_topic"]: "online", config["state_topic"]: "21.5"}


@pytest.mark.soak
def test_so_is_a_device_of_ha_mqtt_discoverable(tmp_path: Path) -> None:
    """Which also checks the page's own."""
    given = {"PYTHONPATH": fetched(tmp_path, "ha-mqtt-discoverable==0.26.0")}
    with at_the_terminal(BROKER, tmp_path) as typist:
        port = typist.ports["1883"]
        command = [sys.executable, "-c", DEVICE_OF_HOME_ASSISTANT, port, announced()]
        subprocess.run(command, env=os.environ | given, check=True, timeout=TIMEOUT)
        (config,) = retained(int(port), "homeassistant/#", 1).values()
    assert json.loads(config)["unique_id"] == "ward1-door"


HOME_ASSISTANT = [
    "homeassistant==2024.3.3",  # the last version for Python 3.11
    *("aiohttp_cors==0.7.0", "janus==1.0.0", "josepy<2", "numpy==1.26.0", "paho-mqtt==1.6.1"),
]
"""Home Assistant, and what it fetches itself when MQTT is set up."""


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each version of Home Assistant runs on one of Python")
async def test_home_assistant_itself_finds_the_device_and_its_state(tmp_path: Path) -> None:
    given = {"PYTHONPATH": await asyncio.to_thread(fetched, tmp_path, *HOME_ASSISTANT)}
    folder = tmp_path / "home"
    folder.mkdir()
    with at_the_terminal(BROKER + section("Home Assistant"), tmp_path) as typist:
        port = typist.ports["1883"]
        program = [sys.executable, "-S", str(ROOT / "tests" / "docs" / "home_assistant.py"), str(folder), port]
        async with Peer(int(port)) as devices:
            await devices.subscribe("homeassistant/status", qos=1)
            process = await asyncio.create_subprocess_exec(
                *program, env=os.environ | given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            try:
                await until_said(process, b"sensor.ward_1_pm2_5 21.5\n")
                await devices.has("homeassistant/status", "online")
                await devices.publish("air/ward1/pm25", "22.5", qos=1)
                await until_said(process, b"sensor.ward_1_pm2_5 22.5\n")
                await devices.publish("air/ward1/online", "offline", qos=1)
                await until_said(process, b"sensor.ward_1_pm2_5 unavailable\n")
            finally:
                process.kill()
                await process.wait()


def retained(port: int, topic_filter: str, count: int) -> dict[str, str]:
    """The retained messages, by topic."""
    command = ["mosquitto_sub", "-p", str(port), "-t", topic_filter, "-C", str(count), "-W", "30", "-F", "%x %t"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    lines = (line.split(" ", 1) for line in done.stdout.splitlines())
    return {topic: bytes.fromhex(payload).decode() for payload, topic in lines}


# --- Node-RED ---------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_the_flow_of_node_red_raises_an_alarm(tmp_path: Path) -> None:
    install = ["npm", "install", "--prefix", str(tmp_path), "--no-save", "--ignore-scripts", NODE_RED]
    done = await asyncio.to_thread(subprocess.run, install, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode:
        pytest.skip(f"npm cannot fetch {NODE_RED}: {done.stderr[-300:]}")
    async with Saps("b1") as broker:
        flow = block("Node-RED", "json").replace('"1883"', f'"{broker.port}"')
        (tmp_path / "flows.json").write_text(flow)
        command = [str(tmp_path / "node_modules" / ".bin" / "node-red"), "--userDir", str(tmp_path / "user")]
        process = await asyncio.create_subprocess_exec(
            *command, "--port", str(free_port()), str(tmp_path / "flows.json"), stdout=asyncio.subprocess.PIPE
        )
        try:
            await until_said(process, b"Connected to broker")
            async with Peer(broker.port) as peer:
                await peer.subscribe("alarm/#", qos=1)
                for topic, value in (("air/ward1/pm25", "49"), ("air/ward2/pm25", "51")):
                    await peer.publish(topic, value, qos=1)
                await peer.has("alarm/ward2/pm25", "51")
                assert not peer.counted("alarm/ward1/pm25")
        finally:
            process.terminate()
            await process.wait()


async def until_said(process: asyncio.subprocess.Process, text: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT):
        while text not in (line := await process.stdout.readline()):
            assert line, "it has ended"


# --- into a database --------------------------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("prometheus-mqtt-exporter") is None, reason="Debian's prometheus-mqtt-exporter is not installed"
)
async def test_what_devices_publish_is_a_metric_of_prometheus(tmp_path: Path) -> None:
    async with Saps("b1") as broker:
        (tmp_path / "mqtt.yaml").write_text(block("Into a database", "yaml").replace(":1883", f":{broker.port}"))
        port = free_port()
        command = ["prometheus-mqtt-exporter", "-config", str(tmp_path / "mqtt.yaml"), "-listen-port", str(port)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with Peer(broker.port) as peer:
                line = 'air_pm25{sensor="ward1",topic="air/ward1"} 21.5'
                assert f"`{line}`" in PAGE
                async with asyncio.timeout(TIMEOUT):
                    while line not in await asyncio.to_thread(scraped, port):
                        await peer.publish("air/ward1", '{"pm25": 21.5}', qos=1)
                        await asyncio.sleep(0.2)
        finally:
            process.terminate()
            await process.wait()


def scraped(port: int) -> str:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""  # it has not begun to listen


# --- LoRaWAN ----------------------------------------------------------------------------------------------

DEVICE = "application/8d3f2c4e-7a51-4b0e-9a0c-3f1f1d3b6f52/device/70b3d57ed0051a2b"
UPLINK: dict[str, Any] = {
    "deduplicationId": "0b6a4a0e-6c5f-4d0a-9c36-21f3c2b2d1a7",
    "time": "2026-11-23T08:15:30.125+00:00",
    "deviceInfo": {
        "tenantId": "c7a4b1c2-0f0e-4a59-8f61-5a1d5f7f8e11", "tenantName": "City",
        "applicationId": DEVICE.split("/")[1], "applicationName": "Air",
        "deviceProfileId": "5b0fcb5c-3d1b-4f0b-a7e0-8a9f5e0f4c77", "deviceProfileName": "Fine dust",
        "deviceName": "Ward 1", "devEui": DEVICE.split("/")[3], "tags": {"ward": "1"},
    },
    "devAddr": "260b5c7a", "adr": True, "dr": 5, "fCnt": 412, "fPort": 2, "confirmed": False, "data": "ANc=",
    "rxInfo": [{"gatewayId": "a84041ffff1eb2c8", "uplinkId": 3190771, "rssi": -97, "snr": 7.2, "crcStatus": "CRC_OK"}],
    "txInfo": {"frequency": 868100000,
               "modulation": {"lora": {"bandwidth": 125000, "spreadingFactor": 7, "codeRate": "CR_4_5"}}},
}  # fmt: skip
"""An event as ChirpStack 4 publishes it; its own `integration.UplinkEvent` parses it."""


async def test_uplinks_and_downlinks_of_chirpstack_cross_the_mesh(tmp_path: Path) -> None:
    async with Mosquitto(tmp_path / "chirpstack") as network_server, Saps("b1") as b1:
        (tmp_path / "lora.toml").write_text(block("LoRaWAN", "toml").replace("127.0.0.1:1884", network_server.url[7:]))
        async with Saps("lora", "--config", str(tmp_path / "lora.toml"), join=b1) as lora:
            await lora.connected()
            async with Peer(network_server.port) as chirpstack, Peer(b1.port) as application:
                await application.subscribe(f"lora/{DEVICE}/event/+", qos=1)
                await chirpstack.subscribe(f"{DEVICE}/command/down", qos=1)
                await chirpstack.publish(f"{DEVICE}/event/up", json.dumps(UPLINK), qos=1)
                await application.has(f"lora/{DEVICE}/event/up", json.dumps(UPLINK))
                assert b64decode(UPLINK["data"]) == (215).to_bytes(2)
                downlink = json.dumps({"devEui": DEVICE.split("/")[3], "confirmed": False, "fPort": 2, "data": "PA=="})
                await application.publish(f"lora/{DEVICE}/command/down", downlink, qos=1)
                await chirpstack.has(f"{DEVICE}/command/down", downlink)


@pytest.mark.parametrize("number", [0, 1])
def test_the_configurations_for_lorawan_have_no_fault(number: int, tmp_path: Path) -> None:
    (tmp_path / "lora.toml").write_text(block("LoRaWAN", "toml", number))
    assert faults_of_file(tmp_path / "lora.toml") == []
