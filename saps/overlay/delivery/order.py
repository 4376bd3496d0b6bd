"""Puts publications from other brokers into their publisher's order: no duplicate, no overtaking, a bounded wait.

Every publication names its predecessor: the same origin's previous publication to the same topic.

1. A publication is delivered when its predecessor has been delivered, or was never owed to this broker. A predecessor
   is not owed if it was sent before the subscription counted at the origin (`Subscriptions.baseline`).
2. Until then the publication is held, and the origin is asked for the predecessor.
3. The origin repeats the predecessor (QoS 1 and 2) or declares it lost (QoS 0).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from saps.marks import hit
from saps.overlay.delivery.numbers import Numbers
from saps.overlay.delivery.publications import batch_of, prevs_of
from saps.overlay.frames.delivery import Nack, Publish
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch

ASK_AFTER = 0.1
"""Seconds that a publication is held before the origin is asked for its predecessor, and between two requests."""
OVERDUE = 1.0
"""Seconds for which a predecessor that the origin cannot repeat may still be on its way after all that has come before
it. A shorter time lets QoS 0 traffic flow again sooner after a loss."""
GIVE_UP = 3.0
"""Seconds without progress after which a predecessor is given up if its origin is alive but does not account for it.
Applies while only QoS 0 has come from the origin to the topic."""
GIVE_UP_RELIABLE = 15.0
"""The same limit once QoS 1 or 2 has come, because the missing publication may be owed. It exceeds the longest stall
seen of brokers on an overloaded machine."""
SWEEP = 120.0
"""Interval between two sweeps in seconds; must exceed the time after which an idle publisher begins anew."""
MEMORY = 60.0
"""Time for which the sequences of a dead origin are kept, in seconds."""
FLOORS = 4096
"""Most origins whose last delivered number is remembered. Each costs about 100 bytes."""
LASTS = 1 << 17
"""Most pairs of origin and topic without a sequence whose last delivery is remembered. Each costs about 200 bytes."""
HELD_BYTES = 64 << 20
"""Most payload held over all sequences, in bytes. Beyond it the gap before the latest arrival is given up, or with QoS
1 and 2 the arrival is dropped. A higher limit costs memory when much is lost."""
HELD = 4096
"""Most publications held per origin and topic; the same beyond it. At 1,000 messages a second this is 4 s."""
DOUBTED = -1
"""Stands for a number of subscribers if a publication is held, or may not have been delivered although a later number
has. The publishers' broker must repeat the publication."""


class _Held(NamedTuple):
    """A publication that waits for its predecessor."""

    single: Batch
    """The publication as a batch of one."""
    prev: int
    """Sequence number of its predecessor."""
    since: float
    """When the publication came, in seconds of the port's clock."""


class _Sequence(Numbers):
    """One origin's publications to one topic."""

    __slots__ = ("asked", "asking", "came", "first", "held", "origin", "reliable", "since", "skipped", "tail", "used")

    def __init__(self, origin: BrokerRef) -> None:
        super().__init__()
        self.origin = origin
        self.used = True
        """Whether a publication has come since the last `sweep`."""
        self.held: dict[int, _Held] = {}
        self.first = 0
        """The lowest number in `held`, or 0 if none is held."""
        self.reliable = False
        """Whether a publication with QoS 1 or 2 has come."""
        self.tail = 0
        """The last number that the origin says it has published (`Inbox.expect`)."""
        self.since = 0.0
        """When the present gap was noticed, or the last delivery from `held` since then."""
        self.skipped = 0
        """The last missing number that the origin cannot repeat, nor any before it."""
        self.came = -math.inf
        """When something before `skipped` last came: the others may be behind it, on a way with a queue."""
        self.asking = False
        self.asked = -math.inf
        """When the origin was last asked whether `last` is its own."""

    @property
    def missing(self) -> int:
        """Sequence number of the first missing publication, or 0 if none is missing."""
        if self.first:
            return self.held[self.first].prev
        return self.tail if self.tail > self.last else 0

    @property
    def noticed(self) -> float:
        """When the gap was first known: when the oldest held publication came. (`held` is in order of arrival.)"""
        return next(iter(self.held.values())).since if self.held else self.since

    @property
    def give_up_after(self) -> float:
        """Seconds without progress after which a gap is given up (`GIVE_UP`, `GIVE_UP_RELIABLE`)."""
        return GIVE_UP_RELIABLE if self.reliable else GIVE_UP

    def hold(self, seq: int, single: Batch, prev: int, now: float) -> None:
        """Hold a publication until its predecessor has come."""
        self.held[seq] = _Held(single, prev, now)
        if not self.first or seq < self.first:
            self.first = seq

    def release(self, seq: int) -> Batch:
        """Remove a publication from `held` and return it. The caller must update `first`."""
        return self.held.pop(seq).single


