"""What the mesh asks of a broker's storage: acknowledgements that wait, and retained messages that are kept."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Record
from saps.overlay.frames.delivery import Ack, Caught, OfmAck
from saps.overlay.frames.sessions import Appended, Arrived, Departed
from saps.overlay.node import OverlayNode
from saps.overlay.ring.keys import BrokerRef
from saps.storage.commits import Commits
from saps.storage.driver.store import Store
from saps.storage.error import StorageFault
from saps.storage.journal import Table

Addressed = tuple[BrokerRef, Frame]

PROMISES: frozenset[type[Frame]] = frozenset((Ack, Caught, OfmAck, Arrived, Departed))
"""What says that this broker has a publication, or has a session or none."""
COPIED: frozenset[type[Frame]] = frozenset((Appended,))
"""What says that it has copies of another broker's sessions."""


class HeldFrames:
    """Acknowledgements of publications to other brokers, which promise what PUBACK promises. (A
    `saps.storage.commits.Held`.) Nothing else waits: what comes later may overtake them."""

    def __init__(
        self,
        commits: Commits,
        send: Callable[[list[Addressed]], None],
        kinds: frozenset[type[Frame]] = PROMISES,
        degrades: bool = False,
    ) -> None:
        """`degrades`: while the disk is full or broken frames of these `kinds` do not wait for it."""
        self._commits = commits
        self._send = send
        self._kinds = kinds
        self._degrades = degrades
        self._waiting: list[Addressed] = []
        self._staged: list[Addressed] = []
        commits.held.append(self)

    def holds(self, to: BrokerRef, frame: Frame) -> bool:
        """Must this frame wait? If so, it is looked after here."""
        if type(frame) not in self._kinds or not self._commits.pending:
            return False
        if self._degrades and self._commits.health.fault is not None:
            return False
        self._waiting.append((to, frame))
        return True

    def cut(self) -> None:
        self._staged += self._waiting
        self._waiting = []

    def release(self) -> None:
        staged, self._staged = self._staged, []
        if staged:
            self._send(staged)

    def fail(self, storage_fault: StorageFault) -> None:
        """The other brokers have to wait until it is true."""
        if self._degrades:
            self.cut()
            self.release()


def keep_retained(store: Store, node: OverlayNode) -> None:
    """From now on store what this broker holds of the mesh's retained messages."""
    journal = store.journal

    def on_record(topic: str, record: Record | None) -> None:
        if record is None:
            journal.drop(Table.RETAINED, topic)
        else:
            journal.put(Table.RETAINED, topic, (topic, record))

    node.retained.store.on_record.append(on_record)


def restore_retained(store: Store, node: OverlayNode) -> None:
    """Have the mesh keep what was stored of it, where it knows nothing later. To be called when it has been joined."""
    now, journal = node.port.timers.wall() * 1000, store.journal
    jump = round(max(store.saved.jump, 0.0) * 1000)  # if the clock went back, the mesh's need not have done so

    def told(topic: str) -> None:
        if not node.retained.store.holds(topic):
            journal.drop(Table.RETAINED, topic)

    for topic, encoded in store.saved.retained.items():
        record = msgspec.msgpack.decode(encoded, type=Record)
        if record.expires and jump:
            record = msgspec.structs.replace(record, expires=record.expires + jump)
        if record.expires and record.expires <= now:
            journal.drop(Table.RETAINED, topic)
        else:
            node.retained.keep_record(record, lambda topic=topic: told(topic))  # type: ignore[misc]
    store.saved.retained = {}
