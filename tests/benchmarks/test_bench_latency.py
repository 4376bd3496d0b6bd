"""The latency benchmark: brokers that take turns, and what is said of them."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks import peers
from benchmarks.latency import HEADERS, Measured, arguments, command_of, measure, rows, section
from benchmarks.latency import Scenario as LatencyScenario
from benchmarks.paced import Latencies
from benchmarks.report import Contender
from benchmarks.runs import GeneratorError, answered


@pytest.mark.interop
@pytest.mark.parametrize("qos", [0, 1])
def test_two_brokers_take_turns_and_lose_nothing(qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.latency.MESSAGES", 50)
    found = measure(LatencyScenario(3, qos), [peers.Mosquitto(), peers.BareRelay()], 4)
    assert [each.peer for each in found] == ["Mosquitto", "bare relay"]
    for each in found:
        latencies = each.latencies
        assert latencies.lost == 0
        assert len(latencies.tails) == 4
        assert 0 < latencies.p50 <= latencies.p95 <= latencies.p99 <= max(latencies.tails) < 10


def test_a_broker_that_is_not_there_is_one_line() -> None:
    orders = {"ports": [1], "subscribers": 1, "qos": 0, "payload": 200, "rate": 1000, "turns": 1, "messages": 1}
    with pytest.raises(GeneratorError, match=r"^[^\n]*refused[^\n]*$"):
        answered("benchmarks.paced", msgspec.json.encode(orders), 30.0)


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
    page = section("command", [Contender("SAPS", "1", "defaults")], found, 4)
    assert "| 1:1-q0 | SAPS | 100 µs |" in page


def test_the_command_that_repeats_it_is_shown() -> None:
    chosen = arguments(["--turns", "9", "--scenarios", "1:1-q0", "--peers", "Mosquitto", "SAPS"])
    assert command_of(chosen) == "python -m benchmarks.latency --turns 9 --peers Mosquitto SAPS --scenarios 1:1-q0"
    with pytest.raises(SystemExit):
        arguments(["--turns", "1"])
