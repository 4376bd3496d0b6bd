"""The replicated store of retained messages: each topic belongs to one of `PARTITIONS`, which `HOLDERS` brokers hold.

A holder has a key at its partition's place in the overlay, so a range call to the place reaches all of them. It puts
the key in and *then* collects what the others have, as a publisher does with filters (decision 010): what is kept later
reaches it, what was kept before is collected. So any one holder that lives has everything. The holders of a partition
are neighbours on level 0 and so watch each other: when one is gone, another one is enlisted. Nobody holds what nobody
uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from msgspec.structs import replace

from saps.messages import Message, Properties, size_of, stamp_of
from saps.overlay.frames.calls import Body, Keep, Kept, Recall, Record, Result, Stored
from saps.overlay.frames.delivery import Enlist, Enlisted
from saps.overlay.port import Bodies, Handlers, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.retained.partitions import Bucket, Holder, State, rank
from saps.overlay.retained.stamps import seconds
from saps.overlay.ring.keys import BrokerRef, Key, Range, partition_key, partition_of_key, partition_range
from saps.overlay.ring.skip_graph import SkipGraph
from saps.routing.retained import RetainedStore

HOLDERS = 3
"""Brokers that keep each retained message. It survives if all but one of them crash at once. Each more costs a frame
for every retained publication."""
PARTITIONS = 64
"""Number of partitions, with `HOLDERS` keys each. More spread the load over more brokers."""
CENSUS = 30.0
"""Seconds between two counts of a partition's holders; after a crash they are counted at once."""
ENLIST = 1.0
"""Seconds to wait for the answer of an enlisted broker."""
DELETED = 3600.0
"""Seconds for which a deletion is remembered, and a message that has expired since it was published. A part of the mesh
that was cut off for longer may bring an older message back."""
EXPIRED = 1000
"""Deletions in a partition above which no further expired message is remembered. Each costs about 1 KiB."""
PART = 1 << 17
"""Bytes at which a holder's answer, or a frame with records of one partition, is full. A link gives up what does not
fit it, and the answers of all holders of all partitions may be in one frame."""
TOPICS = 100_000
"""Most topics that a holder keeps in each partition."""


def partition_of(topic: str) -> int:
    """Return the partition of a topic."""
    return blake2b(topic.encode(), digest_size=1).digest()[0] % PARTITIONS


def newer(record: Record, known: Record | None) -> bool:
    """Return whether `record` replaces `known`. All brokers decide alike."""
    if known is None:
        return True
    new, old = record.message, known.message
    return (stamp_of(new), new.payload) > (stamp_of(old), old.payload)


def _part(records: list[Record], after: str) -> Stored:
    """Return the first records behind a topic, in the order of topics, as many as fit in a frame."""
    if not after and sum(size_of(record.message) for record in records) <= PART:
        return Stored(records)
    behind = sorted((r for r in records if r.message.topic > after), key=lambda r: r.message.topic)
    size = 0
    for count, record in enumerate(behind):
        if size >= PART:
            return Stored(behind[:count], more=True)
        size += size_of(record.message)
    return Stored(behind)


def rest(question: Recall, outcome: Outcome) -> Recall | None:
    """Return the question for the records that the answers have left out, or None if they have left out none."""
    answers = [result for result in outcome.results if isinstance(result, Stored) and result.more and result.records]
    last = min((answer.records[-1].message.topic for answer in answers), default="")
    return replace(question, after=last) if last > question.after else None


class _Partition(Bucket):
    """A partition held here, with its retained messages."""

    __slots__ = ("checking", "records", "unchecked")

    def __init__(self, number: int, key: Key) -> None:
        super().__init__(number, key)
        self.records: RetainedStore[Record] = RetainedStore(TOPICS)
        self.checking = False
        self.unchecked = False
        """Whether a broker has gone while the partition was being collected."""


