"""What stands in deploy/: units systemd accepts, configurations without a fault, and a broker that tells how it is."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from saps.cli.commands import app
from saps.config import Address
from saps.config.sources_io import faults_of_file, load
from saps.ofm.switch.topologies import parse as parse_topology

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SAPS = Path(sys.executable).with_name("saps")
TIMEOUT = 120.0
"""Seconds a test waits for what must come."""


@pytest.mark.network
def test_a_broker_tells_its_service_manager(tmp_path: Path) -> None:
    """Ready once it serves, alive while its loop turns, stopping at SIGTERM."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(TIMEOUT)
        manager.bind(str(tmp_path / "notify"))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")}
        told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        command = [str(SAPS), "broker", "--name", "b1", "--mqtt", "127.0.0.1:0", "--overlay", "127.0.0.1:0"]
        with subprocess.Popen(command, env=clean | told, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline().strip()
                assert line.startswith("ready name=b1 ")
                assert manager.recv(4096).decode() == f"READY=1\nSTATUS={line}"
                assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
                process.send_signal(signal.SIGTERM)
                while (said := manager.recv(4096)) == b"WATCHDOG=1":
                    pass
                assert said == b"STOPPING=1"
                assert process.wait(TIMEOUT) == 0
            finally:
                process.kill()


@pytest.mark.parametrize("file", sorted((DEPLOY / "config").rglob("*.toml")), ids=lambda file: file.name)
def test_example_configurations_have_no_fault(file: Path) -> None:
    assert faults_of_file(file) == []
    assert load({}, {}, file).settings.name
    checked = CliRunner().invoke(app, ["check-config", "--alone", str(file)])
    assert (checked.exit_code, checked.stdout) == (0, f"{file}: no fault found\n")


def test_the_compose_file_starts_what_there_is_and_everybody_finds_everybody() -> None:
    """Settings of brokers and options of the other programs, by the parsers of the product itself."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = composed["services"]
    ours = {name: service for name, service in services.items() if service["image"] == "saps"}
    options = {name: options_of(*service["command"]) for name, service in ours.items()}
    brokers = {
        name: load({}, service["environment"]).settings for name, service in ours.items() if "environment" in service
    }
    assert sorted(brokers) == ["b1", "b2", "b3"]
    shape = parse_topology(options["switches"]["topology"])
    places = [(host.cluster, host.ip) for host in shape.hosts]
    first = Address.parse(options["switches"]["ports"]).port
    for number, (name, settings) in enumerate(brokers.items()):
        assert (settings.name, settings.overlay.listen.host) == (name, name)
        assert {address.host for address in settings.join} <= brokers.keys() - {name}
        assert Address.parse(settings.ofm.listen).host == places[number][1]
        attach = Address.parse(settings.ofm.attach)
        assert attach == (services["switches"]["networks"]["default"]["ipv4_address"], first + number)
        assert settings.web.controller == options["ofgate"]["ofgate_controller"][0]
    assert len({settings.cluster for settings in brokers.values()}) == len({cluster for cluster, _ in places})
    named = [*options["ofgate"]["join"], options["switches"]["controller"], *options["ofgate"]["ofgate_controller"]]
    assert {each.rpartition("//")[2].partition(":")[0] for each in named} <= ours.keys()
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"]
    assert scraped == [{"targets": [f"{name}:{settings.web.listen[0].port}" for name, settings in brokers.items()]}]
    volumes = [volume for service in services.values() for volume in service.get("volumes", ())]
    mounted = [volume.partition(":")[0] for volume in volumes if volume.startswith(".")]
    assert all((DEPLOY / path).exists() for path in mounted)
    (pool,) = composed["networks"]["default"]["ipam"]["config"]
    fixed = IPv4Address(services["switches"]["networks"]["default"]["ipv4_address"])
    assert fixed in IPv4Network(pool["subnet"])
    assert fixed not in IPv4Network(pool["ip_range"])  # nobody who starts earlier gets it


def options_of(command: str, *arguments: str) -> dict[str, Any]:
    """What the command understands. It is parsed, not run."""
    group: Any = typer.main.get_command(app)
    with group.make_context("saps", [command, *arguments]) as context:
        found: dict[str, Any] = group.get_command(context, command).make_context(command, list(arguments)).params
        return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name)
def test_units_are_accepted(unit: Path, tmp_path: Path) -> None:
    """With the path of the program put right, as it is not installed there."""
    text = unit.read_text().replace("/opt/saps/bin/saps", str(SAPS))
    copy = tmp_path / unit.name.replace("@", "@b1")
    copy.write_text(text)
    for more in unit.with_name(f"{unit.name}.d").glob("*.conf"):
        folder = copy.with_name(f"{copy.name}.d")
        folder.mkdir(exist_ok=True)
        (folder / more.name).write_text(more.read_text().replace("/opt/saps/bin/saps", str(SAPS)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
