"""The latency benchmark: brokers that take turns, and what is said of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import peers
from benchmarks.latency import HEADERS, Control, Measured, arguments, command_of, measure, rows, section
from benchmarks.latency import Scenario as LatencyScenario
from benchmarks.machine import awake
from benchmarks.paced import Latencies
from benchmarks.report import Contender
from benchmarks.runs import GeneratorError, answered


@pytest.mark.interop
@pytest.mark.parametrize("qos", [0, 1])
def test_two_brokers_take_turns_and_lose_nothing(qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.latency.MESSAGES", 50)
    found = measure(LatencyScenario(3, qos), [peers.Mosquitto(), Control()], 4)
    assert [each.peer for each in found] == ["Mosquitto", "Mosquitto, a second one"]
    for each in found:
        latencies = each.latencies
        assert latencies.lost == 0
        assert len(latencies.tails) == 4
        assert 0 < latencies.p50 <= latencies.p95 <= latencies.p99 <= max(latencies.tails) < 10


def test_a_broker_that_is_not_there_is_one_line() -> None:
    orders = {"ports": [1], "subscribers": 1, "qos": 0, "payload": 200, "rate": 1000, "turns": 1, "messages": 1}
    with pytest.raises(GeneratorError, match=r"^[^\n]*refused[^\n]*$"):
        answered([sys.executable, "-m", "benchmarks.paced"], msgspec.json.encode(orders), 30.0)


def test_tails_are_compared_turn_by_turn() -> None:
    base = Latencies(p50=1e-4, p95=2e-4, p99=3e-4, tails=[1e-4, 2e-4, 4e-4, 8e-4], lost=0)
    other = Latencies(p50=1e-4, p95=2e-4, p99=3e-4, tails=[2e-4, 1e-4, 4e-4, 4e-4], lost=3)
    found = [Measured("1:1-q0", peers.BASE, base), Measured("1:1-q0", "SAPS", other)]
    first, second = (dict(zip(HEADERS, cells, strict=True)) for cells in rows(found))
    assert (first["lower in"], first["x Mosquitto in the same turn"]) == ("", "")
    assert second["x Mosquitto in the same turn"] == "0.75 (0.50 - 1.25)"
    assert second["lower in"] == "2 of 4"
    assert second["p99"] == "300 µs"
    assert second["lost"] == "3"
    tested = [Contender("SAPS", "1", "defaults")]
    page = section("command", tested, found, 4)
    assert "| 1:1-q0 | 100/300 µs | 100/300 µs, 0.75 (0.50-1.25), lost: 3 |" in page
    assert "sleeping" not in page
    assert "sleeping" in section("command", tested, found, 4, kept_awake=True)


def test_who_wants_the_processors_awake_holds_the_file_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "cpu_dma_latency"
    held.write_bytes(b"\xff" * 4)
    monkeypatch.setattr("benchmarks.machine.SLEEP", held)
    with awake(wanted=False):
        assert held.read_bytes() == b"\xff" * 4
    with awake(wanted=True):
        assert held.read_bytes() == bytes(4)
        assert any(os.path.samefile(each, held) for each in Path("/proc/self/fd").iterdir() if each.exists())
    monkeypatch.setattr("benchmarks.machine.SLEEP", tmp_path / "none")
    with pytest.raises(OSError, match="No such file"), awake(wanted=True):
        pass


def test_the_command_that_repeats_it_is_shown() -> None:
    words = "--turns 9 --peers Mosquitto SAPS --scenarios 1:1-q0 --awake"
    assert command_of(arguments(words.split())) == f"python -m benchmarks.latency {words}"
    assert command_of(arguments([])) == "python -m benchmarks.latency --turns 30"
    with pytest.raises(SystemExit):
        arguments(["--turns", "1"])
