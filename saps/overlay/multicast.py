"""The data path between brokers: publications go out along the branches of their topic, acknowledgements come back.

With QoS 1 and 2 each broker that passes a message on answers for its whole slice: its `Ack` counts the brokers and
subscribers reached and names the members it could not reach. A child that fails is repaired around: its slice is handed
on without it, and the publisher's broker repeats the message to the missing members until they have it or are dead.
Duplicates are dropped by `saps.overlay.order`. Publications to one topic that follow each other go as one frame
(`saps.overlay.runs`): with one token, one custody and one answer. So do those to several topics, if they came together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Protocol

from saps.mesh import RunDone, publish_each
from saps.messages import NOBODY, Message, MessageRun, Reached
from saps.overlay.bounds import summed
from saps.overlay.custody import Answer, Custody, Owed
from saps.overlay.express import FIRST as EXPRESS
from saps.overlay.frames import (
    Ack,
    Bundle,
    Data,
    DefineBroker,
    DefineSlice,
    Frame,
    HighWater,
    Nack,
    OfmAck,
    Part,
    ProtocolError,
    Run,
    Skip,
    Stretch,
)
from saps.overlay.keys import BrokerRef
from saps.overlay.missed import Missed
from saps.overlay.order import DOUBTED, Inbox
from saps.overlay.port import Port
from saps.overlay.presence import Phase, Presence, Publication, Stream, by_place
from saps.overlay.runs import (
    Addressed,
    OpenRun,
    Several,
    addressed,
    check,
    encoded,
    length,
    opened,
    singly,
    stretch_of,
    topics,
)
from saps.overlay.shorthand import NumbersGiven, NumbersLearnt
from saps.overlay.tree import Branch, divide
from saps.plain import MOST_TOGETHER, Encoded
from saps.statistics import Statistics
from saps.topics import matches

REPEAT = 0.5
"""Seconds between two attempts to reach a missing member."""
ABROAD = 1024
"""Publications to other OpenFlow domains that are kept for each topic, for members that miss some."""
NUMBERS_KEPT = 60.0
"""Seconds for which the numbers a broker has given are remembered after its death."""
_WITH_NUMBERS = (Data, Run, Stretch, Bundle, DefineBroker, DefineSlice)


class Outbox(Port, Protocol):
    """A port that shows what it is about to send."""

    outbox: list[Addressed]
    """It grows only, until another one takes its place: then all in it has been sent."""


class TreePath(Protocol):
    """What carries publications along OpenFlow trees (`saps.ofm.datapath`)."""

    def send(self, stream: Stream, data: Data, custody: Custody | None) -> bool:
        """Send an own publication along the stream's tree to the members it serves. With `custody` it answers for them,
        by `Multicast.confirmed` and `Multicast.answered`. False: it cannot, the message must go by ALM."""

    def remembered(self, topic: str, after: int, seq: int) -> list[Data]:
        """Own publications to the topic sent along a tree of late, in ``(after, seq]``."""

    def acknowledged(self, sender: BrokerRef, ack: OfmAck) -> None:
        """A member has everything up to a number."""

    def receive(self, raw: bytes | memoryview) -> None:
        """A datagram has come in."""

    def forget(self, broker: BrokerRef) -> None:
        """A broker died."""

    def represent(
        self, origin: BrokerRef, data: Data, members: Sequence[BrokerRef], custody: Custody | None
    ) -> Collection[BrokerRef]:
        """This broker stands for these members of its domain: send somebody else's publication along the tree. Returns
        those that it serves; with `custody` it answers for them, as with `send`."""


def _counting(answered: Callable[[Reached], None]) -> Callable[[int], None]:
    """Answers a part with the number of groups reached, each at one broker."""
    return lambda groups: answered(Reached(groups, groups))


class Multicast:
    """Publications that leave, pass through or end at one broker."""

    def __init__(self, port: Outbox, presence: Presence, inbox: Inbox) -> None:
        self._port = port
        self._presence = presence
        self._inbox = inbox
        self._outbound: dict[str, NumbersGiven] = {}
        self._express: dict[str, NumbersGiven] = {}
        self.urgent: Callable[[str], bool] | None = None
        """Which topics go by the express lane (`saps.overlay.express`); None: none."""
        self._inbound: dict[str, NumbersLearnt] = {}
        self._parts: dict[int, Owed] = {}
        """Token -> whose answer is awaited, for which slice."""
        self._tokens = 0
        """The last one given; one for several messages has `MOST_TOGETHER` behind it that are theirs."""
        self._outstanding: dict[int, Custody] = {}
        """Own publications with QoS 1 or 2 not yet confirmed by all members, by (first) sequence number."""
        self._open: OpenRun | None = None
        """What the next publication may join."""
        self.sent = 0
        """Copies of messages sent to other brokers."""
        self.received = 0
        self.duplicates = 0
        self.tree_path: TreePath | None = None
        """Carries what leaves by an OpenFlow tree; None if there is none."""
        self.missed = Missed()
        """What members that are taken for dead have missed."""
        self.keep: Callable[[Message, int, Callable[[], None] | None], None] | None = None
        """Has a retained publication, with its sequence number, kept in the mesh (`saps.overlay.retention`)."""
        self.share: Callable[[Stream, Message, Callable[[int], None] | None], None] | None = None
        """Hands a publication to the stream's groups (`saps.overlay.sharing`) and counts those that took it."""
        self.seen: Callable[[Message, BrokerRef, int], None] | None = None
        """Told the number of each own publication, while somebody wants to know."""
        self.statistics: Statistics | None = None
        """Counts by topic, if they are wanted."""
        self._cluster = port.me.cluster

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        run = self._open
        plain = message.properties is None and not message.retain
        if run is not None and plain and run.takes(message.topic, message.qos, self._port.outbox):
            self._owe(run, self._join(run, [message.payload]), done)
            if self.seen is not None:
                self.seen(message, self._port.me, self._presence.seq)
            return
        stream = self._presence.stream(message.topic)
        stream.used = True
        if stream.queue or stream.members is None:
            # Opening, closing, or the members changed: the slow way, in the order of the calls.
            self._publish_slowly(stream, (message, done))
        elif message.retain or stream.groups:
            self._publish_specially(stream, message, done)
        elif stream.members or stream.absent:
            self._send(stream, message, done)
        elif done is not None:
            done(Reached(0, 0))

    def publish_run(self, run: MessageRun, done: RunDone | None) -> None:
        """Publish plain messages to one topic that follow each other."""
        topic, qos, payloads = run.topic, run.qos, run.payloads
        start, count = 0, len(payloads)
        while start < count:
            joins = self._open
            if joins is None or self.seen is not None or not joins.takes(topic, qos, self._port.outbox):
                message = run.message(start) if self.seen is None else run.messages[start]
                self.publish(message, None if done is None else partial(done, start, 1))
                start += 1
            else:
                joined = self._join(joins, payloads[start:] if start else payloads)
                self._owe(joins, joined, None if done is None else partial(done, start, joined))
                start += joined

    def publish_stretch(self, stretch: Encoded) -> None:
        """Publish what came as these packets: in one frame if all of it takes the same way, and nobody must look at it
        on that."""
        streams = [self._presence.stream(topic) for topic in stretch.topics]
        if self._go_together(streams):
            frame = stretch_of(stretch, self._numbered(streams, stretch.counts))
            for branch in streams[0].branches:
                self._forward(self._port.me, frame, branch, 0)
        else:
            for run in stretch.runs():
                self.publish_run(run, None)

    def publish_several(self, runs: Sequence[MessageRun], done: RunDone | None) -> None:
        """Publish plain messages of QoS 1 to several topics that follow each other: in one frame, on the same terms."""
        numbers: dict[str, int] = {}
        which = [numbers.setdefault(run.topic, len(numbers)) for run in runs for _ in run.payloads]
        streams = [self._presence.stream(topic) for topic in numbers]
        together = len(numbers) > 1 and len(which) <= MOST_TOGETHER and self._go_together(streams)
        if together and not any(stream.absent for stream in streams):
            counts = list(map(Counter(which).__getitem__, range(len(numbers))))
            payloads = [payload for run in runs for payload in run.payloads]
            custody = Custody(self._port.me, Bundle(0, 0, 0, self._numbered(streams, counts), which, payloads))
            custody.bundle_done = done
            custody.since = self._port.now
            custody.streams = streams
            self._outstanding[custody.data.seq] = custody
            self._entrust(custody, streams[0].branches)
        else:
            publish_each(self.publish_run, runs, done)

    def _go_together(self, streams: Sequence[Stream]) -> bool:
        """Publications to these topics take the same way, all of them."""
        branches = streams[0].branches
        return not self._looks_at_each and all(stream.plain and stream.branches == branches for stream in streams)

    def _numbered(self, streams: Sequence[Stream], counts: Sequence[int]) -> list[Part]:
        """Number so many publications to each of the topics."""
        self._open, presence, parts = None, self._presence, []
        for stream, count in zip(streams, counts, strict=True):
            parts.append(Part(stream.topic, presence.seq + 1, stream.last_seq))
            presence.seq += count
            stream.last_seq = presence.seq
            stream.used = True
        return parts

    @property
    def _looks_at_each(self) -> bool:
        """Messages to different topics take different ways, or somebody wants to know of each."""
        return self.urgent is not None or self._presence.designs is not None or self.seen is not None

    def _publish_specially(self, stream: Stream, message: Message, done: Callable[[Reached], None] | None) -> None:
        """Publish to the members, to groups that take turns, and have it kept if it is retained: with QoS 1 and 2
        `done` waits for all of it."""
        answer = Answer(done) if message.qos and done is not None else None
        self._send(stream, message, done if answer is None else answer.part())
        if message.retain and self.keep is not None and self._presence.unrestricted(message.topic):
            kept = None if answer is None else answer.part()
            self.keep(message, stream.last_seq, None if kept is None else partial(kept, NOBODY))
        if stream.groups and self.share is not None:
            shared = None if answer is None else answer.part()
            self.share(stream, message, None if shared is None else _counting(shared))
        if answer is not None:
            answer.complete()

    def _publish_slowly(self, stream: Stream, publication: Publication) -> None:
        if stream.phase is Phase.OPEN and not stream.queue:
            self._presence.route(stream)
            self.publish(*publication)
        else:
            stream.queue.append(publication)
            self._presence.open(stream)

    def flush(self, stream: Stream, queue: list[Publication]) -> None:
        """Publish what waited for the stream to open."""
        for message, done in queue:
            self.publish(message, done)

    def _send(self, stream: Stream, message: Message, done: Callable[[Reached], None] | None) -> None:
        presence = self._presence
        presence.seq += 1
        seq, prev = presence.seq, stream.last_seq
        stream.last_seq = seq
        if self.seen is not None:
            self.seen(message, self._port.me, seq)
        data = Data(
            0,
            seq,
            prev,
            0,
            0,
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
        )
        self._open, outbox = None, self._port.outbox
        first = len(outbox)
        if message.qos:
            custody = Custody(self._port.me, data)
            custody.dones.append((1, done))
            custody.since = self._port.now
            custody.streams = (stream,)
            self._outstanding[seq] = custody
            self._entrust(custody, stream.branches if stream.tree is None else self._beside_tree(stream, data, custody))
        else:
            for branch in stream.branches if stream.tree is None else self._beside_tree(stream, data, None):
                self._forward(self._port.me, data, branch, 0)
        if message.qos:
            for broker in stream.absent:
                self.missed.keep(broker, data)
        if stream.abroad:
            if stream.recent is None:
                stream.recent = deque(maxlen=ABROAD)
            stream.recent.append(data)
        plain = stream.tree is None and not stream.groups and not message.retain and message.properties is None
        plain = plain and not stream.abroad and not stream.absent
        if plain and len(outbox) > first:
            self._open = OpenRun(stream, data, outbox, first)
        if not message.qos and done is not None:
            done(Reached(len(stream.members or ()), 0))

    def _join(self, run: OpenRun, payloads: list[bytes]) -> int:
        """Publish messages right behind the last one, in its frames, as far as there is room: at least the first.
        Returns how many."""
        if run.single:
            self._begin(run)
        presence, count = self._presence, run.join(payloads)
        presence.seq += count
        run.stream.last_seq = presence.seq
        self.sent += run.copies * count
        if self.statistics is not None and run.crossing:
            self.statistics.crossed(run.stream.topic, run.crossing * count)
        return count

    def _owe(self, run: OpenRun, count: int, done: Callable[[Reached], None] | None) -> None:
        """The last messages of a run, so many, are answered together."""
        custody = self._outstanding.get(run.seq)
        if custody is not None:
            custody.dones.append((count, done))
        elif done is not None:
            done(Reached(len(run.stream.members or ()), 0))

    def _begin(self, run: OpenRun) -> None:
        """Make a run of the last publication."""
        custody = self._outstanding.get(run.seq)
        for token, frame in run.begin(self._port.me.cluster):
            if token:
                frame.token = self._next_token(frame)
                self._parts[frame.token] = self._parts.pop(token)
            if custody is not None:
                custody.data = frame

    def _beside_tree(self, stream: Stream, data: Data, custody: Custody | None) -> list[Branch]:
        """Send along the stream's tree. Returns the branches to those that it does not serve."""
        if self.tree_path is None or not self.tree_path.send(stream, data, custody):
            return self._presence.divide(stream.topic, stream.members or ())
        if self.statistics is not None:
            self.statistics.of(data.topic).by_tree += 1
        return stream.branches

    # --- passing on -------------------------------------------------------------------------------------------

    def handle(self, sender: BrokerRef, frame: Frame) -> bool:
        """Handle one frame; False if it does not concern multicast."""
        kind = type(frame)
        if kind is Data or kind is Run or kind is Stretch or kind is Bundle:
            self._on_data(sender, frame)  # type: ignore[arg-type]
        elif kind is Ack:
            self._on_ack(sender, frame)  # type: ignore[arg-type]
        elif isinstance(frame, DefineBroker):
            self._inbound.setdefault(sender.name, NumbersLearnt()).give(frame.number, frame.ref)
        elif isinstance(frame, DefineSlice):
            self._define(sender, frame)
        elif isinstance(frame, Nack):
            self._on_nack(sender, frame)
        elif isinstance(frame, Skip):
            self._inbox.skip(sender, frame.topic, frame.seq, frame.given)
        elif isinstance(frame, OfmAck):
            if self.tree_path is not None:
                self.tree_path.acknowledged(sender, frame)
        elif isinstance(frame, HighWater):
            self._inbox.expect(frame.origin or sender, frame.topic, frame.seq)
        else:
            return False
        return True

    def _define(self, sender: BrokerRef, frame: DefineSlice) -> None:
        inbound = self._inbound.setdefault(sender.name, NumbersLearnt())
        try:
            run = tuple(inbound.brokers[number] for number in frame.brokers)
        except KeyError as error:
            raise ProtocolError(f"{sender.name} uses the number {error} without having said what for") from None
        inbound.define(frame.number, run, self._port.me, self._port.order)

    def _on_data(self, sender: BrokerRef, data: Data | Several) -> None:
        try:
            inbound = self._inbound[sender.name]
            origin = inbound.brokers[data.origin]
            onward = inbound.branches[data.slice]
        except KeyError as error:
            raise ProtocolError(f"{sender.name} uses the number {error} without having said what for") from None
        if not length(data):
            raise ProtocolError(f"{sender.name} sends a run of nothing")
        if isinstance(data, Stretch):
            self._on_stretch(sender, origin, data, onward)
            return
        if isinstance(data, Bundle):
            self._on_bundle(sender, origin, data, onward)
            return
        if onward and self._presence.designs is not None:
            onward = self._presence.designs.onward(sender.name, data.slice, data.topic, onward)
        self.received += length(data)
        subscribers = self._take_in(origin, data)
        if not data.token:
            for branch in self._represented(origin, data, onward, None):
                self._forward(origin, data, branch, 0)
            return
        if subscribers is None:  # it has come before, and its acknowledgement was lost
            subscribers = self._inbox.matching(data.topic)
        custody = Custody(origin, data)
        custody.to, custody.token = sender, data.token
        if subscribers == DOUBTED:
            custody.missing.append(self._port.me)
        else:
            custody.reached(1, [subscribers])
        self._entrust(custody, self._represented(origin, data, onward, custody))

    def _on_stretch(self, sender: BrokerRef, origin: BrokerRef, stretch: Stretch, onward: list[Branch]) -> None:
        found = encoded(stretch)
        if (onward and self._looks_at_each) or not self._inbox.follow(origin, stretch.parts):
            for single in opened(stretch, found):
                self._on_data(sender, single)
            return
        self.received += len(found)
        self._inbox.accept_stretch(origin, stretch.parts, found)
        for branch in onward:
            self._forward(origin, stretch, branch, 0)

    def _on_bundle(self, sender: BrokerRef, origin: BrokerRef, bundle: Bundle, onward: list[Branch]) -> None:
        check(bundle)
        if (onward and self._looks_at_each) or not self._inbox.follow(origin, bundle.parts):
            for single in singly(bundle):
                self._on_data(sender, single)
            return
        self.received += len(bundle.payloads)
        subscribers = self._inbox.accept_bundle(origin, bundle)
        custody = Custody(origin, bundle)
        custody.to, custody.token = sender, bundle.token
        custody.reached(1, subscribers)
        self._entrust(custody, onward)

    def _represented(
        self, origin: BrokerRef, data: Data | Run, onward: list[Branch], custody: Custody | None
    ) -> list[Branch]:
        """What comes from another domain leaves along this one's tree for those whom that serves. Returns the branches
        to the others."""
        domains, me = self._presence.domains, self._port.me
        here = domains.of(me) if domains and onward and self.tree_path is not None else ""
        if not here or here == domains.of(origin) or not isinstance(data, Data) or self.tree_path is None:
            return onward
        members = [ref for branch in onward for ref in (branch.child, *branch.slice)]
        served = self.tree_path.represent(origin, data, members, custody)
        if not served:
            return onward
        return divide(me, by_place((ref for ref in members if ref not in served), self._port.order), self._port.order)

    def _take_in(self, origin: BrokerRef, data: Data | Run) -> int | None:
        """Deliver or hold it. Returns the number of subscribers reached, None if all of it are duplicates, `DOUBTED` if
        some of it must come again."""
        if isinstance(data, Run) and self._inbox.follows(origin, data):
            return self._inbox.accept_run(origin, data)
        reached = None
        for single in singly(data):
            subscribers = self._inbox.accept(origin, single)
            if subscribers is None:
                self.duplicates += 1
            elif reached != DOUBTED:
                reached = subscribers
        return reached

    def _next_token(self, data: Data | Run | Bundle) -> int:
        token = self._tokens + 1
        self._tokens = token if type(data) is Data else token + MOST_TOGETHER
        return token

    def _entrust(self, custody: Custody, branches: list[Branch]) -> None:
        """Send a message along branches and wait for an answer from each; what cannot be reached goes to `missing`."""
        pending = list(branches)
        while pending:
            branch = pending.pop()
            if not self._port.reachable(branch.child):
                custody.missing.append(branch.child)
                pending.extend(divide(self._port.me, branch.slice, self._port.order))
                continue
            token = self._next_token(custody.data)
            custody.waiting += 1
            self._parts[token] = Owed(custody, branch)
            self._forward(custody.origin, custody.data, branch, token)
        if not custody.waiting:
            self._settle(custody)

    def _forward(self, origin: BrokerRef, data: Data | Several, branch: Branch, token: int) -> None:
        child, run = branch
        if not token and not self._port.reachable(child):
            for onward in divide(self._port.me, run, self._port.order):
                self._forward(origin, data, onward, 0)
            return
        urgent = self.urgent is not None and isinstance(data, Data | Run) and self.urgent(data.topic)
        lane = self._express if urgent else self._outbound
        outbound = lane.get(child.name)
        if outbound is None or (outbound.to is not child and outbound.to != child):
            outbound = lane[child.name] = NumbersGiven(child, EXPRESS if urgent else 0)
        number = outbound.brokers.get(origin) or outbound.name(origin, self._port)
        run_number = 0
        if run:
            run_number = outbound.slices.get(run) or outbound.name_slice(run, self._port)
        self.sent += length(data)
        if self.statistics is not None and child.cluster != self._cluster:
            for topic, copies in topics(data):
                self.statistics.crossed(topic, copies)
        self._port.send(child, addressed(data, number, run_number, token))

    # --- members that are taken for dead, and come back -----------------------------------------------------------

    def pending(self, member: BrokerRef) -> list[Data]:
        """Own publications that not all members have acknowledged, and this may be one of those that have not."""
        found = []
        for custody in self._outstanding.values():
            for stream in custody.streams:
                self._presence.route(stream)
                if member in (stream.members or ()):
                    found += custody.to_topic(stream.topic)
        return sorted(found, key=lambda data: data.seq)

    def make_up(self, member: BrokerRef, missed: Iterable[Data]) -> None:
        """A member is back: send it what it has missed, until it has acknowledged that."""
        for data in missed:
            custody = self._outstanding.get(data.seq)
            if custody is not None:
                custody.missing.append(member)
                continue
            custody = self._outstanding[data.seq] = Custody(self._port.me, data)
            custody.streams = (self._presence.stream(data.topic),)
            self._entrust(custody, [Branch(member, ())])

    # --- members served by an OpenFlow tree -----------------------------------------------------------------------

    def awaiting(self, custody: Custody) -> None:
        """The tree answers for some members of this own publication."""
        custody.waiting += 1

    def confirmed(self, custody: Custody, brokers: int, subscribers: int) -> None:
        """These members have acknowledged the publication."""
        custody.reached(brokers, [subscribers])

    def answered(self, custody: Custody, missing: Iterable[BrokerRef]) -> None:
        """The tree answers for nobody any more: those still `missing` get the publication each by itself."""
        custody.waiting -= 1
        self._entrust(custody, [Branch(ref, ()) for ref in missing])

    def repeat(self, data: Data, members: Iterable[BrokerRef], origin: BrokerRef | None = None) -> None:
        """Send a publication with QoS 0 once more, by ALM: an own one, or that of an origin in another domain."""
        for ref in members:
            self._forward(origin or self._port.me, data, Branch(ref, ()), 0)

    def unsettled(self, topic_filters: list[str]) -> int:
        """The first own publication that one of the filters matches and not all members have acknowledged; 0: none."""
        found: dict[str, bool] = {}
        lowest = 0
        for custody in self._outstanding.values():
            for topic, seq in custody.firsts():
                if topic not in found:
                    found[topic] = any(matches(topic_filter, topic) for topic_filter in topic_filters)
                if found[topic] and (not lowest or seq < lowest):
                    lowest = seq
        return lowest

    # --- acknowledgements ---------------------------------------------------------------------------------------

    def _on_ack(self, sender: BrokerRef, ack: Ack) -> None:
        token, owed = ack.token, self._parts.get(ack.token)
        if owed is None:
            before = range(ack.token - 1, ack.token - MOST_TOGETHER - 1, -1)
            token = next(filter(self._parts.__contains__, before), 0)
            owed = self._parts.get(token)
        if owed is None or owed.child.name != sender.name:
            return
        if token == ack.token:
            owed.answered(ack)
        elif not owed.answered_singly(ack.token - token - 1, ack):
            return
        del self._parts[token]
        custody = owed.custody
        custody.waiting -= 1
        if not custody.waiting:
            self._settle(custody)

    def _settle(self, custody: Custody) -> None:
        """All answers are in: pass them on to the parent, or at the publisher's broker see who is missing."""
        if custody.to is not None:
            first, *more = map(summed, custody.subscribers)
            self._port.send(custody.to, Ack(custody.token, summed(custody.brokers), first, custody.missing, more))
        elif custody.missing:
            again = self._taken_apart(custody) if isinstance(custody.data, Bundle) else [custody]
            self._port.after(REPEAT, lambda: self._repeat(again))
        elif self._outstanding.pop(custody.data.seq, None) is not None:
            custody.confirm(self.statistics, self._port.now)

    def _taken_apart(self, bundle: Custody) -> list[Custody]:
        """Answer for each message of an own bundle by itself. Returns those of which nobody did already."""
        del self._outstanding[bundle.data.seq]
        again = []
        for custody in bundle.unbundled():
            made_up = self._outstanding.setdefault(custody.data.seq, custody)
            if made_up is custody:
                again.append(custody)
            else:
                made_up.join(custody)
        return again

    def _repeat(self, custodies: Iterable[Custody]) -> None:
        """Send messages to each member that is still missing, and still a member, by themselves."""
        for custody in custodies:
            if not custody.streams or custody.waiting:
                continue
            stream = custody.streams[0]
            self._presence.route(stream)
            members = set(stream.members or ())
            missing, custody.missing = custody.missing, []
            self._entrust(custody, [Branch(ref, ()) for ref in dict.fromkeys(missing) if ref in members])

    def _on_nack(self, sender: BrokerRef, nack: Nack) -> None:
        given = self._presence.seq
        if nack.seq > given:  # somebody has published in the name of this broker
            self._port.send(sender, Skip(nack.topic, nack.seq, given))
            return
        if not self._presence.permitted(nack.topic, [sender]):
            self._port.send(sender, Skip(nack.topic, nack.seq))
            return
        after = nack.seq - 1 if nack.after is None else nack.after
        found = {data.seq: data for data in self._remembered(nack.topic, after, nack.seq)}
        for custody in self._outstanding.values():
            found |= {data.seq: data for data in custody.to_topic(nack.topic) if after < data.seq <= nack.seq}
        for seq in sorted(found):
            self._forward(self._port.me, found[seq], Branch(sender, ()), 0)
        if not found:  # else it asks again, with a later `after`: what is found must not be given up with `nack.seq`
            self._port.send(sender, Skip(nack.topic, nack.seq))

    def _remembered(self, topic: str, after: int, seq: int) -> list[Data]:
        found = [] if self.tree_path is None else self.tree_path.remembered(topic, after, seq)
        stream = self._presence.streams.get(topic)
        recent = stream.recent if stream is not None else None
        return [*found, *(data for data in recent or () if after < data.seq <= seq)]

    # --- links and brokers that fail ------------------------------------------------------------------------------

    def session_started(self, sender: BrokerRef) -> None:
        """A new link session from `sender`: the numbers of the common lane are given anew, and answers that it sent on
        the one before may be lost."""
        before = self._inbound.get(sender.name)
        self._inbound[sender.name] = (
            NumbersLearnt() if before is None else before.without(lambda number: number <= EXPRESS)
        )
        self._inbound[sender.name].of = sender
        if due := [token for token, part in self._parts.items() if part.child.name == sender.name]:
            self._port.after(REPEAT, lambda: self._unanswered(due))

    def express_started(self, sender: BrokerRef) -> None:
        """The same for the express lane."""
        before = self._inbound.get(sender.name)
        if before is not None:
            self._inbound[sender.name] = before.without(lambda number: number > EXPRESS)
            self._inbound[sender.name].of = sender

    def link_down(self, peer: BrokerRef) -> None:
        """What was sent to `peer` may be lost: hand its slices on without it, and try it again later."""
        self._open = None
        self._take_back(peer)
        self._outbound.pop(peer.name, None)
        self._express.pop(peer.name, None)
        self._unanswered([token for token, part in self._parts.items() if part.child.name == peer.name])

    def _unanswered(self, tokens: Iterable[int]) -> None:
        """No answer is expected for these any more, if it has not come: their slices are handed on without the child,
        which is tried again later."""
        for token in tokens:
            if (part := self._parts.pop(token, None)) is not None:
                part.custody.waiting -= 1
                part.custody.missing.append(part.child)
                self._entrust(part.custody, divide(self._port.me, part.slice, self._port.order))

    def _take_back(self, peer: BrokerRef) -> None:
        """What is about to be sent to `peer` would leave by a new link, where its numbers stand for nothing."""
        outbox = self._port.outbox
        life = peer.name, peer.incarnation
        outbox[:] = [
            (to, frame)
            for to, frame in outbox
            if (to.name, to.incarnation) != life or not isinstance(frame, _WITH_NUMBERS)
        ]

    def forget(self, broker: BrokerRef) -> None:
        """A broker died."""
        self.link_down(broker)
        self._inbox.forget(broker)
        if self.tree_path is not None:
            self.tree_path.forget(broker)
        inbound = self._inbound.get(broker.name)
        if inbound is None or (inbound.of is not None and inbound.of.incarnation > broker.incarnation):
            return
        died = inbound.died = self._port.now

        def still_dead() -> None:
            ever_since = inbound.died == died and self._port.lost(broker)
            if ever_since and self._inbound.get(broker.name) is inbound:
                self._inbound.pop(broker.name, None)

        # If it was cut off only, it goes on in the same session, with the numbers it has given.
        self._port.after(NUMBERS_KEPT, still_dead)

    def awaited(self) -> dict[str, BrokerRef]:
        """The brokers from which an acknowledgement is due: their failure must be noticed."""
        return {part.child.name: part.child for part in self._parts.values()}

    @property
    def settled(self) -> bool:
        """True if nothing this broker has published waits to be sent or confirmed."""
        return not self._outstanding and not any(stream.queue for stream in self._presence.streams.values())
