"""What cut-off brokers have missed, in files."""

from __future__ import annotations

import asyncio
import errno
import math
import os
from copy import copy
from functools import partial
from pathlib import Path

import pytest

from saps.overlay.missed.lag import Lag
from saps.overlay.missed.log import Fate, Head, MissedLog, Served
from saps.overlay.missed.published import Published
from saps.overlay.missed.segments import Segment, Spool
from saps.overlay.ring.keys import BrokerRef
from saps.storage.driver.missed import FileSegment, Unflushed, left, segments
from saps.storage.driver.store import Store
from tests import marks
from tests.batches import frame


def write(log: MissedLog, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        log.append(float(seq), frame("t", seq, 0, bytes(1000)), [()], [])


def files_of(folder: Path) -> list[Path]:
    """The segments, the oldest first."""
    return sorted(folder.iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))


def numbers(log: MissedLog) -> list[int]:
    return [record.body.seqs[0] for record, _ in log.read(log.start)]


def test_the_log_is_in_files_of_its_own_and_gone_when_it_is_over(tmp_path: Path) -> None:
    (tmp_path / "s.db.missed-7").write_bytes(b"of nobody knows whom")
    log = MissedLog(segments(tmp_path / "s.db"))
    log.restore(left(tmp_path / "s.db"), 0.0, 1e9)
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


@pytest.mark.parametrize("torn", [False, True])
def test_an_earlier_life_s_files_are_gone_on_with(tmp_path: Path, torn: bool) -> None:
    """Two lives before this one; the first perhaps died while it wrote."""
    lost, back = BrokerRef("lost", 1, "h:1", "c"), BrokerRef("back", 1, "h:3", "c")
    early = [Published(frame("t", 1), 4.0, frozenset({back}))]
    for life, first in ((1, 1), (2, 101)):
        log = MissedLog(segments(tmp_path / "s.db"))
        log.size = 1 << 20
        head = Head(BrokerRef("me", life, "h:2", "c"), 100.0 * life, first - 1, [Fate(5.0, lost, True, early)])
        log.head = partial(copy, head)
        _, head.served, _ = log.restore(left(tmp_path / "s.db"), 100.0 * life, 1e9)
        log.tell(Fate(6.0, back, False))
        log.tell(told := Served(6.0, back, 5.5, life))
        head.served = [*head.served, told]
        write(log, first, first + 99)
        file = files_of(tmp_path)[-1]
        if torn and life == 1:
            file.write_bytes(file.read_bytes()[:-3])
    log = MissedLog(segments(tmp_path / "s.db"))
    (fate,), served, _ = log.restore(left(tmp_path / "s.db"), 300.0, 1e9)
    assert (fate.broker, fate.at, fate.before) == (lost, -95.0, [Published(frame("t", 1), -96.0, frozenset({back}))])
    assert served == [Served(-194.0, back, -194.5, 1), Served(-94.0, back, -94.5, 2)]
    there = [number for number in range(1, 201) if not (torn and number == 100)]
    assert numbers(log) == there
    assert log.damaged == torn
    assert log.messages == len(there)
    assert [log.incarnation_of(number).incarnation for number in (1, 101, 200)] == [1, 2, 2]  # type: ignore[union-attr]
    assert log.incarnation_of(201) is None
    assert next(log.read(log.start))[0].at == 1.0 - 200.0
    log.end()
    assert list(tmp_path.iterdir()) == []


@marks.expect("log of a time to come")
def test_what_an_earlier_life_has_logged_is_not_later_than_this_one(tmp_path: Path) -> None:
    """The machine's clock was set back by 10,000 s meanwhile: no filter is as old as it says."""
    lost = BrokerRef("lost", 1, "h:1", "c")
    for life in (1, 2):
        log = MissedLog(segments(tmp_path / "s.db"))
        head = Head(BrokerRef("me", life, "h:2", "c"), 1e4 + life, 10 * life, [Fate(5.0, lost, True)])
        log.head = partial(copy, head)
        log.restore(left(tmp_path / "s.db"), 1e4 + life, 1e9)
        write(log, 10 * life + 1, 10 * life + 5)
    log = MissedLog(segments(tmp_path / "s.db"))
    (fate,), *_ = log.restore(left(tmp_path / "s.db"), 0.0, 7.0)
    assert fate.at <= 7.0
    times = [record.at for record, _ in log.read(log.start)]
    assert max(times) == 7.0
    assert min(times) > -10.0


