"""The audit log: what is recorded of logins, within which bounds, and the file it is written to."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from saps.frontend.mqtt.codec.packets import V311, Connect
from saps.frontend.mqtt.codec.reasons import Reason
from saps.operations.audit import KEPT, LINES_AT_ONCE, LOGIN, REFUSED, Audit, Entry, merged
from saps.operations.audit_io import AuditFile
from tests.frontend.mqtt.bench import Bench, Client


def audit_of(bench: Bench) -> Audit:
    audit = Audit("b1", lambda: bench.now + 5000, lambda: bench.now)
    bench.frontend.orders.witness = audit
    return audit


def test_logins_and_refused_logins_are_recorded_with_who_and_why() -> None:
    bench = Bench()
    audit = audit_of(bench)
    bench.client("good")
    refused = Client(bench, V311)
    refused.connection.opening.asked = ("bad", "ann")  # type: ignore[union-attr]
    refused.connection.close(Reason.NOT_AUTHORIZED, "the session of 'bad' is another user's")
    other = Client(bench, V311)
    other.send(Connect("", V311, clean_start=False))  # refused, but not for who it is
    latest, first = audit.latest("", 10, True)
    assert (first["what"], first["subject"], first["source"], first["at"]) == (LOGIN, "good", "test", 6000)
    assert (latest["what"], latest["subject"], latest["who"]) == (REFUSED, "bad", "ann")
    assert latest["reason"] == "the session of 'bad' is another user's"
    assert audit.latest("", 10, False) == []
    assert [entry["subject"] for entry in audit.latest("ANN", 10, True)] == ["bad"]
    audit.record("ban", who="root", subject="ann")
    assert [entry["what"] for entry in audit.latest("ann", 1, True)] == ["ban"]


def test_refused_logins_of_one_address_are_bounded_and_counted() -> None:
    bench = Bench()
    audit = audit_of(bench)
    for _ in range(100):
        audit.refuse("10.0.0.1")
    audit.refuse("10.0.0.2")
    found = audit.latest("", KEPT, True)
    assert len(found) == LINES_AT_ONCE + 1
    bench.advance(5)
    audit.refuse("10.0.0.1")
    assert audit.latest("", 1, True)[0]["left_out"] == 100 - LINES_AT_ONCE
    for number in range(3 * KEPT):
        audit.record("drain", subject=str(number))
    assert len(audit.latest("", 10 * KEPT, True)) <= KEPT
    assert audit.latest("", 1, False)[0]["subject"] == str(3 * KEPT - 1)


def test_a_change_that_all_brokers_record_is_shown_once() -> None:
    asked = Entry(at=2.2, broker="b1", what="ban", role="administrator", subject="user x", change=2.0)
    learned = [
        Entry(at=at, broker=f"b{at}", what="ban from elsewhere", subject="user x", change=2.0) for at in (2.1, 9)
    ]
    other = [Entry(at=3, broker="b1", what="drain"), Entry(at=3, broker="b2", what="drain")]
    assert merged([learned[0], asked, *other, learned[1]], 9) == [*other, asked]
    assert merged([*other, *learned], 9) == [*other, learned[0]]
    assert merged(other, 1) == other[:1]


def test_the_file_is_only_appended_to_and_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"at": 1, "broker": "b0", "what": "ban"}\nrubbish\n{"half":')
    due: list[Callable[[], None]] = []
    file = AuditFile(path, due.append)
    audit = Audit("b1", lambda: 2.0, lambda: 0.0, file.write)
    audit.remember(file.latest())
    assert [entry["broker"] for entry in audit.latest("", 9, False)] == ["b0"]
    audit.record("drain", who="ann\n", subject="b1")
    audit.record("drain", who="bob")
    (flush,) = due
    flush()
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"at": 1, "broker": "b0", "what": "ban"}', "rubbish"]
    assert [json.loads(line).get("who") for line in lines[3:]] == ["ann\n", "bob"]
    path.rename(tmp_path / "old")
    file.reopen()
    audit.record("reload")
    file.close()
    assert json.loads(path.read_text())["what"] == "reload"
    assert path.stat().st_mode & 0o777 == 0o600
    full = AuditFile(Path("/dev/full"), due.append)
    full.write(file.latest()[0])
    full.write(file.latest()[0])
    full.flush()
    full.write(file.latest()[0])
    full.flush()
    assert full.lost == 3
    assert len([record for record in caplog.records if "No space left" in record.getMessage()]) == 1


def test_an_entry_after_a_partial_write_begins_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, lambda flush: None)
    audit = Audit("b1", lambda: 2.0, lambda: 0.0, file.write)
    audit.record("drain", who="ann")
    file.flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    audit.record("drain", who="bob")
    audit.record("drain", who="eve")
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size * 5 // 2, limits[1]))
    try:
        file.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    audit.record("drain", who="joe")
    file.close()
    assert [entry.who for entry in file.latest()] == ["ann", "bob", "joe"]
    assert file.lost == 1
