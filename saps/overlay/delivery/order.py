"""What arrives from other brokers, put in the publisher's order: no duplicate, no overtaking, a bounded wait.

Every publication names its predecessor: the same origin's previous publication to the same topic. It is delivered when
that one has been, or was never owed to this broker (sent before its subscription counted there, see
`Subscriptions.baseline`). Until then it is held, and the origin is asked for the missing one, which it repeats (QoS 1
and 2) or declares lost (QoS 0).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from saps.local.batch import Batch
from saps.marks import hit
from saps.overlay.delivery.numbers import Numbers
from saps.overlay.delivery.publications import batch_of, prevs_of
from saps.overlay.frames.delivery import Nack, Publish
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

ASK_AFTER = 0.1
"""Seconds a publication is held before the origin is asked for its predecessor, and between two questions."""
PATIENCE = 1.0
"""Seconds for which a predecessor may still be on its way although the origin cannot repeat it. Shorter lets QoS 0
traffic flow again sooner after a loss, but must exceed the delay of the slowest path."""
GIVE_UP = 3.0
"""Seconds without progress after which a predecessor that the origin does not account for, although it is not dead, is
given up, if only QoS 0 has come of its publications to the topic."""
GIVE_UP_RELIABLE = 15.0
"""The same if QoS 1 or 2 has come: the missing one may be owed. Longer than brokers of an overloaded machine
were seen to stand still."""
SWEEP = 120.0
"""Seconds between two sweeps; must exceed the time after which an idle publisher begins anew."""
MEMORY = 60.0
"""Seconds for which the sequences of a dead origin are kept."""
FLOORS = 4096
"""Dead origins of which it is remembered how far they had come. Each costs about 100 bytes."""
LASTS = 1 << 17
"""Origins and topics without a sequence of which the last delivery is remembered. Each costs about 200 bytes."""
HELD_BYTES = 64 << 20
"""Payload held in all; beyond it the gap of what has come last is given up. More costs memory when much is lost."""
HELD = 4096
"""Publications held per origin and topic; beyond it the oldest gap is given up, whatever its quality of service. At
1,000 messages a second that is 4 s."""
DOUBTED = -1
"""In the place of a number of subscribers: it is held, or perhaps it has not been delivered, although a later number
has. Its publishers' broker must repeat it."""


class _Held(NamedTuple):
    """A publication that waits for its predecessor."""

    single: Batch
    """As a batch of one."""
    prev: int
    """The number of its predecessor."""
    since: float
    """When it came."""


class _Sequence(Numbers):
    """One origin's publications to one topic."""

    __slots__ = ("asked", "asking", "first", "held", "origin", "reliable", "since", "tail", "used")

    def __init__(self, origin: BrokerRef) -> None:
        super().__init__()
        self.origin = origin
        self.used = True
        """Something has come since the last `sweep`."""
        self.held: dict[int, _Held] = {}
        self.first = 0
        """The lowest number in `held`, 0 if nothing is."""
        self.reliable = False
        """Something with QoS 1 or 2 has come."""
        self.tail = 0
        """The origin says that it has published this one (`Inbox.expect`)."""
        self.since = 0.0
        """When the present gap was noticed, or something was delivered since."""
        self.asking = False
        self.asked = -math.inf
        """When the origin was asked for the last time whether `last` is its own."""

    @property
    def missing(self) -> int:
        """The number of a publication that is missing, 0 if none is."""
        if self.first:
            return self.held[self.first].prev
        return self.tail if self.tail > self.last else 0

    @property
    def noticed(self) -> float:
        """When it was first known to be missing: a later one had come. (`held` is in the order of arrival.)"""
        return next(iter(self.held.values())).since if self.held else self.since

    @property
    def give_up_after(self) -> float:
        """See `GIVE_UP`."""
        return GIVE_UP_RELIABLE if self.reliable else GIVE_UP

    def hold(self, seq: int, single: Batch, prev: int, now: float) -> None:
        """Keep it until what is missing before it has come."""
        self.held[seq] = _Held(single, prev, now)
        if not self.first or seq < self.first:
            self.first = seq

    def release(self, seq: int) -> Batch:
        """Keep it no longer. `first` is the caller's affair."""
        return self.held.pop(seq).single


