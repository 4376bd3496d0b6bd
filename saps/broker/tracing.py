"""Tracing at a running broker: what follows its messages, and the way to the collector."""

from __future__ import annotations

import random

from saps.config import BrokerSettings, SettingError
from saps.tracing.otlp_io import OtlpSpans
from saps.tracing.spans import Traces
from saps.tracing.tracer import Tracer


class LiveTracing:
    """Tracing of one broker, from its settings."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Raises `SettingError` without the OpenTelemetry SDK."""
        try:
            self.spans = OtlpSpans(settings.tracing.endpoint, settings.name, settings.cluster)
        except ImportError:
            raise SettingError("tracing.endpoint", "needs OpenTelemetry: install saps[tracing]") from None
        self.tracer = Tracer(Traces(settings.name, self.spans, settings.tracing.share, random.Random()))
        """Follows messages; for the hub and for the data path."""

    async def close(self) -> None:
        """Send what has not been sent."""
        await self.spans.close()
