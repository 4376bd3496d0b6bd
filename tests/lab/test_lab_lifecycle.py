"""Nothing is left of a lab: not after its end, not after a failure, Ctrl-C or SIGKILL at any stage of its building."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lab import Lab, LabError, obstacle, openvswitch, plan, take_down
from lab.cli import app
from lab.namespace import NAMED, processes
from lab.state import everything

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where this test's labs keep their state. What a failed test leaves is cleared away."""
    path = tmp_path / "d"
    yield path
    if path.exists():
        for state in everything(path):
            take_down(state.name, path)


ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 30.0
TOPOLOGY = "line:12x1"


def own(name: str) -> str:
    """A name that no other run of these tests uses at the same time."""
    return f"{name}{os.getpid()}"


def saps_lab(*arguments: str, directory: Path) -> list[str]:
    return [sys.executable, "-m", "lab.cli", *arguments, "--directory", str(directory)]


def remains(directory: Path, name: str) -> list[str]:
    """Whatever there is of a lab: its files, namespaces, interfaces, processes."""
    spaces = sorted(path.name for path in NAMED.glob(f"{name}.*")) if NAMED.is_dir() else []
    ends = {end for link in Lab(TOPOLOGY, name=name).topology.links for end in (link.name, link.reverse)}
    found = [*spaces, *sorted(ends & {entry.name for entry in os.scandir("/sys/class/net")})]
    found += [str(path) for path in [directory] if path.exists()]
    for entry in os.scandir("/proc"):
        try:
            words = Path(entry.path, "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if str(directory).encode() in words and int(entry.name) != os.getpid():
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Until `condition` holds; it is over if the process ends before."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, "the process ended too early"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


STAGES: dict[str, Callable[[Path, str], object]] = {
    "first file": lambda directory, name: directory.exists(),
    "first namespace": lambda directory, name: (NAMED / f"{name}.switches").exists(),
    "last namespace": lambda directory, name: (NAMED / f"{name}.c12b1").exists(),
    "database": lambda directory, name: (directory / name / "ovs" / "ovsdb-server.pid").exists(),
    "switch daemon": lambda directory, name: (directory / name / "ovs" / "ovs-vswitchd.pid").exists(),
    "first switch": lambda directory, name: (directory / name / "ovs" / "s1.mgmt").exists(),
}


@pytest.mark.parametrize(("stage", "number"), list(zip(STAGES, [signal.SIGINT, signal.SIGTERM] * 3, strict=True)))
def test_an_interrupted_builder_leaves_nothing(directory: Path, stage: str, number: signal.Signals) -> None:
    name = own("stopped")
    with subprocess.Popen(saps_lab("up", "-t", TOPOLOGY, "--name", name, directory=directory), cwd=ROOT) as builder:
        wait_for(lambda: STAGES[stage](directory, name), builder)
        builder.send_signal(number)
        builder.wait(TIMEOUT)
    assert builder.returncode != 0
    assert remains(directory, name) == []


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_killed_builder_leaves_is_cleared_by_down(directory: Path, stage: str) -> None:
    name = own("killed")
    with subprocess.Popen(saps_lab("up", "-t", TOPOLOGY, "--name", name, directory=directory), cwd=ROOT) as builder:
        wait_for(lambda: STAGES[stage](directory, name), builder)
        builder.kill()
    assert builder.returncode == -signal.SIGKILL
    assert remains(directory, name) != []
    subprocess.run(saps_lab("down", "--name", name, directory=directory), cwd=ROOT, check=True)
    assert remains(directory, name) == []


def test_a_lab_whose_process_was_killed_is_cleared_by_the_next(directory: Path) -> None:
    code = f"""
import pathlib, signal
from lab import Lab
with Lab("tree:2x1", name={own("owned")!r}, directory=pathlib.Path({str(directory)!r})):
    print("up", flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        assert Lab.open(own("owned"), directory).topology.text == "tree:2x1"
        owner.kill()
    with Lab("line:1x1", name=own("next"), directory=directory):
        assert not list(NAMED.glob(f"{own('owned')}.*"))
    assert remains(directory, own("owned")) == []


def test_a_failure_half_way_leaves_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvswitch, "SCHEMA", Path("/nonexistent"))
    with pytest.raises(LabError, match="ovsdb-tool create"):
        Lab(TOPOLOGY, name=own("failing"), directory=directory).up()
    assert remains(directory, own("failing")) == []


def test_a_namespace_of_someone_else_stops_the_building_and_is_left_alone(directory: Path) -> None:
    foreign = plan.namespace(own("second"), "c1b1")
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        with pytest.raises(LabError, match=foreign):
            Lab(TOPOLOGY, name=own("second"), directory=directory).up()
        assert remains(directory, own("second")) == [foreign]
    finally:
        subprocess.run(["ip", "netns", "delete", foreign], check=True)


def test_down_ends_processes_that_will_not_end_and_sockets_do_not_hold_it(directory: Path) -> None:
    with Lab("tree:1x2", name=own("stubborn"), directory=directory) as lab:
        code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
        process = lab.host("c1b1").popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in processes([lab.host("c1b1").name])
        held = lab.host("c1b2").listen(("0.0.0.0", 0))
        there = lab.switches.listen(("0.0.0.0", 0))
    with process, held, there:
        assert process.wait() == -signal.SIGKILL
        assert remains(directory, own("stubborn")) == []


def test_a_lab_stays_until_down_and_any_process_finds_it(directory: Path) -> None:
    name = own("lasting")

    def call(command: str, *rest: str) -> Result:
        return CliRunner().invoke(app, [command, "--name", name, "--directory", str(directory), *rest])

    def run(*rest: str) -> subprocess.CompletedProcess[str]:
        command = saps_lab("run", "--name", name, directory=directory)
        return subprocess.run([*command, *rest], cwd=ROOT, capture_output=True, text=True, check=False)

    assert call("up", "-t", "tree:2x1").stdout.startswith(f"lab {name}: 3 switches, 2 links, 2 hosts")
    again = call("up", "-t", "tree:2x1")
    assert (again.exit_code, "is up already" in again.stderr) == (2, True)
    shown = call("status").stdout
    assert all(word in shown for word in ("core-s2", "10.77.2.1", "10.78.1.1", "02:00:0a:4d:02:01", "s1:2"))
    assert "actions=NORMAL" in run("--", "ovs-ofctl", "dump-flows", "core").stdout
    inside = run("--in", "c1b1", "--", "sh", "-c", "ip address; exit 7")
    assert (inside.returncode, "10.77.1.1/16" in inside.stdout) == (7, True)
    assert run("--in", "c9b9", "--", "true").returncode == 2
    for change in (["down"], ["up"], ["rate", "1000000"]):
        assert call("link", "core", "s1", *change).exit_code == 0
    assert call("restart", "s1").exit_code == 0
    assert call("down").stdout == f"down: {name}\n"
    assert call("down").stdout == f"there is no lab {name}\n"
    assert remains(directory, name) == []


def test_who_is_not_root_is_told(directory: Path) -> None:
    command = ["up", "--directory", str(directory)]
    CliRunner().invoke(app, [*command, "-t", "nonsense"])  # As root, everything it imports late is readable.
    os.seteuid(65534)
    try:
        done = CliRunner().invoke(app, command)
    finally:
        os.seteuid(0)
    assert done.exit_code == 2
    assert done.stderr == "saps lab: the lab makes network namespaces and needs root: run it with sudo\n"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.commands._PATH", "/nonexistent")
    assert obstacle() == "the lab needs Open vSwitch and iproute2; missing: apt-get install iproute2 openvswitch-switch"


def test_taking_down_nothing_is_no_fault(directory: Path) -> None:
    assert take_down("nosuch", directory) == []
    assert not directory.exists()
