"""A store as `kill -9` leaves it, and ways to damage its files."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from random import Random

from saps.messages import Message, Subscription
from saps.overlay.frames.calls import Record
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch as Single
from saps.routing.batch import Origin
from saps.storage.driver.database import Database
from saps.storage.journal import Journal, Stored, Table
from saps.storage.past import pack
from saps.storage.saved import Saved, SavedForm

ENDINGS = ("", "-wal", "-mark")


def killed(folder: Path, messages: int = 60, retained: int = 40, size: int = 200) -> tuple[Path, Saved]:
    """A file whose broker was killed, everything in transactions of its own, and what was acknowledged."""
    path, at = folder / "living.db", folder / "broker.db"
    with closing(Database(path, "full")) as database:
        fill(database, messages, retained, size)
        for ending in ENDINGS:
            shutil.copy(f"{path}{ending}", f"{at}{ending}")
    with closing(Database(path, "full")) as database:
        return at, database.load()


def folded(path: Path) -> None:
    """Start with the file once, and close it in order: all of its log is in the tables."""
    with closing(Database(path, "full")) as database:
        database.load()


def fill(database: Database, messages: int, retained: int, size: int = 200) -> None:
    """Two sessions from elsewhere with two subscriptions each, messages for one or both, some given up again, and what
    is retained."""
    journal, chance = Journal(), Random(1)
    kept: list[tuple[list[int], Stored]] = []
    for number in (1, 2):
        journal.put(Table.SESSIONS, number, (number, f"device{number}", None, 3600, None, None, 0, None, 0))
        for name in ("a/+", "b/#"):
            journal.put(Table.SUBSCRIPTIONS, (number, name), (number, name, Subscription(name, 1)))
        had = [*(Origin("elsewhere", 7, seq) for seq in (1, 2, 4)), Origin("b", 1, number)]
        journal.put(Table.HAD, number, (number, pack(had)))
        database.write(journal.take())
    journal.begin_after(2)
    for number in range(messages):
        message = Message(f"a/{number}", b"%d " % number + chance.randbytes(size), 1)
        stored, serials = journal.refer(Single.of(message), None), []
        for session in (1, 2)[: 1 + number % 2]:
            if session == 2:
                stored.references += 1
            serials.append(journal.number())
            copy = (serials[-1], session, stored.number, 0, SavedForm(1, False, ()))
            journal.put(Table.COPIES, serials[-1], copy)
        kept.append((serials, stored))
        database.write(journal.take())
        if number % 5 == 4:
            serials, stored = kept.pop(chance.randrange(len(kept)))
            for serial in serials:
                journal.drop(Table.COPIES, serial, once=True)
                journal.release(stored)
            database.write(journal.take())
    for number in range(retained):
        topic = f"r/{number:03}"
        message = Message(topic, b"%d " % number + chance.randbytes(size), 1, True)
        journal.put(Table.RETAINED, topic, (topic, Record(message, 0, BrokerRef("b", 1, "", "c"), number)))
        database.write(journal.take())


def flip(path: Path, bits: int, chance: Random, start: int = 0) -> None:
    """Change so many bits of a file, anywhere behind `start`."""
    content = bytearray(path.read_bytes())
    for _ in range(bits):
        content[chance.randrange(start, len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
