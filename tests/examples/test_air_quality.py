"""The air quality example: the index, the windows, and the whole command on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.air_quality.air import DISTRICTS, STEP, Air
from examples.air_quality.check import faults
from examples.air_quality.index import BANDS, COVERAGE, NO2, POLLUTANTS, Level, index, level
from examples.air_quality.picture import Outcome, draw
from examples.air_quality.services import REPORTING, SILENT, Aggregate, Service, Station
from examples.air_quality.windows import Series, expected, mean
from tests.examples.commands import run_example


def test_each_band_ends_where_the_next_level_begins() -> None:
    for pollutant, ends in BANDS.items():
        for number, end in enumerate(ends, 1):
            assert level(pollutant, end) == number
            assert level(pollutant, end + 0.1) == number + 1
    assert index({NO2: 30, "pm25": 60}) is Level.VERY_POOR
    assert index({NO2: 30, "pm25": None}) is Level.GOOD
    assert index({NO2: None, "pm25": None}) is None


@given(st.permutations(range(1, 120)), st.integers(1, 30), st.sampled_from([1, 24]))
def test_a_window_has_what_was_taken_in_it_whatever_came_first(order: list[int], hour: int, hours: int) -> None:
    series = Series()
    for number in order:
        series.add(number * STEP, float(number))
    window = series.window(hours, hour)
    due = [float(n) for n in range(1, 120) if 60 * max(0, hour - hours) < n * STEP <= 60 * hour]
    assert window == due
    assert len(due) <= expected(hours, hour)
    few = due[: int(COVERAGE * expected(hours, hour))]
    assert mean(few, hours, hour) == (
        pytest.approx(sum(few) / len(few)) if len(few) >= COVERAGE * expected(hours, hour) else None
    )


def _hour(*, silent: bool = False) -> tuple[Air, dict[str, Station], dict[str, list[Aggregate]], dict[str, str]]:
    """Every district after one hour."""
    air = Air(1)
    stations = {name: Station(name, district, air) for district in DISTRICTS for name in district.stations}
    for station in stations.values():
        station.known = True
    hours: dict[str, list[Aggregate]] = {}
    for district in DISTRICTS:
        service = Service(district)
        for name in district.stations:
            for pollutant in POLLUTANTS:
                for minute in range(STEP, 61, STEP):
                    stations[name].taken[pollutant] += 1
                    service.reading(name, pollutant, minute, air.reading(name, pollutant, minute))
        assert service.complete(1)
        hours[district.name] = [service.aggregate(1)]
    return air, stations, hours, dict.fromkeys(stations, REPORTING)


def test_the_check_finds_a_lost_hour_a_wrong_mean_a_lost_reading_and_a_wrong_status() -> None:
    air, stations, hours, status = _hour()
    assert list(faults(air, stations, hours, status)) == []
    right = hours["market"][0]

    hours["market"] = []
    assert ["hours []" in fault for fault in faults(air, stations, hours, status)] == [True]
    hours["market"] = [right, right]
    assert len(list(faults(air, stations, hours, status))) == 1
    values = {**right.means, NO2: 1.0}
    hours["market"] = [Aggregate("market", 1, right.level, values, right.readings, [])]
    assert len(list(faults(air, stations, hours, status))) == 1
    fewer = {**right.readings, "market-1": {NO2: 3, "pm25": 4}}
    hours["market"] = [Aggregate("market", 1, right.level, right.means, fewer, [])]
    assert len(list(faults(air, stations, hours, status))) == 2
    hours["market"] = [right]
    assert len(list(faults(air, stations, hours, status | {"market-1": SILENT}))) == 1


@pytest.mark.network
def test_city_hall_has_every_hour_right_and_sees_the_silent_station(tmp_path: Path) -> None:
    done, result = run_example("air_quality", Outcome, tmp_path, "--seconds", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert result.problems == []
    assert sorted(result.status.values()).count(SILENT) == 1
    assert "has fallen silent" in done.stdout
    assert all(len(own) >= 3 for own in result.hours.values())
    assert (tmp_path / "picture.svg").read_text() == draw(result).svg()
