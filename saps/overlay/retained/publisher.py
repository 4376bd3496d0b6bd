"""Publishes retained messages into the mesh and recalls them for new subscribers (MQTT 5.0, 3.3.1.3).

A retained publication goes to the topic's members like any other, and to the holders of the topic's partition
(`saps.overlay.retained.store`). It has a stamp from a hybrid logical clock (Kulkarni et al. 2014), so that all
brokers agree which one of a topic is the last. A new subscriber's broker asks the holders after its filter has been
taken up by all publishers: what was published before is with the holders, or is told by its publisher, who has not
finished to keep it; what is published later comes as a publication.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from saps.mesh import Recalled
from saps.messages import Message, Properties, size_of, stamp_of
from saps.overlay.delivery.order import Inbox
from saps.overlay.frames.calls import Keep, Kept, Recall, Record, Stored
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.rendezvous.subscriber_registry import Registration, Subscriptions
from saps.overlay.retained.stamps import StampClock, seconds
from saps.overlay.retained.store import DELETED, HOLDERS, PART, PARTITIONS, ReplicatedStore, newer, partition_of, rest
from saps.overlay.ring.keys import ALL_PARTITIONS, BrokerRef, Range, partition_range
from saps.overlay.slices import Slices
from saps.topics import is_wildcard, matches

LOST_AFTER = 3.0
"""Seconds after which a publication that has not come counts as lost."""
AT_ONCE = 1000
"""Most retained messages in one broker's answer to a call for all partitions. If there are more, each partition is
asked separately, so that no answer takes longer than a call may."""
ROUNDS_AT_ONCE = 8
"""Most calls to holders at once; further ones wait."""
RECALL_STEPS = 4
"""Steps that one filter counts in a slice of work, as each holder searches each of its partitions."""
RESTORED_AT_ONCE = 4 << 20
"""Bytes of restored records that are under way to the holders at once. A link gives up what does not fit it."""
ROUNDS = 3
"""Attempts to enlist holders for a publication; then the present ones suffice."""
LONGEST_EXPIRY = 0xFFFFFFFF
"""Longest message expiry in seconds (MQTT 5.0, 3.3.2.3.3)."""

Told = Callable[[], None]


class _Writer:
    """Writes this broker's records to one partition: one call at a time, with the last record of each topic."""

    __slots__ = ("busy", "next", "rounds", "sent")

    def __init__(self) -> None:
        self.sent: dict[str, tuple[Record, list[Told]]] = {}
        """By topic: the record under way to the holders, and the callbacks for it."""
        self.next: dict[str, tuple[Record, list[Told]]] = {}
        """By topic: the records of the next call."""
        self.busy = False
        self.rounds = 0


class _Question(NamedTuple):
    """A pending recall: a filter, its registration, and the callback."""

    topic_filter: str
    registration: Registration
    epoch: int
    done: Callable[[Sequence[Recalled]], None]


