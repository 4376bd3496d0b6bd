"""PostgreSQL as storage: fenced processes, a server that goes away, rows that somebody has changed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from benchmarks.postgres import PostgresServer
from saps.cli.doctor.file_checks import files
from saps.cli.storage import app
from saps.config import BrokerSettings, SettingError
from saps.config.storage import StorageSettings
from saps.frontend.mqtt.codec.packets import Disconnect, Publish
from saps.frontend.mqtt.codec.reasons import Reason
from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver.database import Database
from saps.storage.journal import Journal, Table
from saps.storage.place import Server, shown, url_fault
from tests.storage.damaging import fill
from tests.storage.running import TIMEOUT, Peer, broker, client, recovery, subscribed_device, taken, until

pytestmark = pytest.mark.slow

psycopg = pytest.importorskip("psycopg", reason="the extra 'postgresql' is not installed")
from saps.storage.driver import postgresql  # noqa: E402


@pytest.fixture
def place(postgres: PostgresServer) -> Server:
    return Server(postgres.schema(), "b")


def retained(number: int) -> dict[Table, dict[Any, Any]]:
    return {Table.RETAINED: {f"t{number}": (f"t{number}", b"x")}}


# ---- one process at a time


def test_another_process_that_lives_is_waited_for_and_then_refused(
    place: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql._wait, "__defaults__", (0.2,))
    with closing(Database(place, "full")) as database:
        with pytest.raises(StorageError, match="another process uses it"):
            Database(place, "full")
        database.write(retained(1))
    other = place._replace(broker="other")
    with closing(Database(place, "full")) as database, closing(Database(other, "full")) as beside:
        assert database.load().retained == {"t1": b"x"}
        assert beside.load().retained == {}, "another broker's rows"


def test_a_process_that_was_taken_for_dead_cannot_write_any_more(
    place: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It hangs for longer than the lease; another one begins; then it goes on."""
    monkeypatch.setattr(postgresql, "LEASE", 0.5)
    with closing(Database(place, "full")) as stale:
        stale.write(retained(1))
        with closing(Database(place, "full")) as database:
            assert database.load().retained == {"t1": b"x"}
            database.write(retained(2))
            for _ in range(3):
                with pytest.raises((StorageError, psycopg.Error)):
                    stale.write(retained(3))
            with pytest.raises(postgresql.FencedError, match="another process has begun with these rows"):
                stale.write(retained(3))
            stale.engine.keep()
            database.write(retained(4))
    with closing(Database(place, "full")) as database:
        assert sorted(database.load().retained) == ["t1", "t2", "t4"]


