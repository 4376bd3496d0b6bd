"""The command `saps`, as the process that users start."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import saps
from saps.cli.commands import COMMANDS, GROUPS, app

SAPS = Path(sys.executable).with_name("saps")
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("SAPS_")} | {"NO_COLOR": "1"}


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The ended command; it gets 60 s."""
    return subprocess.run(
        [SAPS, *arguments], env=CLEAN | environ, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def taken_port() -> Iterator[int]:
    """A port of the loopback address on which someone listens already."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that refused a setting."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_version() -> None:
    assert run("--version").stdout == f"saps {saps.__version__}\n"


def processor_time(*arguments: str, **environ: str) -> float:
    """Seconds of the processor that the command takes, the least of three."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run(*arguments, **environ).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def test_help_and_completion_take_little() -> None:
    assert processor_time("--help") < 0.3
    assert processor_time("--version") < 0.3
    words = {"_SAPS_COMPLETE": "complete_bash", "COMP_WORDS": "saps ", "COMP_CWORD": "1"}
    assert processor_time(**words) < 0.3


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), ([], 2)])
def test_help_lists_all_commands_by_what_they_are_for(arguments: list[str], status: int) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (status, "")
    for title, entries in GROUPS.items():
        assert f"\n{title}:\n" in done.stdout
        for name, entry in entries.items():
            assert re.search(rf"^  {name} +{re.escape(entry.says)}$", done.stdout, re.M)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_without_types_of_flags(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert "Usage: " in done.output
    assert "<bool>" not in done.stdout


def test_a_command_that_is_not_there_is_told_with_the_nearest() -> None:
    assert refused(run("broekrs")) == "saps: there is no command 'broekrs'; did you mean brokers or broker?"
    assert refused(run("xyzzy")) == "saps: there is no command 'xyzzy'; saps --help lists them"


def test_help_teaches_with_an_example() -> None:
    done = run("broker", "--help")
    assert done.returncode == 0
    for wanted in ("saps broker --name b1", "mosquitto_pub", "--overlay", "127.0.0.1:7300", "SAPS_NAME"):
        assert wanted in done.stdout


def test_the_shell_can_complete_commands() -> None:
    done = run(_SAPS_COMPLETE="complete_bash", COMP_WORDS="saps ch", COMP_CWORD="1")
    assert done.stdout.split() == ["check-config"]
    done = run(_SAPS_COMPLETE="complete_bash", COMP_WORDS="saps brokers --fo", COMP_CWORD="2")
    assert done.stdout.split() == ["--forget"]


def test_check_config_accepts_a_good_file(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text('mqtt = "127.0.0.1:0"\n[overlay]\nlisten = "127.0.0.1:0"\nheartbeat_interval = 0.2\n')
    done = run("check-config", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: no fault found\n")


def test_check_config_lists_every_fault_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text('mqtt = "1884"\n\n[overlay]\nheartbeet_interval = 0.2\n')
    done = run("check-config", str(file))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"saps: mqtt ({file}:1): '1884' is not an address: expected host:port, such as 127.0.0.1:1883",
        f"saps: overlay.heartbeet_interval ({file}:4): there is no such setting; "
        "did you mean overlay.heartbeat_interval?",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "saps: name: is missing: "),
        (("--name", "a b"), "saps: name (flag --name): 'a b' must be "),
        (("--name", "b", "--cluster", "/x"), "saps: cluster (flag --cluster): '/x': level '' must be "),
        (("--name", "b", "--mqtt", "1883"), "saps: mqtt (flag --mqtt): '1883' is not an address: "),
        (("--name", "b", "--overlay", "h:x"), "saps: overlay.listen (flag --overlay): 'h:x' is not an address: "),
        (("--name", "b", "--join", "a:1", "--join", "b"), "saps: join (flag --join): 'b' is not an address: "),
        (("--name", "b", "--set", "limits.linger"), "saps: limits.linger (flag --set): --set needs NAME=VALUE"),
        (("--name", "b", "--set", "overlay.alm=1"), "saps: overlay.alm (flag --set): there is no such setting"),
        (("--name", "b", "--config", "/nowhere.toml"), "saps: config: cannot read /nowhere.toml: "),
    ],
)
def test_a_bad_setting_is_refused_in_one_line(arguments: tuple[str, ...], line: str) -> None:
    assert refused(run("broker", *arguments)).startswith(line)


def test_a_bad_variable_is_refused_by_name() -> None:
    line = refused(run("broker", SAPS_NAME="b", SAPS_OVERLAY__SUSPECT_AFTER="soon"))
    assert line.startswith("saps: overlay.suspect_after (variable SAPS_OVERLAY__SUSPECT_AFTER): 'soon' does not fit")


def test_the_file_named_by_the_environment_is_read(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text("nam = 'b'")
    assert refused(run("broker", SAPS_CONFIG=str(file))).startswith(f"saps: nam ({file}:1): there is no such setting")


@pytest.mark.network
@pytest.mark.parametrize(("flag", "other"), [("mqtt", "overlay"), ("overlay", "mqtt")])
def test_a_port_in_use_is_refused_by_the_name_of_its_setting(flag: str, other: str) -> None:
    with taken_port() as port:
        done = run("broker", "--name", "b", f"--{flag}", f"127.0.0.1:{port}", f"--{other}", "127.0.0.1:0")
    line = refused(done)
    assert line.startswith(f"saps: {flag}")
    assert f"(flag --{flag})" in line
    assert str(port) in line


@pytest.mark.network
def test_a_broker_whose_join_answers_nothing_begins_a_mesh_and_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        command: list[str | Path] = [SAPS, "broker", "--name", "b1", "--mqtt", "127.0.0.1:0"]
        command += ["--overlay", "127.0.0.1:0", "--join", f"127.0.0.1:{port}", "--set", "overlay.join_timeout=0.5"]
        with subprocess.Popen(command, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().startswith("ready name=b1 ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            assert (
                f"begins a mesh; others that start will join it. Not reached: 127.0.0.1:{port}" in process.stderr.read()
            )


@pytest.mark.network
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_when_it_is_ready_and_leaves_on_a_signal(number: signal.Signals) -> None:
    command: list[str | Path] = [SAPS, "broker", "--name", "b1", "--mqtt", "127.0.0.1:0", "--overlay", "127.0.0.1:0"]
    with subprocess.Popen(command, env=CLEAN, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    assert "ready" in ready
    assert "b1" in ready
