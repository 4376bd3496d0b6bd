"""What one broker tells of a sampled message: the spans, their names, their parents and their attributes.

    receive     from the client's packet to the last subscriber at this broker
      deliver   handing it to the subscribers here, an event for each
      route     from the mesh's taking it to the last member's acknowledgement (QoS 0: until it is on its way)
        hop     at another broker: from its arrival to its delivery, waiting for earlier ones included
          deliver
          hop   at a broker to which that one has passed it on

What comes along an OpenFlow tree does not say which broker it was published at: such a hop stands below `receive`.
Attributes in OpenTelemetry's terms (its semantic conventions for messaging), else with the prefix ``saps.``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saps.local.subscriptions import Target
from saps.messages import Message, Reached
from saps.tracing.context import Context, Sampler

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent

MOST_EVENTS = 32
"""Subscribers that a `deliver` names one by one."""
MOST_HELD = 1024
"""Hops that wait for an earlier message; the oldest is ended beyond that."""

Value = str | int | bool


class Span(Protocol):
    """A span that has begun, as OpenTelemetry has it."""

    def set_attributes(self, attributes: Mapping[str, Value]) -> None:
        """Say more of it."""

    def add_event(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Something happens in it now."""

    def end(self) -> None:
        """It is over. Without this it is not told at all."""


class Spans(Protocol):
    """Where spans go."""

    def begin(self, name: str, trace: int, span: int, parent: int, attributes: Mapping[str, Value]) -> Span:
        """A span begins now. `parent` 0: it is the first one of its trace."""


class Entry(NamedTuple):
    """A sampled message at the broker where it is published."""

    message: Message
    context: Context
    receive: int
    """The identifier of its first span."""
    span: Span


class Hop:
    """A sampled message that has come from another broker."""

    __slots__ = ("context", "delivered", "span", "within")

    def __init__(self, context: Context, span: Span) -> None:
        self.context = context
        self.span = span
        self.delivered = False
        self.within = True
        """Its frame is being handled."""


class Traces:
    """The spans of one broker's sampled messages."""

    def __init__(self, broker: str, spans: Spans, share: float, rng: Random) -> None:
        """`share`: of the messages that enter the mesh here and have no trace yet."""
        self.broker = broker
        self.sampler = Sampler(share, rng)
        self._spans = spans
        self._rng = rng
        self._hops: OrderedDict[Context, Hop] = OrderedDict()

    # ---- at the broker where it is published

    def begin(self) -> Context:
        """A new trace, for a message that is sampled here."""
        return Context.new(self._rng)

    def enters(self, message: Message, context: Context, is_new: bool, sender: SubscriberAgent | None) -> Entry:
        """A sampled message is published here. `is_new`: its trace begins here."""
        span, parent = (context.span, 0) if is_new else (self._rng.getrandbits(64) or 1, context.span)
        begun = self._spans.begin("receive", context.trace, span, parent, _of(message))
        if sender is not None:
            begun.set_attributes({"messaging.client.id": sender.client_id})
        return Entry(message, context, span, begun)

    def routed(self, entry: Entry) -> Span:
        """The mesh takes it."""
        context = entry.context
        return self._spans.begin("route", context.trace, context.at(self.broker), entry.receive, _of(entry.message))

    def deliver(self, message: Message, context: Context, parent: int) -> Span:
        """It is handed to the subscribers of this broker."""
        return self._spans.begin("deliver", context.trace, self._rng.getrandbits(64) or 1, parent, _of(message))

    # ---- at other brokers

    def arrives(self, message: Message, context: Context, sender: str) -> Hop:
        """It comes by ALM, from a broker that has it."""
        attributes = _of(message) | {"saps.by": "alm", "saps.from": sender}
        span = self._spans.begin("hop", context.trace, context.at(self.broker), context.at(sender), attributes)
        hop = self._hops[context] = Hop(context, span)
        if len(self._hops) > MOST_HELD:
            self._hops.popitem(last=False)[1].span.end()
        return hop

    def handled(self, hop: Hop, passed_on: int, duplicate: bool) -> None:
        """Its frame has been handled: so many copies went on to other brokers."""
        hop.within = False
        hop.span.set_attributes({"saps.passed_on": passed_on})
        if not hop.delivered and duplicate:
            hop.span.set_attributes({"saps.duplicate": True})
            self._hops.pop(hop.context, None)
        elif not hop.delivered:
            hop.span.set_attributes({"saps.held": True})
            return
        hop.span.end()

    def delivers(self, message: Message, context: Context) -> Hop:
        """It is its turn: from here on it is handed to the subscribers."""
        hop = self._hops.pop(context, None)
        if hop is None:  # no frame has brought it
            attributes = _of(message) | {"saps.by": "ofm"}
            here, parent = context.at(self.broker), context.span
            hop = Hop(context, self._spans.begin("hop", context.trace, here, parent, attributes))
            hop.within = False
        return hop

    def delivered(self, hop: Hop) -> None:
        """It has been."""
        hop.delivered = True
        if not hop.within:
            hop.span.end()


def confirmed(span: Span, reached: Reached) -> None:
    """All members have it: the end of `route`."""
    span.set_attributes({"saps.brokers": reached.brokers, "saps.subscribers": reached.subscribers})
    span.end()


def handed(span: Span, targets: Iterable[Target], matched: int) -> None:
    """These subscribers have it, or it waits for them: the end of `deliver`."""
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