def test_a_process_that_was_slow_goes_on_if_nobody_has_begun_meanwhile(place: Server, postgres: PostgresServer) -> None:
    with closing(Database(place, "full")) as database:
        database.write(retained(1))
        postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'saps b'")
        with pytest.raises(psycopg.OperationalError):
            database.write(retained(2))
        database.write(retained(2))
        assert database.state.number == 2
    with closing(Database(place, "full")) as database:
        assert sorted(database.load().retained) == ["t1", "t2"]


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_without_an_answer_is_found_out_about(
    place: Server, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The connection breaks before the statement or after it: what has been written is not counted twice."""
    with closing(Database(place, "full")) as database:
        database.write(retained(1))
        ask = postgresql.PostgreSQL._ask

        def breaking(engine: postgresql.PostgreSQL, query: str, values: Any) -> None:
            if done:
                ask(engine, query, values)
            engine._connection.close()
            raise psycopg.OperationalError("the connection is lost")

        journal = Journal()
        journal.put(Table.RETAINED, "t2", ("t2", b"y"))
        journal.put(Table.RETAINED, "t1", ("t1", b"y"))
        batch = journal.take()
        with monkeypatch.context() as broken:
            broken.setattr(postgresql.PostgreSQL, "_ask", breaking)
            with pytest.raises(psycopg.OperationalError):
                database.write(batch)
        journal.drop(Table.RETAINED, "t1")
        journal.put(Table.RETAINED, "t3", ("t3", b"y"))
        journal.give_back(batch)
        database.write(journal.take())
        assert database.state.number == 2 + done
        size = database.size
    with closing(Database(place, "full")) as database:
        assert database.load().retained == {"t2": b"y", "t3": b"y"}
        assert database.size == size


def test_a_commit_waits_for_one_that_an_earlier_connection_has_left_under_way(
    place: Server, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Database(place, "full")) as database:
        database.write(retained(1))
        with psycopg.connect(place.url) as left:
            left.execute("UPDATE saps_brokers SET number = number + 1")  # as our own commit, which is not done yet
            threading.Timer(0.3, left.commit).start()
            with pytest.raises(psycopg.OperationalError, match="still under way"):
                database.write(retained(2))
        database.write(retained(2))
        assert database.state.number == 3


async def test_a_fenced_broker_refuses_what_it_cannot_keep(place: Server, postgres: PostgresServer) -> None:
    async with broker(place) as running:
        await subscribed_device(running)
        postgres.sql("UPDATE saps_brokers SET fence = fence + 1", url=place.url)
        async with Peer(running, "first") as first, Peer(running, "second") as second:
            assert (await first.welcome(), await second.welcome()) == (0, 0)
            first.send(Publish("a", b"never", 1, packet_id=1))
            assert await first.next() == Disconnect(Reason.UNSPECIFIED_ERROR)
            assert await second.answer(Publish("a", b"refused", 1, packet_id=1)) == Reason.UNSPECIFIED_ERROR


# ---- the server goes away


@pytest.mark.network
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_without_the_server_it_refuses_stays_up_and_goes_on_when_it_is_back(
    place: Server, postgres: PostgresServer, number: signal.Signals
) -> None:
    async with broker(place) as running:
        await subscribed_device(running)
        well = recovery(running)
        try:
            async with Peer(running, "first") as first, Peer(running, "second") as second:
                assert (await first.welcome(), await second.welcome()) == (0, 0)
                assert await second.answer(Publish("a", b"before", 1, packet_id=1)) == Reason.SUCCESS
                postgres.kill(number)
                first.send(Publish("a", b"unanswered", 1, packet_id=1))
                assert await first.next() == Disconnect(Reason.UNSPECIFIED_ERROR), "an answer that is not true"
                assert await second.answer(Publish("a", b"refused", 1, packet_id=1)) == Reason.UNSPECIFIED_ERROR
                async with Peer(running, "device", 3600) as device:
                    assert await device.welcome() == Reason.UNSPECIFIED_ERROR
                postgres.start()
                await asyncio.wait_for(well.wait(), TIMEOUT)
                assert await second.answer(Publish("a", b"stored", 1, packet_id=3)) == Reason.SUCCESS
        finally:
            if not postgres.runs:
                postgres.start()
        async with client(running, "device", 3600) as stored:
            assert [payload for _, payload in await taken(stored, 3)] == [b"before", b"unanswered", b"stored"]


async def test_an_idle_broker_keeps_its_connection(
    place: Server, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would end it, and another process could begin."""
    monkeypatch.setattr(postgresql, "LEASE", 0.6)
    monkeypatch.setattr(postgresql.PostgreSQL, "rest", 0.1)
    mine = "SELECT pid, now() - backend_start > '2 s' FROM pg_stat_activity WHERE application_name = 'saps b'"
    async with broker(place):
        begun = postgres.sql(mine)
        assert len(begun) == 1
        await until(lambda: postgres.sql(mine) != begun)
        assert postgres.sql(mine) == [(begun[0][0], True)], "it is another connection"


@pytest.mark.network
async def test_a_server_that_cannot_be_reached_stops_the_start_without_the_password(postgres: PostgresServer) -> None:
    for url in (
        f"postgresql://saps:secret@127.0.0.1:{postgres.port}/none",
        "postgresql://saps:secret@127.0.0.1:9/saps",
    ):
        with pytest.raises(SettingError) as refused:
            async with broker(Server(url, "b")):
                pass
        assert refused.value.setting == "storage.url"
        assert "secret" not in str(refused.value)
        assert "postgresql://saps@127.0.0.1" in str(refused.value)


@pytest.mark.network
async def test_a_password_comes_from_a_file_or_the_environment_and_is_never_shown(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.sql("CREATE ROLE locked LOGIN PASSWORD 'open sesame'")
    schema = postgres.schema()
    postgres.sql(f"GRANT ALL ON SCHEMA {schema.rpartition('%3D')[2]} TO locked")
    url = schema.replace("saps@", "locked@")
    file = tmp_path / "password"
    words = [str(Path(sys.executable).with_name("saps")), "broker", "--name", "b", "--mqtt", "127.0.0.1:0"]
    words += ["--overlay", "127.0.0.1:0", "--log-level", "debug"]

    async def start(url: str, password: str, shows: int) -> str:
        file.write_text(f"{password}\n")
        given = {"SAPS_STORAGE__URL": url, "SAPS_STORAGE__PASSWORD_FILE": str(file) if password else ""}
        process = await asyncio.create_subprocess_exec(*words, stdout=-1, stderr=-1, env={**os.environ, **given})
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), TIMEOUT)
        if line.startswith(b"ready"):
            process.terminate()
        output, errors = await asyncio.wait_for(process.communicate(), TIMEOUT)
        assert process.returncode == shows, errors.decode()
        return (line + output + errors).decode()

    said = [
        await start(url, "open sesame", 0),
        await start(url.replace("locked@", "locked:open%20sesame@"), "", 0),
        await start(url, "wrong sesame", 2),
    ]
    assert not any("sesame" in text for text in said), said
    assert "password authentication failed" in said[2].replace("\n", " ")
    assert postgres.sql("SELECT broker, fence FROM saps_brokers", url=schema) == [("b", 3)]


