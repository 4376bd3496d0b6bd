"""Connects a broker's storage to the mesh: holds back acknowledgements to brokers, and stores retained messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

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
"""Frames that promise that this broker has a publication, or that it has or gave up a session."""
COPIED: frozenset[type[Frame]] = frozenset((Appended,))
"""Frames that promise that this broker has copies of another broker's sessions."""


class HeldFrames:
    """Holds back acknowledgements to other brokers, which promise the same as PUBACK. (A `saps.storage.commits.Held`.)
    Other frames do not wait, and may overtake the acknowledgements."""

    def __init__(
        self,
        commits: Commits,
        send: Callable[[list[Addressed]], None],
        kinds: frozenset[type[Frame]] = PROMISES,
        degrades: bool = False,
    ) -> None:
        """`send` sends the released frames. `kinds`: the types of frames that wait. `degrades`: while the disk is full
        or broken, these frames leave without waiting for it."""
        self._commits = commits
        self._send = send
        self._kinds = kinds
        self._degrades = degrades
        self._waiting: list[Addressed] = []
        self._staged: list[Addressed] = []
        commits.held.append(self)

    def holds(self, to: BrokerRef, frame: Frame) -> bool:
        """Return whether a frame must wait. If so, keep it and send it later; the caller must not send it."""
        if type(frame) not in self._kinds or not self._commits.pending:
            return False
        if self._degrades and self._commits.health.fault is not None:
            return False
        self._waiting.append((to, frame))
        return True

    def cut(self) -> None:
        """Mark the frames held now for the next `release`."""
        self._staged += self._waiting
        self._waiting = []

    def release(self) -> None:
        """Send the frames that were held at the last `cut`."""
        staged, self._staged = self._staged, []
        if staged:
            self._send(staged)

    def fail(self, storage_fault: StorageFault) -> None:
        """Keep the frames until a later commit succeeds, or send them all if this object `degrades`."""
        if self._degrades:
            self.cut()
            self.release()


def keep_retained(store: Store, node: OverlayNode) -> None:
    """Store each later change of the retained messages that this broker holds for the mesh."""
    journal = store.journal

    def on_record(topic: str, record: Record | None) -> None:
        if record is None:
            journal.drop(Table.RETAINED, topic)
        else:
            journal.put(Table.RETAINED, topic, (topic, record))

    node.retained.store.on_record.append(on_record)


def restore_retained(store: Store, node: OverlayNode) -> None:
    """Give the stored retained messages back to the mesh, which ignores them where it has newer ones. Drops expired
    messages, and from the journal those that belong to other brokers now. To be called once, after the broker has
    joined the mesh."""
    now, journal = node.port.timers.wall() * 1000, store.journal
    jump = round(max(store.saved.jump, 0.0) * 1000)  # the mesh's clock need not have gone back with this machine's

    def told(topic: str) -> None:
        if not node.retained.store.holds(topic):
            journal.drop(Table.RETAINED, topic)

    def records(stored: dict[str, bytes]) -> Iterator[tuple[Record, Callable[[], None]]]:
        while stored:
            topic, encoded = stored.popitem()
            record = msgspec.msgpack.decode(encoded, type=Record)
            if record.expires and jump:
                record = msgspec.structs.replace(record, expires=record.expires + jump)
            if record.expires and record.expires <= now:
                journal.drop(Table.RETAINED, topic)
            else:
                yield record, partial(told, topic)

    node.retained.restore(records(store.saved.retained))
