"""``saps reproduce tdcdoda --quick``: the command, what it writes, and what the figures must show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from research.cli import app
from research.engine import in_turn
from research.overlay_designs.registry import ALGORITHMS
from research.published import COLUMNS, TABLES
from research.tdcdoda import report, study
from scripts.compile_kernels import compile_designs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("test_reproduce_tdcdoda")]
"""On one worker, which runs the command once for all tests but one."""

Cells = dict[tuple[str, str, int], dict[str, Any]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compile_designs()  # for the command's processes too
    directory = tmp_path_factory.mktemp("reproduction")
    result = CliRunner().invoke(app, ["tdcdoda", "--quick", "--seed", "3", "--out", str(directory)])
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture(scope="module")
def cells(written: Path) -> Cells:
    records = json.loads((written / "tdcdoda.json").read_text())
    found = {(record["table"], record["algorithm"], record["x"]): record for record in records}
    assert len(found) == len(records)
    return found


def test_every_cell_stands_beside_the_papers(cells: Cells) -> None:
    for table in TABLES:
        for x in (min(table.rows), max(table.rows)):
            for algorithm in ALGORITHMS:
                record = cells[table.number, algorithm, x]
                assert set(record) == {"table", "algorithm", "x", "paper", "mean", "sd", "diameter"}
                assert record["paper"] == (table.printed(algorithm, x) if algorithm in COLUMNS else None)


@pytest.mark.parametrize("table", ["I", "III", "V"])
@pytest.mark.parametrize("algorithm", ["GM", "TD-CD-ODA"])
def test_averages_are_within_five_percent(cells: Cells, table: str, algorithm: str) -> None:
    for (number, name, x), record in cells.items():
        beyond_one_star_a_topic = (table, algorithm, x) == ("V", "TD-CD-ODA", 15)
        if (number, name) == (table, algorithm) and not beyond_one_star_a_topic:
            assert record["mean"] == pytest.approx(record["paper"], rel=0.05), (number, name, x)


def test_our_maximum_degrees_are_lower(cells: Cells) -> None:
    for (table, name, x), record in cells.items():
        if name == "TD-CD-ODA" and table.split()[0] in ("II", "IV", "VI"):
            stars, centres, trees = (
                cells[table, ours, x]["mean"] for ours in ("balanced stars", "two centres", "two-level trees")
            )
            assert trees < centres < stars < record["mean"]


def test_promised_diameters_hold(cells: Cells) -> None:
    for (_, name, _), record in cells.items():
        promised = ALGORITHMS[name].diameter
        assert promised is None or 0 < record["diameter"] <= promised


def test_both_settings_of_tables_v_and_vi_and_all_readings_are_there(cells: Cells, written: Path) -> None:
    assert ("V (250 nodes, 100 topics)", "GM", 15) in cells
    assert cells["VI (250 nodes, 100 topics)", "GM", 35]["paper"] is None
    readings = json.loads((written / "tdcdoda-readings.json").read_text())
    page = (written / "tdcdoda.md").read_text()
    assert {record["algorithm"] for record in readings} == set(study.READINGS)
    for plot in ("tdcdoda-average.svg", "tdcdoda-maximum.svg"):
        assert plot in page
        assert (written / plot).read_text().startswith("<?xml")


def test_the_same_seed_gives_the_same_figures(cells: Cells, tmp_path: Path) -> None:
    """Whatever computes them, and in whatever order."""
    lines = [line for line in study.rows(quick=True) if (line.table.number, line.x) in (("I", 200), ("II", 200))]
    assert lines
    measured = study.run(lines[::-1], study.QUICK_REPETITIONS, 3, in_turn, lambda *_: None)
    again = study.records(lines, measured)
    for record in again:
        assert record._asdict() == cells[record.table, record.algorithm, record.x]
    pictures = []
    for number in range(2):
        (directory := tmp_path / str(number)).mkdir()
        report.plot(again, directory)
        pictures.append((directory / "tdcdoda-maximum.svg").read_text())
    assert pictures[0] == pictures[1]


def test_the_papers_tables_are_complete() -> None:
    assert [len(table.rows) * len(table.columns) for table in TABLES] == [20] * 6
