"""The settings of traces (``[tracing]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import knob
from saps.config.web import http_fault


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tracing of messages over the brokers (OpenTelemetry); off unless `endpoint` is given."""

    endpoint: Annotated[
        str,
        knob(
            "Collector of traces (OTLP over HTTP), such as http://127.0.0.1:4318; needs the extra 'tracing'; "
            "empty: no traces",
            check=http_fault,
        ),
    ] = ""
    share: Annotated[
        float,
        knob(
            "Share of messages published here that are traced, where the publisher's traceparent does not decide",
            unit="fraction",
            cost="0.15 ms of processor time a traced message and broker",
            ge=0,
            le=1,
        ),
    ] = 0.01
