"""Holds output until the journal is on disk, because an acknowledgement is a promise (MQTT 5.0, section 4.3).

Held output stays in its connection's `out`, so later output queues behind it. QoS 0 publications and PINGRESP promise
nothing. Output that consists of them alone is never held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import Reason

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.storage.commits import Commits
    from saps.storage.error import StorageFault

_FREE = frozenset((0x30, 0x31, 0x38, 0x39, 0xD0, 0xE0))
"""First bytes of packets that need not wait: PUBLISH with QoS 0, PINGRESP and DISCONNECT."""


def reason_of(storage_fault: StorageFault) -> Reason:
    """Return the reason code for a client's request that cannot be stored."""
    return Reason.QUOTA_EXCEEDED if storage_fault.full else Reason.UNSPECIFIED_ERROR


class HeldOutput:
    """Holds the output of connections until a commit. (A `saps.storage.commits.Held`.)"""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._waiting: set[Connection] = set()
        """Connections held since the last `cut`, with all of their output."""
        self._staged: dict[Connection, list[bytes]] = {}
        """By connection: the packets that wait for the running commit. Meanwhile `out` begins with an empty packet."""

    def holds(self, connection: Connection) -> bool:
        """Return whether the connection's output must wait. If so, this object will flush it.

        Closes the connection of a stored session if the storage is broken.
        """
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
        """End the turn, after `holds` has been called for all its connections; a commit may begin."""
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
            if waits and connection.closing:  # the first write would close the transport: keep all of it together
                out[:] = packets + later
                continue
            out[:] = packets if waits else packets + later
            connection.port.flush()
            if waits:
                out.extend(later)

    def fail(self, storage_fault: StorageFault) -> None:
        """Close the held connections without their output, whose promises the storage cannot keep."""
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
