"""Throughput with storage: brokers store what they are asked to, and the table says what that is worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.durable_peers import BASE, COPIES, CopiedSaps, Keeper, ReplicatedNats, holders, keepers
from benchmarks.durable_throughput import SCENARIOS, arguments, command_of, file_system
from benchmarks.load import Outcome
from benchmarks.machine import this_machine
from benchmarks.probes import family
from benchmarks.processes import Place
from benchmarks.report import Contender, Report, markdown
from benchmarks.runs import Measurement, Plan, generate

NAMES = [keeper.peer.name for keeper in keepers(Path())]


def keeper(name: str, folder: Path) -> Keeper:
    return keepers(folder)[NAMES.index(name)]


@pytest.mark.interop
@pytest.mark.parametrize("name", [BASE, "SAPS, sync full"])
def test_the_sessions_are_on_the_disk(name: str, tmp_path: Path) -> None:
    peer = keeper(name, tmp_path).peer
    if peer.version() is None:
        pytest.skip(f"{name} is not installed")
    with Place(None) as place:
        outcome = generate(SCENARIOS[0].load(peer.launch(place, "throughput"), family(place.pids), 0.05, 0.2))
    assert outcome.deliveries > 100
    assert (outcome.lost, outcome.repeated) == (0, 0)
    assert any(b"bench/topic" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.interop
@pytest.mark.parametrize("number", range(2), ids=[ReplicatedNats.name, CopiedSaps.name])
def test_each_message_is_on_three_disks(number: int, tmp_path: Path) -> None:
    peer = holders(tmp_path)[number].peer
    if peer.version() is None:
        pytest.skip(f"{peer.name} is not installed")
    with Place(None) as place:
        outcome = generate(SCENARIOS[0].load(peer.launch(place, "throughput"), family(place.pids), 0.05, 0.2))
    assert outcome.deliveries > 10
    assert (outcome.lost, outcome.repeated) == (0, 0)
    files = [file for file in tmp_path.rglob("*") if file.is_file() and b"bench/topic" in file.read_bytes()]
    brokers = {next(part for part in file.relative_to(tmp_path).parts[1:]).partition(".")[0] for file in files}
    assert len(brokers) == COPIES


def test_the_base_is_one_of_them_and_the_table_says_what_a_message_outlives() -> None:
    tested = [Contender(each.peer.name, "1", each.peer.settings, each.outlives) for each in keepers(Path())]
    found = [
        Measurement(scenario=SCENARIOS[0].name, peer=name, round=0, outcome=Outcome(deliveries=rate, seconds=1.0))
        for name, rate in ((BASE, 100), ("SAPS, sync full", 250))
    ]
    page = markdown(Report("now", "it", this_machine(), Plan(rounds=1), tested, found, BASE), SCENARIOS)
    assert f"the multiple of *{BASE}*" in page
    assert "| what is acknowledged outlives | `kill -9`, but for up to 30 min | loss of power |" in page
    assert f"| {SCENARIOS[0].name} | 100 | 250 (2.50 - 2.50) |" in page


def test_the_command_repeats_the_measurement() -> None:
    words = ["--rounds", "2", "--peers", BASE, "bare relay", "--scenarios", SCENARIOS[0].name]
    command = command_of(arguments([*words, "--json", "out.json", "--markdown"]))
    assert command == (
        "python -m benchmarks.durable_throughput --rounds 2 "
        f"--scenarios {SCENARIOS[0].name} --peers '{BASE}' 'bare relay'"
    )
    assert command_of(arguments([])) == "python -m benchmarks.durable_throughput"
    assert command_of(arguments(["--copies"])) == "python -m benchmarks.durable_throughput --copies"


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    inside = tmp_path.resolve() / "deep" / "down"
    mounts = (
        f"a / ext4 rw 0 0\nb {inside.parent} xfs rw 0 0\nc {inside.parent}er tmpfs rw 0 0\nd {inside}x tmpfs rw 0 0\n"
    )
    assert file_system(inside, mounts) == "xfs"
    assert file_system(tmp_path, mounts) == "ext4"
