"""Tracing at a running broker: its hub, its mesh, and the way to the collector."""

from __future__ import annotations

import random
from collections.abc import Callable

from saps.broker import LiveMesh
from saps.config import BrokerSettings, SettingError
from saps.hub import Hub
from saps.links import Links
from saps.messages import Message, Reached
from saps.overlay.frames import Data, Frame
from saps.overlay.keys import BrokerRef
from saps.overlay.node import OverlayNode
from saps.tracing.context import carried
from saps.tracing.hub import TracedHub
from saps.tracing.otlp import OtlpSpans
from saps.tracing.spans import Traces, confirmed


class TracedMesh(LiveMesh):
    """A `LiveMesh` that tells of sampled messages what becomes of them."""

    def __init__(self, node: OverlayNode, links: Links, hub: Hub, traces: Traces) -> None:
        super().__init__(node, links, hub)
        self._traces = traces
        self.receive = self._receive

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        context = carried(message.properties)
        if context is None:
            super().publish(message, done)
            return
        span = self._traces.routed(message, context)

        def settled(reached: Reached) -> None:
            confirmed(span, reached)
            if done is not None:
                done(reached)

        super().publish(message, settled if message.qos else done)
        if not message.qos:
            span.end()

    def _receive(self, sender: BrokerRef, frame: Frame) -> None:
        context = carried(frame.properties) if type(frame) is Data else None
        if context is None:
            self.node.receive(sender, frame)
            return
        assert type(frame) is Data
        multicast = self.node.multicast
        sent, duplicates = multicast.sent, multicast.duplicates
        hop = self._traces.arrives(Message(frame.topic, frame.payload, frame.qos), context, sender.name)
        self.node.receive(sender, frame)
        self._traces.handled(hop, multicast.sent - sent, multicast.duplicates > duplicates)


class LiveTracing:
    """Tracing of one broker, from its settings."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Raises `SettingError` without the OpenTelemetry SDK."""
        try:
            self.spans = OtlpSpans(settings.tracing.endpoint, settings.name, settings.cluster)
        except ImportError:
            raise SettingError("tracing.endpoint", "needs OpenTelemetry: install saps[tracing]") from None
        share = settings.tracing.share
        self.traces = Traces(settings.name, self.spans, share, random.Random())
        self.hub = TracedHub(self.traces, share)

    def mesh(self, node: OverlayNode, links: Links, hub: Hub) -> LiveMesh:
        """What drives the overlay node."""
        return TracedMesh(node, links, hub, self.traces)

    async def close(self) -> None:
        """Send what has not been sent."""
        await self.spans.close()
