"""The ranges of numbers in frames, as types of their fields. The decoder refuses other values, and the link ends.

Brokers add to some numbers and pass them on. Such a sum stays within the same bounds (`MOST_COUNTED`), or the range has
room above the greatest accepted value. So no sender can make an honest broker send a value that the next broker
refuses.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A name or count assigned by the sender, or by the broker that began the frame."""
Stamp = Annotated[int, Meta(ge=0)]
"""A stamp of a hybrid clock (`saps.overlay.retained.stamps.StampClock`)."""
Hops = Annotated[int, Meta(ge=0, le=1 << 16)]
Height = Annotated[int, Meta(ge=1, le=64)]
"""A level of the Skip Graph above 0."""
Quality = Annotated[int, Meta(ge=0, le=2)]
"""A quality of service (MQTT 5.0, section 4.3)."""
StartStage = Annotated[int, Meta(ge=0, le=2)]
"""Stage of a broker's start (`saps.overlay.membership.start.Stage`)."""
Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
Delay = Annotated[float, Meta(ge=0.0, le=float(1 << 32))]
"""A delay in seconds, within the range of MQTT (5.0, section 3.1.3.2.2)."""
Moment = Annotated[float, Meta(ge=0.0, le=1e12)]
"""A time of day in seconds since the epoch."""
Given = Annotated[int, Meta(ge=1, le=1 << 25)]
"""A link id: stands for a broker or a slice on one link."""
Meant = Annotated[int, Meta(ge=0, le=1 << 25)]
"""A reference to a link id; 0 for none, where that is allowed."""
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
"""A number of brokers or subscribers."""
MOST_COUNTED = 1 << 40
"""Greatest count that is sent; larger sums are sent as this value."""
