"""What arrives from other brokers, put in the publisher's order: no duplicate, no overtaking, a bounded wait.

Every publication names its predecessor: the same origin's previous publication to the same topic. It is delivered when
that one has been, or was never owed to this broker (sent before its subscription counted there, see
`Subscriptions.baseline`). Until then it is held, and the origin is asked for the missing one, which it repeats (QoS 1
and 2) or declares lost (QoS 0).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from saps.messages import Message
from saps.overlay.frames import Bundle, Data, Nack, Part, Run
from saps.overlay.keys import BrokerRef
from saps.overlay.numbers import Numbers
from saps.overlay.port import Port
from saps.plain import Encoded

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
HELD_BYTES = 64 << 20
"""Payload held in all; beyond it the gap of what has come last is given up. More costs memory when much is lost."""
HELD = 4096
"""Publications held per origin and topic; beyond it the oldest gap is given up, whatever its quality of service. At
1,000 messages a second that is 4 s."""
DOUBTED = -1
"""In the place of a number of subscribers: perhaps it has not been delivered, although a later number has."""


class _Held(NamedTuple):
    """A publication that waits for its predecessor."""

    data: Data
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
            return self.held[self.first].data.prev
        return self.tail if self.tail > self.last else 0

    @property
    def noticed(self) -> float:
        """When it was first known to be missing: a later one had come. (`held` is in the order of arrival.)"""
        return next(iter(self.held.values())).since if self.held else self.since

    @property
    def give_up_after(self) -> float:
        """See `GIVE_UP`."""
        return GIVE_UP_RELIABLE if self.reliable else GIVE_UP

    def hold(self, data: Data, now: float) -> None:
        """Keep it until what is missing before it has come."""
        self.held[data.seq] = _Held(data, now)
        if not self.first or data.seq < self.first:
            self.first = data.seq

    def release(self, seq: int) -> Data:
        """Keep it no longer. `first` is the caller's affair."""
        return self.held.pop(seq).data


