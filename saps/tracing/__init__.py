"""Traces a message from its publisher over the brokers to its subscribers (OpenTelemetry).

Tracing is off, and this package is not loaded, unless ``tracing.endpoint`` is set. The hub and the mesh then call
`tracer`. The pure module `context` has the W3C trace context in a message and the sampling, the pure module `spans` the
spans of a sampled message at one broker. The driver `otlp_io` sends the spans to a collector.
"""
