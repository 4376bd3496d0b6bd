"""What is told of clients: the JSON of ``/v1/clients``. Terminal commands decode it, too."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec

SORTS = {"client": 0, "rate": 2, "delivered": 2, "queued": 2, "dropped": 1, "since": 1}
"""What clients are sorted by, and how many numbers go before their names then (`order`)."""
MOST_CLIENTS = 1000
"""Clients in one answer."""
LONGEST = 256
"""Characters of a text to look for; bytes of a payload that is shown."""


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which clients are wanted. All that is given must hold."""

    search: str = ""
    """A part of the client identifier, the user or the address, in any case."""
    client: str | None = None
    """The client identifier; ``*`` stands for any characters, as in the next two."""
    user: str | None = None
    address: str | None = None
    """Without the port."""
    topic_filter: str | None = None
    """A topic filter or topic: clients with a subscription that has a topic in common with it."""
    connected: bool | None = None
    sort: str = "client"
    limit: int = 100
    after: tuple[int | float | str, ...] | None = None
    """Only those that come later in the order than this (`order`)."""


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """One client, by its session."""

    client: str
    broker: str
    user: str | None
    """None: anonymous."""
    address: str
    """Host and port; empty while the client is away."""
    connected: bool
    since: float
    """When it connected or went away, in seconds since 1970."""
    protocol: str
    """``MQTT 5 over TLS``; empty while the client is away."""
    subscriptions: int
    inflight: int
    """Messages sent to it and not acknowledged."""
    queued: int
    """Messages that wait for it."""
    queued_bytes: int
    """Payload of these."""
    published: int
    """Messages from it since the session began here, as the next two."""
    delivered: int
    dropped: int
    """Given up: it was away or too slow."""
    published_rate: float | None = None
    """Messages a second since the look before, as the next one; None: there was none."""
    delivered_rate: float | None = None


class ClientList(msgspec.Struct, frozen=True, kw_only=True):
    """Clients, as asked for."""

    at: float
    """Seconds since 1970."""
    complete: bool
    """All brokers have answered."""
    total: int
    """That fit the question, on whatever page."""
    clients: list[ClientRow]
    next: str | None = None
    """What `after` is for the next page; None: this is the last."""


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    permitted: bool = True
    """False: it may not subscribe to this any more."""


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is kept for somebody."""

    topic: str
    qos: int
    retain: bool
    size: int
    """Bytes of its payload."""
    text: str
    """The begin of the payload."""
    packet_id: int | None = None
    """Of a message in flight."""
    expires: float | None = None
    """Seconds left."""


class WillRow(MessageRow, frozen=True, kw_only=True):
    """The last will."""

    delay: int
    """Seconds after the client is lost."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one client."""

    row: ClientRow
    expiry: int
    """Seconds that the session outlives the connection."""
    ends: float | None
    """When it ends unless the client returns, in seconds since 1970; None: it is here, or is kept for ever."""
    stored: bool
    """The session outlives the broker."""
    keep_alive: float | None
    """Seconds of silence after which it counts as lost; None: it is away, or never."""
    receive_maximum: int | None
    """Messages of QoS 1 and 2 that may be in flight to it; None: it is away."""
    maximum_packet_size: int | None
    """None: it is away, or takes any."""
    reading: bool | None
    """False: it is not read for the moment, as others wait for what it has sent. None: it is away."""
    releasing: int
    """Messages of QoS 2 from it that it has not released."""
    will: WillRow | None
    subscriptions: list[SubscriptionRow]
    """The first `MOST_SHOWN`, as in the next two."""
    inflight: list[MessageRow]
    queue: list[MessageRow]


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """A client whose connection was closed."""

    client: str
    broker: str
    connected: bool
    """It was connected."""
    session_ended: bool


def shown(payload: bytes) -> str:
    """The begin of a payload as text; what is not UTF-8 as hexadecimal digits, ``0x00ff``."""
    part = payload[:LONGEST]
    more = "…" if len(payload) > LONGEST else ""
    for cut in range(4):  # a character may have been cut
        try:
            return part[: len(part) - cut].decode() + more
        except UnicodeDecodeError:
            if not more:
                break
    return f"0x{part[: LONGEST // 2].hex()}" + ("…" if len(payload) > LONGEST // 2 else "")


def order(row: ClientRow, sort: str) -> tuple[Any, ...]:
    """What rows are sorted by: numbers from the greatest, times from the latest; then names. No two are the same."""
    return *_numbers(row, sort), row.client, row.broker


def _numbers(row: ClientRow, sort: str) -> tuple[float, ...]:
    match sort:
        case "rate":
            return -(row.published_rate if row.published_rate is not None else -1.0), -row.published
        case "delivered":
            return -(row.delivered_rate if row.delivered_rate is not None else -1.0), -row.delivered
        case "queued":
            return -row.queued, -row.queued_bytes
        case "dropped":
            return (-row.dropped,)
        case "since":
            return (-row.since,)
        case _:
            return ()


def cursor(row: ClientRow, sort: str) -> str:
    """Where a row stands in the order, as a text for a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode(order(row, sort))).decode().rstrip("=")


def place(text: str, sort: str) -> tuple[int | float | str, ...]:
    """The inverse of `cursor`; raises `ValueError` for what is none of this order."""
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), "-_", validate=True)
        found = msgspec.json.decode(content, type=tuple[int | float | str, ...])
    except (binascii.Error, msgspec.DecodeError) as error:
        raise ValueError(f"not from an answer: {error}") from None
    numbers = SORTS[sort]
    if len(found) != numbers + 2 or [isinstance(each, str) for each in found] != [False] * numbers + [True] * 2:
        raise ValueError("from an answer in another order")
    return found


def packed(rows: Iterable[ClientRow]) -> list[Any]:
    """Rows as they go from broker to broker: without the names of the fields."""
    return [list(msgspec.structs.astuple(row)) for row in rows]


def unpacked(values: list[Any]) -> list[ClientRow]:
    """The same back; raises `msgspec.ValidationError` for what is none."""
    names = ClientRow.__struct_fields__
    return msgspec.convert([dict(zip(names, value, strict=False)) for value in values], list[ClientRow])
