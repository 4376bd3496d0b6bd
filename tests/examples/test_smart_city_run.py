"""The whole command, as a user runs it: on `saps broker` processes, and on brokers that are already there."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest

from examples.smart_city.__main__ import main
from examples.smart_city.loop import Mode
from examples.smart_city.ofm import decider_here
from examples.smart_city.processes import free_ports
from examples.smart_city.run import NotStartedError, Run
from examples.smart_city.scene import plan_brokers, smart_city
from examples.smart_city.summary import Report

ROOT = Path(__file__).parents[2]
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")

needs_saps = pytest.mark.skipif(
    importlib.util.find_spec("saps.broker.broker") is None, reason="there is no saps.broker.broker"
)
needs_counts = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="brokers count with pyarrow")
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "examples.smart_city", "--plain", *arguments]


def play(tmp_path: Path, *arguments: str, timeout: float = 90) -> tuple[subprocess.CompletedProcess[str], Report]:
    file, argv = tmp_path / "report.json", command("--json", str(tmp_path / "report.json"), *arguments)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert file.exists(), done.stderr
    return done, msgspec.json.decode(file.read_bytes(), type=Report)


def children(pid: int) -> list[int]:
    """The process ids of a process's children (Linux)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _option(pid: int, name: str) -> str:
    """The value after `name` in a process's command line, or nothing."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next((word.removeprefix(name) for word in words if word.startswith(name)), "")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def assert_sound(done: subprocess.CompletedProcess[str], report: Report) -> None:
    total = report.total
    assert (total.lost, total.duplicated, total.out_of_order, total.stray) == (0, 0, 0, 0), report.faults
    assert report.troubles == []
    assert report.sound
    assert done.returncode == 0, done.stdout
    assert total.published > 300
    assert total.delivered == total.expected > total.published
    assert set(report.groups) == {"air", "traffic", "parking", "alert"}
    assert all(part.delivered for part in report.groups.values())
    assert report.by_subscriber["night-shift"].delivered > 0
    assert "Every message arrived once, and in order." in done.stdout


@pytest.mark.network
@needs_saps
def test_four_brokers_in_two_clusters_deliver_everything_once_and_in_order(tmp_path: Path) -> None:
    done, report = play(tmp_path, "--no-loop", "--seconds", "4", "--brokers", "4")
    assert_sound(done, report)
    assert (report.brokers, report.clusters) == (4, 2)
    assert report.paths["other cluster"].delivered > 300


@pytest.mark.network
@pytest.mark.timeout(900)
@needs_saps
@needs_counts
def test_a_crowd_moves_its_topic_onto_a_tree_and_back(tmp_path: Path) -> None:
    """The whole loop, with the Spark job where it can run; every message is checked as ever."""
    done, report = play(tmp_path, "--timeout", "240", "--stay", "4", timeout=800)
    facts = report.loop
    assert facts is not None, done.stdout
    assert facts.complete, done.stdout
    assert facts.decider == decider_here()
    assert facts.modes[0] is facts.modes[-1] is Mode.ALM
    assert facts.modes.index(Mode.CONSTRUCTION) < facts.modes.index(Mode.OFM)
    assert "5 brokers in 3 clusters want them" in facts.reason
    assert facts.copies_by_alm == pytest.approx(2.0, abs=0.1), "one to each of the two other clusters"
    assert facts.copies_by_ofm is not None
    assert facts.copies_by_ofm < 1.5
    total = report.total
    assert (total.lost, total.duplicated, total.out_of_order, total.stray) == (0, 0, 0, 0), report.faults
    assert report.sound, done.stdout
    assert done.returncode == 0


@pytest.mark.network
@pytest.mark.timeout(300)
@needs_saps
@needs_counts
def test_an_interrupt_prints_the_summary_so_far_and_leaves_no_process_and_no_file() -> None:
    with subprocess.Popen(
        command("--decider", "small", "--brokers", "3"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        programs = _wait_until_publishing(process)
        assert len(programs) == 3 + 3, "brokers, and switches, controller, OFGate"
        folders = {_option(pid, "monitoring.directory=") for pid in programs} - {""}
        (page,) = {_option(pid, "web.listen=") for pid in programs} - {""}
        with urlopen(f"http://{page}/v1/decisions", timeout=60) as answer:
            assert msgspec.json.decode(answer.read())["configured"], "the operator's page shows decisions"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Interrupted; the counts are those so far." in output
    assert "Every message arrived once, and in order." in output
    assert not any(is_there(pid) for pid in programs)
    assert len(folders) == 1
    assert not Path(folders.pop()).parent.exists()


@pytest.mark.chaos
@needs_saps
def test_a_broker_that_dies_ends_the_run_with_a_failure() -> None:
    with subprocess.Popen(
        command("--no-loop", "--seconds", "60", "--brokers", "4"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        brokers = _wait_until_publishing(process)
        os.kill(brokers[-1], signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ended during the run, killed by SIGKILL" in output
    assert not any(is_there(pid) for pid in brokers)


@pytest.mark.network
@needs_saps
async def test_a_broker_that_cannot_start_is_named_with_its_own_words() -> None:
    run = Run(smart_city(plan_brokers(4), random.Random(1)), seconds=1, seed=1)
    host, port = run.stage.addresses["b3"]
    refused = pytest.raises(NotStartedError, match=r"broker b3 did not start, exit status 2")
    with socket.create_server((host, port)), refused as caught:
        await run.perform()
    assert str(port) in str(caught.value)
    assert not any(process.running for process in run.processes.values())


def _wait_until_publishing(process: subprocess.Popen[str]) -> list[int]:
    """Read the status lines until the first that counts publications; the pids of the brokers."""
    assert process.stdout is not None
    for line in process.stdout:
        if "published" in line:
            return children(process.pid)
    pytest.fail(f"it ended before it published: {process.stderr.read() if process.stderr else ''}")


@pytest.fixture
def mosquittos(tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two Mosquittos that know nothing of each other."""
    assert MOSQUITTO is not None
    processes: list[subprocess.Popen[str]] = []
    addresses: list[str] = []
    try:
        for port in free_ports(2, random.Random()):
            file = tmp_path / f"mosquitto-{port}.conf"
            file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
            process = subprocess.Popen([MOSQUITTO, "-c", str(file)], stderr=subprocess.PIPE, text=True)
            processes.append(process)
            assert process.stderr is not None
            assert any("running" in line for line in process.stderr)
            addresses.append(f"127.0.0.1:{port}")
        yield addresses
    finally:
        for process in processes:
            process.terminate()
            process.communicate(timeout=10)


