"""The journal and the file: what is read back is what was noted, whatever was committed in between."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.session.durable import Incarnation
from saps.messages import Message, Properties, Subscription
from saps.routing.batch import Batch as Single
from saps.routing.batch import Origin
from saps.storage.damage import StorageError
from saps.storage.driver import log
from saps.storage.driver.database import Database
from saps.storage.driver.files import StorageFile
from saps.storage.driver.store import Store
from saps.storage.journal import Batch, Journal, Table
from saps.storage.past import TOGETHER, pack, unpack
from saps.storage.saved import SavedForm
from tests import marks
from tests.storage.conftest import Place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


def session_row(number: int, client: str = "c") -> tuple[object, ...]:
    return number, client, None, 60, None, None, 0, None, 7


@given(brokers=st.lists(st.sampled_from("abc"), max_size=5 * TOGETHER))
def test_the_oldest_publications_of_a_session_are_forgotten_first(brokers: list[str]) -> None:
    """Those of one broker were: a session that had moved forgot what it had from it seconds ago (`make chaos`)."""
    had = [Origin(broker, 1, seq) for seq, broker in enumerate(brokers)]
    restored = unpack(pack(had))
    assert sorted(restored) == sorted(had)
    assert all(abs(place - origin.seq) < TOGETHER for place, origin in enumerate(restored))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3)),
        st.tuples(st.just("acknowledge"), st.integers(0, 30)),
        st.tuples(st.just("incoming"), st.integers(1, 3)),
        st.tuples(st.just("release"), st.integers(1, 3)),
        st.tuples(st.just("retain"), st.integers(0, 3)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("start"), st.just(0)),
    ),
    max_size=60,
)
lengths = st.sampled_from([0, 300, 3000, log.LOG])
"""Of the storage's log."""


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, length=lengths)
def test_what_is_committed_is_what_is_read(
    steps: list[tuple[str, int]], length: int, new_place: Callable[[], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a model: messages with any number of copies, commits that succeed and commits that fail, starts, and a
    log of any length."""
    path = new_place()
    monkeypatch.setattr(log, "LOG", length)
    journal, copies, incoming, retained = Journal(), [], {}, {}
    with ExitStack() as stack:
        database = stack.enter_context(closing(Database(path, "off")))
        journal.put(Table.SESSIONS, 1, session_row(1))
        journal.begin_after(1)
        for number, (step, value) in enumerate(steps):
            if step == "publish":
                message = Message("t", b"%d" % number, 1)
                single = Single.of(message)
                for _ in range(value):
                    stored = journal.refer(single, None)
                    serial = journal.number()
                    journal.put(Table.COPIES, serial, (serial, 1, stored.number, 0, SavedForm(1, False, ())))
                    copies.append((serial, stored, message))
            elif step == "acknowledge" and copies:
                serial, stored, _ = copies.pop(value % len(copies))
                journal.drop(Table.COPIES, serial, once=True)
                journal.release(stored)
            elif step == "incoming":
                incoming[value] = number
                journal.put(Table.INCOMING, (1, value), (1, value, number))
            elif step == "release":
                incoming.pop(value, None)
                journal.drop(Table.INCOMING, (1, value))
            elif step == "retain":
                retained[f"t{value}"] = b"%d" % number
                journal.put(Table.RETAINED, f"t{value}", (f"t{value}", b"%d" % number))
            elif step == "commit":
                database.write(journal.take())
            elif step == "fail":
                journal.give_back(journal.take())
            elif step == "start":
                stack.close()
                database = stack.enter_context(closing(Database(path, "off")))
        database.write(journal.take())
    with closing(Database(path, "full")) as database:
        saved = database.load()
    (session,) = saved.sessions
    assert [(c.serial, saved.messages[c.message].message) for c in session.copies] == [
        (serial, message) for serial, _, message in sorted(copies, key=lambda copy: copy[0])
    ]
    assert saved.messages.keys() == {stored.number for _, stored, _ in copies}, "a message without copies is kept"
    assert session.incoming == incoming
    assert saved.retained == retained
    assert saved.highest >= max([serial for serial, *_ in copies], default=1)


def test_a_message_that_has_gone_before_the_commit_costs_nothing() -> None:
    journal = Journal()
    stored = journal.refer(Single.of(Message("t", b"")), None)
    journal.put(Table.COPIES, 9, (9, 1, stored.number, 0, SavedForm(1, False, ())))
    journal.drop(Table.COPIES, 9, once=True)
    journal.release(stored)
    assert not journal


def test_everything_about_a_session_comes_back(place: Place) -> None:
    properties = Properties(1, 30, "text/plain", "answer", b"\0x", (("a", "b"), ("a", "c")), 7)
    will = Message("gone", b"\xff\0", 2, True, properties)
    subscription = Subscription("a/+", 2, True, True, 1, 268_435_455)
    journal = Journal()
    with closing(Database(place, "full")) as database:
        journal.put(Table.SESSIONS, 5, (5, "client", "user", 3600, 12.5, will, 9, 13.5, 77))
        journal.put(Table.SUBSCRIPTIONS, (5, "a/+"), (5, "a/+", subscription))
        stored = journal.refer(Single.of(will), 99.5)
        journal.put(Table.COPIES, 8, (8, 5, stored.number, 77, SavedForm(2, True, (1, 3))))
        journal.put(Table.RELEASES, 9, (9, 5, 78))
        database.write(journal.take())
    with closing(Database(place, "full")) as database:
        saved = database.load()
    (session,) = saved.sessions
    assert (session.client_id, session.user, session.expiry, session.ends) == ("client", "user", 3600, 12.5)
    assert (session.will, session.will_delay, session.will_due) == (will, 9, 13.5)
    assert session.subscriptions == [subscription]
    assert session.copies == [(8, stored.number, 77, SavedForm(2, True, (1, 3)))]
    assert session.releases == [(9, 78)]
    assert saved.messages[stored.number] == (stored.number, will, 99.5, stored.origin)
    assert session.birth == 77


@pytest.mark.parametrize("damage", ["empty", "cut", "overwritten", "other", "version"])
def test_a_file_that_cannot_be_trusted_is_refused(path: Path, damage: str) -> None:
    with closing(Database(path, "full")) as database:
        journal = Journal()
        for number in range(300):
            journal.put(Table.RETAINED, f"t{number}", (f"t{number}", bytes(200)))
        database.write(journal.take())
    content = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "overwritten":
        path.write_bytes(content[:8192] + bytes(len(content) - 8192))
    elif damage == "other":
        path.unlink()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE t (x)")
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError) as refused:
        Database(path, "full").load()
    assert str(path) in str(refused.value)


def test_a_file_belongs_to_one_process(path: Path) -> None:
    with closing(Database(path, "full")), pytest.raises(StorageError, match="another process uses it"):
        Database(path, "full")


def test_a_log_without_its_file_is_not_mixed_into_a_new_one(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"left over")
    with pytest.raises(StorageError, match="put it back"):
        Database(path, "full")


def test_a_full_file_takes_nothing_and_then_everything(path: Path) -> None:
    """SQLite's own bound stands for a full disk: the transaction is refused as a whole, and succeeds later."""
    journal = Journal()
    with closing(Database(path, "full")) as database:
        assert isinstance(database.engine, StorageFile)
        connection = database.engine._connection
        connection.execute("PRAGMA max_page_count = 20")
        for number in range(300):
            journal.put(Table.RETAINED, f"t{number}", (f"t{number}", bytes(1000)))
        batch = journal.take()
        with pytest.raises(sqlite3.OperationalError) as full:
            database.write(batch)
        assert full.value.sqlite_errorcode == sqlite3.SQLITE_FULL
        assert database.load().retained == {}
        connection.execute("PRAGMA max_page_count = 100000")
        journal.give_back(batch)
        database.write(journal.take())
        assert len(database.load().retained) == 300


def test_a_mark_that_cannot_be_written_fails_the_transaction_which_may_be_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch: Batch = {Table.RETAINED: {"t": ("t", b"x"), "u": None}}
    with closing(Database(path, "full")) as database:
        database.write({Table.RETAINED: {"u": ("u", b"y")}})
        with monkeypatch.context() as failing:
            failing.setattr(os, "pwrite", lambda *given: 0)
            with pytest.raises(OSError, match="mark"):
                database.write(batch)
        database.write(batch)
    with closing(Database(path, "full")) as database:
        assert database.load().retained == {"t": b"x"}


async def test_the_end_writes_what_changed_last_of_other_brokers_sessions_too(place: Place) -> None:
    """Their copies are committed by themselves: the file was closed before the last of these commits."""
    store = Store(place, "off")
    store.journal.put(Table.SESSIONS, 1, (1, "c", None, 60, None, None, 0, None, 7))
    store.held.put(Table.HELD, ("b1 1 1", "s1"), ("b1 1 1", "s1", b"one"))
    store.held.put(Table.HELD, ("b1 1 1", "s2"), ("b1 1 1", "s2", b"two"))
    await store.close()
    store = Store(place, "off")
    assert store.saved.held == {"b1 1 1": {"s1": b"one", "s2": b"two"}}
    store.held.drop(Table.HELD, ("b1 1 1", "s1"))
    await store.close()
    store = Store(place, "off")
    assert store.saved.held == {"b1 1 1": {"s2": b"two"}}
    await store.close()


@marks.expect("numbered after it was stored")
def test_a_publication_has_the_number_that_it_was_sent_with() -> None:
    """It waited for its stream, longer than a commit took, and some had it before: of its two numbers one counts."""
    journal = Journal()
    journal.incarnation, journal.place = ("b1", 7), lambda: 3
    single = Single.of(Message("t", b"x", 1))
    stored = journal.refer(single, None)
    ((_, row),) = journal.take()[Table.MESSAGES].items()
    assert row is not None
    assert row[3] == Origin("b1", 7, 3)
    single.number(Incarnation("b1", 7), [5])
    journal.numbered(single)
    assert journal.take()[Table.MESSAGES] == {stored.number: (*row[:3], Origin("b1", 7, 5))}
    journal.numbered(single)
    assert not journal
    journal.release(stored)
    assert journal.refer(single, None).settle(journal.incarnation) == Origin("b1", 7, 5)
