"""Memory that a broker has freed is there for its next turn."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ANY = "127.0.0.1:0"
ROUNDS = """
import resource, sys
from saps.runtime.memory import keep_freed
if sys.argv[1] == "kept":
    assert keep_freed()
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        held = [bytes(300_000) for _ in range(20)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(2)
print(faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_not_given_back_and_taken_again() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, check=True, text=True).stdout)
        for how in ("kept", "given back")
    )
    assert kept < 100 < given_back


def idle(*flags: str) -> tuple[int, set[str]]:
    """KiB of a broker that nobody uses, and the modules it has loaded. It writes their bytecode, if there is none."""
    program = (
        "import sys, threading, time; from saps.cli import main\n"
        "def tell():\n"
        "    sys.stdin.readline(); print(*sys.modules, flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start(); sys.argv[0] = 'saps'; main()"
    )
    command = [sys.executable, "-c", program, "broker", "--name", "b", "--mqtt", ANY, "--overlay", ANY, *flags]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        process.stdin.write(b"\n")
        process.stdin.flush()
        loaded = set(process.stdout.readline().decode().split())
        process.terminate()
        assert process.wait(30) == 0
    assert resident is not None
    return int(resident[1]), loaded


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_an_idle_broker_is_small_and_carries_nothing_that_only_some_need() -> None:
    idle("--web", ANY)  # a broker that has to compile its modules is larger
    plain, loaded = idle()
    assert "saps" in loaded
    assert not loaded & {
        "aiohttp",
        "aiomqtt",
        "cryptography",
        "paho",
        "prometheus_client",
        "pydantic",
        "rich",
        "sqlite3",
        "typer",
        "xml",
    }
    assert plain <= 40 * 1024
    with_web, loaded = idle("--web", ANY)
    assert not loaded & {"aiomqtt", "cryptography", "paho", "prometheus_client", "pydantic", "rich", "typer"}
    assert "aiohttp.web" in loaded
    assert "aiohttp.client" not in loaded
    assert with_web <= 50 * 1024
