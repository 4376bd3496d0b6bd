"""Damaged files: what is delivered is what was stored, or the damage is named. SQLite alone would start with less."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver.clock import moment
from saps.storage.driver.copying import repair
from saps.storage.driver.database import Database
from saps.storage.journal import Batch, Table
from saps.storage.saved import Saved
from tests.storage.damaging import ENDINGS, flip, folded, killed


def rows(saved: Saved) -> dict[tuple[Table, object], object]:
    return {(table, key): row for table, found in saved.rows().items() for key, row in found.items()}


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, acknowledged = killed(tmp_path)
    caplog.set_level("INFO")
    with closing(Database(path, "full")) as database:
        assert rows(database.load()) == rows(acknowledged)
    assert "was not closed in order" in caplog.text


@pytest.mark.parametrize("damage", ["deleted", "emptied", "header", "1 bit", "50 bits", "half", "older"])
def test_a_damaged_log_stops_the_start_and_the_files_are_left_as_they_are(tmp_path: Path, damage: str) -> None:
    path, _ = killed(tmp_path)
    wal = tmp_path / "broker.db-wal"
    if damage == "deleted":
        wal.unlink()
    elif damage == "emptied":
        wal.write_bytes(b"")
    elif damage == "header":
        wal.write_bytes(bytes(32) + wal.read_bytes()[32:])
    elif damage == "half":
        wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    elif damage == "older":
        (tmp_path / "before").mkdir()
        before, _ = killed(tmp_path / "before", messages=20)
        shutil.copy(f"{before}-wal", wal)
    else:
        flip(wal, int(damage.split()[0]), Random(7), start=32)
    before_start = {
        ending: Path(f"{path}{ending}").read_bytes() for ending in ENDINGS if Path(f"{path}{ending}").exists()
    }
    with pytest.raises(DamagedError) as refused:
        Database(path, "full")
    assert refused.value.lost
    assert f"saps storage repair {path} {path}.repaired" in str(refused.value)
    assert {ending: Path(f"{path}{ending}").read_bytes() for ending in before_start} == before_start
    if damage != "older":
        assert "acknowledged transactions are missing" in str(refused.value)


def test_the_last_bit_of_the_log_counts(tmp_path: Path) -> None:
    """The frames of the last transaction alone: nothing in the log follows that would betray it."""
    path, _ = killed(tmp_path, messages=3, retained=0)
    flip(tmp_path / "broker.db-wal", 1, Random(1), start=(tmp_path / "broker.db-wal").stat().st_size - 1)
    with pytest.raises(DamagedError, match="1 acknowledged transactions are missing"):
        Database(path, "full")


@pytest.mark.parametrize(
    ("sync", "boot", "refused"), [("full", "other", True), ("normal", "other", False), ("normal", "", True)]
)
def test_only_a_loss_of_power_excuses_what_is_missing(
    tmp_path: Path, sync: str, boot: str, refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path, at = tmp_path / "living.db", tmp_path / "broker.db"
    with closing(Database(path, sync)) as database:  # type: ignore[arg-type]
        for number in range(5):
            database.write({Table.RETAINED: {f"t{number}": (f"t{number}", b"x")}})
        for ending in ENDINGS:
            shutil.copy(f"{path}{ending}", f"{at}{ending}")
    wal = tmp_path / "broker.db-wal"
    wal.write_bytes(wal.read_bytes()[:-1])
    now = moment()._replace(boot=boot, up=5.0) if boot else moment()
    if refused:
        with pytest.raises(DamagedError):
            Database(at, "full", lambda: now)
        return
    for _ in range(2):
        with closing(Database(at, "full", lambda: now)) as database:
            assert len(database.load().retained) == 4
            database.write({Table.RETAINED: {"t": ("t", b"x")}})
            database.write({Table.RETAINED: {"t": None}})
    assert caplog.text.count("power was lost") == 1


@pytest.mark.parametrize("damage", ["gone", "zero", "both slots", "other"])
def test_a_file_without_its_mark_is_not_believed(tmp_path: Path, damage: str) -> None:
    path, _ = killed(tmp_path)
    mark = tmp_path / "broker.db-mark"
    if damage == "gone":
        mark.unlink()
    elif damage == "other":
        Database(tmp_path / "other.db", "full").close()
        shutil.copy(tmp_path / "other.db-mark", mark)
    else:
        mark.write_bytes(bytes(mark.stat().st_size) if damage == "zero" else b"\xff" * 8192)
    with pytest.raises(DamagedError, match=r"mark"):
        Database(path, "full")


def change(path: Path, statement: str, *values: object) -> None:
    """Change a file behind the broker's back, as a flipped bit on the disk does."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement, values).rowcount == 1
        connection.commit()


