"""``saps reproduce stateless --quick``: the command, what it writes, and what the figures must show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from research.cli import app
from research.stateless.networks import NETWORKS
from research.stateless.study import BROKERS, MANY, PLANES, measure

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("test_reproduce_stateless")]
"""On one worker, which runs the command once."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("reproduction")
    result = CliRunner().invoke(app, ["stateless", "--quick", "--seed", "2", "--out", str(directory)])
    assert result.exit_code == 0, result.output
    page = Path(directory, "stateless.md").read_text()
    found: list[dict[str, Any]] = json.loads(Path(directory, "stateless.json").read_text())
    assert all(f"| {name} | {brokers} |" in page for name in NETWORKS for brokers in BROKERS)
    return found


def test_all_networks_are_there_by_each_number_of_planes(rows: list[dict[str, Any]]) -> None:
    wanted = {(name, brokers, planes) for name in NETWORKS for brokers in BROKERS for planes in PLANES}
    wanted |= {("leaf-spine", MANY, planes) for planes in PLANES}
    assert {(row["network"], row["brokers"], row["planes"]) for row in rows} == wanted


def test_the_fullest_switch_of_96_brokers_has_at_most_150_entries(rows: list[dict[str, Any]]) -> None:
    assert max(row["entries"] for row in rows if row["brokers"] <= 96) <= 150


def test_trees_and_leaf_spine_have_the_least_copies(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["copies"] >= 1
        if row["network"] in ("tree", "leaf-spine") and row["brokers"] <= 96:
            assert row["copies"] == 1


def test_more_planes_never_cost_copies_on_the_same_network(rows: list[dict[str, Any]]) -> None:
    for one, four in zip(rows[::2], rows[1::2], strict=True):
        assert (one["planes"], four["planes"]) == PLANES
        assert four["copies"] <= one["copies"]
        assert four["laid"] >= one["laid"]


def test_topics_are_in_no_entry() -> None:
    few, many = (next(measure("random, degree 4", 16, topics, 2)) for topics in (5, 40))
    assert (few.entries, few.groups, few.tables) == (many.entries, many.groups, many.tables)
    assert few.topic_entries < many.topic_entries