@pytest.mark.interop
@needs_mosquitto
def test_all_devices_on_one_external_broker(tmp_path: Path, mosquittos: list[str]) -> None:
    done, report = play(tmp_path, "--seconds", "3", "--external", ",".join(mosquittos[:1] * 4))
    assert_sound(done, report)


@pytest.mark.interop
@needs_mosquitto
def test_brokers_that_are_not_connected_lose_messages_and_fail(tmp_path: Path, mosquittos: list[str]) -> None:
    done, report = play(tmp_path, "--seconds", "1", "--external", ",".join(mosquittos))
    assert done.returncode == 1
    assert not report.sound
    assert report.total.lost > 0
    assert report.paths["other cluster"].delivered == 0
    assert report.paths["same broker"].lost == 0
    assert "lost" in report.faults[0]
    assert "NOT every message arrived" in done.stdout


def test_nobody_at_the_external_address_is_one_clear_line() -> None:
    port = free_ports(1, random.Random())[0]
    done = subprocess.run(
        command("--external", f"127.0.0.1:{port}"), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--seconds", "0"], ["--brokers", "0"], ["--brokers", "2"], ["--external", "nowhere"], ["--seconds", "nan"]],
)
def test_bad_arguments_are_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["smart_city", "--plain", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"argument {arguments[0]}" in capsys.readouterr().err
