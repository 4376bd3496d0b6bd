"""``saps reproduce sdnps-lab``: its statistics, the paper's own tables, and the experiment on a real Open vSwitch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lab import obstacle
from research.cli import app
from research.sdnps.anova import describe, effect
from research.sdnps.lab import chosen
from research.sdnps.tables import ALPHA, ANOVA, CELLS

VALUES = st.lists(st.integers(-1000, 1000), min_size=3, max_size=12, unique=True)


@given(st.lists(VALUES, min_size=2, max_size=4), st.integers(-500, 500))
def test_the_sums_of_squares_give_f_and_do_not_depend_on_the_origin(columns: Sequence[list[int]], shift: int) -> None:
    found = effect(columns).anova
    everything = [value for column in columns for value in column]
    mean = sum(everything) / len(everything)
    assert found.between + found.within == pytest.approx(sum((value - mean) ** 2 for value in everything))
    assert found.between_df + found.within_df == len(everything) - 1
    assert found.f == pytest.approx((found.between / found.between_df) / (found.within / found.within_df), abs=1e-9)
    moved = effect([[value + shift for value in column] for column in columns]).anova
    assert moved.f == pytest.approx(found.f, rel=1e-6, abs=1e-9)


def test_a_factor_that_matters_is_told_from_one_that_does_not() -> None:
    steps = [0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    same = effect([steps, steps[::-1], steps])
    assert min(same.anova.p, same.kruskal_p) > 0.9
    apart = effect([steps, [step + 20 for step in steps]])
    assert max(apart.anova.p, apart.kruskal_p) < 0.001


def test_lilliefors_refuses_what_the_paper_s_test_lets_pass() -> None:
    skewed = describe([1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2.5, 5, 9], 1)
    assert skewed.lilliefors_p < ALPHA < skewed.ks_p
    constant = describe([7.0] * 5, 1)
    assert (constant.deviation, constant.lilliefors_p) == (0, 0)


def test_of_the_paper_s_tables_of_variance_one_contradicts_itself() -> None:
    def consistent(table: int) -> bool:
        printed = ANOVA[table]
        f = (printed.between / printed.between_df) / (printed.within / printed.within_df)
        return f == pytest.approx(printed.f, rel=0.001)

    assert [consistent(table) for table in ANOVA] == [True, False, True]
    mended = ANOVA[5]._replace(between=3.24876e8)
    assert mended.between / 2 / (mended.within / 2997) == pytest.approx(mended.f, rel=0.001), "a digit is wrong there"


def test_without_root_it_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(app, ["sdnps-lab", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert result.output.startswith("the lab makes network namespaces and needs root")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := obstacle():
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("tables")
    options = ["--quick", "--packets", "200", "--rate", "1000", "--seed", "3", "--out", str(directory)]
    result = CliRunner().invoke(app, ["sdnps-lab", *options])
    assert result.exit_code == 0, result.output
    return directory


@pytest.mark.network
def test_every_cell_is_measured_on_the_switches(written: Path) -> None:
    found: dict[str, Any] = json.loads((written / "sdnps-lab.json").read_text())
    assert [(each["table"], each["hops"]) for each in found["cells"]] == [
        (cell.table, cell.hops) for cell in chosen(quick=True)
    ]
    for each in found["cells"]:
        assert len(each["runs"]) == 2
        copies = len(each["publishers"]) * len(each["subscribers"])
        for run in each["runs"]:
            assert (run["packets"], run["steady_sent"]) == (200 * copies, 250 * copies)
            assert 0 < run["received"] <= run["packets"]
            assert 0 < run["delay_us"] <= run["delay_p99_us"]


@pytest.mark.network
def test_the_page_has_the_paper_s_tables_beside_ours(written: Path) -> None:
    page = (written / "sdnps-lab.md").read_text()
    for cell in chosen(quick=True):
        assert f"| {cell.label} | {cell.delay_ms:,.0f} |" in page
    assert "| 4 | duration (ms) |" in page
    assert len(chosen(quick=False)) == len(CELLS)
