"""Holds output until the journal is on disk, because an acknowledgement is a promise (MQTT 5.0, section 4.3).

Held packets stay in `Output.out`, so later output queues behind it. QoS 0 publications and PINGRESP promise
nothing. Output that consists of them alone is never held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.output import Output

if TYPE_CHECKING:
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
        self._waiting: set[Output] = set()
        """Connections held since the last `cut`, with all of their output."""
        self._staged: dict[Output, list[bytes]] = {}
        """By connection: the packets that wait for the running commit. Meanwhile `out` begins with an empty packet."""

    def holds(self, output: Output) -> bool:
        """Return whether the connection's output must wait. If so, this object will flush it.

        Closes the connection of a stored session if the storage is broken.
        """
        if output in self._staged or output in self._waiting:
            return True
        if (
            not self._commits.pending
            or output.queue is None
            or all(not packet or packet[0] in _FREE for packet in output.out)
        ):
            return False
        storage_fault = self._commits.health.fault
        if storage_fault is not None and storage_fault.broken:
            if output.queue.stored:
                _close(output, storage_fault)
            return False
        self._waiting.add(output)
        return True

    def end_turn(self) -> None:
        """End the turn, after `holds` has been called for all its connections; a commit may begin."""
        self._commits.end_turn()

    def cut(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for output in waiting:
            self._staged.setdefault(output, []).extend(output.out)
            output.out[:] = [b""]

    def release(self) -> None:
        staged, self._staged = self._staged, {}
        for output, packets in staged.items():
            out = output.out
            later = out[1:]
            waits = bool(later) and self.holds(output)
            if waits and output.closing:  # the first write would close the transport: keep all of it together
                out[:] = packets + later
                continue
            out[:] = packets if waits else packets + later
            output.port.flush()
            if waits:
                out.extend(later)

    def fail(self, storage_fault: StorageFault) -> None:
        """Close the held connections without their output, whose promises the storage cannot keep."""
        held = [*self._staged, *self._waiting]
        self._staged, self._waiting = {}, set()
        for output in held:
            output.out.clear()
            _close(output, storage_fault)


def _close(output: Output, storage_fault: StorageFault) -> None:
    output.out.clear()
    if output.closing:
        output.wake()
    output.owner.close(reason_of(storage_fault), "what it was to be told cannot be stored")
