"""The settings of counting (``[monitoring]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import knob
from saps.statistics import TOPICS


class MonitoringSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counts of a broker's topics, and their destinations; off unless `directory` or `publish` is given."""

    directory: Annotated[
        str,
        knob("Directory for the counts, a Parquet file an interval; needs pyarrow; empty: no files"),
    ] = ""
    publish: Annotated[
        bool,
        knob("Publish the counts to $SYS/saps/counts in the whole mesh, with QoS 1; needs pyarrow"),
    ] = False
    interval: Annotated[
        float,
        knob(
            "Length of an interval; it ends at multiples of it on the wall clock",
            unit="s",
            cost="decisions come later; lowering it makes more and smaller files",
            ge=0.5,
            le=3600,
        ),
    ] = 60.0
    topics: Annotated[
        int,
        knob(
            "Topics counted one by one; of more the least busy ones are summed",
            unit="topics",
            cost="memory, about 0.4 KiB each, and rows",
            ge=1,
            le=1_000_000,
        ),
    ] = TOPICS
    keep: Annotated[
        float,
        knob(
            "How long this broker's files stay before it deletes them",
            unit="s",
            cost="disk space: about 20 bytes a topic and interval",
            ge=60,
        ),
    ] = 14 * 86_400.0
