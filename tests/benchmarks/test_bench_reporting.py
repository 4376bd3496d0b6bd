"""Statistics, tables and generated sections."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import Outcome
from benchmarks.machine import this_machine
from benchmarks.report import Contender, Report, faults, markdown, rows
from benchmarks.runs import Measurement, Plan
from benchmarks.scenarios import Scenario
from benchmarks.section import replace_section
from benchmarks.summary import percentile, ratios, spread

ONE_TO_TEN = Scenario("1:10-q0", "durable", 1, 10, 0)


@given(st.lists(st.floats(0, 1e9), min_size=1), st.integers(1, 100))
def test_percentile_is_the_least_value_not_exceeded_by_its_share(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_percentile_of_nothing() -> None:
    assert math.isnan(percentile([], 50))


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_spread(values: list[float]) -> None:
    assert spread(values) == (statistics.median(values), min(values), max(values))


def test_ratios_pair_the_rounds_and_leave_out_failed_ones() -> None:
    assert ratios([10.0, None, 30.0, 40.0], [5.0, 1.0, None, 10.0]) == [2.0, 4.0]


def measurement(peer: str, number: int, per_second: float, *, lost: int = 0) -> Measurement:
    outcome = Outcome(deliveries=int(per_second * 2), seconds=2.0, lost=lost, broker_cpu=1.0, generator_cpu=0.25)
    return Measurement(scenario=ONE_TO_TEN.name, peer=peer, round=number, outcome=outcome)


def report(measurements: list[Measurement]) -> Report:
    peers = [Contender("Mosquitto", "2", "as is"), Contender("NATS", None, ""), Contender("SAPS", "1", "defaults")]
    return Report("today", "the command", this_machine(), Plan(rounds=3), peers, measurements)


def test_ratios_are_taken_round_by_round() -> None:
    rates = [(100.0, 400.0), (200.0, 400.0), (100.0, 300.0)]
    found = rows(
        report(
            [
                measurement(peer, number, rate)
                for number, pair in enumerate(rates)
                for peer, rate in zip(("Mosquitto", "SAPS"), pair, strict=True)
            ]
        ),
        [ONE_TO_TEN],
    )
    _, saps = found
    assert saps.cells[2:6] == ("400/s", "300/s - 400/s", "3.00", "2.00 - 4.00")


def test_losses_failures_and_missing_peers_are_said() -> None:
    failed = Measurement(scenario=ONE_TO_TEN.name, peer="SAPS", round=2, fault="it fell over")
    one = report([measurement("SAPS", 0, 1.0, lost=3), measurement("SAPS", 1, 1.0, lost=4), failed])
    (row,) = rows(one, [ONE_TO_TEN])
    assert row.cells[-1] == "7, 1 of 3 rounds failed"
    assert faults(one) == ["1:10-q0, SAPS, round 3: it fell over"]
    page = markdown(one, [ONE_TO_TEN])
    assert "NATS: not installed, not measured." in page
    assert ", lost: 7, 1 of 3 rounds failed |" in page


def test_a_section_is_added_then_replaced() -> None:
    once = replace_section("# Page\n\nText.\n", "x", "one")
    twice = replace_section(once + "After.\n", "x", "two")
    assert once == "# Page\n\nText.\n\n<!-- x:begin -->\n\none\n\n<!-- x:end -->\n"
    assert twice == "# Page\n\nText.\n\n<!-- x:begin -->\n\ntwo\n\n<!-- x:end -->\nAfter.\n"


def test_an_open_section_is_refused() -> None:
    with pytest.raises(ValueError, match="without"):
        replace_section("<!-- x:begin -->", "x", "body")