@pytest.mark.parametrize(("boot", "at"), [("a", 5.0), ("b", 2.0), ("", 2.0)], ids=["", "after a reboot", "not known"])
def test_what_a_process_has_logged_is_as_old_as_it_is_though_the_clock_was_set(
    tmp_path: Path, boot: str, at: float
) -> None:
    """Set forth by 3 s: within one boot of the machine the monotonic clock tells."""
    log = MissedLog(segments(tmp_path / "s.db"))
    log.head = lambda: Head(BrokerRef("me", 1, "h:2", "c"), 100.0, 0, [], "a")
    log.begin(1)
    log.append(5.0, frame("t", 1), [()], [[]])
    log = MissedLog(segments(tmp_path / "s.db"))
    log.restore(left(tmp_path / "s.db"), 103.0, 9.0, boot)
    assert [record.at for record, _ in log.read(log.start)] == [at]


def test_a_file_that_a_loss_of_power_has_emptied_costs_what_was_in_it(tmp_path: Path) -> None:
    """The segments behind it were not found any more, and each attempt to read them failed."""
    log = MissedLog(segments(tmp_path / "s.db"))
    log.size = 64 << 10
    write(log, 1, 30)
    files_of(tmp_path)[1].write_bytes(b"")
    later = MissedLog(segments(tmp_path / "s.db"))
    later.restore(left(tmp_path / "s.db"), 0.0, 1e9)
    there = numbers(later)
    assert (there[0], there[-1], len(there)) == (1, 30, later.messages)
    assert len(there) < 30
    behind = [record.body.seqs[0] for record, _ in later.read((1, 0))]
    assert behind
    assert behind == there[-len(behind) :]
    later.end()


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


@marks.expect("the disk refuses what was missed")
@pytest.mark.parametrize("room", [True, False])
def test_what_a_full_disk_does_not_take_waits_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """What was acknowledged while a disk failed did not come to the sessions of a broker that died (`make jepsen`)."""
    if not room:
        monkeypatch.setattr("saps.overlay.missed.segments.IN_MEMORY", 3000)
    log = MissedLog(segments(tmp_path / "s.db"))
    log.size = 1 << 20
    log.head = lambda: Head(BrokerRef("me", 1, "h:2", "c"), 0.0, 0, [])
    write(log, 1, 3)
    pwrite, space = os.pwrite, 700

    def full(file: int, raw: bytes, offset: int) -> int:
        nonlocal space
        if not space:
            raise OSError(28, "No space left on device")
        written, space = pwrite(file, raw[:space], offset), 0
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        write(log, 4, 40)
        there = [*range(1, 41)] if room else [1, 2, 3, 4, 5]
        assert numbers(log) == there
        assert sum(map(len, map(Path.read_bytes, files_of(tmp_path)))) < 6000
    assert log.dropped == 40 - len(there)
    log.trim(0.0, None)
    write(log, 41, 43)
    there += [41, 42, 43]
    assert numbers(log) == there
    later = MissedLog(segments(tmp_path / "s.db"))
    later.restore(left(tmp_path / "s.db"), 0.0, 1e9)
    assert numbers(later) == there
    assert later.damaged == 0


