"""The settings of priority topics (``[priority]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import knob
from saps.routing.priority import Priorities
from saps.topics import filter_fault


class PrioritySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topics that overtake others; none unless `topics` is given."""

    topics: Annotated[
        tuple[str, ...],
        knob(
            "Topics that go first, by links of their own. The same on every broker and OFGate",
            cost="a second connection to each such broker; much traffic delays everything else",
            check=filter_fault,
        ),
    ] = ()
    level: Annotated[
        int,
        knob(
            "Class selector of their DSCP (40 for level 5), with OFM the switches' queue. 7 passes everything",
            unit="level",
            cost="what has a lower level in the network waits for it",
            ge=1,
            le=7,
        ),
    ] = 5

    def priorities(self) -> Priorities:
        """Return these settings in the form that the broker's parts take."""
        return Priorities(self.topics, self.level)