def test_a_changed_message_is_named_set_aside_and_never_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, acknowledged = killed(tmp_path)
    folded(path)
    session = acknowledged.sessions[0]
    copy = session.copies[3]
    topic = acknowledged.messages[copy.message].message.topic
    with closing(sqlite3.connect(path)) as connection:
        body = bytearray(connection.execute("SELECT message FROM messages WHERE id = ?", (copy.message,)).fetchone()[0])
    body[20] ^= 1
    change(path, "UPDATE messages SET message = ? WHERE id = ?", bytes(body), copy.message)
    for _ in range(2):
        with closing(Database(path, "full")) as database:
            found = database.load()
            assert copy.message not in found.messages
            assert copy.serial not in {c.serial for s in found.sessions for c in s.copies}
            gone = rows(acknowledged).keys() - rows(found)
            assert {key for table, key in gone if table is Table.MESSAGES} == {copy.message}
            assert database.quarantined == len(gone)
    named = [
        f"copies record {copy.serial} of session 'device1', topic '{topic}'",
        f"messages record {copy.message}, topic '{topic}'",
    ]
    for text in named:
        assert caplog.text.count(text) == 1, caplog.text


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE sessions SET expiry = 7 WHERE id = 1", "sessions record 1 of session 'device1'"),
        (
            "UPDATE subscriptions SET subscription = x'00' WHERE session = 2 AND filter = 'a/+'",
            "'device2', topic 'a/+'",
        ),
        ("UPDATE retained SET record = CAST(x'FFFE' AS TEXT) WHERE topic = 'r/003'", "retained record 'r/003'"),
        ("UPDATE retained SET sum = sum + 1 WHERE topic = 'r/003'", "retained record 'r/003'"),
        ("UPDATE copies SET packet = NULL WHERE serial = (SELECT min(serial) FROM copies)", "'device1', topic 'a/1'"),
    ],
)
def test_each_kind_of_record_is_compared(
    tmp_path: Path, statement: str, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, acknowledged = killed(tmp_path)
    folded(path)
    change(path, statement)
    with closing(Database(path, "full")) as database:
        found = database.load()
    assert named in caplog.text
    assert all(rows(acknowledged)[key] == row for key, row in rows(found).items())
    with closing(Database(path, "full")) as database:
        assert rows(database.load()) == rows(found)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM copies WHERE serial = (SELECT max(serial) FROM copies)",
        "DELETE FROM subscriptions WHERE session = 1 AND filter = 'a/+'",
        "DELETE FROM state",
        "UPDATE state SET number = number + 1",
    ],
)
def test_records_that_are_missing_without_a_trace_stop_the_start(tmp_path: Path, statement: str) -> None:
    path, _ = killed(tmp_path)
    folded(path)
    change(path, statement)
    with pytest.raises(DamagedError), closing(Database(path, "full")) as database:
        database.load()


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("UPDATE log SET changes = x'80' WHERE id = 21", "the changes of transaction 21 are lost"),
        ("DELETE FROM log WHERE id = 21", "log: 70 of 71 records can be read"),
    ],
)
def test_a_damaged_record_of_the_log_stops_the_start(tmp_path: Path, statement: str, lost: str) -> None:
    path, acknowledged = killed(tmp_path)
    Database(path, "full").close()
    change(path, statement)
    with pytest.raises(DamagedError, match=lost), closing(Database(path, "full")) as database:
        database.load()
    repair(path, tmp_path / "repaired.db")
    with closing(Database(tmp_path / "repaired.db", "full")) as database:
        missing = rows(acknowledged).keys() - rows(database.load()).keys()
    assert {table for table, _ in missing} == {Table.MESSAGES, Table.COPIES}


@pytest.mark.parametrize("again", [False, True])
def test_a_damaged_row_that_the_log_changes_costs_nothing_more(tmp_path: Path, again: bool) -> None:
    """The message is deleted in the log, or there in its whole again."""
    path, acknowledged = killed(tmp_path)
    with closing(Database(path, "full")) as database:
        found = database.load()
        uses = Counter(each.message for session in found.sessions for each in session.copies)
        copy = next(each for each in found.sessions[0].copies if uses[each.message] == 1)
        row = tuple(found.messages[copy.message])
        batch: Batch = {Table.MESSAGES: {copy.message: row if again else None}}
        database.write(batch if again else batch | {Table.COPIES: {copy.serial: None}})
    change(path, "UPDATE messages SET expires = 1 WHERE id = ?", copy.message)
    for _ in range(2):
        with closing(Database(path, "full")) as database:
            saved = database.load()
        missing = rows(acknowledged).keys() - rows(saved).keys()
        assert missing == (set() if again else {(Table.MESSAGES, copy.message), (Table.COPIES, copy.serial)})
    assert database.quarantined == (not again)


