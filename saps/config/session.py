"""The settings of sessions that outlive their connections (``[session]``)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from saps.config.knobs import knob


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many brokers have each session that outlives its connection."""

    copies: Annotated[
        int,
        knob(
            "Brokers that have each session with an expiry interval, this one included: if it dies another one goes on "
            "with its sessions, and what it had acknowledged is not lost. PUBACK, PUBREC and SUBACK wait for those "
            "that are there. 1: this broker alone",
            unit="brokers",
            cost="two frames to each for what is published to such sessions, and their memory",
            ge=1,
            le=7,
        ),
    ] = 3
    minority: Annotated[
        Literal["serve", "refuse"],
        knob(
            "What a broker does with such sessions while no other broker can have a copy. 'serve': goes on, and has "
            "what came meanwhile merged later; 'refuse': acknowledges nothing that concerns them until there is one"
        ),
    ] = "serve"
