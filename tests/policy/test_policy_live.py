"""The files in the programs: brokers that obey over every path, SIGHUP, and what is refused at the start."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from examples.smart_city.processes import saps_broker
from saps.broker.broker import Broker
from saps.cli.controller import app
from saps.config import SettingError
from saps.config.access import PolicySettings
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.program import OfcProgram
from saps.policy.files_io import PolicyFiles
from tests.network.meshes import Client, mesh, settings

TIMEOUT = 45.0
FILE = """<strategy version="{}"><topic name="city"><topic name="health"><forbid broker="{}"/></topic></topic>
<cluster name="c1"><switch dpid="0000000000000002"/></cluster></strategy>"""


@pytest.mark.network
async def test_a_running_broker_takes_a_new_policy_on_sighup_or_none_of_it(tmp_path: Path) -> None:
    file = tmp_path / "policy.xml"
    file.write_text(FILE.format(1, "b0"))
    process = saps_broker("b0", "c0", "127.0.0.1:0", "127.0.0.1:0")
    process.command = (*process.command, "--set", f"policy.file={file}")
    async with process, asyncio.timeout(TIMEOUT):
        host, port = dict(part.split("=") for part in process.ready_line.split()[1:])["mqtt"].rsplit(":", 1)
        async with Client((host, int(port))) as client:
            await client.subscribe("city/#")

            async def comes(topic: str, payload: bytes) -> bool:
                """Does it come before what is published after it?"""
                await client.publish(topic, payload, 1)
                await client.publish("city/air", payload, 1)
                await client.expect("city/air", payload)
                return (topic, payload) in client.received

            assert not await comes("city/health/beds", b"forbidden")
            file.write_text(FILE.format(1, "b9"))
            process.signal(signal.SIGHUP)
            while "raise the version" not in process.errors:
                assert not await comes("city/health/beds", b"refused")
            file.write_text(FILE.format(2, "b9"))
            process.signal(signal.SIGHUP)
            tries = 0
            while not await comes("city/health/beds", b"%d" % tries):
                tries += 1


@pytest.mark.network
async def test_what_another_broker_publishes_does_not_come_either(tmp_path: Path) -> None:
    file = tmp_path / "policy.xml"
    file.write_text(FILE.format(1, "b1"))
    async with mesh(2, 2) as brokers, asyncio.timeout(TIMEOUT):
        # Only the receiving broker has the policy: it obeys whatever the others think.
        (first, second) = brokers
        options = second.options
        options.policy = PolicyFiles("policy.file", [file], lambda policy: options._obey(second.mesh.node, policy))
        async with Client(second.server.address) as subscriber, Client(first.server.address) as publisher:
            await subscriber.subscribe("city/#")
            await publisher.publish("city/health/beds", b"x", 1)
            await publisher.publish("city/air", b"x", 1)
            await subscriber.expect("city/air", b"x")
            assert subscriber.received == [("city/air", b"x")]


@pytest.mark.network
async def test_a_broker_with_a_faulty_policy_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("version = 1\n[[policy]]\ntopic = 'a/#'\nclusters = ['x']\n")
    broker = Broker(msgspec.structs.replace(settings("b0", "c0"), policy=PolicySettings(file=(str(file),))))
    with pytest.raises(SettingError, match=r"policy\.toml:3: topic 'a/#'"):
        await broker.start()
    await broker.links.close()


def test_the_controller_reads_policies_and_refuses_faulty_ones(tmp_path: Path) -> None:
    file = tmp_path / "policy.xml"
    file.write_text(FILE.format(7, "b0"))
    program = OfcProgram(ControllerSettings(policy=f"{file},{file}"))
    assert program.machine.admission.barriers.policy is not None
    assert program.machine.admission.barriers.policy.version == 7
    file.write_text("<strategy version='1'>\n<topic/></strategy>")
    assert program.policy is not None
    assert not program.policy.reload()
    assert program.machine.admission.barriers.policy.version == 7
    result = CliRunner().invoke(app, ["--policy", str(file)])
    assert result.exit_code == 2
    assert f"controller.policy (flag --policy): {file}:2: <topic>: needs name" in result.output