class Inbox:
    """Orders and delivers the publications that one broker receives from others."""

    def __init__(
        self,
        port: Port,
        deliver: Callable[[Batch], list[int]],
        baseline: Callable[[str, tuple[str, int]], int | None],
        matching: Callable[[str], int],
        retained: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        """`deliver` hands a batch to the local subscribers and returns the number of subscribers of each topic.
        `matching` returns that number for a topic without delivering. `baseline` is `Subscriptions.baseline`.
        `retained` is called with retained publications before they are delivered."""
        self._port = port
        self._deliver = deliver
        self._baseline = baseline
        self._matching = matching
        self._retained = retained
        self._sequences: dict[BrokerRef, dict[str, _Sequence]] = {}
        """The sequences by origin and topic."""
        self._died: dict[BrokerRef, float] = {}
        """When each origin was last declared dead, in seconds of the port's clock."""
        self._floors: dict[BrokerRef, int] = {}
        """Last number of origins of which `_lasts` has forgotten something."""
        self._lasts: OrderedDict[tuple[BrokerRef, str], int] = OrderedDict()
        """Last number delivered of sequences that were dropped, by origin and topic. An origin dead for `MEMORY`
        may have been cut off only, and come back."""
        self.starts: dict[BrokerRef, int] = {}
        """By origin that sends this broker what it missed: publications up to this number are not owed, except those
        that the origin sends again (`saps.overlay.missed.catchup`)."""
        self.adopting: dict[int, BrokerRef] = {}
        """By number of adoption: the dead brokers whose sessions are being adopted here. What their next incarnations
        publish meanwhile is not acknowledged: nobody logs it for the dead one, and those sessions are not stored
        yet."""
        self._held_bytes = 0
        self.given_up = 0
        """Gaps given up since the start."""
        self.disowned = 0
        """Times that an origin declared a number not to be its own."""
        self.duplicates = 0
        """Publications received more than once."""

    def accept(self, origin: BrokerRef, frame: Publish) -> list[int]:
        """Deliver or hold the publications of a frame.

        Returns for each part of the frame the number of subscribers that it reaches now. With QoS 1 and 2 a part counts
        as `DOUBTED` if one of its publications is held, may not have been delivered, or may be lost with the sessions
        of `adopting`: it is not acknowledged, so its publishers' broker repeats it.
        """
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
        if whole:
            for sequence, first, last in zip(sequences, firsts, lasts, strict=True):
                sequence.left, sequence.entered, sequence.last = sequence.last, first, last
                if frame.qos:
                    sequence.reliable = True
            if frame.retain:
                self._retained(batch)
            reached = self._deliver(batch)
        else:
            reached = self._accept_each(origin, frame, batch, sequences)
        if self.adopting and frame.qos and any(map(origin.succeeds, self.adopting.values())):
            hit("published by the next incarnation during an adoption")
            return [DOUBTED] * len(reached)
        return reached

    def make_up(self, origin: BrokerRef, frame: Publish, given: bool = False) -> None:
        """Deliver publications that the origin has logged for this broker (`saps.overlay.missed.catchup`). `given`:
        those that want them have got them by themselves, so only note them."""
        known = self._sequences.get(origin, {})
        for part in frame.parts:
            if part.topic not in known:
                self._begin(origin, part.topic, 0)
        if not given:
            self.accept(origin, frame)
            return
        for number, seq in zip(frame.which, frame.seqs, strict=True):
            topic = frame.parts[number].topic
            sequence = self._sequences[origin][topic]
            if seq > sequence.last and (not sequence.first or seq < sequence.first):
                sequence.last = seq
                self._drain(origin, topic, sequence)

    def _accept_each(self, origin: BrokerRef, frame: Publish, batch: Batch, sequences: list[_Sequence]) -> list[int]:
        """Accept publications one by one, as not all of them are next in order. Returns as `accept` does."""
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
        """Deliver or hold a batch of one. Returns the number of subscribers, `DOUBTED`, or None for a duplicate."""
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
            self._release(sequence, seq)  # held for an earlier subscription: they must not follow this publication
        reached = self._pass(sequence, single, seq)
        if sequence.held and sequence.skipped == sequence.missing:
            sequence.came = self._port.now
        self._drain(origin, topic, sequence)
        return reached

    def skip(self, origin: BrokerRef, topic: str, seq: int, given: int | None = None) -> None:
        """Handle the origin's word that `seq` will not come. `given`: the origin disowns `seq`, as it has assigned no
        number above `given`."""
        sequence = self._sequence(origin, topic)
        if sequence is None or seq > max(sequence.last, sequence.missing):
            return
        if given is not None and given < seq:
            self._disown(origin, topic, sequence, seq, given)
            return
        sequence.confirm(seq)
        if seq <= sequence.last:
            return
        sequence.skipped = seq
        if self._port.now - max(sequence.noticed, sequence.came) >= OVERDUE:
            self.given_up += 1
            sequence.last = seq
            self._drain(origin, topic, sequence)

    def expect(self, origin: BrokerRef, topic: str, seq: int) -> bool:
        """Handle the origin's word that its last publication to the topic was `seq`. Asks for it unless it has come or
        was never owed. Returns whether it may come: False if the origin has been dead for `MEMORY`."""
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        if baseline is None or seq <= baseline:
            return False
        sequence = self._sequence(origin, topic)
        if sequence is None:
            sequence = self._begin(origin, topic)
        sequence.used = True
        if seq > max(sequence.last, sequence.tail) and seq not in sequence.held:
            new = not sequence.missing
            sequence.tail = seq
            self._ask_later(origin, topic, sequence, new)
        return not self._port.lost(origin) or self._port.now - self._died.get(origin, 0.0) < MEMORY

    def delivered(self, origin: BrokerRef, topic: str) -> int:
        """Return the number of the last publication delivered from `origin` to a topic, or 0 for none."""
        sequence = self._sequence(origin, topic)
        if sequence is not None:
            return sequence.last
        return self._lasts.get((origin, topic), self._floors.get(origin, 0))  # it may have been dropped

    def has(self, origin: BrokerRef, topic: str, seq: int) -> bool:
        """Return whether all owed publications up to this number have been delivered."""
        return seq <= self.delivered(origin, topic) or not self._owed(origin, topic, seq)

    @property
    def origins(self) -> set[BrokerRef]:
        """The brokers from which publications have come, or will come after a cut."""
        return {*self.starts, *self._sequences}

    def waiting(self) -> set[str]:
        """Return the topics with held publications."""
        return {topic for known in self._sequences.values() for topic, sequence in known.items() if sequence.held}

    def forget(self, broker: BrokerRef, over: bool) -> None:
        """Handle the death of an origin.

        With QoS 0, or if the incarnation is certainly `over`, missing publications will not come: what is held is
        delivered. Otherwise the origin may have been cut off only, and what is held waits for `MEMORY` seconds for the
        origin to send what was missed (`saps.overlay.missed`). The last number of each sequence is kept, as the origin
        may repeat what has been delivered.
        """
        for sequence in self._sequences.get(broker, {}).values():
            if over or not sequence.reliable:
                self._release(sequence)
        died = self._died[broker] = self._port.now
        self._port.after(MEMORY, lambda: self._purge(broker, died))

    def sweep(self) -> None:
        """Drop the sequences without a publication since the last sweep; call this every `SWEEP` seconds. Their origin
        has withdrawn its publisher key meanwhile (`publisher_registry.IDLE`), or this broker was no member."""
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
        """Begin a sequence at its remembered last number. Else it begins at `floor`, or at the floor of the origin if
        `floor` is None."""
        last = self.delivered(origin, topic) if floor is None else self._lasts.get((origin, topic), floor)
        self._lasts.pop((origin, topic), None)
        sequence = self._sequences.setdefault(origin, {})[topic] = _Sequence(origin)
        sequence.last = last
        return sequence

    def _remember(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        """Remember the last number of a sequence that is dropped."""
        self._lasts[origin, topic] = sequence.last
        if len(self._lasts) > LASTS:
            (broker, _), last = self._lasts.popitem(last=False)
            self._floors[broker] = max(last, self._floors.pop(broker, 0))
            if len(self._floors) > FLOORS:
                del self._floors[next(iter(self._floors))]

    def _purge(self, broker: BrokerRef, died: float) -> None:
        if self._died.get(broker) != died:
            return  # it came back and died again since
        del self._died[broker]
        if self._port.lost(broker):
            for topic, gone in self._sequences.get(broker, {}).items():
                for seq in list(gone.held):  # held ones are unacknowledged: an origin that comes back repeats them
                    self._taken(gone, seq)
                gone.first = gone.tail = 0
                self._remember(broker, topic, gone)
            self._sequences.pop(broker, None)

    def _pass(self, sequence: _Sequence, single: Batch, seq: int) -> int:
        sequence.left, sequence.entered, sequence.last = sequence.last, seq, seq
        if single.retain:
            self._retained(single)
        return self._deliver(single)[0]

    def _owed(self, origin: BrokerRef, topic: str, seq: int) -> bool:
        """Return whether the origin owes this broker the publication with that number."""
        if self.starts and seq <= self.starts.get(origin, 0):
            return False
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        return baseline is None or seq > baseline

    def _waits(self, origin: BrokerRef, topic: str, prev: int, sequence: _Sequence) -> bool:
        """Return whether a publication with this predecessor must wait for it: `prev` is owed and not delivered."""
        return prev > sequence.last and self._owed(origin, topic, prev)

    def _doubted(self, origin: BrokerRef, topic: str, seq: int, sequence: _Sequence) -> bool:
        """Check an apparent duplicate. If `last` is in doubt, asks the origin whether `last` is its own. Returns True
        if the publication contradicts the last step, so that it cannot have been delivered."""
        now, contradicted = self._port.now, sequence.contradicts(seq)
        stuck = sequence.stuck(seq, now)
        if (contradicted or stuck) and now - sequence.asked >= ASK_AFTER and not self._port.lost(origin):
            sequence.asked = now
            self._port.send(origin, Nack(topic, sequence.last, sequence.last))
        return contradicted

    def _disown(self, origin: BrokerRef, topic: str, sequence: _Sequence, seq: int, given: int) -> None:
        """Take back forged publications: the origin has assigned no number above `given`, so `seq` is not its own."""
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
        """Hold a publication, if there is room.

        Where QoS 1 or 2 is missing there may be none: the publication is dropped, and asked for when the gap is filled.
        Where only QoS 0 is missing the gap is given up."""
        new = not sequence.missing
        full = len(sequence.held) >= HELD or self._held_bytes + single.size > HELD_BYTES
        if full and sequence.reliable:
            hit("no room to hold")
            sequence.tail = max(sequence.tail, seq)
        else:
            sequence.hold(seq, single, prev, self._port.now)
            self._held_bytes += single.size
        self._ask_later(origin, single.topic, sequence, new)
        while sequence.held and not sequence.reliable and (len(sequence.held) > HELD or self._held_bytes > HELD_BYTES):
            self._give_up(origin, single.topic, sequence)

    def _ask_later(self, origin: BrokerRef, topic: str, sequence: _Sequence, new: bool) -> None:
        """Ask for a missing publication after `ASK_AFTER`, unless it has come by then."""
        if new:
            sequence.since = self._port.now
        if not sequence.asking:
            sequence.asking = True
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _drain(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        """Deliver held publications up to the first gap. A gap that is old enough is asked for at once, so that many
        gaps do not cost `ASK_AFTER` each."""
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
        """Remove a publication from `held`, update the bytes held, and return it. The caller must update `first`."""
        single = sequence.release(seq)
        self._held_bytes -= single.size
        return single

    def _release(self, sequence: _Sequence, before: float = math.inf) -> None:
        """Deliver the held publications with numbers below `before`, whatever is missing."""
        for seq in sorted(seq for seq in sequence.held if seq < before):
            self._pass(sequence, self._taken(sequence, seq), seq)
        sequence.first = min(sequence.held, default=0)

    def _ask(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        self._drain(origin, topic, sequence)
        if self._port.lost(origin):  # it cannot answer: the limit counts from its return
            sequence.since = self._port.now
        waited = self._port.now - max(sequence.since, sequence.came)
        if waited >= sequence.give_up_after and sequence.missing:
            self._give_up(origin, topic, sequence)
        sequence.asking = bool(sequence.missing)
        if sequence.missing:
            if waited >= ASK_AFTER / 2:
                self._nack(origin, topic, sequence)
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _nack(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        """Ask the origin for the missing publications."""
        baseline = self._baseline(topic, (origin.name, origin.incarnation))
        after = None if baseline is None else max(baseline, sequence.last)
        self._port.send(origin, Nack(topic, sequence.missing, after))

    def _give_up(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        hit("gap given up")
        self.given_up += 1
        sequence.last = sequence.missing
        self._drain(origin, topic, sequence)


def _bounds(frame: Publish) -> tuple[list[int], list[int]]:
    """Return the first sequence numbers of the parts, and the last ones."""
    seqs = frame.seqs
    if len(frame.parts) == 1:
        return [seqs[0]], [seqs[-1]]
    firsts, lasts = [0] * len(frame.parts), [0] * len(frame.parts)
    for number, seq in zip(frame.which, seqs, strict=True):
        firsts[number] = firsts[number] or seq
        lasts[number] = seq
    return firsts, lasts