def test_messages_name_the_database_without_its_secrets() -> None:
    named = {
        "postgresql://saps:secret@db.example:5433/saps?sslmode=require&sslpassword=secret": (
            "postgresql://saps@db.example:5433/saps?sslmode=require"
        ),
        "postgres:///saps?host=/run/postgresql&password=secret": "postgres:///saps?host=/run/postgresql",
        "postgresql://saps@one,[::1]:5433/saps": "postgresql://saps@one,[::1]:5433/saps",
        "postgresql://saps:sec/ret@db.example/saps": "the database",
    }
    assert {url: shown(url) for url in named} == named
    assert [url_fault(url) is None for url in named] == [True, True, True, False]
    assert url_fault("mysql://saps@db.example/saps")
    server = Server("postgresql://saps:secret@db.example/saps", "b1", "secret")
    assert "secret" not in f"{server} {server!r}"


def test_an_url_that_libpq_cannot_read_is_refused_without_it(postgres: PostgresServer) -> None:
    with pytest.raises(StorageError) as refused:
        Database(Server("postgresql://saps:secret@127.0.0.1/saps?wrong=secret", "b"), "full")
    assert "secret" not in str(refused.value)


# ---- rows that somebody has changed


def filled(place: Server) -> Any:
    with closing(Database(place, "full")) as database:
        fill(database, 60, 40)
    with closing(Database(place, "full")) as database:
        return database.load()


def rows(saved: Any) -> dict[tuple[Table, object], object]:
    return {(table, key): row for table, found in saved.rows().items() for key, row in found.items()}


def key(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


CHANGED: list[tuple[str, Callable[[Any], tuple[str, object]], str]] = [
    ("a bit", lambda saved: ("messages", saved.sessions[0].copies[3].message), "messages record"),
    ("a bit", lambda saved: ("sessions", 1), "sessions record 1"),
    ("a bit", lambda saved: ("retained", "r/003"), "retained record 'r/003'"),
    ("emptied", lambda saved: ("retained", "r/003"), "retained record 'r/003'"),
    ("another's", lambda saved: ("retained", "r/003"), "retained record 'r/003'"),
    ("emptied", lambda saved: ("subscriptions", (2, "a/+")), "of session 'device2'"),
]


@pytest.mark.parametrize(("what", "which", "named"), CHANGED)
def test_a_changed_row_is_named_set_aside_and_never_delivered(
    place: Server,
    postgres: PostgresServer,
    what: str,
    which: Callable[[Any], tuple[str, object]],
    named: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved = filled(place)
    kind, value = which(saved)
    new = {
        "a bit": "set_bit(content, 8 * length(content) - 60, 1 - get_bit(content, 8 * length(content) - 60))",
        "emptied": "''",
        "another's": "(SELECT content FROM saps_records WHERE kind = 'retained' ORDER BY key LIMIT 1)",
    }[what]
    where = "WHERE kind = %s AND key = %s"
    before = postgres.sql(f"SELECT content FROM saps_records {where}", kind, key(value), url=place.url)
    changed = f"UPDATE saps_records SET content = {new} {where} RETURNING content"
    ((damaged,),) = postgres.sql(changed, kind, key(value), url=place.url)
    assert before != [(damaged,)]
    for _ in range(2):
        with closing(Database(place, "full")) as database:
            found = database.load()
            gone = rows(saved).keys() - rows(found)
            assert gone
            assert database.quarantined == len(gone)
            assert all(rows(saved)[key] == row for key, row in rows(found).items())
            database.write(retained(1))
            database.write({Table.RETAINED: {"t1": None}})
    assert caplog.text.count(named) >= 1
    kept = postgres.sql("SELECT content FROM saps_quarantine WHERE kind = %s", kind, url=place.url)
    assert (damaged,) in kept, "the damaged bytes are kept"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM saps_records WHERE kind = 'sessions' AND key = '\\x01'",
        "DELETE FROM saps_brokers",
        "UPDATE saps_brokers SET number = number + 1",
        "UPDATE saps_records SET key = '\\xc1' WHERE kind = 'retained' AND key = '\\xa5722f303033'",
        "UPDATE saps_brokers SET format = 99",
    ],
)
def test_rows_that_are_missing_without_a_trace_stop_the_start(
    place: Server, postgres: PostgresServer, statement: str
) -> None:
    filled(place)
    assert postgres.sql(statement + " RETURNING 1", url=place.url) == [(1,)]
    with pytest.raises(StorageError) as refused, closing(Database(place, "full")) as database:
        database.load()
    if "format" in statement:
        assert "has format 99" in str(refused.value) or "have format 99" in str(refused.value)
    else:
        assert isinstance(refused.value, DamagedError)
        assert f"saps storage repair '{shown(place.url)}' --broker b" in str(refused.value)


