"""What cut-off brokers have missed, in files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from saps.overlay.missed.log import MissedLog
from saps.storage.driver.missed import FileSegment, segments
from tests.batches import frame


def write(log: MissedLog, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        log.append(float(seq), frame("t", seq, 0, bytes(1000)), [()], [])


def numbers(log: MissedLog) -> list[int]:
    return [record.body.seqs[0] for record, _ in log.read(log.start)]


def test_the_log_is_in_files_of_its_own_and_gone_when_it_is_over(tmp_path: Path) -> None:
    (tmp_path / "s.db.missed-7").write_bytes(b"of an earlier life")
    log = MissedLog(segments(tmp_path / "s.db"))
    log.size = 1 << 20
    log.begin(1)
    write(log, 1, 2000)
    log.trim(0.0, 0)
    files = sorted(tmp_path.iterdir())
    assert sum(file.stat().st_size for file in files) == log.bytes <= log.size
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert numbers(log) == [*range(log.first, 2001)]
    assert log.dropped == log.first - 1
    log.end()
    assert list(tmp_path.iterdir()) == []


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    log = MissedLog(segments(tmp_path / "s.db"))
    log.size = 1 << 20
    write(log, 1, 60)
    file = tmp_path / "s.db.missed-1"
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    assert log.damaged == 0
    kept = numbers(log)
    assert log.damaged == 1
    assert kept[0] == 1
    assert kept[-1] == 60
    assert len(kept) > 40


def test_what_a_full_disk_does_not_take_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MissedLog(segments(tmp_path / "s.db"))
    write(log, 1, 3)
    pwrite = os.pwrite

    def full(file: int, raw: bytes, offset: int) -> int:
        if len(raw) < 500:
            raise OSError(28, "No space left on device")
        return pwrite(file, raw[:700], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        write(log, 4, 5)
    write(log, 6, 8)
    assert log.dropped == 2
    assert numbers(log) == [1, 2, 3, 6, 7, 8]


def test_a_file_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "s.db.missed-0").write_bytes(b"")
    with pytest.raises(FileExistsError):
        FileSegment(tmp_path / "s.db.missed-0")
