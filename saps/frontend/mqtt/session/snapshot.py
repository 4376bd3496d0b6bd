"""Encodes the snapshot of a migrating session in two stages: settings and subscriptions, then messages.

Each part is one MessagePack array of `PART` bytes or little more. A part has more only if its last message is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta

from saps.frontend.mqtt.codec.publish_encode import form_for
from saps.frontend.mqtt.session.durable import mark
from saps.frontend.mqtt.session.replay import still_retained
from saps.frontend.mqtt.session.window import Copy
from saps.messages import Message, Subscription, size_of
from saps.routing.batch import UNNUMBERED, Batch, Form, Origin
from saps.routing.subscriptions import Target
from saps.storage.journal import Stored
from saps.storage.past import Asked, check, pack, unpack
from saps.storage.saved import SavedMessage, SavedSession
from saps.topics import subscription_fault, topic_fault

if TYPE_CHECKING:
    from saps.frontend.mqtt.session.session import Session

T = TypeVar("T")
PacketId = Annotated[int, Meta(ge=0, le=0xFFFF)]

PART = 1 << 16
"""Size in bytes at which a part is complete. Larger parts would delay other frames on the link."""


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """The settings of a session."""

    user: str | None
    expiry: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
    """Session expiry interval in seconds."""
    next_id: Annotated[int, Meta(ge=0, le=0xFFFF)]
    """The next packet identifier."""
    birth: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """The session's identity on every broker; 0 for a session that is neither stored nor copied."""