def test_a_disk_that_takes_a_part_of_what_waits_and_fails_again_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the disk then ends within a record."""
    monkeypatch.setattr("saps.overlay.missed.segments.CHUNK", 400)
    log = MissedLog(segments(tmp_path / "s.db"))
    log.head = lambda: Head(BrokerRef("me", 1, "h:2", "c"), 0.0, 0, [])
    pwrite, takes = os.pwrite, 0

    def failing(file: int, raw: bytes, offset: int) -> int:
        nonlocal takes
        if not takes:
            raise OSError(errno.EIO, "it is broken")
        takes -= 1
        return pwrite(file, raw, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", failing)
        write(log, 1, 10)
        takes = 5
        log.trim(0.0, None)
        assert sum(map(len, map(Path.read_bytes, files_of(tmp_path)))) == 2000
        assert numbers(log) == [*range(1, 11)]
    log.trim(0.0, None)
    later = MissedLog(segments(tmp_path / "s.db"))
    later.restore(left(tmp_path / "s.db"), 0.0, 1e9)
    assert numbers(later) == [*range(1, 11)]
    assert later.damaged == 0


def test_without_room_in_memory_nothing_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saps.overlay.missed.segments.IN_MEMORY", 0)

    def broken(number: int) -> Segment:
        raise OSError("no space left on device")

    spool = Spool(broken)
    segment = spool.segment(0)
    for _ in range(3):
        with pytest.raises(OSError, match="no room in memory"):
            segment.append(b"1")
    segment.close()
    assert not spool._waiting


def test_a_file_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "s.db.missed-0").write_bytes(b"")
    with pytest.raises(FileExistsError):
        FileSegment(tmp_path / "s.db.missed-0")


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_write_that_fails_once_costs_nothing(tmp_path: Path, failing: int) -> None:
    """The first write of a segment is its head, the second the first record, which says to whom it went. The last
    attempt here makes the file."""
    writes = 0

    def attempt() -> None:
        nonlocal writes
        writes += 1
        if writes == failing % 4:
            raise OSError("no space left on device")

    class Failing(FileSegment):
        def append(self, raw: bytes) -> None:
            attempt()
            super().append(raw)

    def make(number: int) -> FileSegment:
        nonlocal failing
        if failing == 4:
            failing = 0
            raise OSError("no space left on device")
        return Failing(tmp_path / f"s.db.missed-{number}")

    log = MissedLog(make)
    head = Head(BrokerRef("me", 1, "h:2", "c"), 0.0, 0, [])
    log.head = lambda: copy(head)
    write(log, 1, 5)
    assert log.dropped == 0
    log = MissedLog(segments(tmp_path / "s.db"))
    log.restore(left(tmp_path / "s.db"), 0.0, 1e9)
    assert numbers(log) == [*range(1, 6)]
    assert log.damaged == 0


def test_what_becomes_of_a_broker_is_nothing_to_be_sent() -> None:
    log = MissedLog()
    write(log, 1, 3)
    log.tell(Fate(6.0, BrokerRef("back", 1, "h:3", "c"), False))
    assert [place for _, place in log.read(log.start)][-1] == log.last


def test_a_restarted_broker_knows_when_others_were_lost_and_back(tmp_path: Path) -> None:
    """What sessions had got of it before their broker was lost came again from its next incarnation (`make chaos`)."""
    me, other = BrokerRef("me", 1, "h:2", "c"), BrokerRef("other", 1, "h:3", "c")
    log = MissedLog(segments(tmp_path / "s.db"))
    log.head = lambda: Head(me, 0.0, 0, [])
    for at, lost in ((5.0, True), (7.0, False), (9.0, True), (12.0, True)):
        log.tell(Fate(at, other, lost))
    log = MissedLog(segments(tmp_path / "s.db"))
    *_, absences = log.restore(left(tmp_path / "s.db"), 0.0, 1e9)
    assert [*absences.of(other)] == [(12.0, math.inf), (9.0, 12.0), (5.0, 7.0)]


def test_a_broker_that_was_only_behind_was_not_away(tmp_path: Path) -> None:
    """Sessions that had been there got again what went to it since (`make jepsen`)."""
    me, behind, away = (BrokerRef(name, 1, "h:2", "c") for name in ("me", "behind", "away"))
    lags = [Lag(behind, (0, 0), 0, 5.0), Lag(away, (0, 0), 0, 6.0)]
    lags[0].ask(1, 5.0)
    log = MissedLog(segments(tmp_path / "s.db"))
    log.head = lambda: Head(me, 0.0, 0, [lag.fate(lag.since, -math.inf) for lag in lags])
    write(log, 1, 2)
    log = MissedLog(segments(tmp_path / "s.db"))
    lost, _, absences = log.restore(left(tmp_path / "s.db"), 0.0, 1e9)
    assert [fate.broker for fate in lost] == [behind, away]
    assert [*absences.of(behind)] == []
    assert [*absences.of(away)] == [(6.0, math.inf)]


@pytest.mark.parametrize("failures", [0, 1])
async def test_a_commit_flushes_what_was_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """A loss of power destroyed what was acknowledged minutes ago, and brought back what was over (`make chaos`)."""
    flushed: list[str] = []
    fdatasync = os.fdatasync

    def noted(file: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{file}"))
        if len(flushed) <= failures:
            raise OSError(errno.EIO, "it is broken")
        fdatasync(file)

    store = Store(tmp_path / "s.db", "full")
    monkeypatch.setattr(os, "fdatasync", noted)
    unflushed = Unflushed(tmp_path, store.journal.outside)
    store.flush_first(unflushed.flush)
    log = MissedLog(segments(tmp_path / "s.db", unflushed))
    log.begin(1)
    write(log, 1, 3)
    for _ in range(2):
        assert store.commits.pending
        done = asyncio.Event()
        store.commits.then(done.set)
        await done.wait()
        assert flushed == [str(tmp_path / "s.db.missed-0")] * (1 + failures)
        assert not store.commits.pending
        log.end()  # the folder is flushed
    assert not any("missed" in name for name in os.listdir(tmp_path))
    await store.close()


async def test_a_segment_that_is_deleted_need_not_be_flushed(tmp_path: Path) -> None:
    unflushed = Unflushed(tmp_path, lambda: None)
    segment = FileSegment(tmp_path / "s.db.missed-0", unflushed=unflushed)
    segment.append(b"1")
    segment.close()
    unflushed.flush()
    assert not unflushed


def test_what_is_written_during_a_flush_waits_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush would not end while others write."""
    unflushed = Unflushed(tmp_path, lambda: None)
    segment = FileSegment(tmp_path / "s.db.missed-0", unflushed=unflushed)
    segment.append(b"1")
    flushes = 0

    def slow(file: int) -> None:
        nonlocal flushes
        flushes += 1
        assert flushes <= 2
        segment.append(b"2")

    monkeypatch.setattr(os, "fdatasync", slow)
    unflushed.flush()
    assert flushes == 1
    assert unflushed
