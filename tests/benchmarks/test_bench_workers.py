"""Shares of a processor, given and taken back, and the table of growth."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.load import Outcome
from benchmarks.machine import this_machine
from benchmarks.report import Contender, Report
from benchmarks.runs import Measurement, Plan
from benchmarks.shares import PREFIX, Controller, ShareError, Shares, controller, this_controller
from benchmarks.workers import SCENARIOS, Entrant, arguments, entrants, growth, measure, section, worker_name

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


def test_workers_that_are_missing_are_noticed(found: Controller) -> None:
    with Shares(found) as shares, pytest.raises(ShareError, match="2 processes instead of 3"):
        Entrant("SAPS", peers.Saps(workers=2), 2, workers=True).limit(shares, [1, 2], 20)


@pytest.mark.parametrize("wrong", [["--share", "9"], ["--share", "30"], ["--workers", "0"], ["--rounds", "0"]])
def test_shares_that_cannot_be_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(wrong)


def test_growth_is_taken_round_by_round() -> None:
    scenario = SCENARIOS[0]
    rates = {worker_name(1): (100, 200), worker_name(2): (150, 400), "NATS, 1 share": (10, 10)}
    measurements = [
        Measurement(scenario=scenario.name, peer=name, round=n, outcome=Outcome(deliveries=rate, seconds=1.0))
        for name, pair in rates.items()
        for n, rate in enumerate(pair)
    ]
    contenders = [Contender(each.name, "1", "") for each in entrants([1, 2])]
    report = Report("today", "command", this_machine(), Plan(rounds=2), contenders, measurements)
    lines = list(growth(report, [scenario], [1, 2]))
    assert lines[-1] == f"| {scenario.name} | 1.75 (1.50 - 2.00) |  |"
    assert len({line.count("|") for line in lines}) == 1
    assert all(line in section(report, [scenario], [1, 2], 20).splitlines() for line in lines)


def test_every_number_of_workers_is_measured_beside_the_others() -> None:
    found = {(each.name, each.shares) for each in entrants([1, 3])}
    assert found >= {("Mosquitto", 1), ("NATS, 1 share", 1), ("NATS, 3 shares", 3), ("SAPS, 3 workers", 3)}
    assert len({one.name for one in entrants([1, 3])}) == len(list(itertools.chain(entrants([1, 3]))))


@pytest.mark.interop
def test_a_broker_with_a_share_loses_nothing(found: Controller) -> None:
    entrant = entrants([1])[0]
    if entrant.peer.version() is None:
        pytest.skip(f"{entrant.name} is not installed")
    plan = Plan(rounds=1, warm_up=0.05, measure=0.2)
    one = measure(plan, SCENARIOS[-1], entrant, 0, 50, found, {0})
    assert not one.fault
    assert one.outcome is not None
    assert one.outcome.deliveries
    assert (one.outcome.lost, one.outcome.repeated) == (0, 0)
    assert not list(found.folder.glob(f"{PREFIX}-{os.getpid()}-*"))