class Item(msgspec.Struct, frozen=True, array_like=True):
    """An unsent or unacknowledged message, or a PUBREL."""

    packet_id: PacketId
    """Packet identifier; 0 for an unsent message."""
    message: Message | None = None
    """The message; None for a PUBREL, after PUBREC."""
    qos: Annotated[int, Meta(ge=0, le=2)] = 0
    retain: bool = False
    identifiers: tuple[Annotated[int, Meta(ge=1, le=268_435_455)], ...] = ()
    lifetime: Annotated[float, Meta(ge=-1e10, le=1e10)] | None = None
    """Seconds until the message expires; None: never."""
    retained: bool = False
    """Whether a new subscription caused the message."""
    origin: Origin | None = None
    """The publication, if known."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A part of either stage. The first stage has `settings` and `subscriptions`, the second the other fields."""

    settings: Settings | None = None
    subscriptions: list[Subscription] = []
    items: list[Item] = []
    incoming: dict[PacketId, Annotated[int, Meta(ge=-(1 << 40), le=1 << 40)]] = {}
    """By packet identifier of an unreleased QoS 2 publication: the number of subscribers it reached."""
    had: list[bytes] = []
    """The last publications that the client has got, or will never get, as `saps.storage.past.pack` returns them."""
    pending: list[bytes] | None = None
    """Unacknowledged publications that are not among the items; None: unknown."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode


def described(settings: Settings, subscriptions: Iterable[Subscription]) -> list[bytes]:
    """Return the parts of the first stage: settings and subscriptions."""
    batches = list(_batches(subscriptions, lambda each: len(each.filter) + 80)) or [[]]
    return [_encode(Part(None if number else settings, batch)) for number, batch in enumerate(batches)]


def packed(
    items: Iterable[Item], incoming: dict[int, int], had: Iterable[bytes] = (), pending: Iterable[Origin] | None = None
) -> list[bytes]:
    """Return the parts of the second stage. The items keep their order. `incoming`, `had` and `pending` as in
    `Part`."""
    parts = [Part(None, [], batch) for batch in _batches(items, _size)]
    first, *more = [*_batches(had, len)] or [[]]
    head = Part(None, [], [], incoming, first, None if pending is None else pack(pending))
    return [_encode(part) for part in (head, *(Part(had=each) for each in more), *parts)]


def had_of(parts: Iterable[Part]) -> list[bytes]:
    """Return the last publications that the client has got, or will never get (`Part.had`)."""
    return [each for part in parts for each in part.had]


def acknowledged_of(parts: list[Part], asked: Asked) -> set[Origin]:
    """Return those of the publications `asked` that the client has acknowledged or will never get; empty if unknown."""
    pending = {origin for part in parts for origin in unpack(part.pending or ())}
    pending |= {item.origin for part in parts for item in part.items if item.origin is not None}
    known = any(part.pending is not None for part in parts)
    return asked.among(had_of(parts)) - pending if known else set()


def snapshot_of(saved: SavedSession, messages: dict[int, SavedMessage], now: float) -> tuple[list[bytes], list[bytes]]:
    """Return both stages of a session from the copy of another broker's log. `now`: seconds since the epoch.

    The snapshot omits incoming publications that the mesh had not confirmed. Subscribers of other brokers may lack
    them, so the client must publish them again. All that the client has not acknowledged is among its items.
    """
    sent: dict[int, Item] = {serial: Item(packet_id) for serial, packet_id in saved.releases}
    waiting: list[Item] = []
    for serial, number, packet_id, form in sorted(saved.copies):
        _, message, expires, origin = messages[number]
        lifetime = None if expires is None else expires - now
        item = Item(packet_id, message, form.qos, form.retain, form.identifiers, lifetime, False, origin)
        if packet_id:
            sent[serial] = item
        else:
            waiting.append(item)
    incoming = {packet_id: reached for packet_id, reached in saved.incoming.items() if reached >= 0}
    first = described(Settings(saved.user, saved.expiry, 1, saved.birth), saved.subscriptions)
    return first, packed([*(sent[serial] for serial in sorted(sent)), *waiting], incoming, saved.had, ())


def items_of(session: Session, incarnation: tuple[str, int], now: float) -> Iterator[Item]:
    """Yield a session's messages in flight, its queued ones, and its retained ones not sent yet.

    `incarnation`: name and incarnation of this broker, the publisher of its stored messages. `now`: seconds on its
    clock.
    """
    for packet_id, copy in session.window.inflight.items():
        yield Item(packet_id) if copy is None else _item(packet_id, copy, incarnation, now)
    for copy in session.queue.copies or ():
        yield _item(0, copy, incarnation, now)
    room = session.queue.limits.maximum_queued
    for retained, subscription in session.replay.waiting if session.replay is not None else ():
        for single in retained:
            form = form_for(single, Target(session, (subscription,)))
            if room and form.qos and still_retained(session, single):
                room -= 1
                yield _item(0, (single, form), incarnation, now)


def items_beside(
    session: Session, incarnation: tuple[str, int], now: float, brings: dict[tuple[str, int], int]
) -> Iterator[Item]:
    """Yield those queued messages of a branch that the mesh does not bring to its trunk (`saps.mesh.Trunk`), with
    `incarnation` and `now` as in `items_of`.

    What a shared subscription gave to the branch has no origin then: the trunk may have got the same publication for
    another subscription.
    """
    for copy in session.queue.copies or ():
        item = _item(0, copy, incarnation, now)
        if copy[0].share is not None:
            yield msgspec.structs.replace(item, origin=None)
        elif item.origin is None or not brings.get(item.origin[:2], UNNUMBERED) < item.origin.seq < UNNUMBERED:
            yield item


def _item(packet_id: int, copy: Copy, incarnation: tuple[str, int], now: float) -> Item:
    single, form = copy
    lifetime = None if single.deadline is None else single.deadline - now
    return Item(packet_id, single.message, *form, lifetime, single.replayed, origin_of(single, incarnation))


def origin_of(single: Batch, incarnation: tuple[str, int]) -> Origin | None:
    """Return the publication of a batch of one, or None if unknown. `incarnation` as in `items_of`."""
    stored: Stored | None = single.encoded.get(Stored)
    return stored.settle(incarnation) if stored is not None else single.origin


def copies_of(items: Iterable[Item], now: float) -> tuple[dict[int, Copy | None], list[Copy]]:
    """Return the messages in flight by packet identifier, and the waiting messages."""
    inflight: dict[int, Copy | None] = {}
    waiting: list[Copy] = []
    for item in items:
        copy = None if item.message is None else _copy(item, item.message, now)
        if item.packet_id:
            inflight[item.packet_id] = copy
        elif copy is not None:
            waiting.append(copy)
    return inflight, waiting


def _copy(item: Item, message: Message, now: float) -> Copy:
    single = Batch.of(message)
    single.replayed = item.retained
    if item.origin is not None:
        mark(single, item.origin)
    if item.lifetime is not None:
        single.deadlines = [now + item.lifetime]
    return single, Form(item.qos, item.retain, item.identifiers)


def incoming_of(parts: Iterable[Part]) -> dict[int, int]:
    """Return, by packet identifier of an unreleased QoS 2 publication, the number of subscribers it reached."""
    return {packet_id: reached for part in parts for packet_id, reached in part.incoming.items()}


def ordered(copies: list[Copy]) -> list[Copy]:
    """Return the copies without duplicates, those of each publishing broker's incarnation in its order."""
    named = {copy[0].origin: copy for copy in copies if copy[0].origin is not None}
    incarnations: dict[tuple[str, int], list[Origin]] = {}
    for each in named:
        incarnations.setdefault(each[:2], []).append(each)
    turns = {incarnation: iter(sorted(group)) for incarnation, group in incarnations.items()}
    found: list[Copy] = []
    for copy in copies:
        origin = copy[0].origin
        if origin is None:
            found.append(copy)
        elif (following := next(turns[origin[:2]], None)) is not None:
            found.append(named[following])
    return found


def _size(item: Item) -> int:
    return 64 if item.message is None else size_of(item.message)


def _batches(values: Iterable[T], measured: Callable[[T], int]) -> Iterator[list[T]]:
    """Group the values into parts, in their order."""
    batch, size = list[T](), 0
    for value in values:
        batch.append(value)
        size += measured(value)
        if size >= PART:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def unpacked(parts: Iterable[bytes]) -> list[Part]:
    """Decode the parts of one stage. Raises `ValueError` if a part is malformed, or a topic or filter is not valid."""
    try:
        found = [_decode(part) for part in parts]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    for part in found:
        check([*part.had, *(part.pending or ())])
        for subscription in part.subscriptions:
            if (fault := subscription_fault(subscription.filter)) is not None:
                raise ValueError(fault)
        for item in part.items:
            if item.message is not None and (fault := topic_fault(item.message.topic)) is not None:
                raise ValueError(fault)
    return found