def test_an_old_row_in_the_place_of_a_later_one_stops_the_start(place: Server, postgres: PostgresServer) -> None:
    with closing(Database(place, "full")) as database:
        database.write({Table.RETAINED: {"t": ("t", b"old")}})
        ((old,),) = postgres.sql("SELECT content FROM saps_records", url=place.url)
        database.write({Table.RETAINED: {"t": ("t", b"new")}})
    postgres.sql("UPDATE saps_records SET content = %s", old, url=place.url)
    with pytest.raises(DamagedError, match="not all of the 1 records"), closing(Database(place, "full")) as database:
        database.load()


def test_several_brokers_that_start_at_once_make_the_tables_once(place: Server) -> None:
    faults: list[BaseException] = []

    def start(name: str) -> None:
        try:
            with closing(Database(place._replace(broker=name), "full")) as database:
                database.write(retained(1))
        except BaseException as error:
            faults.append(error)

    starting = [threading.Thread(target=start, args=(f"b{number}",)) for number in range(6)]
    for each in starting:
        each.start()
    for each in starting:
        each.join()
    assert faults == []


# ---- commands


def storage(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_rows_are_verified_exported_and_repaired_in_the_database(place: Server, postgres: PostgresServer) -> None:
    assert "it has nothing of any broker" in storage("export", place.url).output
    saved = filled(place)
    other = place._replace(broker="other")
    with closing(Database(other, "full")) as running:
        found = storage("verify", place.url)
        assert found.exit_code == 0, found.output
        assert "broker 'b': intact; 2 sessions, 72 messages for them, 40 retained messages" in found.output
        assert "broker 'other': intact; 0 sessions" in found.output
        refused = storage("export", place.url)
        assert (refused.exit_code, "name one with --broker: b, other" in refused.output) == (2, True)
        exported = storage("export", place.url, "--broker", "b").output.splitlines()
        kinds = Counter(json.loads(line)["record"] for line in exported)
        assert kinds == {"session": 2, "subscription": 4, "message": 72, "retained": 40}
        assert running.load().sessions == []
        refused = storage("repair", place.url, "--broker", "other")
        assert (refused.exit_code, "another process uses it" in refused.output) == (2, True)
    postgres.sql("DELETE FROM saps_records WHERE kind = 'retained' AND key = %s", key("r/003"), url=place.url)
    assert storage("verify", place.url, "--broker", "b").exit_code == 1
    with pytest.raises(DamagedError) as damaged, closing(Database(place, "full")) as database:
        database.load()
    command = str(damaged.value).partition("saps storage ")[2]
    done = storage(*shlex.split(command))
    assert done.exit_code == 0, done.output
    assert damaged.value.lost[0] in done.output, "it says what was dropped"
    with closing(Database(place, "full")) as database:
        assert len(database.load().retained) == 39
        assert rows(database.load()) == {
            key: row for key, row in rows(saved).items() if key != (Table.RETAINED, "r/003")
        }
    kept = done.output.rpartition("kept as broker ")[2].strip().strip("'")
    assert "39 retained" in storage("verify", place.url, "--broker", kept).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("backup", "postgresql://saps@db.example/saps", "new.db"), "pg_dump"),
        (("repair", "postgresql://saps@db.example/saps", "new.db", "--broker", "b"), "give no file"),
        (("repair", "b.db"), "name the file to write"),
        (("verify", "b.db", "--broker", "b"), "--broker is for a database"),
        (("verify", "mysql://saps:secret@db.example/saps"), "is not a URL such as postgresql://"),
        (("verify", "postgresql://saps:secret@127.0.0.1:9/saps"), "Connection refused"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: tuple[str, ...], said: str) -> None:
    found = storage(*words)
    assert (found.exit_code, said in found.output, found.output.count("\n")) == (2, True, 1), found.output
    assert "secret" not in found.output


def test_check_config_and_the_doctor_try_the_database(place: Server, postgres: PostgresServer, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("a password\n")
    good = BrokerSettings(name="b", storage=StorageSettings(url=place.url, password_file=str(secret)))
    assert [finding.check for finding in files(good)] == ["files"]
    for stored, check, text in (
        (StorageSettings(url="postgresql://saps:hush@127.0.0.1:9/saps"), "storage.url", "Connection refused"),
        (StorageSettings(url=place.url, password_file="none"), "storage.password_file", "cannot read none"),
    ):
        (found,) = files(BrokerSettings(name="b", storage=stored))
        assert (found.check, text in found.says, "hush" in found.says) == (check, True, False), found
