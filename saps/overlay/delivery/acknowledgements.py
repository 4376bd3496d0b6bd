"""Tracks acknowledgements of QoS 1 and 2: one token for each frame and child, one answer for each frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from saps.marks import hit
from saps.overlay.delivery.forwarding import Forwarder, Outbox
from saps.overlay.delivery.pending import DueAck, Pending
from saps.overlay.delivery.publications import counts_of, to_parts, to_topic
from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.frames.calls import Outstanding, Unsettled
from saps.overlay.frames.delivery import Ack, Publish
from saps.overlay.missed.published import Published
from saps.overlay.port import Bodies
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.ring.keys import BrokerRef
from saps.statistics import Statistics
from saps.topics import matches

REPEAT = 0.5
"""Interval between two attempts to reach a missing member, in seconds."""
LATE = 1.0
"""Seconds after which an acknowledgement is late: sessions may have left the member meanwhile, as to others it was
lost."""
MOST_LATE = 1024
"""Number of frames that were acknowledged late and are remembered."""


class Acknowledgements:
    """The frames that one broker answers for, and its own frames that some member has not acknowledged yet."""

    def __init__(self, port: Outbox, publishers: PublisherRegistry, forwarder: Forwarder) -> None:
        self._port = port
        self._publishers = publishers
        self._forwarder = forwarder
        self._due: dict[int, DueAck] = {}
        """Answers due from children, by token."""
        self._tokens = 0
        """The last token assigned."""
        self._own: dict[int, Pending] = {}
        """Own frames that some member has not acknowledged yet, by the first sequence number of the frame."""
        self._late: deque[tuple[float, Published]] = deque(maxlen=MOST_LATE)
        """Own frames that were acknowledged late, each with the time of that."""
        self.statistics: Statistics | None = None
        """Counters by topic, or None while nobody counts."""

    def begin(self, pending: Pending) -> None:
        """Keep a frame of own publications until all members have acknowledged it. Call `expect_acknowledgement`
        next."""
        pending.since = self._port.now
        self._own[pending.body.seqs[0]] = pending

    def expect_acknowledgement(self, pending: Pending, branches: Iterable[Branch]) -> None:
        """Send a whole frame along the branches and wait for an answer from each child.

        A child that cannot be reached is added to `pending.missing`, and its slice is divided among others.
        """
        unsent = list(branches)
        while unsent:
            branch = unsent.pop()
            if not self._port.reachable(branch.child):
                pending.missing.append(branch.child)
                unsent.extend(divide(self._port.me, branch.slice, self._port.order))
            else:
                self._send(pending, pending.body, DueAck(pending, branch), branch)
        if not pending.waiting:
            self._settle(pending)

    def _send(self, pending: Pending, body: Publish, due: DueAck, branch: Branch) -> None:
        self._tokens = token = self._tokens + 1
        pending.waiting += 1
        self._due[token] = due
        self._forwarder.forward(pending.origin, body, branch, token)

    def on_ack(self, sender: BrokerRef, ack: Ack) -> None:
        """Handle the answer of a child. Raises `ProtocolError` if the answer counts another number of topics than the
        frame has."""
        due = self._due.get(ack.token)
        if due is None or due.child.name != sender.name:
            hit("late acknowledgement")
            return
        due.answered(ack)
        del self._due[ack.token]
        due.pending.waiting -= 1
        if not due.pending.waiting:
            self._settle(due.pending)

    def answered(self, pending: Pending, missing: Iterable[BrokerRef]) -> None:
        """Count a child or tree as answered, whether it answered or gave up. Sends the frame to each `missing` member
        individually."""
        pending.waiting -= 1
        self.expect_acknowledgement(pending, [Branch(ref, ()) for ref in missing])

    def _settle(self, pending: Pending) -> None:
        """Settle a frame when all answers are in: answer the parent, or at the publishers' broker confirm the frame or
        repeat it to the missing members after `REPEAT`."""
        if pending.to is not None:
            self._port.send(pending.to, pending.answer())
        elif pending.missing:
            self._port.after(REPEAT, lambda: self._repeat(pending))
        elif self._own.pop(pending.body.seqs[0], None) is not None:
            if self.statistics is not None:
                for topic, count in counts_of(pending.body):
                    self.statistics.confirmed(topic, self._port.now - pending.since, count)
            if self._port.now - pending.since >= LATE:
                self._late.append((self._port.now, Published(pending.body, pending.since, _sent(pending))))
            pending.confirm()

    def _repeat(self, pending: Pending) -> None:
        """Send the publications again to each missing broker that is still a member of their topics."""
        if pending.waiting:
            return
        missing, pending.missing = dict.fromkeys(pending.missing), []
        for stream in pending.streams:
            self._publishers.route(stream)
        for ref in missing:
            wanted = [ref in (stream.members or ()) or ref in stream.behind for stream in pending.streams]
            body, branch = to_parts(pending.body, wanted), Branch(ref, ())
            if body is None:
                continue
            if not self._port.reachable(ref):
                pending.missing.append(ref)
            else:
                parts = [number for number, is_wanted in enumerate(wanted) if is_wanted]
                hit("publication sent again to one member")
                self._send(pending, body, DueAck(pending, branch, parts), branch)
        if not pending.waiting:
            self._settle(pending)

    # --- own publications -----------------------------------------------------------------------------------------

    def unacknowledged(self, member: BrokerRef) -> list[Published]:
        """Return the own unacknowledged publications that `member` may lack, in order of their sequence numbers."""
        found = []
        for pending in self._own.values():
            for stream in pending.streams:
                self._publishers.route(stream)
            wanted = [member in (stream.members or ()) or member in stream.behind for stream in pending.streams]
            body = to_parts(pending.body, wanted)
            if body is not None:
                found.append(Published(body, pending.since, _sent(pending)))
        return sorted(found, key=Published.first)

    def late(self, member: BrokerRef, left: float, until: float) -> list[Published]:
        """Return the own publications from before the time `until` that `member` may have got only after `left`, in
        order of their sequence numbers."""
        late = [each for at, each in self._late if at > left and member in each.sent]
        found = [each for each in (*late, *self.unacknowledged(member)) if each.at <= until]
        return sorted(found, key=Published.first)

    def to_topic(self, topic: str, after: int, upto: int) -> list[Publish]:
        """Return the own unacknowledged publications to a topic with sequence numbers in (`after`, `upto`]."""
        found = (to_topic(pending.body, topic, after, upto) for pending in self._own.values())
        return [body for body in found if body is not None]

    @property
    def bodies(self) -> Bodies:
        return {Unsettled: lambda body, keys: [self._outstanding(body.topic_filters, body.source)]}

    def _outstanding(self, topic_filters: list[str], source: BrokerRef | None) -> Outstanding:
        """Return the last own sequence number, and that of the first publication that a filter matches and that some
        member, or `source`, may lack (0 for none)."""
        found: dict[str, bool] = {}
        absent = self._publishers.catch_up
        lowest = 0 if source is None or absent is None else absent.lacks(source, topic_filters)
        for pending in self._own.values():
            for part in pending.body.parts:
                if part.topic not in found:
                    found[part.topic] = any(matches(topic_filter, part.topic) for topic_filter in topic_filters)
            wanted = [found[part.topic] for part in pending.body.parts]
            for number, seq in zip(pending.body.which, pending.body.seqs, strict=True):
                if wanted[number] and (not lowest or seq < lowest):
                    lowest = seq
        return Outstanding(self._port.me.name, self._port.me.incarnation, self._publishers.seq, lowest)

    @property
    def settled(self) -> bool:
        """Whether all own publications are acknowledged."""
        return not self._own

    def awaited(self) -> dict[str, BrokerRef]:
        """Return the brokers that owe an acknowledgement, by name. The caller must detect their failure."""
        return {due.child.name: due.child for due in self._due.values()}

    # --- links that fail ----------------------------------------------------------------------------------------------

    def session_started(self, sender: BrokerRef) -> None:
        """Handle a new link session from `sender`: its answers on the previous session may be lost. Answers that are
        still due after `REPEAT` count as lost."""
        if tokens := [token for token, due in self._due.items() if due.child.name == sender.name]:
            self._port.after(REPEAT, lambda: self._unanswered(tokens))

    def link_down(self, peer: BrokerRef) -> None:
        """Handle the loss of a link to `peer`: frames sent to it may be lost. Hands its slices to other brokers and
        tries the peer again later."""
        self._unanswered([token for token, due in self._due.items() if due.child.name == peer.name])

    def _unanswered(self, tokens: Iterable[int]) -> None:
        """Give up the answers that are still due for these tokens. Their slices are handed on without the child, which
        is tried again later."""
        for token in tokens:
            if (due := self._due.pop(token, None)) is not None:
                hit("slice handed on without its child")
                due.pending.waiting -= 1
                due.pending.missing.append(due.child)
                self.expect_acknowledgement(due.pending, divide(self._port.me, due.slice, self._port.order))


def _sent(pending: Pending) -> frozenset[BrokerRef]:
    """Return the brokers to which an own frame was sent."""
    return frozenset(each for stream in pending.streams for each in stream.members or ())
