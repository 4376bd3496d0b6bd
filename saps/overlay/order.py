"""What arrives from other brokers, put in the publisher's order: no duplicate, no overtaking, a bounded wait.

Every publication names its predecessor: the same origin's previous publication to the same topic. It is delivered when
that one has been, or was never owed to this broker (sent before its subscription counted there, see
`Subscriptions.baseline`). Until then it is held, and the origin is asked for the missing one, which it repeats (QoS 1
and 2) or declares lost (QoS 0).
"""

from __future__ import annotations

from collections.abc import Callable

from saps.messages import Message
from saps.overlay.frames import Data, Nack
from saps.overlay.keys import BrokerRef
from saps.overlay.port import Port

ASK_AFTER = 0.1
"""Seconds a publication is held before the origin is asked for its predecessor, and between two questions."""
PATIENCE = 1.0
"""Seconds for which a predecessor may still be on its way although the origin cannot repeat it. Shorter lets QoS 0
traffic flow again sooner after a loss, but must exceed the delay of the slowest path."""
GIVE_UP = 3.0
"""Seconds after which a predecessor that the origin does not account for is given up."""
SWEEP = 120.0
"""Seconds between two sweeps; must exceed the time after which an idle publisher begins anew."""
MEMORY = 60.0
"""Seconds for which the sequences of a dead origin are kept."""
HELD = 1024
"""Publications held per origin and topic; beyond it the oldest gap is given up."""


class _Sequence:
    """One origin's publications to one topic."""

    __slots__ = ("asking", "held", "last", "since", "tail", "used")

    def __init__(self) -> None:
        self.used = True
        """Something has come since the last `sweep`."""
        self.last = 0
        """Sequence number of the last publication delivered (or given up)."""
        self.held: dict[int, Data] = {}
        self.tail = 0
        """The origin says that it has published this one (`Inbox.expect`)."""
        self.since = 0.0
        """When the present gap was noticed."""
        self.asking = False


