"""``saps reproduce sdnps --quick``: the command, what it writes, and what the figures must show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from research.cli import app
from research.planner_instances import SHAPES
from research.sdnps.study import EVENTS, QUICK_TOPICS, THOROUGH
from scripts.compile_kernels import compile_planners

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("test_reproduce_sdnps")]
"""On one worker, which runs the command once."""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compile_planners()  # for the command's processes too
    directory = tmp_path_factory.mktemp("reproduction")
    result = CliRunner().invoke(app, ["sdnps", "--quick", "--seed", "2", "--out", str(directory)])
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture(scope="module")
def rows(written: Path) -> list[Row]:
    found: list[Row] = json.loads((written / "sdnps.json").read_text())
    return found


def of(rows: list[Row], figure: str, planner: str, **fixed: object) -> list[Row]:
    return [
        row
        for row in rows
        if (row["figure"], row["planner"]) == (figure, planner) and all(row[name] == at for name, at in fixed.items())
    ]


def test_all_figures_have_all_planners_side_by_side(rows: list[Row]) -> None:
    for planner, shapes in (
        ("SDNPS", [*SHAPES]),
        ("SDNPS, mended", [*SHAPES]),
        ("Mehlhorn", ["any"]),
        (THOROUGH, ["any"]),
    ):
        for shape in shapes:
            assert [row["topics"] for row in of(rows, "6", planner, shape=shape)] == [*QUICK_TOPICS]
            assert [row["topics"] for row in of(rows, "7", planner, shape=shape)] == [*QUICK_TOPICS]
            points = {(row["topics"], row["events"]) for row in of(rows, "8", planner, shape=shape)}
            assert points == {(topics, events) for topics in QUICK_TOPICS for events in EVENTS}


def test_ours_leaves_more_than_sdnps_wherever_that_is_feasible(rows: list[Row], written: Path) -> None:
    others = json.loads((written / "sdnps-readings.json").read_text())
    for theirs in [row for row in rows if row["figure"] == "8" and row["planner"].startswith("SDNPS")]:
        [ours] = of(rows, "8", THOROUGH, topics=theirs["topics"], events=theirs["events"])
        assert ours["residual"] > theirs["residual"]
        assert ours["residual"] <= ours["residual_bound"] + 1e-3
    for theirs in [row for row in others if row["planner"].startswith("SDNPS")]:
        fixed = {name: theirs[name] for name in ("topics", "events", "reading")}
        [ours] = of(others, "8", THOROUGH, **fixed)
        bound = ours["residual_bound"]
        assert ours["residual"] > theirs["residual"] or ours["residual"] == pytest.approx(bound, abs=1e-3)


def test_trees_are_hardly_longer_than_mehlhorns(rows: list[Row]) -> None:
    for topics in QUICK_TOPICS:
        [ours], [mehlhorn] = (of(rows, "7", name, topics=topics) for name in (THOROUGH, "Mehlhorn"))
        assert ours["tree_cost"] <= 1.2 * mehlhorn["tree_cost"]


def test_the_busiest_link_is_near_the_proven_bound(written: Path) -> None:
    quality = json.loads((written / "sdnps-quality.json").read_text())
    for gap in quality["bounds"]:
        if gap["planner"] == THOROUGH:
            assert -1e-9 <= gap["mean"] <= 0.1
    assert all(point["worst"] <= 0.05 for point in quality["small"])


def test_page_and_plots_are_there(written: Path) -> None:
    page = (written / "sdnps.md").read_text()
    for figure in "678":
        assert f"sdnps-{figure}.svg" in page
        assert (written / f"sdnps-{figure}.svg").read_text().startswith("<?xml")
