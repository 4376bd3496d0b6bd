"""What a storage file holds, as values: what a broker starts from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from saps.messages import Message, Subscription


class SavedMessage(NamedTuple):
    """A message, stored once for all its copies."""

    number: int
    message: Message
    expires: float | None
    """Seconds since the epoch; None: never."""


class SavedForm(msgspec.Struct, frozen=True, array_like=True):
    """In which form a client gets a message."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


class SavedCopy(NamedTuple):
    """A message that a client is still to get, or to acknowledge."""

    serial: int
    message: int
    packet_id: int
    """0: not sent yet."""
    form: SavedForm


class SavedSession(msgspec.Struct):
    """One client's session; without an expiry only a will."""

    number: int
    client_id: str
    user: str | None
    expiry: int
    ends: float | None
    """Seconds since the epoch when it ends; None: its client was connected."""
    will: Message | None
    will_delay: int
    will_due: float | None
    """Seconds since the epoch; None: the client was connected, or there is no will."""
    subscriptions: list[Subscription] = []
    copies: list[SavedCopy] = []
    """In the order in which they were sent, or are to be."""
    releases: list[tuple[int, int]] = []
    """Serials and packet identifiers for which PUBREL is due, in order."""
    incoming: dict[int, int] = {}
    """Packet identifiers of QoS 2 publications that were not released, with the number of subscribers reached."""


class Saved(msgspec.Struct):
    """All that a file holds."""

    sessions: list[SavedSession] = []
    messages: dict[int, SavedMessage] = {}
    retained: dict[str, bytes] = {}
    """By topic: records as the overlay encodes them."""
    highest: int = 0
    """The greatest number in use."""