class Inbox:
    """Everything one broker receives by multicast. `deliver` hands a message to the local subscribers and returns how
    many there were; `baseline` is `Subscriptions.baseline`."""

    def __init__(
        self,
        port: Port,
        deliver: Callable[[Message], int],
        baseline: Callable[[str, tuple[str, int]], int | None],
    ) -> None:
        self._port = port
        self._deliver = deliver
        self._baseline = baseline
        self._sequences: dict[tuple[BrokerRef, str], _Sequence] = {}
        self.given_up = 0
        """Gaps that were not filled."""

    def accept(self, origin: BrokerRef, data: Data) -> int | None:
        """Deliver a publication or hold it. Returns the number of subscribers reached (0 while held), None for a
        duplicate."""
        sequence = self._sequences.get((origin, data.topic))
        if sequence is None:
            sequence = self._sequences[origin, data.topic] = _Sequence()
        sequence.used = True
        if data.seq <= sequence.last or data.seq in sequence.held:
            return None
        if data.prev > sequence.last and not self._never_owed(origin, data, sequence):
            self._hold(origin, data, sequence)
            return 0
        for seq in sorted(seq for seq in sequence.held if seq < data.seq):
            # Of an earlier subscription, owed no more: but if they are delivered, then before this one.
            self._pass(sequence, sequence.held.pop(seq))
        reached = self._pass(sequence, data)
        if sequence.held:
            self._drain(origin, sequence)
        return reached

    def skip(self, origin: BrokerRef, topic: str, seq: int) -> None:
        """The origin says that `seq` will not come."""
        sequence = self._sequences.get((origin, topic))
        if sequence is None or not sequence.last < seq <= self._missing(sequence):
            return
        if self._port.now - sequence.since >= PATIENCE:
            self.given_up += 1
            sequence.last = seq
            self._drain(origin, sequence)

    def expect(self, origin: BrokerRef, topic: str, seq: int) -> None:
        """The origin says that its last publication to the topic was `seq`: ask for it unless it is there, or was never
        owed."""
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        if baseline is None or seq <= baseline:
            return
        sequence = self._sequences.get((origin, topic))
        if sequence is None:
            sequence = self._sequences[origin, topic] = _Sequence()
        sequence.used = True
        if seq > max(sequence.last, sequence.tail) and seq not in sequence.held:
            new = not self._missing(sequence)
            sequence.tail = seq
            self._ask_later(origin, topic, sequence, new)

    def delivered(self, origin: BrokerRef, topic: str) -> int:
        """The number of the last publication delivered, 0 for none."""
        sequence = self._sequences.get((origin, topic))
        return 0 if sequence is None else sequence.last

    def forget(self, broker: BrokerRef) -> None:
        """An origin died: what it did not send any more will not come. (Its sequences are kept for a while: if it was
        taken for dead wrongly, it may repeat what has been delivered.)"""
        for (origin, _), sequence in self._sequences.items():
            if origin == broker:
                self._release_all(sequence)
        self._port.after(MEMORY, lambda: self._purge(broker))

    def sweep(self) -> None:
        """Once every `SWEEP` seconds: drop the sequences nothing came for since the last time. The origin has given up
        its presence meanwhile (`presence.IDLE`) and begins anew, or this broker was no member."""
        for key, sequence in list(self._sequences.items()):
            if not sequence.used and not sequence.held:
                del self._sequences[key]
            sequence.used = False

    def _purge(self, broker: BrokerRef) -> None:
        if self._port.lost(broker):
            for key in [key for key in self._sequences if key[0] == broker]:
                del self._sequences[key]

    def _pass(self, sequence: _Sequence, data: Data) -> int:
        sequence.last = data.seq
        return self._deliver(Message(data.topic, data.payload, data.qos, data.retain, data.properties))

    def _never_owed(self, origin: BrokerRef, data: Data, sequence: _Sequence) -> bool:
        baseline = self._baseline(data.topic, (origin.name, origin.incarnation))
        return baseline is not None and data.prev <= baseline

    def _hold(self, origin: BrokerRef, data: Data, sequence: _Sequence) -> None:
        new = not self._missing(sequence)
        sequence.held[data.seq] = data
        self._ask_later(origin, data.topic, sequence, new)
        if len(sequence.held) > HELD:
            self._give_up(origin, sequence)

    def _ask_later(self, origin: BrokerRef, topic: str, sequence: _Sequence, new: bool) -> None:
        """A publication is missing: ask for it, unless it comes by itself meanwhile."""
        if new:
            sequence.since = self._port.now
        if not sequence.asking:
            sequence.asking = True
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _drain(self, origin: BrokerRef, sequence: _Sequence) -> None:
        """Deliver what is held as far as nothing is missing before it."""
        while sequence.held:
            seq = min(sequence.held)
            data = sequence.held[seq]
            if data.prev > sequence.last and not self._never_owed(origin, data, sequence):
                return
            sequence.since = self._port.now
            del sequence.held[seq]
            self._pass(sequence, data)

    def _ask(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        self._drain(origin, sequence)
        waited = self._port.now - sequence.since
        if waited >= GIVE_UP and self._missing(sequence):
            self._give_up(origin, sequence)
        missing = self._missing(sequence)
        sequence.asking = bool(missing)
        if missing and waited >= ASK_AFTER / 2:
            baseline = self._baseline(topic, (origin.name, origin.incarnation))
            after = None if baseline is None else max(baseline, sequence.last)
            self._port.send(origin, Nack(topic, missing, after))
        if missing:
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _missing(self, sequence: _Sequence) -> int:
        """The number of a publication that is missing, 0 if none is."""
        if sequence.held:
            return sequence.held[min(sequence.held)].prev
        return sequence.tail if sequence.tail > sequence.last else 0

    def _give_up(self, origin: BrokerRef, sequence: _Sequence) -> None:
        self.given_up += 1
        sequence.last = self._missing(sequence)
        self._drain(origin, sequence)

    def _release_all(self, sequence: _Sequence) -> None:
        for seq in sorted(sequence.held):
            self._pass(sequence, sequence.held[seq])
        sequence.held.clear()
