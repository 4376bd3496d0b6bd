"""The values that describe clients: the JSON of ``/v1/clients``, which terminal commands decode as well."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec

from saps.topics import shared

SORTS = {"client": 0, "rate": 2, "delivered": 2, "queued": 2, "dropped": 1, "since": 1}
"""The sort orders, and the count of numbers that come before the names in each order's keys (`order`)."""
MOST_CLIENTS = 1000
"""Most clients in one answer."""
LONGEST = 256
"""Most characters of a search text, and most bytes shown of a payload."""


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query for clients. A client must fulfil all conditions that are given."""

    search: str = ""
    """A part of the client identifier, the user or the address, in any case."""
    client: str | None = None
    """The client identifier. ``*`` stands for any characters, as in `user` and `address`."""
    user: str | None = None
    address: str | None = None
    """The client's address without the port."""
    topic_filter: str | None = None
    """A topic filter or topic. The client must have a subscription with a topic in common with it."""
    connected: bool | None = None
    sort: str = "client"
    """The order, one of `SORTS`."""
    limit: int = 100
    """Most clients to return."""
    after: tuple[int | float | str, ...] | None = None
    """Key after which the result begins in the order (`order`); None for the first page."""


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """One client, represented by its session."""

    client: str
    """Client identifier."""
    broker: str
    """The broker that has the session."""
    user: str | None
    """The user; None if anonymous."""
    address: str
    """Host and port; empty while the client is away."""
    connected: bool
    since: float
    """Time of the last connect or disconnect, in seconds since 1970."""
    protocol: str
    """Protocol and transport, such as ``MQTT 5 over TLS``; empty while the client is away."""
    subscriptions: int
    inflight: int
    """Messages sent to the client and not acknowledged."""
    queued: int
    """Messages queued for the client."""
    queued_bytes: int
    """Bytes of payload in the queue."""
    published: int
    """Messages from the client since its session began at this broker."""
    delivered: int
    """Messages delivered to the client since its session began at this broker."""
    dropped: int
    """Messages dropped since its session began at this broker, as the client was away or too slow."""
    published_rate: float | None = None
    """Messages a second from the client since the previous request; None if there was no such request."""
    delivered_rate: float | None = None
    """Messages a second to the client, likewise."""


class ClientList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the clients that match a query."""

    at: float
    """Time of the answer in seconds since 1970."""
    complete: bool
    """Whether all brokers have answered."""
    total: int
    """Number of matching clients on all pages."""
    clients: list[ClientRow]
    next: str | None = None
    """Value of `after` for the next page; None on the last page."""


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    permitted: bool = True
    """Whether the client's present rights permit the subscription."""


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a broker keeps."""

    topic: str
    qos: int
    retain: bool
    size: int
    """Bytes of payload."""
    text: str
    """The beginning of the payload (`shown`)."""
    packet_id: int | None = None
    """Packet identifier of a message in flight, else None."""
    expires: float | None = None
    """Seconds until the message expires; None for never."""


class WillRow(MessageRow, frozen=True, kw_only=True):
    """A client's will."""

    delay: int
    """Will Delay Interval in seconds."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one client."""

    row: ClientRow
    expiry: int
    """Session Expiry Interval in seconds."""
    ends: float | None
    """End of the session in seconds since 1970 unless the client returns; None if it is connected or never expires."""
    stored: bool
    """Whether the session survives a restart of the broker."""
    keep_alive: float | None
    """Keep Alive timeout in seconds; None if the client is away or has none."""
    receive_maximum: int | None
    """Most messages of QoS 1 and 2 in flight to the client; None if it is away."""
    maximum_packet_size: int | None
    """Maximum Packet Size in bytes; None if the client is away or has no limit."""
    reading: bool | None
    """Whether the broker reads from the client; False while flow control holds it back, None if it is away."""
    releasing: int
    """QoS 2 messages from the client that it has not released (PUBREL)."""
    will: WillRow | None
    subscriptions: list[SubscriptionRow]
    """The first `saps.operations.clients.MOST_SHOWN` subscriptions."""
    inflight: list[MessageRow]
    """The first messages in flight, with the same limit."""
    queue: list[MessageRow]
    """The first queued messages, with the same limit."""


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """A client whose connection was closed."""

    client: str
    broker: str
    connected: bool
    """Whether the client was connected."""
    session_ended: bool


def shown(payload: bytes) -> str:
    """Return the beginning of a payload as text, or as hexadecimal digits (``0x00ff``) if it is not UTF-8."""
    part = payload[:LONGEST]
    more = "…" if len(payload) > LONGEST else ""
    for cut in range(4):  # the limit may split a character of up to 4 bytes
        try:
            return part[: len(part) - cut].decode() + more
        except UnicodeDecodeError:
            if not more:
                break
    return f"0x{part[: LONGEST // 2].hex()}" + ("…" if len(payload) > LONGEST // 2 else "")


def of_topics(topic_filter: str) -> str:
    """Return the topic filter without the prefix of a shared subscription."""
    parts = shared(topic_filter)
    return topic_filter if parts is None else parts.topic_filter


def order(row: ClientRow, sort: str) -> tuple[Any, ...]:
    """Return the key by which rows are sorted: numbers in descending order, latest times first, then the names. Keys
    are unique."""
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
    """Return a row's place in the order as a text for a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode(order(row, sort))).decode().rstrip("=")


def place(text: str, sort: str) -> tuple[int | float | str, ...]:
    """Return the key in a text made by `cursor`. Raises `ValueError` if the text is invalid or of another order."""
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
    """Encode rows for calls between brokers: lists of values without the names of the fields."""
    return [list(msgspec.structs.astuple(row)) for row in rows]


def unpacked(values: list[Any]) -> list[ClientRow]:
    """Decode rows made by `packed`. Raises `msgspec.ValidationError` for invalid values."""
    names = ClientRow.__struct_fields__
    return msgspec.convert([dict(zip(names, value, strict=False)) for value in values], list[ClientRow])
