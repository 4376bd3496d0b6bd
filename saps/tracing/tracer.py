"""Follows a share of the publications through one broker: where they are published, and where they come from others.

The hub and the data path call it, each at one point, with whole batches (`saps.local.tracer.Tracer`,
`saps.overlay.delivery.multicast.FrameTracer`). A publication that is sampled gets a context in its properties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from saps.local.batch import Batch
from saps.local.subscriptions import Target
from saps.mesh import Done
from saps.messages import Message, Properties, Reached
from saps.overlay.delivery.publications import properties_of
from saps.tracing.context import Context, carried, carrying, given
from saps.tracing.spans import Entry, Hop, Span, Traces, confirmed, handed

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent
    from saps.local.routes import Route
    from saps.overlay.frames.delivery import Publish


class Tracer:
    """A `saps.local.tracer.Tracer` and a `saps.overlay.delivery.multicast.FrameTracer`."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def published(
        self, batch: Batch, routes: Sequence[Route], sender: SubscriberAgent | None
    ) -> tuple[Batch, Published | None]:
        """A batch is published here. Returns it, with what marks the publications that are traced."""
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
        """A batch has come from another broker."""
        arrivals: list[tuple[int, Hop, Span, Sequence[Target]]] = []
        for index, context in _traced(batch.properties or ()):
            number = batch.which[index]
            message = Message(batch.topics[number], batch.payloads[index], batch.qos, batch.retain)
            hop = self._traces.delivers(message, context)
            deliver = self._traces.deliver(message, context, context.at(self._traces.broker))
            arrivals.append((number, hop, deliver, routes[number].targets))
        return Arrived(self._traces, arrivals) if arrivals else None

    def denied(self, agent: SubscriberAgent | None, topics: Sequence[str]) -> None:
        """What is not published has no trace."""

    def lost(self, agent: SubscriberAgent, batch: Batch, why: str) -> None:
        """A trace ends where a message is handed over."""

    def comes(self, sender: str, frame: Publish) -> Callable[[int, int], None] | None:
        """A frame with properties is about to be handled. Returns what is to be told, if one of its publications is
        traced: to how many brokers it was passed on, and how many of its publications were duplicates."""
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
    """A publication that is traced, at the broker where it is published."""

    number: int
    """The place of its topic in the batch."""
    entry: Entry
    deliver: Span | None
    targets: Sequence[Target]


class Published:
    """The publications of one batch that are traced, at the broker where it is published."""

    def __init__(self, traces: Traces, entries: list[Followed]) -> None:
        self._traces = traces
        self._entries = entries

    def delivered(self, matched: Sequence[int]) -> None:
        """The subscribers here have it: so many of each topic."""
        for number, entry, deliver, targets in self._entries:
            if deliver is not None:
                handed(deliver, targets, matched[number])
            entry.span.end()

    def routed(self, done: Done | None) -> Done | None:
        """The mesh is about to take it. Returns what the mesh is to call."""
        spans = [(number, self._traces.routed(entry)) for number, entry, _, _ in self._entries]

        def settled(reached: Sequence[Reached]) -> None:
            for number, span in spans:
                confirmed(span, reached[number])
            if done is not None:
                done(reached)

        return settled


class Arrived:
    """The publications of one batch that are traced, at another broker."""

    def __init__(self, traces: Traces, arrivals: list[tuple[int, Hop, Span, Sequence[Target]]]) -> None:
        self._traces = traces
        self._arrivals = arrivals

    def delivered(self, matched: Sequence[int]) -> None:
        """The subscribers here have it: so many of each topic."""
        for number, hop, deliver, targets in self._arrivals:
            handed(deliver, targets, matched[number])
            self._traces.delivered(hop)

    def routed(self, done: Done | None) -> Done | None:
        """It has come from the mesh, and does not go there."""
        return done


def _traced(properties: Sequence[Properties | None]) -> list[tuple[int, Context]]:
    """The publications that are traced: the place of each, and its context."""
    return [
        (index, context)
        for index, each in enumerate(properties)
        if each is not None and (context := carried(each)) is not None
    ]
