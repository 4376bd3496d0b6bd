"""Sends spans to a collector: OTLP over HTTP, by the OpenTelemetry SDK, in a thread of its own.

The SDK's environment variables apply as well: ``OTEL_EXPORTER_OTLP_HEADERS`` (for a token),
``OTEL_EXPORTER_OTLP_CERTIFICATE``, ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_BSP_SCHEDULE_DELAY`` and the like.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from opentelemetry.context import Context as NoContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from saps.tracing.spans import Span, Value
from saps.version import __version__

logger = logging.getLogger(__name__)

TIMEOUT = 5
"""Timeout in seconds of a request to the collector, and of sending the remaining spans at the end."""
KINDS = {"receive": SpanKind.SERVER, "route": SpanKind.PRODUCER, "hop": SpanKind.CONSUMER}


class ChosenIds(IdGenerator):
    """Gives the SDK the identifiers chosen for the next span, in `trace` and `span`."""

    def __init__(self) -> None:
        self.trace = self.span = 0

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


class OtlpSpans:
    """Exports one broker's spans. (A `saps.tracing.spans.Spans`.)"""

    def __init__(self, endpoint: str, broker: str, cluster: str) -> None:
        """`endpoint`: URL as in ``OTEL_EXPORTER_OTLP_ENDPOINT``, without ``/v1/traces``. `broker`, `cluster`: names
        that become attributes of the resource."""
        self._ids = ChosenIds()
        about = {
            "service.name": "saps",
            "service.version": __version__,
            "service.instance.id": broker,
            "saps.cluster": cluster,
        }
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # `saps.tracing.context.Sampler` has sampled already
            resource=Resource.create(about),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=TIMEOUT)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("saps", __version__)

    def begin(self, name: str, trace: int, span: int, parent: int, attributes: Mapping[str, Value]) -> Span:
        self._ids.trace, self._ids.span = trace, span
        above = NoContext()
        if parent:
            seen = SpanContext(trace, parent, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
            above = set_span_in_context(NonRecordingSpan(seen), above)
        kind = KINDS.get(name, SpanKind.INTERNAL)
        return self._tracer.start_span(name, context=above, kind=kind, attributes=attributes)

    async def close(self) -> None:
        """Send the remaining spans. After `TIMEOUT` seconds, log their loss."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.to_thread(self._provider.shutdown)
        except TimeoutError:
            logger.warning("the collector of traces does not answer: the last spans are lost")