class Inbox:
    """Everything one broker receives by multicast. `deliver` hands a batch to the local subscribers and returns how
    many each topic has, `matching` only counts those of a topic; `baseline` is `Subscriptions.baseline`."""

    def __init__(
        self,
        port: Port,
        deliver: Callable[[Batch], list[int]],
        baseline: Callable[[str, tuple[str, int]], int | None],
        matching: Callable[[str], int],
        retained: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        """`retained` is told of retained publications before they are delivered."""
        self._port = port
        self._deliver = deliver
        self._baseline = baseline
        self._matching = matching
        self._retained = retained
        self._sequences: dict[BrokerRef, dict[str, _Sequence]] = {}
        """By origin and topic."""
        self._died: dict[BrokerRef, float] = {}
        """When each origin was given up the last time."""
        self._floors: dict[BrokerRef, int] = {}
        """The last publication of origins that were dead for `MEMORY`: they may have been cut off, and come back."""
        self._lasts: OrderedDict[tuple[BrokerRef, str], int] = OrderedDict()
        """The last publication delivered of sequences that were dropped."""
        self.starts: dict[BrokerRef, int] = {}
        """Of origins that make this broker up: of what has this number, or a lower one, they owe only what they do."""
        self._held_bytes = 0
        self.given_up = 0
        """Gaps that were not filled."""
        self.disowned = 0
        """Times that an origin has said that a number was none of its own."""
        self.duplicates = 0
        """Publications that had come before."""

    def accept(self, origin: BrokerRef, frame: Publish) -> list[int]:
        """Deliver publications or hold them. Returns for each part of the frame the number of subscribers it reaches
        now; `DOUBTED` with QoS 1 and 2 for one with what is held, and so not acknowledged, and for one with what may
        be none of the origin's: it must be repeated."""
        firsts, lasts = _bounds(frame)
        sequences: list[_Sequence] = []
        whole, known = True, self._sequences.get(origin)
        for part, first in zip(frame.parts, firsts, strict=True):
            sequence = None if known is None else known.get(part.topic)
            if sequence is None:
                sequence = self._begin(origin, part.topic)
                known = self._sequences[origin]
            sequence.used = True
            sequences.append(sequence)
            last = sequence.last
            if first <= last or sequence.held or (part.prev > last and self._owed(origin, part.topic, part.prev)):
                whole = False
        batch = batch_of(frame, origin)
        if not whole:
            return self._accept_each(origin, frame, batch, sequences)
        for sequence, first, last in zip(sequences, firsts, lasts, strict=True):
            sequence.left, sequence.entered, sequence.last = sequence.last, first, last
            if frame.qos:
                sequence.reliable = True
        if frame.retain:
            self._retained(batch)
        return self._deliver(batch)

    def make_up(self, origin: BrokerRef, frame: Publish) -> None:
        """Deliver what the origin has kept for this broker (`saps.overlay.missed.catchup`)."""
        known = self._sequences.get(origin, {})
        for part in frame.parts:
            if part.topic not in known:
                self._begin(origin, part.topic, 0)
        self.accept(origin, frame)

    def _accept_each(self, origin: BrokerRef, frame: Publish, batch: Batch, sequences: list[_Sequence]) -> list[int]:
        """`accept` for publications of which not all are the next ones to be delivered."""
        reached: list[int | None] = [None] * len(frame.parts)
        for single, number, seq, prev in zip(batch.singles, frame.which, frame.seqs, prevs_of(frame), strict=True):
            count = self._accept_one(origin, single, seq, prev, sequences[number])
            if count is None:
                self.duplicates += 1
            elif reached[number] != DOUBTED:
                reached[number] = count
        topics = batch.topics
        return [self._matching(topics[n]) if count is None else count for n, count in enumerate(reached)]

    def _accept_one(self, origin: BrokerRef, single: Batch, seq: int, prev: int, sequence: _Sequence) -> int | None:
        """Deliver a batch of one or hold it. Returns the number of subscribers; None for a duplicate."""
        topic = single.topic
        if seq in sequence.held:
            self.duplicates += 1
            return DOUBTED if single.qos else 0
        if seq <= sequence.last:
            return DOUBTED if self._doubted(origin, topic, seq, sequence) else None
        sequence.reliable |= single.qos > 0
        if self._waits(origin, topic, prev, sequence):
            self._hold(origin, single, seq, prev, sequence)
            return DOUBTED if single.qos else 0
        if sequence.first and sequence.first < seq:
            hit("held before a gap nobody owes")
            self._release(sequence, seq)  # of an earlier subscription: if they are delivered, then before this one
        reached = self._pass(sequence, single, seq)
        self._drain(origin, topic, sequence)
        return reached

    def skip(self, origin: BrokerRef, topic: str, seq: int, given: int | None = None) -> None:
        """The origin says that `seq` will not come; or that it is none of its own, which are `given` at most."""
        sequence = self._sequence(origin, topic)
        if sequence is None or seq > max(sequence.last, sequence.missing):
            return
        if given is not None and given < seq:
            self._disown(origin, topic, sequence, seq, given)
            return
        sequence.confirm(seq)
        if seq <= sequence.last:
            return
        if self._port.now - sequence.noticed >= PATIENCE:
            self.given_up += 1
            sequence.last = seq
            self._drain(origin, topic, sequence)

    def expect(self, origin: BrokerRef, topic: str, seq: int) -> None:
        """The origin says that its last publication to the topic was `seq`: ask for it unless it is there, or was never
        owed."""
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        if baseline is None or seq <= baseline:
            return
        sequence = self._sequence(origin, topic)
        if sequence is None:
            sequence = self._begin(origin, topic)
        sequence.used = True
        if seq > max(sequence.last, sequence.tail) and seq not in sequence.held:
            new = not sequence.missing
            sequence.tail = seq
            self._ask_later(origin, topic, sequence, new)

    def delivered(self, origin: BrokerRef, topic: str) -> int:
        """The number of the last publication delivered, 0 for none."""
        sequence = self._sequence(origin, topic)
        return 0 if sequence is None else sequence.last

    def has(self, origin: BrokerRef, topic: str, seq: int) -> bool:
        """Has everything been delivered that is owed of the publications up to this number?"""
        return seq <= self.delivered(origin, topic) or not self._owed(origin, topic, seq)

    def waiting(self) -> set[str]:
        """The topics of what is held."""
        return {topic for known in self._sequences.values() for topic, sequence in known.items() if sequence.held}

    def forget(self, broker: BrokerRef, over: bool) -> None:
        """An origin died: with QoS 0, or if its life is `over` for certain, what is missing will not come. Else it may
        have been cut off only: for `MEMORY` what is held waits for what it makes up (`saps.overlay.missed`). How far
        each sequence has come is kept, as it may repeat what has been delivered."""
        for sequence in self._sequences.get(broker, {}).values():
            if over or not sequence.reliable:
                self._release(sequence)
        died = self._died[broker] = self._port.now
        self._port.after(MEMORY, lambda: self._purge(broker, died))

    def sweep(self) -> None:
        """Once every `SWEEP` seconds: drop the sequences nothing came for since the last time. The origin has given up
        its presence meanwhile (`publishers.IDLE`) and begins anew, or this broker was no member."""
        for origin, known in list(self._sequences.items()):
            for topic, sequence in list(known.items()):
                if not sequence.used and not sequence.held:
                    self._remember(origin, topic, sequence)
                    del known[topic]
                sequence.used = False
            if not known:
                del self._sequences[origin]

    def _sequence(self, origin: BrokerRef, topic: str) -> _Sequence | None:
        known = self._sequences.get(origin)
        return None if known is None else known.get(topic)

    def _begin(self, origin: BrokerRef, topic: str, floor: int | None = None) -> _Sequence:
        """`floor`: the last publication, if it is not remembered; None: that of the origin."""
        sequence = self._sequences.setdefault(origin, {})[topic] = _Sequence(origin)
        last = self._lasts.pop((origin, topic), None)
        if last is None:
            last = self._floors.get(origin, 0) if floor is None else floor
        sequence.last = last
        return sequence

    def _remember(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        """A sequence is dropped."""
        self._lasts[origin, topic] = sequence.last
        if len(self._lasts) > LASTS:
            self._lasts.popitem(last=False)

    def _purge(self, broker: BrokerRef, died: float) -> None:
        if self._died.get(broker) != died:
            return  # it has died once more since, and was there in between
        del self._died[broker]
        if self._port.lost(broker):
            for topic, gone in self._sequences.get(broker, {}).items():
                for seq in list(gone.held):  # nobody has been told that it is here: if the origin is back it repeats it
                    self._taken(gone, seq)
                gone.first = 0
                self._remember(broker, topic, gone)
                self._floors[broker] = max(gone.last, self._floors.pop(broker, 0))
            self._sequences.pop(broker, None)
            if len(self._floors) > FLOORS:
                del self._floors[next(iter(self._floors))]

    def _pass(self, sequence: _Sequence, single: Batch, seq: int) -> int:
        sequence.left, sequence.entered, sequence.last = sequence.last, seq, seq
        if single.retain:
            self._retained(single)
        return self._deliver(single)[0]

    def _owed(self, origin: BrokerRef, topic: str, seq: int) -> bool:
        """Is the publication of that number owed to this broker?"""
        if self.starts and seq <= self.starts.get(origin, 0):
            return False
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        return baseline is None or seq > baseline

    def _waits(self, origin: BrokerRef, topic: str, prev: int, sequence: _Sequence) -> bool:
        """Is something owed missing before the one whose predecessor this is?"""
        return prev > sequence.last and self._owed(origin, topic, prev)

    def _doubted(self, origin: BrokerRef, topic: str, seq: int, sequence: _Sequence) -> bool:
        """It seems to have come before. Asks the origin whether `last` is its own if that is in doubt; True if this one
        cannot have been delivered unless it is."""
        now, contradicted = self._port.now, sequence.contradicts(seq)
        stuck = sequence.stuck(seq, now)
        if (contradicted or stuck) and now - sequence.asked >= ASK_AFTER and not self._port.lost(origin):
            sequence.asked = now
            self._port.send(origin, Nack(topic, sequence.last, sequence.last))
        return contradicted

    def _disown(self, origin: BrokerRef, topic: str, sequence: _Sequence, seq: int, given: int) -> None:
        """Somebody has published in the name of the origin: by `seq`, and whatever else has such numbers."""
        hit("number disowned")
        self.disowned += 1
        if sequence.last >= seq:
            sequence.go_back(given)
        if sequence.tail >= seq:
            sequence.tail = 0
        for number in [number for number, held in sequence.held.items() if max(number, held.prev) >= seq]:
            self._taken(sequence, number)
        sequence.first = min(sequence.held, default=0)
        if self._floors.get(origin, 0) > given:
            self._floors[origin] = given
        for (known, other), last in self._lasts.items():
            if known == origin and last > given:
                self._lasts[known, other] = given
        self._drain(origin, topic, sequence)

    def _hold(self, origin: BrokerRef, single: Batch, seq: int, prev: int, sequence: _Sequence) -> None:
        new = not sequence.missing
        sequence.hold(seq, single, prev, self._port.now)
        self._held_bytes += single.size
        self._ask_later(origin, single.topic, sequence, new)
        while sequence.held and (len(sequence.held) > HELD or self._held_bytes > HELD_BYTES):
            self._give_up(origin, single.topic, sequence)

    def _ask_later(self, origin: BrokerRef, topic: str, sequence: _Sequence, new: bool) -> None:
        """A publication is missing: ask for it, unless it comes by itself meanwhile."""
        if new:
            sequence.since = self._port.now
        if not sequence.asking:
            sequence.asking = True
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _drain(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        """Deliver what is held as far as nothing is missing before it. Of many gaps each is asked for when its turn
        comes, so that they do not cost `ASK_AFTER` each."""
        if not sequence.first or self._waits(origin, topic, sequence.held[sequence.first].prev, sequence):
            return
        for seq in sorted(sequence.held):
            if self._waits(origin, topic, sequence.held[seq].prev, sequence):
                sequence.first = seq
                if self._port.now - sequence.noticed >= ASK_AFTER:
                    self._nack(origin, topic, sequence)
                return
            hit("gap filled")
            sequence.since = self._port.now
            self._pass(sequence, self._taken(sequence, seq), seq)
        sequence.first = 0

    def _taken(self, sequence: _Sequence, seq: int) -> Batch:
        """What was held is held no longer."""
        single = sequence.release(seq)
        self._held_bytes -= single.size
        return single

    def _release(self, sequence: _Sequence, before: float = math.inf) -> None:
        """Deliver what is held with lower numbers, whatever is missing."""
        for seq in sorted(seq for seq in sequence.held if seq < before):
            self._pass(sequence, self._taken(sequence, seq), seq)
        sequence.first = min(sequence.held, default=0)

    def _ask(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        self._drain(origin, topic, sequence)
        if self._port.lost(origin):  # it cannot answer: the wait begins when it is back
            sequence.since = self._port.now
        waited = self._port.now - sequence.since
        if waited >= sequence.give_up_after and sequence.missing:
            self._give_up(origin, topic, sequence)
        sequence.asking = bool(sequence.missing)
        if sequence.missing:
            if waited >= ASK_AFTER / 2:
                self._nack(origin, topic, sequence)
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _nack(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        """Ask for what is missing."""
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        after = None if baseline is None else max(baseline, sequence.last)
        self._port.send(origin, Nack(topic, sequence.missing, after))

    def _give_up(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        hit("gap given up")
        self.given_up += 1
        sequence.last = sequence.missing
        self._drain(origin, topic, sequence)


def _bounds(frame: Publish) -> tuple[list[int], list[int]]:
    """The first and the last sequence number of each part."""
    seqs = frame.seqs
    if len(frame.parts) == 1:
        return [seqs[0]], [seqs[-1]]
    firsts, lasts = [0] * len(frame.parts), [0] * len(frame.parts)
    for number, seq in zip(frame.which, seqs, strict=True):
        firsts[number] = firsts[number] or seq
        lasts[number] = seq
    return firsts, lasts
