"""The hub of a broker that traces: the same as without, and a share of its messages is told of.

What is passed on unopened (`saps.hub.Hub.relay`) has no properties and cannot be given any. So such messages are only
counted; when one of them is to be sampled, the next one to its topic is, which is made to take the long way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saps.hub import Hub, Publication, Route
from saps.messages import Message, MessageRun
from saps.tracing.context import Context, carried
from saps.tracing.spans import Span, Traces, handed

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent

ONE_BY_ONE = 0.1
"""From this share on all messages take the long way: the share is exact, also of those that come in bursts."""


class TracedPublication(Publication):
    """A publication that is sampled."""

    __slots__ = ("context", "span")

    def __init__(self, message: Message, expires: float | None, context: Context, span: Span) -> None:
        super().__init__(message, expires)
        self.context = context
        self.span = span


class TracedHub(Hub):
    """A `Hub` that traces."""

    def __init__(self, traces: Traces, share: float) -> None:
        super().__init__()
        self.traces = traces
        self._one_by_one = share >= ONE_BY_ONE
        self._due: set[str] = set()
        """Topics of which the next message is sampled."""

    def route(self, topic: bytes) -> Route:
        route = super().route(topic)
        if self._one_by_one or route.topic in self._due:
            self.routes.pop(topic, None)  # only what is at hand there is passed on unopened
        return route

    def publication(self, message: Message) -> Publication:
        publication = super().publication(message)
        due = message.topic in self._due
        self._due.discard(message.topic)
        found = self.traces.enters(publication.message, due)
        return publication if found is None else TracedPublication(found[0], publication.expires, *found[1:])

    def spread(self, route: Route, publication: Publication, sender: SubscriberAgent | None) -> int:
        if not isinstance(publication, TracedPublication):
            return super().spread(route, publication, sender)
        targets = [each for each in route.targets if each.agent is not sender or each.own is not None]
        span = self.traces.deliver(publication.message, publication.context, here=True) if targets else None
        matched = super().spread(route, publication, sender)
        if span is not None:
            handed(span, targets, matched)
        if sender is not None:
            publication.span.set_attributes({"messaging.client.id": sender.client_id})
        publication.span.end()
        return matched

    def spread_several(self, routes: list[Route], runs: list[MessageRun], sender: SubscriberAgent | None) -> list[int]:
        for route, run in zip(routes, runs, strict=True):
            self._count(route, len(run))
        return super().spread_several(routes, runs, sender)

    def relay_several(
        self,
        routes: list[Route],
        packets: bytes,
        pos: int,
        payloads: list[int],
        ends: list[int],
        sender: SubscriberAgent | None,
    ) -> None:
        for route in routes:
            self._count(route, 1)
        super().relay_several(routes, packets, pos, payloads, ends, sender)

    def relay(self, route: Route, packets: bytes, count: int, at_once: bool) -> None:
        self._count(route, count)
        super().relay(route, packets, count, at_once)

    def relay_numbered(self, route: Route, packet: Any, size: int = 0) -> None:
        self._count(route, 1)
        super().relay_numbered(route, packet, size)

    def deliver(self, message: Message) -> int:
        context = carried(message.properties)
        if context is None:
            return super().deliver(message)
        hop = self.traces.delivers(message, context)
        span = self.traces.deliver(message, context, here=False)
        matched = super().deliver(message)
        handed(span, self.route(message.topic.encode()).targets, matched)
        self.traces.delivered(hop)
        return matched

    def _count(self, route: Route, count: int) -> None:
        """Messages that are not looked at one by one."""
        if self.traces.sampler.takes(count):
            self._due.add(route.topic)
            self.routes.pop(route.topic.encode(), None)