class Inbox:
    """Everything one broker receives by multicast. `deliver` hands a message to the local subscribers and returns how
    many there were, `matching` only counts those of a topic; `baseline` is `Subscriptions.baseline`."""

    def __init__(
        self,
        port: Port,
        deliver: Callable[[Message], int],
        baseline: Callable[[str, tuple[str, int]], int | None],
        matching: Callable[[str], int],
    ) -> None:
        self._port = port
        self._deliver = deliver
        self._baseline = baseline
        self.matching = matching
        self._sequences: dict[tuple[BrokerRef, str], _Sequence] = {}
        self._died: dict[BrokerRef, float] = {}
        """When each origin was given up the last time."""
        self._floors: dict[BrokerRef, int] = {}
        """The last publication of origins that were dead for `MEMORY`: they may have been cut off, and come back."""
        self._held_bytes = 0
        self.given_up = 0
        """Gaps that were not filled."""
        self.disowned = 0
        """Times that an origin has said that a number was none of its own."""
        self.retained: Callable[[Data], None] = lambda data: None
        """Told of each retained publication before it is delivered."""
        self.seen: Callable[[Message, BrokerRef, int], None] | None = None
        """Told which publication each message is, before it is delivered, while somebody wants to know."""
        self.deliver_run: Callable[[str, int, list[bytes]], int] = self._deliver_each
        """Hands plain messages (topic, QoS, payloads) to the local subscribers, as `deliver` does each."""
        self.deliver_stretch: Callable[[Encoded], None] = self._deliver_runs
        """The same for those of a stretch."""
        self.deliver_several: Callable[[list[str], list[int], list[bytes]], list[int]] = self._deliver_by_topics
        """The same for those of a bundle: its topics, of each message the number of its topic, and the payloads.
        Returns how many subscribers each topic has."""

    def accept(self, origin: BrokerRef, data: Data) -> int | None:
        """Deliver a publication or hold it. Returns the number of subscribers it reaches now or, with QoS 1 and 2,
        will reach; None for a duplicate, `DOUBTED` for what may be none: the origin is asked, and must repeat it."""
        sequence = self._sequences.get((origin, data.topic))
        if sequence is None:
            sequence = self._begin(origin, data.topic)
        sequence.used = True
        if data.seq in sequence.held:
            return None
        if data.seq <= sequence.last:
            return DOUBTED if self._doubted(origin, data, sequence) else None
        sequence.reliable |= data.qos > 0
        if self._waits(origin, data, sequence):
            self._hold(origin, data, sequence)
            return self.matching(data.topic) if data.qos else 0
        if sequence.first and sequence.first < data.seq:
            self._release(sequence, data.seq)  # of an earlier subscription: if they are delivered, then before this one
        reached = self._pass(sequence, data)
        self._drain(origin, sequence)
        return reached

    def follows(self, origin: BrokerRef, run: Run | Part) -> bool:
        """Are these the next publications to be delivered, all of them? Else each goes its own way (`accept`)."""
        sequence = self._sequences.get((origin, run.topic))
        if sequence is None:
            sequence = self._begin(origin, run.topic)
        return (
            self.seen is None
            and run.seq > sequence.last
            and not sequence.held
            and not self._waits(origin, run, sequence)
        )

    def accept_run(self, origin: BrokerRef, run: Run) -> int:
        """Deliver a run that `follows`. Returns the number of subscribers it reaches."""
        self._pass_several(origin, run, len(run.payloads)).reliable |= run.qos > 0
        return self.deliver_run(run.topic, run.qos, run.payloads)

    def follow(self, origin: BrokerRef, parts: list[Part]) -> bool:
        """Do all of them `follows`?"""
        return all(self.follows(origin, part) for part in parts)

    def accept_stretch(self, origin: BrokerRef, parts: list[Part], stretch: Encoded) -> None:
        """Deliver a stretch of parts that `follow`."""
        for part, count in zip(parts, stretch.counts, strict=True):
            self._pass_several(origin, part, count)
        self.deliver_stretch(stretch)

    def accept_bundle(self, origin: BrokerRef, bundle: Bundle) -> list[int]:
        """Deliver a bundle of parts that `follow`. Returns for each the number of subscribers it reaches."""
        counts = Counter(bundle.which)
        for number, part in enumerate(bundle.parts):
            self._pass_several(origin, part, counts[number]).reliable = True
        return self.deliver_several([part.topic for part in bundle.parts], bundle.which, bundle.payloads)

    def _pass_several(self, origin: BrokerRef, run: Run | Part, count: int) -> _Sequence:
        """So many publications to one topic are delivered, which `follow`."""
        sequence = self._sequences[origin, run.topic]
        sequence.used = True
        sequence.left, sequence.entered = sequence.last, run.seq
        sequence.last = run.seq + count - 1
        return sequence

    def _deliver_each(self, topic: str, qos: int, payloads: list[bytes]) -> int:
        reached = 0
        for payload in payloads:
            reached = self._deliver(Message(topic, payload, qos))
        return reached

    def _deliver_runs(self, stretch: Encoded) -> None:
        for run in stretch.runs():
            self.deliver_run(run.topic, run.qos, run.payloads)

    def _deliver_by_topics(self, topics: list[str], which: list[int], payloads: list[bytes]) -> list[int]:
        reached = [0] * len(topics)
        for number, payload in zip(which, payloads, strict=True):
            reached[number] = self._deliver(Message(topics[number], payload, 1))
        return reached

    def skip(self, origin: BrokerRef, topic: str, seq: int, given: int | None = None) -> None:
        """The origin says that `seq` will not come; or that it is none of its own, which are `given` at most."""
        sequence = self._sequences.get((origin, topic))
        if sequence is None or seq > max(sequence.last, sequence.missing):
            return
        if given is not None and given < seq:
            self._disown(origin, sequence, seq, given)
            return
        sequence.confirm(seq)
        if seq <= sequence.last:
            return
        if self._port.now - sequence.noticed >= PATIENCE:
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
            sequence = self._begin(origin, topic)
        sequence.used = True
        if seq > max(sequence.last, sequence.tail) and seq not in sequence.held:
            new = not sequence.missing
            sequence.tail = seq
            self._ask_later(origin, topic, sequence, new)

    def delivered(self, origin: BrokerRef, topic: str) -> int:
        """The number of the last publication delivered, 0 for none."""
        sequence = self._sequences.get((origin, topic))
        return 0 if sequence is None else sequence.last

    def waiting(self) -> set[str]:
        """The topics of what is held."""
        return {topic for (_, topic), sequence in self._sequences.items() if sequence.held}

    def forget(self, broker: BrokerRef) -> None:
        """An origin died: what it did not send any more will not come. (Its sequences are kept for a while: if it was
        taken for dead wrongly, it may repeat what has been delivered.)"""
        for (origin, _), sequence in self._sequences.items():
            if origin == broker:
                self._release(sequence)
        died = self._died[broker] = self._port.now
        self._port.after(MEMORY, lambda: self._purge(broker, died))

    def sweep(self) -> None:
        """Once every `SWEEP` seconds: drop the sequences nothing came for since the last time. The origin has given up
        its presence meanwhile (`presence.IDLE`) and begins anew, or this broker was no member."""
        for key, sequence in list(self._sequences.items()):
            if not sequence.used and not sequence.held:
                del self._sequences[key]
            sequence.used = False

    def _begin(self, origin: BrokerRef, topic: str) -> _Sequence:
        sequence = self._sequences[origin, topic] = _Sequence(origin)
        sequence.last = self._floors.get(origin, 0)
        return sequence

    def _purge(self, broker: BrokerRef, died: float) -> None:
        if self._died.get(broker) != died:
            return  # it has died once more since, and was there in between
        del self._died[broker]
        if self._port.lost(broker):
            for key in [key for key in self._sequences if key[0] == broker]:
                gone = self._sequences.pop(key)
                self._floors[broker] = max(gone.last, self._floors.pop(broker, 0))
                self._held_bytes -= sum(len(held.data.payload) for held in gone.held.values())
            if len(self._floors) > FLOORS:
                del self._floors[next(iter(self._floors))]

    def _pass(self, sequence: _Sequence, data: Data) -> int:
        sequence.left, sequence.entered, sequence.last = sequence.last, data.seq, data.seq
        if data.retain:
            self.retained(data)
        message = Message(data.topic, data.payload, data.qos, data.retain, data.properties)
        if self.seen is not None:
            self.seen(message, sequence.origin, data.seq)
        return self._deliver(message)

    def _waits(self, origin: BrokerRef, data: Data | Run | Part, sequence: _Sequence) -> bool:
        """Is something owed missing before it?"""
        if data.prev <= sequence.last:
            return False
        baseline = self._baseline(data.topic, (origin.name, origin.incarnation))
        return baseline is None or data.prev > baseline

    def _doubted(self, origin: BrokerRef, data: Data, sequence: _Sequence) -> bool:
        """It seems to have come before. Asks the origin whether `last` is its own if that is in doubt; True if this one
        cannot have been delivered unless it is."""
        now, contradicted = self._port.now, sequence.contradicts(data.seq)
        stuck = sequence.stuck(data.seq, now)
        if (contradicted or stuck) and now - sequence.asked >= ASK_AFTER and not self._port.lost(origin):
            sequence.asked = now
            self._port.send(origin, Nack(data.topic, sequence.last, sequence.last))
        return contradicted

    def _disown(self, origin: BrokerRef, sequence: _Sequence, seq: int, given: int) -> None:
        """Somebody has published in the name of the origin: by `seq`, and whatever else has such numbers."""
        self.disowned += 1
        if sequence.last >= seq:
            sequence.go_back(given)
        if sequence.tail >= seq:
            sequence.tail = 0
        for number in [number for number, held in sequence.held.items() if max(number, held.data.prev) >= seq]:
            self._taken(sequence, number)
        sequence.first = min(sequence.held, default=0)
        if self._floors.get(origin, 0) > given:
            self._floors[origin] = given
        self._drain(origin, sequence)

    def _hold(self, origin: BrokerRef, data: Data, sequence: _Sequence) -> None:
        new = not sequence.missing
        sequence.hold(data, self._port.now)
        self._held_bytes += len(data.payload)
        self._ask_later(origin, data.topic, sequence, new)
        while sequence.held and (len(sequence.held) > HELD or self._held_bytes > HELD_BYTES):
            self._give_up(origin, sequence)

    def _ask_later(self, origin: BrokerRef, topic: str, sequence: _Sequence, new: bool) -> None:
        """A publication is missing: ask for it, unless it comes by itself meanwhile."""
        if new:
            sequence.since = self._port.now
        if not sequence.asking:
            sequence.asking = True
            self._port.after(ASK_AFTER, lambda: self._ask(origin, topic, sequence))

    def _drain(self, origin: BrokerRef, sequence: _Sequence) -> None:
        """Deliver what is held as far as nothing is missing before it. Of many gaps each is asked for when its turn
        comes, so that they do not cost `ASK_AFTER` each."""
        if not sequence.first or self._waits(origin, sequence.held[sequence.first].data, sequence):
            return
        for seq in sorted(sequence.held):
            data = sequence.held[seq].data
            if self._waits(origin, data, sequence):
                sequence.first = seq
                if self._port.now - sequence.noticed >= ASK_AFTER:
                    self._nack(origin, data.topic, sequence)
                return
            sequence.since = self._port.now
            self._pass(sequence, self._taken(sequence, seq))
        sequence.first = 0

    def _taken(self, sequence: _Sequence, seq: int) -> Data:
        """What was held is held no longer."""
        data = sequence.release(seq)
        self._held_bytes -= len(data.payload)
        return data

    def _release(self, sequence: _Sequence, before: float = math.inf) -> None:
        """Deliver what is held with lower numbers, whatever is missing."""
        for seq in sorted(seq for seq in sequence.held if seq < before):
            self._pass(sequence, self._taken(sequence, seq))
        sequence.first = min(sequence.held, default=0)

    def _ask(self, origin: BrokerRef, topic: str, sequence: _Sequence) -> None:
        self._drain(origin, sequence)
        waited = self._port.now - sequence.since
        if waited >= sequence.give_up_after and sequence.missing:
            self._give_up(origin, sequence)
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

    def _give_up(self, origin: BrokerRef, sequence: _Sequence) -> None:
        self.given_up += 1
        sequence.last = sequence.missing
        self._drain(origin, sequence)
