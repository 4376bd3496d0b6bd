"""Traces: one message followed from its publisher over the brokers to its subscribers (OpenTelemetry).

Off unless ``tracing.endpoint`` is set; then the broker's hub and mesh are `hub.TracedHub` and `live.TracedMesh`, and
without it none of this is loaded. `context` (pure) is the W3C trace context in a message and which messages are
sampled, `spans` (pure) what a broker tells of a sampled one, `otlp` (driver) sends it to a collector.
"""