class ReplicatedStore(Holder[_Partition]):
    """The partitions that one broker holds; it enlists other holders when some are missing."""

    def __init__(
        self,
        port: Port,
        graph: SkipGraph,
        calls: RangeCalls,
        acquaintances: Callable[[], Iterable[BrokerRef]],
        wall: Callable[[], float],
    ) -> None:
        """`acquaintances` returns brokers that may be enlisted, `wall` the mesh's time in seconds since the epoch."""
        super().__init__(port, graph, calls)
        self._acquaintances = acquaintances
        self._wall = wall
        self._enlisting: dict[int, Callable[[bool], None]] = {}
        """By serial: the callback for the answer of an enlisted broker."""
        self._serial = 0
        self.leaving = False
        self.refused = 0
        """Messages that were not kept, as their partitions were full."""
        self.on_record: list[Callable[[str, Record | None], None]] = []
        """Listeners, called with a topic and its record, or None when it is no longer kept here; a broker with storage
        stores them."""

    def __len__(self) -> int:
        """The number of retained messages held here."""
        return sum(len(partition.records) for partition in self._held.values())

    def matching(self, topic_filter: str) -> Iterator[Record]:
        """Yield the records held here whose topics match a filter, including remembered deletions."""
        for partition in self._held.values():
            yield from partition.records.matching(topic_filter)

    # --- what others ask of a holder ------------------------------------------------------------------------

    @property
    def handlers(self) -> Handlers:
        return {
            Enlist: self._on_enlist,
            Enlisted: lambda sender, frame: self._enlisted(frame.serial, frame.taken),
        }

    @property
    def bodies(self) -> Bodies:
        return {Keep: self._run, Recall: self._run}

    def _on_enlist(self, sender: BrokerRef, frame: Enlist) -> None:
        if self.leaving or not 0 <= frame.partition < PARTITIONS:
            self._port.send(sender, Enlisted(frame.serial, False))
        else:
            self.join(frame.partition, lambda: self._port.send(sender, Enlisted(frame.serial, True)))

    def _run(self, body: Keep | Recall, keys: list[Key]) -> list[Kept | Stored]:
        """Handle a range call at partitions held here."""
        held = [self._held[number] for number in map(partition_of_key, keys) if number in self._held]
        if isinstance(body, Keep):
            for partition in held:
                self._merge(partition, [r for r in body.records if partition_of(r.message.topic) == partition.number])
            ready = not self.leaving
            return [Kept(self._port.me, b.number, ready and b.state is State.READY) for b in held]
        found: list[Record] = []
        for partition in held:
            records, filters = partition.records, body.topic_filters
            if filters is None:
                found += records.values()
            elif len(records):
                found += {id(record): record for each in filters for record in records.matching(each)}.values()
        if body.limit and (len(found) > body.limit or sum(size_of(each.message) for each in found) > PART):
            return [Stored([], more=True)]
        return [_part(found, body.after)] if found else []

    def _empty(self, number: int) -> _Partition:
        return _Partition(number, partition_key(number, self._port.me, self._port.order))

    def _question(self, number: int) -> tuple[Range, Recall]:
        return partition_range(number), Recall(None)

    def _rest(self, question: Body, outcome: Outcome) -> Recall | None:
        return rest(question, outcome) if isinstance(question, Recall) else None

    def _take(self, partition: _Partition, result: Result) -> None:
        if isinstance(result, Stored):
            self._merge(partition, result.records)

    def _ready(self, partition: _Partition) -> None:
        if partition.unchecked:
            partition.unchecked = False
            self._check(partition)

    def _merge(self, partition: _Partition, records: Iterable[Record]) -> None:
        for record in records:
            topic = record.message.topic
            if not newer(record, partition.records.get(topic)):
                continue
            if partition.records.put(topic, record):
                self._tell(topic, record)
            elif record.message.payload:
                self.refused += 1

    # --- who holds a partition ------------------------------------------------------------------------------------

    def enlist(self, number: int, holders: set[str], wanted: int, done: Callable[[bool], None]) -> None:
        """Enlist `wanted` more brokers for a partition, beside its `holders`. `done` runs when they hold it, or no
        other broker is left to ask; with False if none was found."""
        known = {broker.name: broker for broker in self._acquaintances() if self._port.reachable(broker)}
        known[self._port.me.name] = self._port.me
        names = sorted(known.keys() - holders, key=lambda name: rank(number, name))
        candidates = [known[name] for name in names]
        found = waiting = 0

        def answered(taken: bool) -> None:
            nonlocal found, waiting
            waiting -= 1
            found += taken
            go_on()

        def go_on() -> None:
            nonlocal waiting
            while candidates and found + waiting < wanted:
                waiting += 1
                self._enlist_one(number, candidates.pop(0), answered)
            if not waiting:
                finish()

        finished = False

        def finish() -> None:
            nonlocal finished
            if not finished:
                finished = True
                done(found > 0)

        go_on()

    def _enlist_one(self, number: int, broker: BrokerRef, answered: Callable[[bool], None]) -> None:
        self._serial += 1
        serial = self._serial
        self._enlisting[serial] = answered
        if broker.name != self._port.me.name:
            self._port.send(broker, Enlist(number, serial))
        elif self.leaving:
            self._enlisted(serial, False)
        else:
            self.join(number, lambda: self._enlisted(serial, True))
        if serial in self._enlisting:
            self._port.after(ENLIST, lambda: self._enlisted(serial, False))

    def _enlisted(self, serial: int, taken: bool) -> None:
        answered = self._enlisting.pop(serial, None)
        if answered is not None:
            answered(taken)

    def check(self) -> None:
        """Check all partitions held here: drop expired records, and enlist or release holders."""
        for partition in list(self._held.values()):
            self._sweep(partition)
            self._check(partition)

    def _check(self, partition: _Partition, in_turn: bool = False) -> None:
        """Count the holders of a partition. `in_turn`: holders of a lower rank have had time to act."""
        if partition.state is State.COLLECTING:
            partition.unchecked = True
        if (
            partition.checking
            or partition.state is not State.READY
            or self._held.get(partition.number) is not partition
        ):
            return
        partition.checking = True

        def counted(outcome: Outcome) -> None:
            partition.checking = False
            partition.unchecked |= partition.state is State.COLLECTING
            kept = [result for result in outcome.results if isinstance(result, Kept)]
            if self._held.get(partition.number) is partition and partition.state is State.READY and not self.leaving:
                self._balance(partition, kept, in_turn)

        self._calls.call(partition_range(partition.number), Keep([]), counted)

    def _balance(self, partition: _Partition, kept: list[Kept], in_turn: bool) -> None:
        """Enlist missing holders if this is the first holder, or the earlier ones have not acted; give the partition up
        if enough others are ready."""
        names = sorted({result.broker.name for result in kept}, key=lambda name: rank(partition.number, name))
        me = self._port.me.name
        if len(names) < HOLDERS and (in_turn or names[:1] == [me]):
            self.enlist(partition.number, set(names), HOLDERS - len(names), lambda some: None)
        elif len(names) < HOLDERS and me in names:
            self._port.after(names.index(me) * ENLIST, lambda: self._check(partition, in_turn=True))
        elif me in names[HOLDERS:] and all(result.ready for result in kept if result.broker.name in names[:HOLDERS]):
            self._give_up(partition)

    def _dropped(self, partition: _Partition) -> None:
        for record in partition.records.values() if self.on_record else ():
            self._forgotten(record.message.topic)

    def _sweep(self, partition: _Partition) -> None:
        """Drop what has expired. A recent message becomes a deletion with its stamp, since a broker that has missed it
        may bring an older one."""
        now, records = self._wall(), partition.records.values()
        room = EXPIRED - sum(not record.message.payload for record in records)
        for record in records:
            if not record.expires or record.expires / 1000 > now:
                continue
            topic, stamp = record.message.topic, stamp_of(record.message)
            until = min(seconds(stamp), now) + DELETED
            if record.message.payload and until > now and room > 0:
                room -= 1
                message = Message(topic, b"", record.message.qos, True, Properties(stamp=stamp))
                deletion = Record(message, int(until * 1000), record.origin, record.seq)
                partition.records.put(topic, deletion)
                self._tell(topic, deletion)
            else:
                partition.records.remove(topic)
                self._forgotten(topic)

    def _forgotten(self, topic: str) -> None:
        self._tell(topic, None)

    def _tell(self, topic: str, record: Record | None) -> None:
        for told in self.on_record:
            told(topic, record)

    def purge(self, kept: Callable[[str], bool]) -> None:
        """Drop the records of all topics that are not to be `kept`."""
        for partition in self._held.values():
            for record in partition.records.values():
                if not kept(record.message.topic):
                    partition.records.remove(record.message.topic)
                    self._forgotten(record.message.topic)

    def holds(self, topic: str) -> bool:
        """Return whether this broker holds the partition of a topic."""
        return partition_of(topic) in self._held

    # --- what happens to brokers ---------------------------------------------------------------------------------

    def forget(self, broker: BrokerRef) -> None:
        """Check the partitions after a broker has died or left, as it may have been a holder."""
        if self._held:
            self._port.after(0, self.check)

    def leave(self, done: Callable[[], None]) -> None:
        """Hand the partitions over to other brokers; `done` runs when enough others have them."""
        self.leaving = True
        missing = 1 + len(self._held)

        def one_done(some: bool = True) -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        for partition in list(self._held.values()):
            self._hand_over(partition, one_done)
        one_done()

    def _hand_over(self, partition: _Partition, done: Callable[[bool], None]) -> None:
        def counted(outcome: Outcome) -> None:
            ready = {r.broker.name for r in outcome.results if isinstance(r, Kept) and r.ready}
            others = ready - {self._port.me.name}
            if len(others) < HOLDERS:
                self.enlist(partition.number, ready | {self._port.me.name}, HOLDERS - len(others), done)
            else:
                done(True)

        self._calls.call(partition_range(partition.number), Keep([]), counted)
