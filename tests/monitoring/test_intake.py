"""Files of counts on their way in: each once, bad ones named and put aside, a source that is away waited for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from monitoring.intake import Intake, fault
from monitoring.store import Store
from monitoring.synthetic import city, rows, traffic
from saps.statistics.files import VERSION_KEY, arrow_schema, write_rows


def good(directory: Path, name: str, number: int = 0) -> Path:
    place = city(topics=5, clusters=2, brokers=1)
    write_rows(directory / name, list(rows(place, traffic(place, number))))
    return directory / name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "counts"
    directory.mkdir()
    return directory


def test_each_file_is_taken_once_also_by_the_next_process(source: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    for number in range(3):
        good(source / "2026-01-01", f"b{number}-1-100.parquet")
    assert Intake(source, store).take() == 3
    intake = Intake(source, store)
    assert intake.take() == 0
    intake.finished(["b0-1-100.parquet", "b1-1-100.parquet", "b2-1-100.parquet"])
    assert list(store.inbox.glob("*.parquet")) == []
    assert Intake(source, store).take() == 0


def test_a_file_linked_but_not_yet_written_down_is_not_taken_twice(source: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    good(source, "b-1-100.parquet")
    Intake(source, store).take()
    (store.root / "taken.txt").unlink()
    intake = Intake(source, store)
    intake.finished(["b-1-100.parquet"])
    assert Intake(source, store).take() == 0


def spoil(file: Path, how: str) -> None:
    table = pq.read_table(file)
    if how == "no parquet":
        file.write_bytes(b"PAR1 no, it is not")
    elif how == "cut off":
        file.write_bytes(file.read_bytes()[:-20])
    elif how == "another version":
        pq.write_table(table.replace_schema_metadata({VERSION_KEY: b"2"}), file)
    elif how == "no version":
        pq.write_table(table.replace_schema_metadata({}), file)
    elif how == "a column is missing":
        pq.write_table(table.drop_columns(["copies"]), file)
    elif how == "another type":
        place = table.schema.get_field_index("topic")
        pq.write_table(table.set_column(place, "topic", pa.array([1] * len(table))), file)
    elif how == "negative":
        place = table.schema.get_field_index("messages")
        minus = pa.array([-1] * len(table), pa.int64())
        pq.write_table(table.set_column(place, arrow_schema().field("messages"), minus), file)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no parquet", "cannot be read as Parquet"),
        ("cut off", "cannot be read as Parquet"),
        ("another version", "schema version 2, not 1"),
        ("no version", "schema version none"),
        ("a column is missing", "no column copies"),
        ("another type", "column topic is int64"),
        ("negative", "column messages has -1"),
    ],
)
def test_a_bad_file_is_named_and_put_aside_and_the_good_ones_go_in(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, said: str
) -> None:
    store = Store(tmp_path / "state")
    bad = good(source, "bad-1-100.parquet")
    good(source, "good-1-100.parquet")
    spoil(bad, how)
    with caplog.at_level(logging.ERROR):
        assert Intake(source, store).take() == 1
    assert "bad-1-100.parquet" in caplog.text
    assert said in caplog.text
    assert said in (store.quarantine / "bad-1-100.parquet.txt").read_text()
    assert bad.exists()
    assert [file.name for file in store.inbox.iterdir()] == ["good-1-100.parquet"]
    assert Intake(source, store).take() == 0


def test_what_only_reading_through_shows_is_found_then(source: Path, tmp_path: Path) -> None:
    file = good(source, "b-1-100.parquet")
    store = Store(tmp_path / "state")
    intake = Intake(source, store)
    intake.take()
    inside = store.inbox / file.name
    content = bytearray(inside.read_bytes())
    content[4:60] = b"\xff" * 56
    inside.unlink()
    inside.write_bytes(content)
    assert fault(inside) is None
    assert intake.recheck([file.name]) == [file.name]
    assert not inside.exists()


def test_a_source_that_is_away_is_said_once_and_taken_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    intake = Intake(tmp_path / "later", Store(tmp_path / "state"))
    with caplog.at_level(logging.INFO):
        assert [intake.take() for _ in range(3)] == [0, 0, 0]
        good(tmp_path / "later", "b-1-100.parquet")
        assert intake.take() == 1
    assert caplog.text.count("cannot be read, trying again") == 1
    assert "can be read again" in caplog.text


def test_half_written_files_are_left_alone(source: Path, tmp_path: Path) -> None:
    good(source, ".b-1-100.parquet.partial")
    good(source, ".b-1-100.parquet")
    assert Intake(source, Store(tmp_path / "state")).take() == 0
