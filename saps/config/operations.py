"""The settings of what operators do (``[operations]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import knob


class OperationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of operators' work."""

    audit: Annotated[
        str,
        knob(
            "File to which every change, login and refused login is appended as a line of JSON; none: the latest "
            "1,000 of each are kept in memory. Opened again on SIGHUP",
            cost="about 200 bytes a login",
        ),
    ] = ""
    bans: Annotated[
        str,
        knob(
            "File in which bans are kept; none: beside storage.file, or if there is none in memory, from where other "
            "brokers get them after a restart"
        ),
    ] = ""
