"""Traces a share of the publications through one broker: those published here, and those from other brokers.

The hub (`saps.routing.tracer.Tracer`) and the data path (`saps.overlay.delivery.multicast.FrameTracer`) each call the
tracer at one point, with whole batches. A sampled publication gets a trace context in its properties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from saps.mesh import Done
from saps.messages import Message, Properties, Reached
from saps.overlay.delivery.publications import properties_of
from saps.routing.batch import Batch
from saps.routing.subscriptions import Target
from saps.tracing.context import Context, carried, carrying, given
from saps.tracing.spans import Entry, Hop, Span, Traces, confirmed, handed

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent
    from saps.overlay.frames.delivery import Publish
    from saps.routing.routes import Route


class Tracer:
    """A `saps.routing.tracer.Tracer` and a `saps.overlay.delivery.multicast.FrameTracer`."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def published(
        self, batch: Batch, routes: Sequence[Route], sender: SubscriberAgent | None
    ) -> tuple[Batch, Published | None]:
        """Begin the spans of a batch published here. Returns the batch, with contexts in the newly sampled
        publications, and its traced publications, or None if there are none."""
        properties = batch.properties
        contexts: dict[int, Context] = {}
        if properties is None:
            sampled = self._traces.sampler.among(len(batch))
        else:
            fresh = [index for index, each in enumerate(properties) if not given(each)]
            contexts = {index: context for index, each in enumerate(properties) if (context := carried(each))}
            sampled = [fresh[place] for place in self._traces.sampler.among(len(fresh))]
        if not (sampled or contexts):
            return batch, None
        if sampled:
            carriers: list[Properties | None] = list(properties or [None] * len(batch))
            for index in sampled:
                contexts[index] = self._traces.begin()
                carriers[index] = carrying(carriers[index], contexts[index])
            batch = batch.replace(carriers)
        singles, fresh_ones = batch.singles, set(sampled)
        entries = []
        for index, context in sorted(contexts.items()):
            number = batch.which[index]
            targets = [t for t in routes[number].targets if t.agent is not sender or t.own is not None]
            entry = self._traces.enters(singles[index].message, context, index in fresh_ones, sender)
            deliver = self._traces.deliver(entry.message, context, entry.receive) if targets else None
            entries.append(Followed(number, entry, deliver, targets))
        return batch, Published(self._traces, entries)

    def arrived(self, batch: Batch, routes: Sequence[Route]) -> Arrived | None:
        """Begin the spans of the delivery of a batch from another broker. Returns its traced publications, or None."""
        arrivals: list[tuple[int, Hop, Span, Sequence[Target]]] = []
        for index, context in _traced(batch.properties or ()):
            number = batch.which[index]
            message = Message(batch.topics[number], batch.payloads[index], batch.qos, batch.retain)
            hop = self._traces.delivers(message, context)
            deliver = self._traces.deliver(message, context, context.at(self._traces.broker))
            arrivals.append((number, hop, deliver, routes[number].targets))
        return Arrived(self._traces, arrivals) if arrivals else None

    def denied(self, agent: SubscriberAgent | None, topics: Sequence[str]) -> None:
        """Do nothing: a publication that is refused has no trace."""

    def lost(self, agent: SubscriberAgent, batch: Batch, why: str) -> None:
        """Do nothing: a trace ends where a message is handed to the subscriber's session."""

    def comes(self, sender: str, frame: Publish) -> Callable[[int, int], None] | None:
        """Begin the hops of a frame with properties from the broker `sender`, before it is handled. Returns None if no
        publication of the frame is traced. Otherwise returns a function to call after the frame was handled. Its
        arguments are the number of brokers the frame was passed on to, and the number of duplicates in it."""
        hops = [
            self._traces.arrives(
                Message(frame.parts[frame.which[index]].topic, frame.payloads[index], frame.qos), context, sender
            )
            for index, context in _traced(properties_of(frame) or ())
        ]

        def handled(passed_on: int, duplicates: int) -> None:
            for hop in hops:
                self._traces.handled(hop, passed_on, bool(duplicates))

        return handled if hops else None


class Followed(NamedTuple):
    """A traced publication at the broker at which it is published."""

    number: int
    """Index of its topic among the topics of the batch."""
    entry: Entry
    deliver: Span | None
    """The span of the delivery here; None without local subscribers."""
    targets: Sequence[Target]
    """The local subscribers."""


class Published:
    """The traced publications of one batch at the broker at which it is published."""

    def __init__(self, traces: Traces, entries: list[Followed]) -> None:
        self._traces = traces
        self._entries = entries

    def delivered(self, matched: Sequence[int]) -> None:
        """End the spans of the local delivery. `matched`: number of local subscribers by topic of the batch."""
        for number, entry, deliver, targets in self._entries:
            if deliver is not None:
                handed(deliver, targets, matched[number])
            entry.span.end()

    def routed(self, done: Done | None) -> Done | None:
        """Begin the spans `route` before the mesh takes the batch. Returns the callback to give to the mesh instead of
        `done`; it ends the spans and then calls `done`."""
        spans = [(number, self._traces.routed(entry)) for number, entry, _, _ in self._entries]

        def settled(reached: Sequence[Reached]) -> None:
            for number, span in spans:
                confirmed(span, reached[number])
            if done is not None:
                done(reached)

        return settled


class Arrived:
    """The traced publications of one batch at a broker to which the mesh has brought it."""

    def __init__(self, traces: Traces, arrivals: list[tuple[int, Hop, Span, Sequence[Target]]]) -> None:
        self._traces = traces
        self._arrivals = arrivals

    def delivered(self, matched: Sequence[int]) -> None:
        """End the spans of the local delivery. `matched`: number of local subscribers by topic of the batch."""
        for number, hop, deliver, targets in self._arrivals:
            handed(deliver, targets, matched[number])
            self._traces.delivered(hop)

    def routed(self, done: Done | None) -> Done | None:
        """Return `done` unchanged: a batch that comes from the mesh is not sent to the mesh again."""
        return done


def _traced(properties: Sequence[Properties | None]) -> list[tuple[int, Context]]:
    """Return the index and context of each traced publication."""
    return [
        (index, context)
        for index, each in enumerate(properties)
        if each is not None and (context := carried(each)) is not None
    ]
