"""The benchmark of the tree planners on sizes that take no time: what it measures, and the page it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import planners
from benchmarks.planners import PLANNERS, markdown, measure, plot

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("planner")]  # machine code of all planners


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NODES": 30, "TOPICS": 20, "MEMBERS": 5}.items():
        monkeypatch.setattr(planners, name, value)
    monkeypatch.setattr(planners, "GROWTH", {"nodes": [(20, 20, 5), (30, 20, 5)], "topics": [(30, 20, 5)]})


@pytest.mark.usefixtures("small")
def test_every_planner_is_measured_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (20, 20, 5), (30, 20, 5)
    monkeypatch.setattr("benchmarks.planners.SHOWN", set(sizes))
    points = [measure(size, name, 1) for size in sizes for name in PLANNERS]
    page = markdown(points, 1)
    assert page.count("| planner | 20x20x5 | 30x20x5 |") == 3
    for name in PLANNERS:
        assert page.count(f"| {name} |") == 3
    plot(points, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")
