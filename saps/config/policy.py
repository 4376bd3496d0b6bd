"""The setting of policies (``[policy]``)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from saps.config.knobs import knob


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which clusters must not carry a topic, and which brokers must not receive it; nothing unless there is a file."""

    file: Annotated[
        tuple[str, ...],
        knob(
            "Policy files, .xml or TOML; their prohibitions add up. The same on every broker of a mesh and on the "
            "controller. Read again on SIGHUP: all are applied, or none",
            cost="retained messages and wills of the topics named stay at their publisher's broker",
        ),
    ] = ()
