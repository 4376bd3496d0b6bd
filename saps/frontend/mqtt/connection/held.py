"""Output that leaves only when the journal is on disk: an acknowledgement is a promise (MQTT 5.0, section 4.3).

What is held stays in its connection's `out`, so whatever is sent later queues up behind it. QoS 0 and PINGRESP promise
nothing; a connection whose output consists of them alone is never held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import Reason

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.storage.commits import Commits
    from saps.storage.error import StorageFault

_FREE = frozenset((0x30, 0x31, 0x38, 0x39, 0xD0, 0xE0))
"""First bytes of what need not wait: PUBLISH of QoS 0, PINGRESP and DISCONNECT."""


def reason_of(storage_fault: StorageFault) -> Reason:
    """What a client is told that wants something stored."""
    return Reason.QUOTA_EXCEEDED if storage_fault.full else Reason.UNSPECIFIED_ERROR


class HeldOutput:
    """The connections whose output waits for a commit. (A `saps.storage.commits.Held`.)"""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._waiting: set[Connection] = set()
        """Held since the last `cut`, with all of their output."""
        self._staged: dict[Connection, list[bytes]] = {}
        """What the present commit makes true. Meanwhile `out` begins with an empty packet."""

    def holds(self, connection: Connection) -> bool:
        """Must this connection's output wait? If so, it is looked after here."""
        if connection in self._staged or connection in self._waiting:
            return True
        if (
            not self._commits.pending
            or connection.session is None
            or all(not packet or packet[0] in _FREE for packet in connection.outbound.out)
        ):
            return False
        storage_fault = self._commits.health.fault
        if storage_fault is not None and storage_fault.broken:
            if connection.session.stored:
                _close(connection, storage_fault)
            return False
        self._waiting.add(connection)
        return True

    def end_turn(self) -> None:
        """The connections of this turn have been asked for their output."""
        self._commits.end_turn()

    def cut(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for connection in waiting:
            self._staged.setdefault(connection, []).extend(connection.outbound.out)
            connection.outbound.out[:] = [b""]

    def release(self) -> None:
        staged, self._staged = self._staged, {}
        for connection, packets in staged.items():
            out = connection.outbound.out
            later = out[1:]
            waits = bool(later) and self.holds(connection)
            if waits and connection.closing:  # the transport is closed after what is written
                out[:] = packets + later
                continue
            out[:] = packets if waits else packets + later
            connection.port.flush()
            if waits:
                out.extend(later)

    def fail(self, storage_fault: StorageFault) -> None:
        """What these connections were to be told is not true: they end, and their clients may ask again."""
        held = [*self._staged, *self._waiting]
        self._staged, self._waiting = {}, set()
        for connection in held:
            connection.outbound.out.clear()
            _close(connection, storage_fault)


def _close(connection: Connection, storage_fault: StorageFault) -> None:
    connection.outbound.out.clear()
    if connection.closing:
        connection.frontend.turn.wake(connection)
    connection.close(reason_of(storage_fault), "what it was to be told cannot be stored")
