"""The settings of the storage (``[storage]``)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from saps.config.knobs import knob


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What outlives the broker's process: sessions, their messages, retained messages; off unless `file` is given."""

    file: Annotated[
        str,
        knob(
            "SQLite file for sessions with an expiry interval, their messages of QoS 1 and 2, and retained messages; "
            "made if it is not there; empty: they end with the process"
        ),
    ] = ""
    sync: Annotated[
        Literal["full", "normal", "off"],
        knob(
            "What an acknowledgement waits for. 'full': the disk has it, so it outlives a loss of power; 'normal' and "
            "'off': the operating system has it, so it outlives the process, and a loss of power may cost the last "
            "seconds ('normal') or the whole file ('off')",
        ),
    ] = "full"
    maximum_size: Annotated[
        int,
        knob(
            "Size of the file beyond which new sessions and publications of QoS 1 and 2 are refused ('quota "
            "exceeded'); what is stored goes on, and its clients may fetch it. 0: any",
            unit="bytes",
            cost="disk",
            ge=0,
        ),
    ] = 0