def test_a_copy_in_the_log_whose_message_is_damaged_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, _ = killed(tmp_path)
    with closing(Database(path, "full")) as database:
        copy = database.load().sessions[0].copies[0]
        row = copy.serial + 1_000_000, 1, copy.message, 7, copy.form  # as it is sent
        database.write({Table.COPIES: {row[0]: row, copy.serial: None}})
    change(path, "UPDATE messages SET expires = 1 WHERE id = ?", copy.message)
    for _ in range(2):
        with closing(Database(path, "full")) as database:
            found = database.load()
            assert copy.message not in found.messages
            assert row[0] not in {each.serial for session in found.sessions for each in session.copies}
    assert caplog.text.count(f"copies record {row[0]} of session 'device1', topic 'a/1'") == 1, caplog.text


def test_an_old_record_in_the_place_of_a_later_one_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    with closing(Database(path, "full")) as database:
        for content in (b"old", b"new"):
            database.write({Table.RETAINED: {"t": ("t", content)}})
            if content == b"old":
                with closing(sqlite3.connect(path)) as connection:
                    old = connection.execute("SELECT record, sum FROM retained").fetchone()
    change(path, "UPDATE retained SET record = ?, sum = ?", *old)
    with pytest.raises(DamagedError, match="not all of the 1 records"), closing(Database(path, "full")) as database:
        database.load()


def test_files_are_their_owners_only(tmp_path: Path) -> None:
    path, _ = killed(tmp_path)
    for ending in ENDINGS:
        Path(f"{path}{ending}").chmod(0o644)
    with closing(Database(path, "full")) as database:
        database.load()
        database.write({Table.RETAINED: {"t": ("t", b"x")}})
        found = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("broker.db*")}
        assert found.keys() >= {"broker.db", "broker.db-wal", "broker.db-shm", "broker.db-mark"}
        assert set(found.values()) == {0o600}, found


DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "zero", "delete", "copy"]),
        st.sampled_from(ENDINGS),
        st.floats(0, 1, exclude_max=True),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([1, 24, 100, 512, 4096]),
    ),
    min_size=1,
    max_size=3,
)


def damage(path: Path, what: str, start: float, other: float, size: int) -> None:
    content = bytearray(path.read_bytes()) if path.exists() else bytearray()
    if not content:
        return
    at, source = int(start * len(content)), int(other * len(content))
    if size >= 512:
        at, source = at // size * size, source // size * size
    if what == "flip":
        content[at] ^= 1 << (size % 7)
    elif what == "cut":
        del content[at:]
    elif what == "zero":
        content[at : at + size] = bytes(len(content[at : at + size]))
    elif what == "copy":
        chunk = content[source : source + size]
        content[at : at + len(chunk)] = chunk
    if what == "delete":
        path.unlink()
    else:
        path.write_bytes(content)


STATES = ("killed", "closed", "folded")


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[tuple[Table, object], object]]]:
    """A store whose state is mostly in SQLite's log, one that was closed in order, and one whose own log is folded,
    too; what was acknowledged."""
    found = {}
    for state in STATES:
        path, saved = killed(tmp_path_factory.mktemp("undamaged"), 30, 20, 100)
        if state == "closed":
            Database(path, "full").close()
        elif state == "folded":
            folded(path)
        found[state] = path, rows(saved)
    return found


@settings(max_examples=150)
@given(damages=DAMAGES, state=st.sampled_from(STATES))
def test_random_damage_is_named_or_harmless(
    damages: list[tuple[str, str, float, float, int]],
    state: str,
    undamaged: dict[str, tuple[Path, dict[tuple[Table, object], object]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    source, acknowledged = undamaged[state]
    path = tmp_path_factory.mktemp("damaged") / "broker.db"
    for ending in ENDINGS:
        if Path(f"{source}{ending}").exists():
            shutil.copy(f"{source}{ending}", f"{path}{ending}")
    for what, ending, *where in damages:
        damage(Path(f"{path}{ending}"), what, *where)  # type: ignore[arg-type]
    if not any(Path(f"{path}{ending}").exists() for ending in ENDINGS):
        return  # nothing is there that could tell
    try:
        with closing(Database(path, "full")) as database:
            found = database.load()
            assert database.quarantined == len(found.damaged)
    except StorageError:
        return
    stored = rows(found)
    assert all(acknowledged.get(key) == row for key, row in stored.items()), "changed"
    assert len(acknowledged) - len(stored) <= len(found.damaged), "silently less"
    if not found.damaged:
        assert stored == acknowledged
