"""The spans of a sampled message at one broker: their names, parents and attributes.

    receive     from the client's packet to the last subscriber at this broker
      deliver   delivery to the subscribers at this broker, with an event for each
      route     from the hand-over to the mesh to the last member's acknowledgement (QoS 0: until it is sent)
        hop     at another broker: from the arrival to the delivery, including the wait for earlier messages
          deliver
          hop   at a broker to which the hop above passed the message on

A message that comes along an OpenFlow tree does not name the broker it was published at. The parent of its hop is
therefore the span in the message's context: `receive` if a broker began the trace, else the publisher's own span.
Attributes follow OpenTelemetry's semantic conventions for messaging; all others have the prefix ``saps.``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saps.messages import Message, Reached
from saps.routing.subscriptions import Target
from saps.tracing.context import Context, Sampler

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent

MOST_EVENTS = 32
"""Most subscribers that a `deliver` span names, one event for each."""
MOST_HELD = 1024
"""Most hops that wait for an earlier message; beyond that, the oldest hop's span ends."""

Value = str | int | bool


class Span(Protocol):
    """A span that has begun, with the methods of OpenTelemetry's spans."""

    def set_attributes(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes to the span."""

    def add_event(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Add an event at the present time to the span."""

    def end(self) -> None:
        """End the span. A span that never ends is never exported."""


class Spans(Protocol):
    """Begins and exports spans."""

    def begin(self, name: str, trace: int, span: int, parent: int, attributes: Mapping[str, Value]) -> Span:
        """Begin a span now, and return it. `trace`, `span`: its identifiers. `parent`: identifier of its parent, 0 for
        the first span of a trace."""


class Entry(NamedTuple):
    """A sampled message at the broker at which it is published."""

    message: Message
    context: Context
    receive: int
    """Identifier of the span `receive`."""
    span: Span
    """The span `receive`."""


class Hop:
    """A sampled message that has come from another broker."""

    __slots__ = ("context", "delivered", "span", "within")

    def __init__(self, context: Context, span: Span) -> None:
        self.context = context
        self.span = span
        self.delivered = False
        self.within = True
        """Whether the frame that brought the message is still being handled."""


class Traces:
    """Begins and ends the spans of the sampled messages at one broker."""

    def __init__(self, broker: str, spans: Spans, share: float, rng: Random) -> None:
        """`broker`: the broker's name. `share`: the share (0 to 1) of messages to sample among those that enter the
        mesh here without a trace."""
        self.broker = broker
        self.sampler = Sampler(share, rng)
        self._spans = spans
        self._rng = rng
        self._hops: OrderedDict[Context, Hop] = OrderedDict()
        """Hops whose messages have not been delivered yet, oldest first."""

    # ---- at the publisher's broker

    def begin(self) -> Context:
        """Return the context of a new trace, for a message sampled here."""
        return Context.new(self._rng)

    def enters(self, message: Message, context: Context, is_new: bool, sender: SubscriberAgent | None) -> Entry:
        """Begin the span `receive` of a sampled message that is published here. `is_new`: the trace begins here, so
        that `receive` is its first span. `sender`: the publisher's agent, if the publisher is a client."""
        span, parent = (context.span, 0) if is_new else (self._rng.getrandbits(64) or 1, context.span)
        begun = self._spans.begin("receive", context.trace, span, parent, _of(message))
        if sender is not None:
            begun.set_attributes({"messaging.client.id": sender.client_id})
        return Entry(message, context, span, begun)

    def routed(self, entry: Entry) -> Span:
        """Begin the span `route`: the mesh takes the message. `confirmed` ends the span."""
        context = entry.context
        return self._spans.begin("route", context.trace, context.at(self.broker), entry.receive, _of(entry.message))

    def deliver(self, message: Message, context: Context, parent: int) -> Span:
        """Begin a span `deliver`: the message goes to the subscribers of this broker. `handed` ends the span. `parent`:
        identifier of the parent span."""
        return self._spans.begin("deliver", context.trace, self._rng.getrandbits(64) or 1, parent, _of(message))

    # ---- at other brokers

    def arrives(self, message: Message, context: Context, sender: str) -> Hop:
        """Begin the span `hop` of a message that comes by ALM from the broker `sender`. The caller must call `handled`
        when it has handled the frame."""
        attributes = _of(message) | {"saps.by": "alm", "saps.from": sender}
        span = self._spans.begin("hop", context.trace, context.at(self.broker), context.at(sender), attributes)
        hop = Hop(context, span)
        self._hops.setdefault(context, hop)  # if a copy of the message waits, its hop stays
        if len(self._hops) > MOST_HELD:
            self._hops.popitem(last=False)[1].span.end()
        return hop

    def handled(self, hop: Hop, passed_on: int, duplicate: bool) -> None:
        """Note that the frame of a hop has been handled, and end the span unless the message waits for earlier ones.
        `passed_on`: number of brokers it was passed on to. `duplicate`: the frame contained a duplicate."""
        hop.within = False
        hop.span.set_attributes({"saps.passed_on": passed_on})
        waits = self._hops.get(hop.context) is hop
        if not hop.delivered and duplicate:
            hop.span.set_attributes({"saps.duplicate": True})
            if waits:
                del self._hops[hop.context]
        elif waits:
            hop.span.set_attributes({"saps.held": True})
            return
        hop.span.end()

    def delivers(self, message: Message, context: Context) -> Hop:
        """Return the hop of a message whose turn has come to be delivered; begin one if it has come by OFM. The caller
        must call `delivered` after the delivery."""
        hop = self._hops.pop(context, None)
        if hop is None:  # the message came along an OpenFlow tree, not in a frame
            attributes = _of(message) | {"saps.by": "ofm"}
            here, parent = context.at(self.broker), context.span
            hop = Hop(context, self._spans.begin("hop", context.trace, here, parent, attributes))
            hop.within = False
        return hop

    def delivered(self, hop: Hop) -> None:
        """Note that the message of a hop has been delivered here, and end the span unless its frame is still being
        handled."""
        hop.delivered = True
        if not hop.within:
            hop.span.end()


def confirmed(span: Span, reached: Reached) -> None:
    """End a span `route`: all members have the message."""
    span.set_attributes({"saps.brokers": reached.brokers, "saps.subscribers": reached.subscribers})
    span.end()


def handed(span: Span, targets: Iterable[Target], matched: int) -> None:
    """End a span `deliver`: the message has been sent to, or queued for, the subscribers of `targets`. `matched`:
    number of matching subscribers."""
    for target, _ in zip(targets, range(MOST_EVENTS), strict=False):
        agent = target.agent
        span.add_event("handed to", {"messaging.client.id": agent.client_id, "saps.connected": agent.present})
    span.set_attributes({"saps.subscribers": matched})
    span.end()


def _of(message: Message) -> dict[str, Value]:
    return {
        "messaging.system": "saps",
        "messaging.destination.name": message.topic,
        "messaging.message.body.size": len(message.payload),
        "saps.qos": message.qos,
    }
