"""The benchmark of CONNECTs in a mesh: it measures what it says."""

from __future__ import annotations

from benchmarks.connects import HEADERS, arguments, cells, command_of, simulated


def test_a_small_mesh_is_measured() -> None:
    point = simulated(3, 4, 50)
    assert point.connects == 50
    assert point.processor > 0
    median, most, longest = point.times
    assert 0 < median <= most <= longest
    assert len(cells(point)) == len(HEADERS)


def test_the_command_repeats_the_measurement() -> None:
    assert command_of(arguments([])) == "python -m benchmarks.connects"
    few = ["--kinds", "live", "--brokers", "3", "--seconds", "0.5"]
    assert command_of(arguments([*few, "--markdown"])) == f"python -m benchmarks.connects {' '.join(few)}"
