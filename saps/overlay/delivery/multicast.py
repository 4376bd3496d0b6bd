"""The data path between brokers: publications go out along the branches of their topics, acknowledgements come back.

What a broker publishes in one turn of its event loop to the same brokers leaves as one frame. With QoS 1 and 2 each
broker that passes a frame on answers for its whole slice: its `Ack` counts the brokers and subscribers reached and
names the members it could not reach. A child that fails is repaired around: its slice is handed on without it, and the
publishers' broker repeats the publications to the missing members until they have them or are dead
(`saps.overlay.delivery.acknowledgements`). Duplicates are dropped by `saps.overlay.delivery.order`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Protocol

from saps.local.batch import Batch
from saps.mesh import Done
from saps.messages import NOBODY, Message, Reached
from saps.overlay.delivery.acknowledgements import Acknowledgements
from saps.overlay.delivery.forwarding import Forwarder, Outbox
from saps.overlay.delivery.order import DOUBTED, Inbox
from saps.overlay.delivery.outgoing import OutgoingFrame
from saps.overlay.delivery.pending import Answers, Pending, least
from saps.overlay.delivery.publications import first_seq, to_topic, unaddressed
from saps.overlay.delivery.tree import Branch, by_place, divide
from saps.overlay.frames.delivery import Ack, DefineBroker, DefineSlice, HighWater, Nack, OfmAck, Publish, Skip
from saps.overlay.missed.absent import Absent
from saps.overlay.missed.log import MissedLog
from saps.overlay.port import Handlers
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.rendezvous.streams import Phase, Stream, Way
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import MOST_COUNTED
from saps.statistics import Statistics

ABROAD = 1024
"""Frames to other OpenFlow domains that are kept for each topic, for members that miss some."""

Keep = Callable[[Message, int, Callable[[], None] | None], None]
Share = Callable[[Stream, Message, Callable[[int], None] | None], None]


class TreePath(Protocol):
    """What carries publications along OpenFlow trees (`saps.ofm.datapath.datapath`)."""

    def send(self, stream: Stream, body: Publish, members: tuple[BrokerRef, ...], pending: Pending | None) -> bool:
        """Send own publications to one topic along the stream's tree to the members it serves. With `pending` it
        answers for them: one answer is awaited more, until `Acknowledgements.answered`. False: it cannot, they must go
        by ALM."""

    def remembered(self, topic: str, after: int, upto: int) -> list[Publish]:
        """Own publications to the topic sent along a tree of late, with numbers above `after`, up to `upto`."""

    def acknowledged(self, sender: BrokerRef, ack: OfmAck) -> None:
        """A member has everything up to a number."""

    def receive(self, raws: Iterable[bytes]) -> None:
        """Datagrams have come in."""

    def forget(self, broker: BrokerRef) -> None:
        """A broker died."""

    def represent(
        self, origin: BrokerRef, body: Publish, members: Sequence[BrokerRef], pending: Pending | None
    ) -> Collection[BrokerRef]:
        """This broker stands for these members of its domain: send somebody else's publications along the tree. Returns
        those that it serves; with `pending` it answers for them, as with `send`."""


class FrameTracer(Protocol):
    """Follows a share of the publications that come from other brokers (`saps.tracing`)."""

    def comes(self, sender: str, frame: Publish) -> Callable[[int, int], None] | None:
        """A frame with properties is about to be handled. Returns what is to be told, if one of its publications is
        traced: to how many brokers it was passed on, and how many of its publications were duplicates."""


class Multicast:
    """Publications that leave, pass through or end at one broker."""

    def __init__(self, port: Outbox, publishers: PublisherRegistry, inbox: Inbox, keep: Keep, share: Share) -> None:
        """`keep` has a retained publication, with its sequence number, kept in the mesh
        (`saps.overlay.retained.publisher`). `share` hands one to the stream's groups (`saps.overlay.groups`) and counts
        those that took it."""
        self._port = port
        self._publishers = publishers
        self._inbox = inbox
        self._keep = keep
        self._share = share
        self.forwarder = Forwarder(port, publishers.ways)
        self.acknowledgements = Acknowledgements(port, publishers, self.forwarder)
        self.open: list[Way] = []
        """The ways on which something leaves that has not been sent yet."""
        self._unsent: list[tuple[Stream, OutgoingFrame]] = []
        """What is to leave by OpenFlow trees."""
        self._serial = 0
        """Frames of own publications so far."""
        self.received = 0
        self.tree_path: TreePath | None = None
        """Carries what leaves by an OpenFlow tree; None if there is none."""
        self.missed = MissedLog()
        """What members that are taken for dead have missed."""
        self.catch_up: Absent | None = None
        """Has publications kept in it."""
        self.tracer: FrameTracer | None = None
        """Follows publications, if some are to be followed."""

    def count(self, statistics: Statistics) -> None:
        """From now on count by topic."""
        self.forwarder.statistics = self.acknowledgements.statistics = statistics

    @property
    def sent(self) -> int:
        """Copies of messages sent to other brokers."""
        return self.forwarder.sent

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(self, batch: Batch, done: Done | None) -> None:
        """`saps.mesh.Mesh.publish`."""
        publishers, topics = self._publishers, batch.topics
        ways: dict[Way, list[int]] = {}
        others: list[int] = []
        streams: list[Stream] = []
        for number, topic in enumerate(topics):
            stream = publishers.streams.get(topic) or publishers.stream(topic)
            stream.used = True
            streams.append(stream)
            if stream.queue or stream.members is None or stream.groups or batch.retain:
                others.append(number)
            elif stream.members or stream.behind or (batch.qos and self.missed.active):
                ways.setdefault(stream.way, []).append(number)
        if not others and len(ways) == 1 and sum(map(len, ways.values())) == len(topics):
            self._send(streams, batch, done)
            return
        answers = None if done is None else Answers(len(topics), done)
        groups = [*ways.values(), *([number] for number in others)]
        for numbers, part in zip(groups, batch.divide(groups), strict=True):
            told = None if answers is None else answers.of(numbers)
            if len(numbers) == 1:
                self._publish_to(streams[numbers[0]], part, told)
            else:
                self._send([streams[number] for number in numbers], part, told)
        if answers is not None:
            answers.complete()

    def _publish_to(self, stream: Stream, batch: Batch, done: Done | None) -> None:
        """Publish to one topic whose stream is opening, closing, or must be looked at again, or that has groups; or
        messages that are to be retained."""
        if stream.queue or stream.phase is not Phase.OPEN:
            stream.queue.append((batch, done))  # in the order of the calls
            self._publishers.open(stream)
            return
        self._publishers.route(stream)
        if batch.retain or stream.groups:
            self._publish_specially(stream, batch, done)
        elif stream.members or stream.behind or (batch.qos and self.missed.active):
            self._send([stream], batch, done)
        elif done is not None:
            done([NOBODY])

    def _publish_specially(self, stream: Stream, batch: Batch, done: Done | None) -> None:
        """Publish to the members, to groups that take turns, and have it kept if it is retained: with QoS 1 and 2
        `done` waits for all of it."""
        answers = Answers(1, done) if batch.qos and done is not None else None
        self._send([stream], batch, done if answers is None else answers.of([0]))
        if batch.retain and self._publishers.unrestricted(stream.topic):
            for message, seq in zip(batch.messages, batch.seqs, strict=True):
                self._keep(message, seq, None if answers is None else partial(answers.of([0]), [NOBODY]))
        if stream.groups:
            taken = None if answers is None else least(len(batch), _counting(answers.of([0])))
            for message in batch.messages:
                self._share(stream, message, taken)
        if answers is not None:
            answers.complete()

    def _send(self, streams: list[Stream], batch: Batch, done: Done | None) -> None:
        """Number the publications of a batch to topics that go the same way, and have them leave with this turn."""
        publishers, way = self._publishers, streams[0].way
        first = publishers.seq + 1
        publishers.seq += len(batch.which)
        batch.number(self._port.me, range(first, publishers.seq + 1))
        if (
            self.catch_up is not None
            and self.missed.active
            and (batch.qos or any([stream.behind for stream in streams]))
        ):
            groups = [list(stream.groups) for stream in streams] if any([stream.groups for stream in streams]) else []
            self.catch_up.keep(batch, [stream.members or () for stream in streams], groups)
        if any([stream.abroad for stream in streams]):
            self._remember(streams, batch)
        kind = batch.qos << 1 | batch.retain
        frame = way.frames.get(kind)
        if frame is None or not frame.takes(streams, batch):
            self._serial += 1
            frame = OutgoingFrame(self._serial, batch.qos, batch.retain)
            parts = frame.add(streams, batch)
            self._begin(way, kind, frame, parts, done)
        else:
            parts = frame.add(streams, batch)
            self._count_joined(frame, streams, batch)
            if done is not None and frame.pending is not None:
                frame.pending.dones.append((parts, done))
        if not batch.qos and done is not None:
            done([Reached(len(stream.members or ()), 0) for stream in streams])

    def _begin(self, way: Way, kind: int, frame: OutgoingFrame, parts: list[int], done: Done | None) -> None:
        """A frame leaves with this turn; what follows may join it."""
        stream, body = frame.streams[0], frame.body
        frame.members, frame.served = stream.members or (), stream.served
        if body.qos:
            pending = frame.pending = Pending(self._port.me, body)
            pending.streams = frame.streams
            if done is not None:
                pending.dones.append((parts, done))
            self.acknowledgements.begin(pending)
        if not way.frames:
            self.open.append(way)
        way.frames[kind] = frame
        if stream.tree is not None:
            self._unsent.append((stream, frame))
            self._port.wanted()
            return
        outbox = self._port.outbox
        before = len(outbox)
        self._leave(frame, way.branches)
        for to, sent in outbox[before:]:
            if type(sent) is Publish:
                frame.copies += 1
                frame.crossing += to.cluster != self._port.me.cluster
        if frame.pending is not None and not frame.pending.waiting:  # nobody can be reached, so it is answered for
            del way.frames[kind]

    def _leave(self, frame: OutgoingFrame, branches: Iterable[Branch]) -> None:
        if frame.pending is not None:
            self.acknowledgements.expect_acknowledgement(frame.pending, branches)
        else:
            for branch in branches:
                self.forwarder.forward(self._port.me, frame.body, branch, 0)

    def _count_joined(self, frame: OutgoingFrame, streams: list[Stream], batch: Batch) -> None:
        self.forwarder.sent += frame.copies * len(batch.which)
        statistics = self.forwarder.statistics
        if statistics is not None and frame.crossing:
            for stream, (count, _) in zip(streams, batch.totals, strict=True):
                statistics.crossed(stream.topic, frame.crossing * count)

    def _remember(self, streams: list[Stream], batch: Batch) -> None:
        """Keep publications for members in other OpenFlow domains."""
        kept = [number for number, stream in enumerate(streams) if stream.abroad]
        for number, part in zip(kept, batch.divide([[number] for number in kept]), strict=True):
            stream = streams[number]
            if stream.recent is None:
                stream.recent = deque(maxlen=ABROAD)
            stream.recent.append(unaddressed(part, [stream.last_seq]))

    def flush(self) -> None:
        """The outbox is about to be sent: nothing joins it any more, and what leaves by trees does so."""
        for way in self.open:
            way.frames.clear()
        self.open.clear()
        if not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        for stream, frame in unsent:
            if self.tree_path is not None and self.tree_path.send(stream, frame.body, frame.served, frame.pending):
                if self.forwarder.statistics is not None:
                    self.forwarder.statistics.of(stream.topic).by_tree += len(frame.body.which)
                others = [member for member in frame.members if member not in frame.served]
            else:
                others = list(frame.members)
            self._leave(frame, self._publishers.ways.divide(stream.topic, others))

    # --- frames -----------------------------------------------------------------------------------------------

    @property
    def handlers(self) -> Handlers:
        return {
            Publish: self._on_publish,
            Ack: self.acknowledgements.on_ack,
            DefineBroker: self.forwarder.define_broker,
            DefineSlice: self.forwarder.define_slice,
            Nack: self._on_nack,
            Skip: lambda sender, frame: self._inbox.skip(sender, frame.topic, frame.seq, frame.given),
            OfmAck: self._on_ofm_ack,
            HighWater: lambda sender, frame: self._inbox.expect(frame.origin or sender, frame.topic, frame.seq),
        }

    def _on_ofm_ack(self, sender: BrokerRef, frame: OfmAck) -> None:
        if self.tree_path is not None:
            self.tree_path.acknowledged(sender, frame)

    def _on_publish(self, sender: BrokerRef, frame: Publish) -> None:
        origin, onward = self.forwarder.resolve(sender, frame)
        designs = self._publishers.ways.designs
        if onward and designs is not None:
            topics = [part.topic for part in frame.parts]
            onward = designs.onward(sender.name, frame.slice, topics, onward)
        traced = self.tracer.comes(sender.name, frame) if self.tracer is not None and frame.properties else None
        sent, duplicates = self.forwarder.sent, self._inbox.duplicates
        self.received += len(frame.which)
        subscribers = self._inbox.accept(origin, frame)
        if frame.token:
            here = Ack(frame.token, [(1, min(count, MOST_COUNTED)) for count in subscribers], [])
            if DOUBTED in subscribers:
                here = Ack(frame.token, [(0, 0)] * len(subscribers), [self._port.me])
            if onward:
                pending = Pending(origin, frame)
                pending.to, pending.token = sender, frame.token
                pending.add(here)
                self.acknowledgements.expect_acknowledgement(pending, self._represented(origin, frame, onward, pending))
            else:
                self._port.send(sender, here)
        elif onward:
            for branch in self._represented(origin, frame, onward, None):
                self.forwarder.forward(origin, frame, branch, 0)
        if traced is not None:
            traced((self.forwarder.sent - sent) // len(frame.which), self._inbox.duplicates - duplicates)

    def _represented(
        self, origin: BrokerRef, frame: Publish, onward: list[Branch], pending: Pending | None
    ) -> list[Branch]:
        """What comes from another domain leaves along this one's tree for those whom that serves. Returns the branches
        to the others."""
        domains, me, tree_path = self._publishers.ways.domains, self._port.me, self.tree_path
        if tree_path is None or not domains or len(frame.parts) > 1:
            return onward
        here = domains.of(me)
        if not here or here == domains.of(origin):
            return onward
        members = [ref for branch in onward for ref in (branch.child, *branch.slice)]
        served = tree_path.represent(origin, frame, members, pending)
        if not served:
            return onward
        return divide(me, by_place((ref for ref in members if ref not in served), self._port.order), self._port.order)

    def _on_nack(self, sender: BrokerRef, nack: Nack) -> None:
        given = self._publishers.seq
        if nack.seq > given:  # somebody has published in the name of this broker
            self._port.send(sender, Skip(nack.topic, nack.seq, given))
            return
        if not self._publishers.permitted(nack.topic, [sender]):
            self._port.send(sender, Skip(nack.topic, nack.seq))
            return
        after = nack.seq - 1 if nack.after is None else nack.after
        found = [
            *self._remembered(nack.topic, after, nack.seq),
            *self.acknowledgements.to_topic(nack.topic, after, nack.seq),
        ]
        known: set[int] = set()
        for body in self.forwarder.repairs.due(sender, nack.topic, sorted(found, key=first_seq), self._port.now):
            if not known.issuperset(body.seqs):
                known.update(body.seqs)
                self.forwarder.forward(self._port.me, body, Branch(sender, ()), 0)
        owed = self.catch_up is not None and self.catch_up.owes(sender, nack.topic, nack.seq)
        # if some are found it asks again, with a later `after`: they must not be given up with `nack.seq`
        if not found and not owed:
            self._port.send(sender, Skip(nack.topic, nack.seq))

    def _remembered(self, topic: str, after: int, upto: int) -> list[Publish]:
        found = [] if self.tree_path is None else self.tree_path.remembered(topic, after, upto)
        stream = self._publishers.streams.get(topic)
        recent = stream.recent if stream is not None else None
        kept = (to_topic(body, topic, after, upto) for body in recent or ())
        return [*found, *(body for body in kept if body is not None)]

    # --- members served by an OpenFlow tree -----------------------------------------------------------------------

    def repeat(self, body: Publish, members: Iterable[BrokerRef], origin: BrokerRef | None = None) -> None:
        """Send publications to one topic with QoS 0 once more, by ALM: own ones, or those of an origin in another
        domain. `members` are in the order of their places."""
        refs = list(members)
        own = (
            self._publishers.ways.divide(body.parts[0].topic, refs)
            if origin is None
            else [Branch(ref, ()) for ref in refs]
        )
        for branch in own:
            self.forwarder.forward(origin or self._port.me, body, branch, 0)

    # --- links and brokers that fail ------------------------------------------------------------------------------

    def session_started(self, sender: BrokerRef) -> None:
        """A new link session from `sender`."""
        self.forwarder.session_started(sender)
        self.acknowledgements.session_started(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """What was sent to `peer` may be lost."""
        self.flush()
        self.forwarder.link_down(peer)
        self.acknowledgements.link_down(peer)

    def forget(self, broker: BrokerRef, over: bool) -> None:
        """A broker died. `over`: for certain, it does not come back in this life."""
        self.link_down(broker)
        self._inbox.forget(broker, over)
        if self.tree_path is not None:
            self.tree_path.forget(broker)
        self.forwarder.forget(broker)

    @property
    def settled(self) -> bool:
        """True if nothing this broker has published waits to be sent or confirmed."""
        waiting = any(stream.queue for stream in self._publishers.streams.values())
        return self.acknowledgements.settled and not self._unsent and not waiting


def _counting(answered: Done) -> Callable[[int], None]:
    """Answers a topic with the number of groups reached, each at one broker."""
    return lambda groups: answered([Reached(groups, groups)])
