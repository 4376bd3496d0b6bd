"""``saps storage`` on intact and damaged files, and beside a running broker."""

from __future__ import annotations

import base64
import json
import shlex
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner, Result

from saps.broker.metrics import samples
from saps.cli.storage import app
from saps.config import SettingError
from saps.storage.damage import DamagedError
from saps.storage.driver.copying import backup, examine
from saps.storage.driver.database import Database
from saps.storage.journal import Table
from tests.storage.damaging import flip, folded, killed
from tests.storage.running import broker, client, subscribed_device, taken


def modes(folder: Path) -> set[int]:
    return {file.stat().st_mode & 0o777 for file in folder.iterdir()}


def storage(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_sound_file_is_verified_exported_and_left_as_it_is(tmp_path: Path) -> None:
    path, acknowledged = killed(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("broker.db*")}
    found = storage("verify", path)
    assert (found.exit_code, found.output.count("\n")) == (0, 1), found.output
    assert "intact; 2 sessions, 72 messages for them, 40 retained messages" in found.output
    exported = [json.loads(line) for line in storage("export", path).output.splitlines()]
    kinds = [record["record"] for record in exported]
    assert Counter(kinds) == {"session": 2, "subscription": 4, "message": 72, "retained": 40}
    wanted = [
        (session.client_id, acknowledged.messages[copy.message].message.payload)
        for session in acknowledged.sessions
        for copy in session.copies
    ]
    found_payloads = [(r["client"], base64.b64decode(r["payload"])) for r in exported if r["record"] == "message"]
    assert found_payloads == wanted
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_the_command_that_the_refusal_names_makes_a_file_that_starts(tmp_path: Path) -> None:
    path, acknowledged = killed(tmp_path)
    beside = {name: name.encode() for name in (".missed-0", ".missed-12", ".members")}
    for name, content in beside.items():
        (tmp_path / f"broker.db{name}").write_bytes(content)
    flip(tmp_path / "broker.db-wal", 1, Random(3), start=40_000)
    with pytest.raises(DamagedError) as refused:
        Database(path, "full")
    command = str(refused.value).partition("saps storage ")[2].partition(", then")[0]
    assert storage("verify", path).exit_code == 1
    done = storage(*shlex.split(command))
    assert done.exit_code == 0
    assert refused.value.lost[0] in done.output, "it says what was dropped"
    with closing(Database(tmp_path / "broker.db.repaired", "full")) as database:
        saved = database.load()
    kept = [copy.serial for session in saved.sessions for copy in session.copies]
    assert 0 < len(kept) < sum(len(session.copies) for session in acknowledged.sessions)
    assert storage("verify", tmp_path / "broker.db.repaired").exit_code == 0
    assert {name: (tmp_path / f"broker.db.repaired{name}").read_bytes() for name in beside} == beside
    again = storage(*shlex.split(command))
    assert (again.exit_code, "is there already" in again.output) == (2, True)


@pytest.mark.parametrize("page", [4, 7, 9, 11, 14, "cut"])
def test_what_lies_on_other_pages_is_repaired(tmp_path: Path, page: int | str) -> None:
    path, acknowledged = killed(tmp_path, 200, 100)
    folded(path)
    content = bytearray(path.read_bytes())
    if isinstance(page, str):
        del content[len(content) // 2 :]
    else:
        content[page * 4096 : page * 4096 + 4096] = Random(page).randbytes(4096)
    path.write_bytes(content)
    assert storage("verify", path).exit_code == 1
    new = tmp_path / "new.db"
    done = storage("repair", path, new)
    assert done.exit_code == 0, done.output
    assert all(line.startswith(("damaged: ", str(new))) for line in done.output.splitlines()), done.output
    with closing(Database(new, "full")) as database:
        saved = database.load()
    found, stored = saved.rows(), acknowledged.rows()
    assert all(stored[table][key] == row for table, rows in found.items() for key, row in rows.items()), "changed"
    assert sum(map(len, found.values())) > (5 if page == "cut" else 50)


def test_what_is_no_storage_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("no database" * 1000)
    for command in (["verify"], ["export"], ["repair"], ["backup"]):
        words = [*command, other, *([tmp_path / "new.db"] if command[0] in ("repair", "backup") else [])]
        found = storage(*words)
        assert (found.exit_code, str(other) in found.output) == (2, True), found.output
    assert storage("verify", tmp_path / "none.db").exit_code == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.db"]


def test_a_backup_of_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path, _ = killed(tmp_path)
    (tmp_path / "broker.db-wal").unlink()
    found = storage("backup", path, tmp_path / "copy.db")
    assert (found.exit_code, "transactions are missing" in found.output) == (2, True)
    assert not list(tmp_path.glob("copy.db*"))


def test_a_file_that_is_being_written_is_sound_at_any_moment(tmp_path: Path) -> None:
    """Transactions come meanwhile, and checkpoints, which move the log into the file."""
    path, copy, over = tmp_path / "broker.db", tmp_path / "copy.db", threading.Event()
    Database(path, "off").close()

    def write() -> None:
        with closing(Database(path, "off")) as database:
            number = 0
            while not over.is_set():
                number += 1
                topic = f"t{number % 50}"
                database.write({Table.RETAINED: {topic: (topic, bytes(3000))}})

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(20):
            found = examine(path)
            assert found.faults == []
            backup(path, copy)
            assert examine(copy).faults == []
            for file in tmp_path.glob("copy.db*"):
                file.unlink()
    finally:
        over.set()
        writing.join()


@pytest.mark.network
async def test_another_start_has_everything_from_a_backup_made_while_the_broker_ran(tmp_path: Path) -> None:
    path, copy = tmp_path / "broker.db", tmp_path / "copy.db"
    async with broker(path) as running:
        await subscribed_device(running)
        async with client(running, "sender") as sender:
            for number in range(50):
                await sender.publish("a", b"%d" % number, qos=1)
            await sender.publish("kept", b"retained", qos=1, retain=True)
            assert storage("backup", path, copy).exit_code == 0
            assert storage("verify", path).exit_code == 0
            await sender.publish("a", b"later", qos=1)
    assert modes(tmp_path) == {0o600}
    async with broker(copy) as running:
        async with client(running, "device", 3600) as device:
            assert await taken(device, 50) == [("a", b"%d" % number) for number in range(50)]
        async with client(running, "fresh") as fresh:
            await fresh.subscribe("kept")
            assert await taken(fresh, 1) == [("kept", b"retained")]


@pytest.mark.network
async def test_a_broker_never_delivers_what_was_changed_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    async with broker(path) as running:
        await subscribed_device(running)
        async with client(running, "sender") as sender:
            for number in range(5):
                await sender.publish("a", b"number %d" % number, qos=1)
    folded(path)
    content = path.read_bytes()
    assert content.count(b"number 3") == 1
    path.write_bytes(content.replace(b"number 3", b"number 7"))
    async with broker(path) as running:
        found = {sample.name: sample.value for sample in samples(running, ready=True, origins_refused=0)}
        assert found["storage_records_damaged"] == 2, "the message and its copy"
        async with client(running, "device", 3600) as device:
            assert [payload for _, payload in await taken(device, 4)] == [b"number %d" % n for n in (0, 1, 2, 4)]
            await device.publish("a", b"end", qos=1)
            assert await taken(device, 1) == [("a", b"end")]


@pytest.mark.network
async def test_a_broker_whose_log_is_gone_says_what_is_lost(tmp_path: Path) -> None:
    path, _ = killed(tmp_path)
    (tmp_path / "broker.db-wal").unlink()
    with pytest.raises(SettingError, match="acknowledged transactions are missing"):
        async with broker(path):
            pass
