"""Shares of a processor, given and taken back."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.shares import PREFIX, Controller, ShareError, Shares, controller, this_controller

V1 = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0"
V2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"


def test_the_controller_is_found_in_either_version() -> None:
    old = controller(V1, "5:memory:/x\n3:cpu,cpuacct:/user.slice\n0::/here\n")
    assert old == (Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup/cpu,cpuacct/user.slice"), False)
    assert controller(V2, "0::/here\n") == (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/here"), True)
    with pytest.raises(ShareError):
        controller("proc /proc proc rw 0 0\n", "0::/\n")


@pytest.fixture
def found() -> Controller:
    try:
        return this_controller()
    except ShareError as error:
        pytest.skip(f"no shares of a processor here: {error}")


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that takes all it gets."""
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        yield process
        process.kill()


def throttled(group: Path) -> int:
    """How often the processes of a group had to wait for their next share."""
    return int(dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())["nr_throttled"])


def test_a_process_waits_for_its_next_share_until_it_is_free_again(
    found: Controller, busy: subprocess.Popen[bytes]
) -> None:
    with contextlib.suppress(KeyboardInterrupt), Shares(found) as shares:
        group = shares.give(busy.pid, 10)
        assert (group / "cgroup.procs").read_text().split() == [str(busy.pid)]
        deadline = time.monotonic() + 60
        while not throttled(group) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert throttled(group)
        raise KeyboardInterrupt
    assert not group.exists()
    assert busy.poll() is None
    assert str(busy.pid) in (found.home / "cgroup.procs").read_text().split()


def test_what_a_killed_benchmark_left_is_removed(found: Controller) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as gone:
        gone.wait()
    left = found.folder / f"{PREFIX}-{gone.pid}-0"
    left.mkdir()
    this_controller()
    assert not left.exists()


def test_a_process_that_is_not_there_gets_no_share(found: Controller) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as gone:
        gone.wait()
    with Shares(found) as shares, pytest.raises(ShareError, match="no share of 20 %"):
        shares.give(gone.pid, 20)
