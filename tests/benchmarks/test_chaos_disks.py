"""Disks that lose power, fail and are slow, and packets that are mangled: they do what they say, and nothing else."""

from __future__ import annotations

import errno
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos.cable import unheard
from benchmarks.chaos.disk.disks import possible
from benchmarks.chaos.disk.volume import Volume
from benchmarks.chaos.faults import damage
from benchmarks.chaos.mangler import LATE, Mangler
from benchmarks.probes import resident_bytes
from saps.runtime.atomic_file import replacing

SIZE = 1000
mounts = pytest.mark.skipif(not possible(), reason="mounting needs root and FUSE")


@given(writes=st.lists(st.tuples(st.integers(0, 40), st.binary(min_size=1, max_size=20)), max_size=12), data=st.data())
def test_what_was_synced_outlasts_a_loss_of_power_and_of_the_rest_each_write_stays_or_goes(
    writes: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    volume, synced = Volume(SIZE), data.draw(st.integers(0, len(writes)))
    file = volume.create("a")
    volume.sync_names()
    for number, (offset, content) in enumerate(writes):
        if number == synced:
            volume.sync(file)
        volume.write(file, offset, content)
    if synced == len(writes):
        volume.sync(file)
    before = bytearray()
    for offset, content in writes[:synced]:
        before.extend(bytes(max(0, offset - len(before))))
        before[offset : offset + len(content)] = content
    gone = volume.lose(random.Random(data.draw(st.integers(0, 1000))))
    assert gone <= len(writes) - synced
    touched = {at for offset, content in writes[synced:] for at in range(offset, offset + len(content))}
    assert all(at in touched or file.data[at] == before[at] for at in range(len(before)))
    if gone == len(writes) - synced:
        assert file.data == before
    assert volume.lose(random.Random(0)) == 0


def test_a_name_is_durable_with_its_file_or_folder_and_a_full_or_broken_disk_refuses() -> None:
    volume = Volume(SIZE)
    kept, lost = volume.create("kept"), volume.create("lost")
    volume.write(lost, 0, b"x")
    volume.sync(kept)
    with pytest.raises(OSError, match="full") as full:
        volume.write(kept, 0, bytes(SIZE))
    assert full.value.errno == errno.ENOSPC
    volume.failing = True
    refused: list[Callable[[], None]] = [
        lambda: volume.sync(kept),
        lambda: volume.write(kept, 0, b"y"),
        volume.sync_names,
    ]
    for fails in refused:
        with pytest.raises(OSError, match="fails") as broken:
            fails()
        assert broken.value.errno == errno.EIO
    volume.lose(random.Random(1))
    assert list(volume.names) == ["kept"]


class Served:
    """A volume that is mounted."""

    def __init__(self, folder: Path) -> None:
        command = (sys.executable, "-m", "benchmarks.chaos.disk.fuse", str(folder))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.line() == "ready"

    @property
    def memory(self) -> int:
        """Bytes of its process."""
        return resident_bytes([self._process.pid])

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, words: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"0 {words}\n")
        self._process.stdin.flush()
        return self.line()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(20) == 0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.end()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def rows(file: Path) -> int:
    """Of the table, as a process finds it that starts after the loss of power."""
    code = f"import sqlite3; print(sqlite3.connect({str(file)!r}).execute('select count(*) from t').fetchone()[0])"
    return int(subprocess.run((sys.executable, "-c", code), capture_output=True, check=True, text=True).stdout)


@mounts
@pytest.mark.parametrize("sync", ["full", "off"])
def test_a_database_that_syncs_loses_nothing_that_was_committed_and_one_that_does_not_does(
    served: Served, tmp_path: Path, sync: str
) -> None:
    writer = f"""
import os, sqlite3
c = sqlite3.connect({str(tmp_path / "x.db")!r}, isolation_level=None)
c.execute("pragma journal_mode = wal")
c.execute("pragma synchronous = full")
c.execute("create table t (a)")
c.execute("pragma synchronous = {sync}")
for n in range(50): c.execute("insert into t values (?)", (n,))
os._exit(0)
"""
    subprocess.run((sys.executable, "-c", writer), check=True)
    served.tell("lose 4")
    kept = rows(tmp_path / "x.db")
    assert kept == 50 if sync == "full" else kept < 50


@mounts
def test_a_file_that_was_replaced_outlasts_a_loss_of_power(served: Served, tmp_path: Path) -> None:
    with replacing(tmp_path / "members") as file:
        file.write(b"b1 b2")
    served.tell("lose 4")
    assert (tmp_path / "members").read_bytes() == b"b1 b2"


@mounts
def test_damage_outlasts_a_loss_of_power(served: Served, tmp_path: Path) -> None:
    """It was undone in part: a broker that had gone on with a damaged file found another one."""
    file = tmp_path / "broker.db"
    for seed in range(12):
        with replacing(file) as whole:
            whole.write(random.Random(seed).randbytes(20_000))
        damage(file, random.Random(seed))
        damaged = file.read_bytes() if file.exists() else None
        served.tell(f"lose {seed}")
        assert (file.read_bytes() if file.exists() else None) == damaged


@mounts
def test_a_deleted_file_takes_no_memory(served: Served, tmp_path: Path) -> None:
    before = served.memory
    for _ in range(20):
        (tmp_path / "segment").write_bytes(bytes(4 << 20))
        (tmp_path / "segment").unlink()
    assert served.memory - before < 40 << 20


@mounts
def test_a_broken_disk_gives_eio_a_slow_one_waits_and_both_are_mended(served: Served, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    database.execute("pragma synchronous = full")
    database.execute("create table t (a)")
    served.tell("fail")
    with pytest.raises(sqlite3.OperationalError, match="I/O"):
        database.execute("insert into t values (1)")
    served.tell("mend")
    served.tell("slow 0.2")
    begun = time.monotonic()
    database.execute("insert into t values (1)")
    assert time.monotonic() - begun >= 0.2
    served.tell("mend")
    assert database.execute("select count(*) from t").fetchone() == (1,)
    database.close()


def test_of_the_packets_that_are_mangled_a_third_each_comes_twice_late_or_with_one_wrong_bit() -> None:
    mangler, packet, seen = Mangler(0.1, 7), bytes(range(100)), Counter[str]()
    for _ in range(20_000):
        match mangler.take(packet):
            case [(0.0, first), (late, second)]:
                assert first == second == packet
                assert LATE[0] <= late <= LATE[1]
                seen["twice"] += 1
            case [(0.0, only)]:
                wrong = sum((a ^ b).bit_count() for a, b in zip(only, packet, strict=True))
                assert wrong <= 1
                seen["wrong" if wrong else "as it was"] += 1
            case [(late, only)]:
                assert only == packet
                seen["late"] += 1
    assert all(1800 < seen[what] < 2200 for what in ("twice", "late", "wrong")), seen


@pytest.mark.parametrize("brokers", [4, 6, 8, 10])
def test_in_a_ring_of_majorities_each_hears_one_and_no_two_the_same(brokers: int) -> None:
    heard = [set(range(brokers)) - set(unheard(place, brokers)) for place in range(brokers)]
    assert all(len(each) > brokers / 2 and place in each for place, each in enumerate(heard))
    assert all((a in heard[b]) == (b in heard[a]) for a in range(brokers) for b in range(brokers))
    assert len({frozenset(each) for each in heard}) == brokers
