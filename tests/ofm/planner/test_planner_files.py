"""``saps plan``: networks and demands from files, plans made, explained and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from saps.cli.plan import app
from saps.ofm.network.topology import Port, Topology
from saps.ofm.planner.command.files import Demand, Network, Trunk, demands_of, network_of, plain

pytestmark = pytest.mark.slow

NETWORK = {
    "nodes": ["west", "north", "south", "east"],
    "links": [
        {"a": "west", "b": "north", "capacity": 10},
        {"a": "north", "b": "east", "capacity": 10},
        {"a": "south", "b": "west", "capacity": 4},
        {"a": "west", "b": "south", "capacity": 6, "links": 2},
        {"a": "south", "b": "east", "capacity": 10},
    ],
}
DEMANDS = [
    {"topic": "city/bus", "members": ["west", "east"], "rate": 2},
    {"topic": "city", "members": ["east", "west"], "senders": ["west"], "rate": 4},
    {"topic": "city/tram", "members": ["west", "east"], "rate": 2},
]


def run(*arguments: str | Path, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "demands.json").write_text(json.dumps(DEMANDS))
    out = tmp_path / "plan.json"
    text = run("make", tmp_path / "network.json", tmp_path / "demands.json", "--planner", "balanced", "--out", out)
    assert "3 topics on 4 nodes and 4 links: busiest link 40.0 %" in text
    return out


@pytest.mark.parametrize(
    "forecast",
    [
        {"city": 8},
        [{"topic": "city", "rate": 8, "mode": "ofm"}],
        {"epoch": 1, "decisions": [{"topic": "city", "rate": 8}]},
    ],
)
def test_the_forecast_is_the_demand(plan: Path, forecast: object) -> None:
    (plan.parent / "forecast.json").write_text(json.dumps(forecast))
    arguments = plan.parent / "network.json", plan.parent / "demands.json", "--forecast", plan.parent / "forecast.json"
    assert "busiest link 80.0 %" in run("make", *arguments, "--out", plan)
    (plan.parent / "forecast.json").write_text('["city"]')
    assert "not a forecast" in run("make", *arguments, "--out", plan, status=2)


def test_a_plan_is_explained(plan: Path) -> None:
    text = run("explain", "city", "--plan", plan)
    assert "publishing: west" in text
    assert "40.0 %, of which 40.0 %" in text
    assert "the plan has no topic sea" in run("explain", "sea", "--plan", plan, status=2)


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_a_plan_is_drawn(plan: Path, name: str, begins: bytes) -> None:
    out = plan.parent / name
    run("draw", out, "--topic", "city", "--plan", plan)
    first = out.read_bytes()
    assert first.startswith(begins)
    run("draw", out, "--topic", "city", "--plan", plan)
    assert out.read_bytes() == first
    run("draw", plan.parent / "a.txt", "--plan", plan, status=2)


def test_parallel_links_are_summed_up() -> None:
    assert network_of(NETWORK).links[-1] == Trunk("south", "west", 10, 3)


def test_a_controllers_topology_is_aggregated_to_clusters(tmp_path: Path) -> None:
    topology = Topology()
    for a, b in ((1, 2), (2, 3), (1, 3), (3, 4), (2, 4)):
        topology.link_up(Port(a, b), Port(b, a))
    (tmp_path / "topology.json").write_text(json.dumps(topology.to_json()))
    (tmp_path / "clusters.json").write_text(
        json.dumps({f"{d:016x}": "west" if d < 3 else "east" for d in (1, 2, 3, 4)})
    )
    text = run("network", tmp_path / "topology.json", "--clusters", tmp_path / "clusters.json", "--capacity", "5")
    assert json.loads(text) == {
        "nodes": ["east", "west"],
        "links": [{"a": "east", "b": "west", "capacity": 15.0, "links": 3}],
    }


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 9)).filter(lambda t: t[0] != t[1])))
def test_export_and_import_give_the_same_network(links: list[tuple[int, int, float]]) -> None:
    network = Network([f"n{i}" for i in range(6)], [Trunk(f"n{a}", f"n{b}", capacity) for a, b, capacity in links])
    once = network_of(plain(network))
    assert network_of(json.loads(json.dumps(plain(once)))) == once
    assert sum(link.capacity for link in once.links) == pytest.approx(sum(capacity for _, _, capacity in links))


@pytest.mark.parametrize(
    "data",
    [
        {"nodes": ["a"], "links": [{"a": "a", "b": "a"}]},
        {"nodes": ["a"], "links": [{"a": "a", "b": "b"}]},
        {"nodes": ["a", "b"], "links": [{"a": "a", "b": "b", "capacity": 0}]},
        {"nodes": 3, "links": []},
        [],
    ],
)
def test_what_is_no_network_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not a network"):
        network_of(data)


@pytest.mark.parametrize(
    "data",
    [
        [{"topic": "a", "members": ["x", "x"]}],
        [{"topic": "a", "members": ["x"], "senders": ["y"]}],
        [{"topic": "a", "members": ["x"], "rate": 0}],
        [plain_demand := {"topic": "a", "members": ["x"]}, plain_demand],
        {"topic": "a"},
    ],
)
def test_what_are_no_demands_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not demands"):
        demands_of(data)


def test_members_outside_the_network_are_named(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text(json.dumps(NETWORK))
    (tmp_path / "d.json").write_text(json.dumps([{"topic": "a", "members": ["west", "moon"]}]))
    assert "a: not in the network: moon" in run("make", tmp_path / "n.json", tmp_path / "d.json", status=2)
    assert demands_of([{"topic": "a", "members": ["west"]}]) == [Demand("a", ["west"])]
