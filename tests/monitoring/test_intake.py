"""Files of counts on their way in: each once, bad ones named and put aside, a source that is away waited for."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from monitoring.counts.directory import Directory
from monitoring.counts.intake import Intake
from monitoring.counts.limits import fault, faults
from monitoring.counts.synthetic import city, rows, traffic
from monitoring.decisions.decider import Decider
from monitoring.decisions.store import NOTHING, Store
from saps.statistics import Row
from saps.statistics.files_io import VERSION_KEY, arrow_schema, write_rows

pytestmark = pytest.mark.slow


def good(directory: Path, name: str, number: int = 0) -> Path:
    place = city(topics=5, clusters=2, brokers=1)
    write_rows(directory / name, list(rows(place, traffic(place, number))))
    return directory / name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "counts"
    directory.mkdir()
    return directory


def taking(source: Path, store: Store) -> Intake:
    return Intake(Directory(source, store), store)


def kept(store: Store, name: str) -> Path:
    """A directory of the job's state."""
    return Path(str(store.folder)) / name


def inside(store: Store) -> list[dict[str, object]]:
    """The rows in the inbox."""
    return [row for file in sorted(kept(store, "inbox").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def test_each_file_is_taken_once_also_by_the_next_process(source: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    files = [good(source / "2026-01-01", f"b{number}-1-100.parquet", number) for number in range(3)]
    assert taking(source, store).take() == 3
    assert inside(store) == [row for file in files for row in pq.read_table(file).to_pylist()]
    intake = taking(source, store)
    assert intake.take() == 0
    store.forget(file.name for file in kept(store, "inbox").glob("*.parquet"))
    assert inside(store) == []
    assert taking(source, store).take() == 0


def test_small_files_become_one_and_a_large_one_is_linked(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.counts.intake.TOGETHER", 30)
    store, place = Store(tmp_path / "state"), city(topics=5, clusters=2, brokers=1)
    sizes = []
    for number in range(8):
        file = good(source, f"b-1-{number}.parquet", number)
        sizes.append(pq.read_metadata(file).num_rows)
    write_rows(source / "c-1-9.parquet", [row for number in range(9) for row in rows(place, traffic(place, number))])
    assert taking(source, store).take() == 9
    files = sorted(kept(store, "inbox").glob("*.parquet"))
    assert len(files) < 6
    assert [file.samefile(source / "c-1-9.parquet") for file in files].count(True) == 1
    assert sum(pq.read_metadata(file).num_rows for file in files if file.stat().st_nlink == 1) == sum(sizes)


def test_a_backlog_is_read_in_the_order_of_its_intervals_a_bounded_number_at_a_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.counts.intake.AT_ONCE", 4)
    store = Store(tmp_path / "state")
    for number in range(10):
        good(source, f"b{9 - number}-1-{number + 5}.parquet", number)
    intake = taking(source, store)
    taken = [(intake.take(), (inside(store)[-1]["start"])) for _ in range(4)]
    begins = [pq.read_table(source / f"b{9 - last}-1-{last + 5}.parquet")["start"][0].as_py() for last in (3, 7, 9)]
    assert taken == [(4, begins[0]), (4, begins[1]), (2, begins[2]), (0, begins[2])]
    assert taking(source, Store(tmp_path / "other")).take_all() == 10


def files_of_days(source: Path, days: list[str], each: int) -> None:
    """Names only: what is not looked at need not be anything."""
    for day in days:
        (source / day).mkdir(parents=True)
        for number in range(each):
            (source / day / f"b{number}-1-1.parquet").touch()


def test_only_open_days_are_looked_at_and_only_when_they_have_changed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "state")
    noon = 1_767_960_000_000  # 9 January 2026, 12:00 UTC
    store.fresh(0)
    store.commit(NOTHING._replace(batch=0, closed=noon))
    files_of_days(source, [f"2026-01-0{day}" for day in range(1, 8)], 3)
    for number, day in enumerate(("2026-01-08", "2026-01-09", "2026-01-10")):
        good(source / day, f"b-1-{number}.parquet", number)
    listed: list[str] = []
    real = os.listdir

    def listing(path: Path) -> list[str]:
        if path.is_relative_to(source):
            listed.append(path.name)
        return real(path)

    monkeypatch.setattr("monitoring.files.os.listdir", listing)
    directory = Directory(source, store)
    intake = Intake(directory, store)
    assert intake.take() == 3
    assert sorted(listed) == ["2026-01-08", "2026-01-09", "2026-01-10", "counts"]
    assert not kept(store, "quarantine").exists()
    for _ in range(5):
        directory._again = 0.0
        assert intake.take() == 0
    assert len(listed) == 8  # each once more: what came within the same tick of the disk's clock
    good(source / "2026-01-09", "c-1-7.parquet", 5)
    directory._again = 0.0
    assert intake.take() == 1
    assert listed[8:] == ["2026-01-09"]


def test_the_ledger_of_a_day_ends_with_the_day_and_forgets_files_that_are_no_more(source: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    for day in ("2026-01-07", "2026-01-09"):
        good(source / day, "b-1-0.parquet")
    (source / "elsewhere").mkdir()
    first = good(source / "elsewhere", "b-1-0.parquet")
    for number in range(1, 1500):
        os.link(first, source / "elsewhere" / f"b-1-{number}.parquet")
    assert taking(source, store).take_all() == 1502
    store.fresh(0)
    store.commit(NOTHING._replace(batch=0, closed=1_767_960_000_000))
    for file in (source / "elsewhere").iterdir():
        if file.name != "b-1-1.parquet":
            file.unlink()
    assert taking(source, store).take() == 0
    ledgers = {
        folder.name: sorted({name for file in folder.iterdir() for name in file.read_text().splitlines()})
        for folder in kept(store, "taken").iterdir()
    }
    assert ledgers == {"2026-01-09": ["b-1-0.parquet"], "elsewhere": ["b-1-1.parquet"]}


def test_a_look_that_took_long_is_followed_by_a_rest(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent, now = 0.0, 1000.0
    monkeypatch.setattr("monitoring.counts.directory.time.monotonic", lambda: now)
    monkeypatch.setattr("monitoring.counts.directory.time.thread_time", lambda: spent)
    real = os.listdir

    def slow(path: Path) -> list[str]:
        nonlocal spent
        spent += 0.1 * (path == source)
        return real(path)

    monkeypatch.setattr("monitoring.files.os.listdir", slow)
    intake = taking(source, Store(tmp_path / "state"))
    assert intake.take() == 0
    good(source, "b-1-0.parquet")
    now += 19.0
    assert intake.take() == 0
    now += 2.0
    assert intake.take() == 1


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
    elif how == "broken inside":
        content = bytearray(file.read_bytes())
        content[4:60] = b"\xff" * 56
        file.write_bytes(content)
    elif how == "no text":
        place = table.schema.get_field_index("topic")
        wrong = pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
        pq.write_table(table.set_column(place, arrow_schema().field("topic"), wrong), file)
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
        ("negative", "messages is -1, not between 0 and"),
        ("broken inside", "cannot be read as Parquet"),
        ("no text", "cannot be read as Parquet"),
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
        assert taking(source, store).take() == 1
    assert "bad-1-100.parquet" in caplog.text
    assert said in caplog.text
    assert said in (kept(store, "quarantine") / "bad-1-100.parquet.txt").read_text()
    assert bad.exists()
    assert inside(store) == pq.read_table(source / "good-1-100.parquet").to_pylist()
    assert taking(source, store).take() == 0


POISON: list[tuple[str, Any, str]] = [
    ("seconds", math.nan, "seconds is nan"),
    ("seconds", math.inf, "seconds is inf"),
    ("seconds", 1e9, "seconds is 1000000000.0"),
    ("start", 2**63 - 1, "start is 9223372036854775807"),
    ("start", -1, "start is -1"),
    ("messages", 2**62, "messages is 4611686018427387904"),
    ("bytes", 2**62, "bytes is 4611686018427387904"),
    ("copies", -(2**63), "copies is -9223372036854775808"),
    ("brokers", 10**9, "brokers is 1000000000"),
    ("priority", 8, "priority is 8"),
    ("cluster", "a:b", "cluster: 'a:b'"),
    ("cluster", "a|b", "cluster: 'a|b'"),
    ("cluster", "*core*", "cluster: '*core*'"),
    ("broker", "", "broker: ''"),
]


@pytest.mark.parametrize(("column", "value", "said"), POISON)
def test_a_row_that_cannot_be_is_put_aside_and_the_others_count(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, value: Any, said: str
) -> None:
    store, file = Store(tmp_path / "state"), good(source, "b-1-100.parquet")
    plain = [Row(**row) for row in pq.read_table(file).to_pylist()]
    poison = plain[1]._replace(**{column: value})
    write_rows(file, [plain[0], poison, *plain[2:]])
    assert taking(source, store).take() == 1
    assert [Row(**row) for row in inside(store)] == [plain[0], *plain[2:]]  # type: ignore[arg-type]
    (aside,) = pq.read_table(kept(store, "quarantine") / file.name).to_pylist()
    assert aside.pop("fault").startswith(said)
    assert repr(Row(**aside)) == repr(poison)
    assert f"1 of {len(plain)} rows are impossible: row 1: {said}" in caplog.text
    assert said in (kept(store, "quarantine") / f"{file.name}.txt").read_text()
    assert taking(source, store).take() == 0
    assert (fault(poison) or "").startswith(said)
    assert len(Decider().feed([plain[0], poison]).impossible) == 1


def test_a_file_of_nothing_but_rows_that_cannot_be_leaves_nothing_in_the_inbox(source: Path, tmp_path: Path) -> None:
    store, file = Store(tmp_path / "state"), good(source, "b-1-100.parquet")
    write_rows(file, [Row(**row)._replace(seconds=math.nan) for row in pq.read_table(file).to_pylist()])
    assert taking(source, store).take() == 0
    assert inside(store) == []
    assert taking(source, store).take() == 0


EDGES = [-1, 0, 1, 7, 8, 10**5, 10**5 + 1, 10**11, 10**12, 10**15 + 1, 253_402_300_800_000, 2**63 - 1]
ANY_ROW = st.builds(
    Row,
    st.sampled_from(["b1", "", "b 1", "-b"]),
    st.sampled_from(EDGES),
    st.sampled_from(["tokyo/ward1", "local", "a:b", "", "a//b"]),
    st.sampled_from(EDGES),
    st.sampled_from([0.0, 60.0, 604_800.0, 604_801.0, math.nan, -0.1]),
    st.text(max_size=3),
    *([st.sampled_from(EDGES)] * 13),
    st.just([0] * 13),
)


@given(st.lists(ANY_ROW, min_size=1, max_size=8))
def test_a_table_and_a_row_are_judged_alike(seen: list[Row]) -> None:
    columns = list(zip(*seen, strict=True))
    schema = arrow_schema()
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
    each = {number: reason for number, row in enumerate(seen) if (reason := fault(row)) is not None}
    assert faults(table) == each


def test_a_source_that_is_away_is_said_once_and_taken_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "state")
    directory = Directory(tmp_path / "later", store)
    intake = Intake(directory, store)
    with caplog.at_level(logging.INFO):
        assert [intake.take() for _ in range(3)] == [0, 0, 0]
        good(tmp_path / "later", "b-1-100.parquet")
        directory._again = 0.0
        assert intake.take() == 1
    assert caplog.text.count("cannot be read, trying again") == 1
    assert "can be read again" in caplog.text


@pytest.mark.parametrize("folder", ["", "2026-11-21/"])
def test_what_a_failed_listing_left_out_is_found_later(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    store = Store(tmp_path / "state")
    directory = Directory(source, store)
    (source / folder).mkdir(exist_ok=True)
    good(source, f"{folder}b-1-100.parquet")
    names, failing = directory._folder.names, True

    def listing(name: str = "", **options: bool) -> object:
        if failing and name == folder.rstrip("/"):
            raise PermissionError("not now")
        return names(name, **options)

    monkeypatch.setattr(directory._folder, "names", listing)
    intake = Intake(directory, store)
    for _ in range(3):
        directory._again = 0.0
        assert intake.take() == 0
    failing = False
    directory._again = 0.0
    assert intake.take() == 1


def test_half_written_files_are_left_alone(source: Path, tmp_path: Path) -> None:
    good(source, ".b-1-100.parquet.partial")
    good(source, ".b-1-100.parquet")
    assert taking(source, Store(tmp_path / "state")).take() == 0
