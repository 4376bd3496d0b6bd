"""Tracing at a running broker: follows its messages, and sends their spans to the collector."""

from __future__ import annotations

import random

from saps.config import BrokerSettings, SettingError
from saps.tracing.otlp_io import OtlpSpans
from saps.tracing.spans import Traces
from saps.tracing.tracer import Tracer


class LiveTracing:
    """The tracing of one broker, as its settings say."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Raises `SettingError` if the OpenTelemetry SDK is not installed."""
        try:
            self.spans = OtlpSpans(settings.tracing.endpoint, settings.name, settings.cluster)
        except ImportError:
            raise SettingError("tracing.endpoint", "needs OpenTelemetry: install saps[tracing]") from None
        self.tracer = Tracer(Traces(settings.name, self.spans, settings.tracing.share, random.Random()))
        """The tracer of messages, for the hub and for the data path."""

    async def close(self) -> None:
        """Send the remaining spans, and close the exporter."""
        await self.spans.close()
