"""The data path between brokers: publications go out along the branches of their topic, acknowledgements come back.

With QoS 1 and 2 each broker that passes a message on answers for its whole slice: its `Ack` counts the brokers and
subscribers reached and names the members it could not reach. A child that fails is repaired around: its slice is handed
on without it, and the publisher's broker repeats the message to the missing members until they have it or are dead.
Duplicates are dropped by `saps.overlay.order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from saps.messages import NOBODY, Message, Reached
from saps.overlay.express import FIRST as EXPRESS
from saps.overlay.frames import (
    Ack,
    Data,
    DefineBroker,
    DefineSlice,
    Frame,
    HighWater,
    Nack,
    OfmAck,
    ProtocolError,
    Skip,
)
from saps.overlay.keys import BrokerRef
from saps.overlay.order import Inbox
from saps.overlay.port import Port
from saps.overlay.presence import Phase, Presence, Publication, Stream
from saps.overlay.tree import Branch, divide
from saps.statistics import Statistics

REPEAT = 0.5
"""Seconds between two attempts to reach a missing member."""
SLICES = 4096
"""Slices remembered per link and direction; beyond it the sender begins anew."""
NUMBERS_KEPT = 60.0
"""Seconds for which the numbers a broker has given are remembered after its death."""


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


class Custody:
    """A message with QoS 1 or 2 that this broker has passed on and must answer for."""

    __slots__ = (
        "brokers",
        "data",
        "done",
        "missing",
        "origin",
        "since",
        "stream",
        "subscribers",
        "to",
        "token",
        "waiting",
    )

    def __init__(self, origin: BrokerRef, data: Data) -> None:
        self.origin = origin
        self.data = data
        self.waiting = 0
        self.brokers = 0
        self.subscribers = 0
        self.missing: list[BrokerRef] = []
        self.to: BrokerRef | None = None
        """Whom to answer; None at the publisher's broker."""
        self.token = 0
        self.done: Callable[[Reached], None] | None = None
        self.since = 0.0
        """When it was published, if this is the publisher's broker."""
        self.stream: Stream | None = None


class _Answer:
    """Calls `done` when all parts of a publication have been answered and it is `complete`, with the sum."""

    def __init__(self, done: Callable[[Reached], None]) -> None:
        self._done = done
        self._missing = 1
        self._brokers = 0
        self._subscribers = 0

    def part(self) -> Callable[[Reached], None]:
        """One part more; to be called with what it reached."""
        self._missing += 1
        return self._answered

    def complete(self) -> None:
        """There are no more parts."""
        self._answered(NOBODY)

    def _answered(self, reached: Reached) -> None:
        self._missing -= 1
        self._brokers += reached.brokers
        self._subscribers += reached.subscribers
        if not self._missing:
            self._done(Reached(self._brokers, self._subscribers))


def _counting(answered: Callable[[Reached], None]) -> Callable[[int], None]:
    """Answers a part with the number of groups reached, each at one broker."""
    return lambda groups: answered(Reached(groups, groups))


class _Outbound:
    """What the receiver of a lane has been told the numbers for; they are greater than `above`."""

    __slots__ = ("above", "brokers", "slices")

    def __init__(self, above: int = 0) -> None:
        self.above = above
        self.brokers: dict[BrokerRef, int] = {}
        self.slices: dict[tuple[BrokerRef, ...], int] = {}


class _Inbound:
    """What a sender has told this broker the numbers for: brokers, and slices as the branches they lead to."""

    __slots__ = ("branches", "brokers")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRef] = {}
        self.branches: dict[int, list[Branch]] = {0: []}

    def without(self, ended: Callable[[int], bool]) -> _Inbound:
        """What is left of it when a lane begins anew: all but the numbers of that lane."""
        left = _Inbound()
        left.brokers = {number: ref for number, ref in self.brokers.items() if not ended(number)}
        left.branches |= {number: branches for number, branches in self.branches.items() if not ended(number)}
        return left


