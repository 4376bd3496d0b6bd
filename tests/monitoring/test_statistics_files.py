"""Rolled files: complete or not there, under a name that cannot repeat, and kept while the disk is not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from saps.statistics import REST, SCHEMA_VERSION, Row, Statistics
from saps.statistics.files_io import VERSION_KEY, StatisticsFiles, file_of, left


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def found(directory: Path, pattern: str = "*.parquet") -> list[str]:
    return sorted(file.name for file in directory.rglob(pattern))


def files(statistics: Statistics, directory: Path, clock: Clock, keep: float = 1e6) -> StatisticsFiles:
    return StatisticsFiles(statistics, directory, 60.0, keep, ("b1", 7, "tokyo"), lambda topic: 3, lambda t: 2, clock)


async def test_an_interval_becomes_a_file_with_version_and_all_columns(tmp_path: Path) -> None:
    statistics, clock = Statistics(), Clock()
    writer = files(statistics, tmp_path, clock)
    count = statistics.of("a/b")
    count.messages, count.bytes = 5, 50
    count.took(0.003)
    clock.now += 60
    await writer.roll()
    file = file_of(tmp_path, "b1", 7, 1_800_000_000_000)
    assert file.name == "b1-7-1800000000000.parquet"
    table = pq.read_table(file)
    assert table.schema.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    assert table.column_names == list(Row._fields)
    row = Row(**table.to_pylist()[0])
    assert row == writer.latest[0]
    assert (row.topic, row.messages, row.bytes, row.brokers, row.priority, row.seconds) == ("a/b", 5, 50, 3, 2, 60.0)
    assert sum(row.latency) == 1
    assert found(tmp_path, "*.partial") == []


async def test_an_interval_in_which_nothing_happened_says_so(tmp_path: Path) -> None:
    clock = Clock()
    writer = files(Statistics(), tmp_path, clock)
    clock.now += 60
    await writer.roll()
    (row,) = pq.read_table(file_of(tmp_path, "b1", 7, 1_800_000_000_000)).to_pylist()
    assert (row["topic"], row["messages"], row["seconds"]) == (REST, 0, 60.0)


async def test_rows_wait_for_a_directory_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    statistics, clock = Statistics(), Clock()
    (tmp_path / "counts").write_text("in the way")
    writer = files(statistics, tmp_path / "counts", clock)
    for _ in range(3):
        statistics.of("t").messages += 1
        clock.now += 60
        with caplog.at_level(logging.INFO):
            await writer.roll()
    assert writer.written == 0
    assert caplog.text.count("cannot write statistics") == 1
    (tmp_path / "counts").unlink()
    clock.now += 60
    with caplog.at_level(logging.INFO):
        await writer.roll()
    assert len(found(tmp_path)) == writer.written == 4
    assert "again" in caplog.text


async def test_only_own_old_files_are_deleted(tmp_path: Path) -> None:
    statistics, clock = Statistics(), Clock()
    writer = files(statistics, tmp_path, clock, keep=100)
    other = file_of(tmp_path, "b1-2", 7, 1_000)
    other.parent.mkdir(parents=True)
    other.write_text("of another broker")
    for _ in range(4):
        statistics.of("t").messages += 1
        clock.now += 60
        await writer.roll()
    own = found(tmp_path, "b1-7-*.parquet")
    assert own == ["b1-7-1800000180000.parquet"]
    assert other.exists()


@given(st.integers(1, 10**6), st.floats(-0.4, 0.4), st.sampled_from([0.5, 1.0, 5.0, 60.0]))
def test_each_interval_ends_at_its_boundary_however_exactly_the_timer_woke(
    number: int, off: float, interval: float
) -> None:
    """A timer that wakes half a millisecond early once ended a second interval at the boundary proper; the first one's
    rows were not the latest any more when they were asked for."""
    woke = (number + off) * interval
    assert woke + left(woke, woke, interval) == pytest.approx((number + 1) * interval)
    written = woke + interval / 2  # the file took so long
    assert written + left(woke, written, interval) == pytest.approx((number + 1) * interval)
    assert left(woke, woke + 3 * interval, interval) == 0
    assert left(woke, woke - 3600, interval) <= 1.5 * interval, "the clock was set back"
