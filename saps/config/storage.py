"""The settings of the storage, of copies of sessions, and of missed publications."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from saps.config.knobs import knob
from saps.storage.place import url_fault


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The storage: sessions, their messages and retained messages outlive the broker's process (``[storage]``).

    It is off unless `file` or `url` is given.
    """

    url: Annotated[
        str,
        knob(
            "PostgreSQL database of all brokers of a site, as postgresql://[USER@]HOST[:PORT]/DATABASE, in place of "
            "the file; next to storage.file is then what only this machine needs (missed messages, members, bans)",
            check=url_fault,
        ),
    ] = ""
    password_file: Annotated[
        str, knob("File whose first line is the password for storage.url, where other users of this machine see no URL")
    ] = ""

    file: Annotated[
        str,
        knob("SQLite file for sessions with an expiry interval, their messages, and retained messages; empty: none"),
    ] = ""
    sync: Annotated[
        Literal["full", "normal", "off"],
        knob(
            "What an acknowledgement waits for. 'full': the disk; 'normal', 'off': the operating system, or the "
            "server; a loss of power may cost the last seconds ('normal') or the file ('off')",
        ),
    ] = "full"
    maximum_size: Annotated[
        int,
        knob(
            "Size beyond which new sessions and QoS 1 and 2 are refused ('quota exceeded'). 0: any",
            unit="bytes",
            cost="disk",
            ge=0,
        ),
    ] = 0

    @property
    def durable(self) -> bool:
        """Whether stored data outlives the process."""
        return bool(self.file or self.url)


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The copies of each session that outlives its connection (``[session]``)."""

    copies: Annotated[
        int,
        knob(
            "Brokers that have each session with an expiry interval, this one included; acknowledgements wait for them",
            unit="brokers",
            cost="two frames to each for a publication, and memory",
            ge=1,
            le=7,
        ),
    ] = 3
    minority: Annotated[
        Literal["serve", "refuse"],
        knob(
            "While no other broker can have a copy: 'serve' goes on and merges later; 'refuse' acknowledges "
            "nothing that concerns such sessions"
        ),
    ] = "serve"


class MissedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The publications that a broker keeps for brokers that are cut off (``[overlay]``)."""

    missed_age: Annotated[
        float,
        knob(
            "How long a broker keeps what it publishes with QoS 1 and 2 for dead brokers",
            unit="s",
            cost="disk, or memory, while a broker is away, or gone for good",
            ge=1,
            le=30 * 86400,
        ),
    ] = 86400.0
    missed_size: Annotated[
        int,
        knob(
            "How much of that it keeps, with storage.file; without one at most 64 MiB, in memory. The oldest "
            "goes first",
            unit="bytes",
            cost="disk",
            ge=1 << 20,
        ),
    ] = 1 << 30