class Multicast:
    """Publications that leave, pass through or end at one broker."""

    def __init__(self, port: Port, presence: Presence, inbox: Inbox) -> None:
        self._port = port
        self._presence = presence
        self._inbox = inbox
        self._outbound: dict[str, _Outbound] = {}
        self._express: dict[str, _Outbound] = {}
        self.urgent: Callable[[str], bool] | None = None
        """Which topics go by the express lane (`saps.overlay.express`); None: none."""
        self._inbound: dict[str, _Inbound] = {}
        self._parts: dict[int, tuple[Custody, BrokerRef, tuple[BrokerRef, ...]]] = {}
        """Token -> whose answer is awaited, for which slice."""
        self._tokens = 0
        self._outstanding: dict[int, Custody] = {}
        """Own publications with QoS 1 or 2 not yet confirmed by all members, by sequence number."""
        self.sent = 0
        """Data frames sent: inter-broker messages."""
        self.received = 0
        self.duplicates = 0
        self.tree_path: TreePath | None = None
        """Carries what leaves by an OpenFlow tree; None if there is none."""
        self.keep: Callable[[Message, int, Callable[[], None] | None], None] | None = None
        """Has a retained publication, with its sequence number, kept in the mesh (`saps.overlay.retention`)."""
        self.share: Callable[[Stream, Message, Callable[[int], None] | None], None] | None = None
        """Hands a publication to the stream's groups (`saps.overlay.sharing`) and counts those that took it."""
        self.statistics: Statistics | None = None
        """Counts by topic, if they are wanted."""
        self._cluster = port.me.cluster

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        stream = self._presence.stream(message.topic)
        stream.used = True
        if stream.queue or stream.members is None:
            # Opening, closing, or the members changed: the slow way, in the order of the calls.
            self._publish_slowly(stream, (message, done))
        elif message.retain or stream.groups:
            self._publish_specially(stream, message, done)
        elif stream.members:
            self._send(stream, message, done)
        elif done is not None:
            done(Reached(0, 0))

    def _publish_specially(self, stream: Stream, message: Message, done: Callable[[Reached], None] | None) -> None:
        """Publish to the members, to groups that take turns, and have it kept if it is retained: with QoS 1 and 2
        `done` waits for all of it."""
        answer = _Answer(done) if message.qos and done is not None else None
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
        if not message.qos:
            for branch in stream.branches if stream.tree is None else self._beside_tree(stream, data, None):
                self._forward(self._port.me, data, branch, 0)
            if done is not None:
                done(Reached(len(stream.members or ()), 0))
            return
        custody = Custody(self._port.me, data)
        custody.done = done
        custody.since = self._port.now
        custody.stream = stream
        self._outstanding[seq] = custody
        self._entrust(custody, stream.branches if stream.tree is None else self._beside_tree(stream, data, custody))

    def _beside_tree(self, stream: Stream, data: Data, custody: Custody | None) -> list[Branch]:
        """Send along the stream's tree. Returns the branches to those that it does not serve."""
        if self.tree_path is None or not self.tree_path.send(stream, data, custody):
            return divide(self._port.me, stream.members or (), self._port.order)
        if self.statistics is not None:
            self.statistics.of(data.topic).by_tree += 1
        return stream.branches

    # --- passing on -------------------------------------------------------------------------------------------

    def handle(self, sender: BrokerRef, frame: Frame) -> bool:
        """Handle one frame; False if it does not concern multicast."""
        kind = type(frame)
        if kind is Data:
            self._on_data(sender, frame)  # type: ignore[arg-type]
        elif kind is Ack:
            self._on_ack(frame)  # type: ignore[arg-type]
        elif isinstance(frame, DefineBroker):
            self._inbound.setdefault(sender.name, _Inbound()).brokers[frame.number] = frame.ref
        elif isinstance(frame, DefineSlice):
            self._define(sender, frame)
        elif isinstance(frame, Nack):
            self._on_nack(sender, frame)
        elif isinstance(frame, Skip):
            self._inbox.skip(sender, frame.topic, frame.seq)
        elif isinstance(frame, OfmAck):
            if self.tree_path is not None:
                self.tree_path.acknowledged(sender, frame)
        elif isinstance(frame, HighWater):
            self._inbox.expect(sender, frame.topic, frame.seq)
        else:
            return False
        return True

    def _define(self, sender: BrokerRef, frame: DefineSlice) -> None:
        inbound = self._inbound.setdefault(sender.name, _Inbound())
        try:
            run = tuple(inbound.brokers[number] for number in frame.brokers)
        except KeyError as error:
            raise ProtocolError(f"{sender.name} uses the number {error} without having said what for") from None
        inbound.branches[frame.number] = divide(self._port.me, run, self._port.order)

    def _on_data(self, sender: BrokerRef, data: Data) -> None:
        try:
            inbound = self._inbound[sender.name]
            origin = inbound.brokers[data.origin]
            onward = inbound.branches[data.slice]
        except KeyError as error:
            raise ProtocolError(f"{sender.name} uses the number {error} without having said what for") from None
        if onward and self._presence.designs is not None:
            onward = self._presence.designs.onward(sender.name, data.slice, data.topic, onward)
        self.received += 1
        subscribers = self._inbox.accept(origin, data)
        if subscribers is None:
            self.duplicates += 1
        if not data.token:
            for branch in onward:
                self._forward(origin, data, branch, 0)
            return
        if subscribers is None:  # it has come before, and its acknowledgement was lost
            subscribers = self._inbox.matching(data.topic)
        custody = Custody(origin, data)
        custody.to, custody.token = sender, data.token
        custody.brokers, custody.subscribers = 1, subscribers
        self._entrust(custody, onward)

    def _entrust(self, custody: Custody, branches: list[Branch]) -> None:
        """Send a message along branches and wait for an answer from each; what cannot be reached goes to `missing`."""
        pending = list(branches)
        while pending:
            branch = pending.pop()
            if not self._port.reachable(branch.child):
                custody.missing.append(branch.child)
                pending.extend(divide(self._port.me, branch.slice, self._port.order))
                continue
            self._tokens += 1
            custody.waiting += 1
            self._parts[self._tokens] = (custody, branch.child, branch.slice)
            self._forward(custody.origin, custody.data, branch, self._tokens)
        if not custody.waiting:
            self._settle(custody)

    def _forward(self, origin: BrokerRef, data: Data, branch: Branch, token: int) -> None:
        child, run = branch
        if not token and not self._port.reachable(child):
            for onward in divide(self._port.me, run, self._port.order):
                self._forward(origin, data, onward, 0)
            return
        if self.urgent is not None and self.urgent(data.topic):
            outbound = self._express.get(child.name)
            if outbound is None:
                outbound = self._express[child.name] = _Outbound(EXPRESS)
        else:
            outbound = self._outbound.get(child.name)
            if outbound is None:
                outbound = self._outbound[child.name] = _Outbound()
        number = outbound.brokers.get(origin) or self._define_broker(child, outbound, origin)
        run_number = 0
        if run:
            run_number = outbound.slices.get(run) or self._define_slice(child, outbound, run)
        self.sent += 1
        if self.statistics is not None and child.cluster != self._cluster:
            self.statistics.crossed(data.topic)
        frame = Data(
            number,
            data.seq,
            data.prev,
            run_number,
            token,
            data.topic,
            data.payload,
            data.qos,
            data.retain,
            data.properties,
        )
        self._port.send(child, frame)

    def _define_broker(self, to: BrokerRef, outbound: _Outbound, ref: BrokerRef) -> int:
        number = outbound.brokers[ref] = outbound.above + len(outbound.brokers) + 1
        self._port.send(to, DefineBroker(number, ref))
        return number

    def _define_slice(self, to: BrokerRef, outbound: _Outbound, run: tuple[BrokerRef, ...]) -> int:
        if len(outbound.slices) >= SLICES:
            outbound.slices.clear()
        numbers = [outbound.brokers.get(ref) or self._define_broker(to, outbound, ref) for ref in run]
        number = outbound.slices[run] = outbound.above + len(outbound.slices) + 1
        self._port.send(to, DefineSlice(number, numbers))
        return number

    # --- members served by an OpenFlow tree -----------------------------------------------------------------------

    def awaiting(self, custody: Custody) -> None:
        """The tree answers for some members of this own publication."""
        custody.waiting += 1

    def confirmed(self, custody: Custody, brokers: int, subscribers: int) -> None:
        """These members have acknowledged the publication."""
        custody.brokers += brokers
        custody.subscribers += subscribers

    def answered(self, custody: Custody, missing: Iterable[BrokerRef]) -> None:
        """The tree answers for nobody any more: those still `missing` get the publication each by itself."""
        custody.waiting -= 1
        self._entrust(custody, [Branch(ref, ()) for ref in missing])

    def repeat(self, data: Data, members: Iterable[BrokerRef]) -> None:
        """Send an own publication with QoS 0 once more, by ALM."""
        for ref in members:
            self._forward(self._port.me, data, Branch(ref, ()), 0)

    # --- acknowledgements ---------------------------------------------------------------------------------------

    def _on_ack(self, ack: Ack) -> None:
        part = self._parts.pop(ack.token, None)
        if part is None:
            return
        custody = part[0]
        custody.waiting -= 1
        custody.brokers += ack.brokers
        custody.subscribers += ack.subscribers
        custody.missing.extend(ack.missing)
        if not custody.waiting:
            self._settle(custody)

    def _settle(self, custody: Custody) -> None:
        """All answers are in: pass them on to the parent, or at the publisher's broker see who is missing."""
        if custody.to is not None:
            answer = Ack(custody.token, custody.brokers, custody.subscribers, custody.missing)
            self._port.send(custody.to, answer)
        elif custody.missing:
            self._port.after(REPEAT, lambda: self._repeat(custody))
        elif self._outstanding.pop(custody.data.seq, None) is not None:
            if self.statistics is not None:
                self.statistics.confirmed(custody.data.topic, self._port.now - custody.since)
            if custody.done is not None:
                custody.done(Reached(custody.brokers, custody.subscribers))

    def _repeat(self, custody: Custody) -> None:
        """Send the message to each member that is still missing, and still a member, by itself."""
        if custody.stream is None or custody.waiting:
            return
        self._presence.route(custody.stream)
        members = set(custody.stream.members or ())
        missing, custody.missing = custody.missing, []
        self._entrust(custody, [Branch(ref, ()) for ref in dict.fromkeys(missing) if ref in members])

    def _on_nack(self, sender: BrokerRef, nack: Nack) -> None:
        if not self._presence.permitted(nack.topic, [sender]):
            self._port.send(sender, Skip(nack.topic, nack.seq))
            return
        after = nack.seq - 1 if nack.after is None else nack.after
        found = {data.seq: data for data in self._remembered(nack.topic, after, nack.seq)}
        for seq, custody in self._outstanding.items():
            if after < seq <= nack.seq and custody.data.topic == nack.topic:
                found[seq] = custody.data
        for seq in sorted(found):
            self._forward(self._port.me, found[seq], Branch(sender, ()), 0)
        if not found:  # else it asks again, with a later `after`: what is found must not be given up with `nack.seq`
            self._port.send(sender, Skip(nack.topic, nack.seq))

    def _remembered(self, topic: str, after: int, seq: int) -> list[Data]:
        return [] if self.tree_path is None else self.tree_path.remembered(topic, after, seq)

    # --- links and brokers that fail ------------------------------------------------------------------------------

    def session_started(self, sender: BrokerRef) -> None:
        """A new link session from `sender`: the numbers of the common lane are given anew."""
        before = self._inbound.get(sender.name)
        self._inbound[sender.name] = _Inbound() if before is None else before.without(lambda number: number <= EXPRESS)

    def express_started(self, sender: BrokerRef) -> None:
        """The same for the express lane."""
        before = self._inbound.get(sender.name)
        if before is not None:
            self._inbound[sender.name] = before.without(lambda number: number > EXPRESS)

    def link_down(self, peer: BrokerRef) -> None:
        """What was sent to `peer` may be lost: hand its slices on without it, and try it again later."""
        self._outbound.pop(peer.name, None)
        self._express.pop(peer.name, None)
        for token, (custody, child, run) in list(self._parts.items()):
            if child.name == peer.name:
                del self._parts[token]
                custody.waiting -= 1
                custody.missing.append(child)
                self._entrust(custody, divide(self._port.me, run, self._port.order))

    def forget(self, broker: BrokerRef) -> None:
        """A broker died."""
        self.link_down(broker)
        self._inbox.forget(broker)
        if self.tree_path is not None:
            self.tree_path.forget(broker)
        inbound = self._inbound.get(broker.name)

        def still_dead() -> None:
            if self._inbound.get(broker.name) is inbound and self._port.lost(broker):
                self._inbound.pop(broker.name, None)

        # If it was cut off only, it goes on in the same session, with the numbers it has given.
        self._port.after(NUMBERS_KEPT, still_dead)

    def awaited(self) -> dict[str, BrokerRef]:
        """The brokers from which an acknowledgement is due: their failure must be noticed."""
        return {child.name: child for _, child, _ in self._parts.values()}

    @property
    def settled(self) -> bool:
        """True if nothing this broker has published waits to be sent or confirmed."""
        return not self._outstanding and not any(stream.queue for stream in self._presence.streams.values())