class RetainedPublisher:
    """Publishes and recalls retained messages for one broker. `kept` is called with each message that the holders
    have."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        store: ReplicatedStore,
        inbox: Inbox,
        subscriptions: Subscriptions,
        clock: StampClock,
        wall: Callable[[], float],
        kept: Callable[[Message], None],
    ) -> None:
        """`wall` returns the mesh's time in seconds since the epoch."""
        self._port = port
        self._calls = calls
        self.store = store
        self._inbox = inbox
        self._subscriptions = subscriptions
        self._wall = wall
        self._kept = kept
        self._clock = clock
        self._writers: dict[int, _Writer] = {}
        self._recalled: dict[str, int] = {}
        """Filters whose retained messages are all known here, with the `_epoch` of their recall."""
        self._epoch = 0
        """Counts the events by which this broker may have missed a publication."""
        self._lost = 0
        self._asked: deque[_Question] = deque()
        """Recalls that wait."""
        self._asking = 0
        """Calls to the holders under way, and `ROUNDS_AT_ONCE` more while records are restored."""
        self._slices = Slices(port, self._work)

    # --- publishing ---------------------------------------------------------------------------------------------

    def stamp(self, properties: Properties | None) -> Properties:
        """Return the properties with a stamp later than all stamps that this broker knows."""
        return replace(properties or Properties(), stamp=self._clock.stamp())

    def keep(self, message: Message, seq: int, done: Told | None) -> None:
        """Have the holders of a topic keep a publication with the sequence number `seq`."""
        expires = 0.0
        if not message.payload:
            expires = self._wall() + DELETED
        elif message.properties is not None and message.properties.message_expiry is not None:
            expires = self._wall() + message.properties.message_expiry
        self.keep_record(Record(message, int(expires * 1000), self._port.me, seq), done)

    def keep_record(self, record: Record, done: Told | None) -> None:
        """Have the holders of a topic keep a record, unless they know a later one."""
        message = record.message
        number = partition_of(message.topic)
        writer = self._writers.get(number)
        if writer is None:
            writer = self._writers[number] = _Writer()
        waiting, waiters = writer.next.get(message.topic, (record, []))
        if done is not None:
            waiters.append(done)
        writer.next[message.topic] = record if newer(record, waiting) else waiting, waiters
        if not writer.busy:
            self._write(number, writer)

    def restore(self, records: Iterator[tuple[Record, Told]]) -> None:
        """Give the records of an earlier incarnation to the holders, `RESTORED_AT_ONCE` bytes at a time. Recalls wait
        until the holders have all."""
        self._asking += ROUNDS_AT_ONCE
        under_way, giving = 0, False

        def written(size: int, told: Told) -> None:
            nonlocal under_way
            under_way -= size
            told()
            give()

        def give() -> None:
            nonlocal under_way, giving
            if giving:
                return
            giving = True
            while under_way < RESTORED_AT_ONCE and (following := next(records, None)) is not None:
                size = size_of(following[0].message)
                under_way += size
                self.keep_record(following[0], partial(written, size, following[1]))
            giving = False
            if not under_way:
                self._asking -= ROUNDS_AT_ONCE
                self._slices.wake()

        give()

    def _write(self, number: int, writer: _Writer) -> None:
        """Send the first waiting records to the holders, as many as fit in a frame."""
        writer.busy, writer.rounds = True, 0
        size, topics = 0, list[str]()
        for topic, (record, _) in writer.next.items():
            if size >= PART:
                break
            topics.append(topic)
            size += size_of(record.message)
        writer.sent = {topic: writer.next.pop(topic) for topic in topics}
        self._attempt(number, writer)

    def _attempt(self, number: int, writer: _Writer) -> None:
        records = [record for record, _ in writer.sent.values()]
        self._calls.call(
            partition_range(number), Keep(records), lambda outcome: self._answered(number, writer, outcome)
        )

    def _answered(self, number: int, writer: _Writer, outcome: Outcome) -> None:
        holders = {result.broker.name for result in outcome.results if isinstance(result, Kept)}
        if len(holders) >= HOLDERS or (writer.rounds >= ROUNDS and holders):
            self._written(number, writer)
            return
        writer.rounds += 1

        def enlisted(some: bool) -> None:
            if some or not (holders or self.store.leaving):
                self._attempt(number, writer)
            else:
                self._written(number, writer)

        self.store.enlist(number, holders, HOLDERS - len(holders), enlisted)

    def _written(self, number: int, writer: _Writer) -> None:
        sent, writer.sent = writer.sent, {}
        if writer.next:
            self._port.after(0.0, lambda: self._write(number, writer))
        else:
            del self._writers[number]
        for record, waiters in sent.values():
            self._kept(record.message)
            for waiter in waiters:
                waiter()

    @property
    def settled(self) -> bool:
        """Whether the holders have everything that this broker has published."""
        return not self._writers

    def pending(self, topic_filters: list[str]) -> list[Stored]:
        """Return own publications that the holders may not have yet (answers `Announce`)."""
        found = {}
        for writer in self._writers.values():
            for waiting in (writer.sent, writer.next):
                for topic, (record, _) in waiting.items():
                    if any(matches(topic_filter, topic) for topic_filter in topic_filters):
                        found[topic] = record
        return [Stored(list(found.values()))] if found else []

    # --- subscribing ----------------------------------------------------------------------------------------------

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        """Ask the holders for matching messages, unless all are known already: `saps.mesh.Mesh.recall`."""
        epoch = self._present_epoch()
        registration = self._subscriptions.ready(topic_filter)
        if registration is None or self._recalled.get(topic_filter) == epoch:
            done(())
            return

        self._asked.append(_Question(topic_filter, registration, epoch, done))
        self._slices.wake()

    def _work(self, most: int) -> int:
        """Ask the holders for the messages of some waiting filters, in one call for filters with the same holders.
        Returns the number of filters."""
        if self._asking >= ROUNDS_AT_ONCE or not self._asked:
            return 0
        places: dict[int | None, list[_Question]] = {}
        count = min(most, len(self._asked))
        for _ in range(count):
            question = self._asked.popleft()
            partition = None if is_wildcard(question.topic_filter) else partition_of(question.topic_filter)
            places.setdefault(partition, []).append(question)
        for partition, questions in places.items():
            self._asking += 1
            filters = [question.topic_filter for question in questions]
            found = partial(self._found, questions)
            if partition is None:
                self._ask_all(filters, found)
            else:
                self._ask([partition_range(partition)], Recall(filters), found)
        return count * RECALL_STEPS

    def _found(self, questions: list[_Question], records: list[Record]) -> None:
        """Take the messages that the holders have for these filters."""
        self._asking -= 1
        self._slices.wake()
        for topic_filter, registration, epoch, done in questions:
            if self._subscriptions.ready(topic_filter) is registration:
                self._recalled[topic_filter] = epoch
            matching = [record for record in records if matches(topic_filter, record.message.topic)]
            told, registration.told = registration.told, []
            done(self._recalled_from(matching + told))

    def _ask_all(self, topic_filters: list[str], found: Callable[[list[Record]], None]) -> None:
        """Ask the holders of all partitions in one call, or, if there are too many messages, in one for each
        partition."""

        def answered(outcome: Outcome) -> None:
            if any(isinstance(result, Stored) and result.more for result in outcome.results):
                self._ask([partition_range(number) for number in range(PARTITIONS)], Recall(topic_filters), found)
            else:
                found(_records(outcome))

        self._calls.call(ALL_PARTITIONS, Recall(topic_filters, AT_ONCE), answered)

    def _ask(self, places: list[Range], question: Recall, found: Callable[[list[Record]], None]) -> None:
        """Ask the holders at these places, one after the other, each for one part after the other."""
        records: list[Record] = []
        places = places[:]

        def ask(place: Range, part: Recall) -> None:
            def answered(outcome: Outcome) -> None:
                records.extend(_records(outcome))
                if (following := rest(part, outcome)) is not None:
                    self._port.after(0.0, partial(ask, place, following))
                elif places:
                    ask(places.pop(), question)
                else:
                    found(records)

            self._calls.call(place, part, answered)

        ask(places.pop(), question)

    def withdrawn(self, topic_filter: str) -> None:
        """Forget a filter that is no longer subscribed."""
        self._recalled.pop(topic_filter, None)

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left."""
        self.store.forget(broker)
        self.unsure()

    def rejoined(self) -> None:
        """Collect partitions and recall filters again after a cut."""
        self.store.rejoined()
        self.unsure()

    def unsure(self) -> None:
        """Ask the holders again at the next subscription, as a publication may have been lost on its way here."""
        self._epoch += 1

    def _present_epoch(self) -> int:
        if self._inbox.given_up != self._lost:
            self._lost = self._inbox.given_up
            self._epoch += 1
        return self._epoch

    def _recalled_from(self, records: list[Record]) -> list[Recalled]:
        last: dict[str, Record] = {}
        now = self._wall()
        for record in records:
            if newer(record, last.get(record.message.topic)):
                last[record.message.topic] = record
        found = []
        for record in last.values():
            self._clock.seen(stamp_of(record.message))
            left = record.expires / 1000 - now
            if not record.expires or left > 0:
                found.append(Recalled(_aged(record, left), self._coming(record)))
        return found

    def _coming(self, record: Record) -> bool:
        """Return whether a record's publication is owed to this broker and may be under way."""
        topic, origin = record.message.topic, record.origin
        return (
            self._wall() - seconds(stamp_of(record.message)) < LOST_AFTER
            and not self._port.lost(origin)
            and self._subscriptions.promised(topic, (origin.name, origin.incarnation), record.seq)
            and self._inbox.delivered(origin, topic) < record.seq
        )


def _records(outcome: Outcome) -> list[Record]:
    return [record for result in outcome.results if isinstance(result, Stored) for record in result.records]


def _aged(record: Record, left: float) -> Message:
    """Return a record's message with its remaining expiry."""
    message = record.message
    if message.properties is None or message.properties.message_expiry is None:
        return message
    return replace(
        message, properties=replace(message.properties, message_expiry=min(max(1, ceil(left)), LONGEST_EXPIRY))
    )
