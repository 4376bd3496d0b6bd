"""How large what a frame holds may be: the types of its fields. A decoder refuses the rest, and the link ends.

What brokers add to a number of others, and pass on, stays within the same bounds (`MOST_COUNTED`), or has room above
the greatest that is let in: nobody can have an honest broker say what the next one refuses.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""Names or counts something of the sender's, or of whoever began the frame."""
Stamp = Annotated[int, Meta(ge=0)]
"""Of a hybrid clock (`saps.overlay.retained.publisher.Clock`)."""
Hops = Annotated[int, Meta(ge=0, le=1 << 16)]
Height = Annotated[int, Meta(ge=1, le=64)]
"""A level of the Skip Graph above 0."""
Quality = Annotated[int, Meta(ge=0, le=2)]
"""Of service (MQTT 5.0, section 4.3)."""
StartStage = Annotated[int, Meta(ge=0, le=2)]
"""How far the start of a broker is (`saps.overlay.membership.start.Stage`)."""
Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
Delay = Annotated[float, Meta(ge=0.0, le=float(1 << 32))]
"""Seconds that MQTT can say (5.0, section 3.1.3.2.2)."""
Given = Annotated[int, Meta(ge=1, le=1 << 25)]
"""Stands for a broker, or a slice, on one link."""
Meant = Annotated[int, Meta(ge=0, le=1 << 25)]
"""Such a number; 0 for nothing, where that can be."""
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
"""Of brokers or subscribers."""
MOST_COUNTED = 1 << 40
"""Larger sums of counts are said to be that."""
