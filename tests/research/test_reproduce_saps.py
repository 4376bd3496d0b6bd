"""The SAPS paper's figures: closed forms against the simulation, the headline, the files of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from research.cli import app
from research.engine import in_turn
from research.saps_paper import closed, study
from research.saps_paper.counted import Case, count
from research.saps_paper.overlays import Setting
from research.saps_paper.queries import both, either, queries
from research.saps_paper.records import (
    ALM_LA,
    ALM_LA_RANDOM,
    AWARE,
    AWARE_RANDOM,
    OFM,
    OVERLAYS,
    QUICK_SUBSCRIBERS,
    Record,
)
from research.saps_paper.switches import resources
from saps.agents.switchover import Mode

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("test_reproduce_saps")]
"""On one worker, which computes the figures once."""
SEED = 1
Points = dict[tuple[str, int, int, str], Record]


@pytest.fixture(scope="module")
def records() -> Points:
    measured, series = study.run(study.settings(quick=True), OVERLAYS, SEED, in_turn, more=1)
    assert series[0].traffic == pytest.approx(0.716, abs=0.01)
    return {(r.figure, r.clusters, r.subscribers, r.method): r for r in study.records(measured)}


def test_closed_forms_check_the_simulation(records: Points) -> None:
    checked = [record for record in records.values() if record.closed_form is not None]
    assert len(checked) >= 3 * len(QUICK_SUBSCRIBERS)
    for record in checked:
        assert abs(record.traffic - (record.closed_form or 0)) <= 4 * record.traffic_error + 0.01, record


def test_the_headline(records: Points) -> None:
    ofm, alm_la = (records["9", 16, 100, method] for method in (OFM, ALM_LA))
    assert 1 - ofm.traffic / alm_la.traffic == pytest.approx(0.716, abs=0.01)
    assert ofm.hops_max == 2
    assert 14 <= alm_la.hops_max <= 20
    sorted_, shuffled = (records["8", 16, 100, method] for method in (ALM_LA, ALM_LA_RANDOM))
    assert 3 < shuffled.hops_max / sorted_.hops_max < 5


@pytest.mark.parametrize(("figure", "method"), [("8", AWARE), ("8", AWARE_RANDOM), ("9", AWARE)])
@pytest.mark.parametrize("subscribers", [100, 1000])
def test_cluster_aware_alm_reaches_the_bound(records: Points, figure: str, method: str, subscribers: int) -> None:
    record = records[figure, 16, subscribers, method]
    assert record.copies == pytest.approx(closed.least_copies(Setting(16, subscribers, None)), rel=0.02)
    assert figure == "8" or record.hops_max <= 4


def test_cluster_aware_alm_takes_few_hops(records: Points) -> None:
    assert records["10", 16, 100, AWARE].hops_max <= 4
    assert records["10", 128, 100, AWARE].hops_max <= 6


def test_what_is_left_for_ofm() -> None:
    assert closed.left_for_ofm(16) == pytest.approx(0.467, abs=0.001)


def test_figure_12_as_the_text_says() -> None:
    found = {(r.topology, r.distribution, r.subscribers): r for r in resources(20, SEED)}
    for topology in ("line", "tree"):
        assert found[topology, "uniform", 100].flow_entries > 0.99
        assert found[topology, "uniform", 10_000].buckets <= 1 < found[topology, "uniform", 20_000].buckets
    assert found["tree", "Zipf", 1000].flow_entries == 1
    assert found["tree", "Zipf", 100].flow_entries < found["tree", "uniform", 100].flow_entries


def test_either_asks_more_than_both_whatever_the_rates() -> None:
    by_rates: dict[tuple[float, float], dict[str, float]] = {}
    for point in queries():
        by_rates.setdefault((point.join_rate, point.leave_rate), {})[point.method] = point.queries
    for (join, _), found in by_rates.items():
        assert found["EITHER"] - found["BOTH"] == pytest.approx(10 + 100 * join)


def test_both_asks_no_more_than_the_equation_and_either_at_each_join_and_leave() -> None:
    rate, subscribers, seconds = 0.5, 6, 12.0
    asked = {mode: count(Case(mode, rate, subscribers, seconds), SEED) for mode in Mode}
    changes = 2 * subscribers * rate
    assert asked[Mode.BOTH] <= 1.2 * both(subscribers, rate)
    assert 0.8 * changes <= asked[Mode.EITHER]  # joins and leaves: each is a query
    assert asked[Mode.BOTH] < asked[Mode.EITHER]
    quiet = count(Case(Mode.EITHER, 0.0, subscribers, seconds), SEED)
    assert 0 < quiet < either(10, 1.0, subscribers, 0.0, 0.0)


def test_the_command_writes_everything(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["saps", "--quick", "--seed", "3", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    cells = json.loads((tmp_path / "saps.json").read_text())
    assert {cell["figure"] for cell in cells} == {"8", "9", "10", "11", "12", "13"}
    wanted = {"figure", "topology", "clusters", "subscribers", "method", "traffic", "hops_mean", "hops_max"}
    assert all(wanted <= cell.keys() for cell in cells if cell["figure"] in ("8", "9", "10"))
    page = (tmp_path / "saps.md").read_text()
    for plot in tmp_path.glob("*.svg"):
        assert f"]({plot.name})" in page
    assert len(list(tmp_path.glob("*.svg"))) == 6
    assert "71.6 %" in result.output


def test_all_chance_comes_from_the_seed_and_the_number_of_the_overlay() -> None:
    every = study.Part(study.HEADLINE, range(6))
    whole = study.sample(every, SEED)
    parts = [study.sample(every._replace(overlays=part), SEED) for part in (range(3), range(3, 6))]
    assert whole == {what: parts[0][what] + parts[1][what] for what in whole}
    assert whole != study.sample(every, SEED + 1)
