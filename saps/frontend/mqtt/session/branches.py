"""Merges a branch of a session: what another broker did with it that had adopted it, or had served it meanwhile.

The client may have been connected to either broker. What it has acknowledged to the branch's is not sent here, and what
that one has sent keeps its packet identifiers: the client may have got it, and wait for a PUBREL.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.journaled import JournaledInflight
from saps.frontend.mqtt.session.memory import Memory, PlainTopics
from saps.frontend.mqtt.session.snapshot import (
    Item,
    Part,
    copies_of,
    incoming_of,
    ordered,
    origin_of,
    past_of,
)
from saps.frontend.mqtt.session.window import Copy
from saps.marks import hit
from saps.routing.batch import Origin
from saps.storage.past import Older

if TYPE_CHECKING:
    from saps.frontend.mqtt.common import Common

logger = logging.getLogger(__name__)


class _Acknowledged:
    """The publications that the client has acknowledged to the broker of a branch, or will never get."""

    def __init__(self, session: DurableSession, parts: list[Part]) -> None:
        had, older = past_of(parts)
        pending = {origin for part in parts if part.pending is not None for origin in part.pending.had}
        self._pending = pending | {item.origin for part in parts for item in part.items if item.origin is not None}
        known = any(part.pending is not None for part in parts)
        self._had = had.keys() - self._pending if known else set()
        self._older = Older(older if known else ())
        self._plain = PlainTopics(session)

    def __len__(self) -> int:
        return len(self._had)

    def has(self, origin: Origin | None, topic: str) -> bool:
        if origin in self._had or origin in self._pending:
            return origin in self._had
        return self._older.covers(origin, topic) and topic in self._plain


def merge_branch(common: Common, session: DurableSession, found: list[Part]) -> None:
    """Merge the parts of a branch into the session here."""
    acknowledged = _Acknowledged(session, found)
    _settle(common, session, acknowledged)
    memory, items = Memory(session), [item for part in found for item in part.items]
    sent = _sent_by_branch(session, items)
    fresh = [
        item
        for item in items
        if item.message is None or item.origin in sent or memory.lacks(item.origin, item.message.topic)
    ]
    inflight, new = copies_of(fresh, common.clock())
    logger.debug("a branch of the session of %r brings %d in flight and %d waiting; %d were acknowledged there",
                 session.client_id, len(inflight), len(new), len(acknowledged))  # fmt: skip
    _release(session, items, {item.origin for item in fresh})
    _send_again(session, inflight)
    if session.outbound is None:  # waiting messages may have been published later
        waiting = [copy for copy in session.queue.copies or () if copy[0].origin not in sent]
        session.queue_again(ordered([*waiting, *new]))
    else:
        for copy in new:
            session.take(*copy)
    for packet_id, reached in incoming_of(found).items():
        if session.incoming is not None and packet_id not in session.incoming:
            session.incoming[packet_id] = reached
    theirs, older = past_of(found)
    session.remember(theirs, older)
    session.came([*theirs, *(item.origin for item in fresh if item.origin is not None)], older)


def _send_again(session: DurableSession, inflight: dict[int, Copy | None]) -> None:
    """Take what the branch has sent, under its packet identifiers as far as they are free: the client may have it."""
    window, again = session.window, dict[int, Copy]()
    for packet_id, copy in inflight.items():
        if copy is None:
            continue
        if packet_id not in window.inflight:
            window.inflight[packet_id] = again[packet_id] = copy
        elif session.outbound is not None:
            session.take(*copy)
        else:  # it keeps its place before what the branch sent later
            window.inflight[window.take_id(inflight)] = copy
    if again and session.outbound is not None:
        hit("sent again what a branch has sent to a client that is here")
        window.repeats = {**dict(reversed(again.items())), **(window.repeats or {})}
        session.pump()


def incarnation_of(common: Common) -> tuple[str, int]:
    """Return the name and incarnation of this broker, for `items_of`; ("", 0) without a journal."""
    journal = common.storage.journal
    return journal.incarnation if journal is not None else ("", 0)


def _settle(common: Common, session: DurableSession, acknowledged: _Acknowledged) -> None:
    """Remove publications that the client has acknowledged to the broker of a branch."""
    incarnation, window, waiting = incarnation_of(common), session.window, session.queue.copies or ()
    kept = [copy for copy in waiting if not acknowledged.has(origin_of(copy[0], incarnation), copy[0].topic)]
    if len(kept) < len(waiting):
        session.queue.replace(kept)
    inflight = [(packet_id, copy) for packet_id, copy in window.inflight.items() if copy is not None]
    found = {
        packet_id: copy
        for packet_id, copy in inflight
        if not copy[0].share and acknowledged.has(origin_of(copy[0], incarnation), copy[0].topic)
    }
    if found:
        hit("acknowledged to the broker of a branch")
        window.elsewhere = (window.elsewhere or {}) | found
        if isinstance(window.inflight, JournaledInflight):
            window.inflight.acknowledged(found)
    if session.outbound is None:
        window.settle()


def _sent_by_branch(session: DurableSession, items: list[Item]) -> set[Origin | None]:
    """Return the publications that wait here and that a branch of the session has already sent.

    The client may have them, under the branch's packet identifiers, and in the branch's order. The result is empty
    while the client is connected here.
    """
    if session.outbound is not None:
        return set()
    waiting = {copy[0].origin for copy in session.queue.copies or ()} - {None}
    inflight = session.window.inflight
    return {
        item.origin for item in items if item.packet_id and item.packet_id not in inflight and item.origin in waiting
    }


def _release(session: DurableSession, items: list[Item], fresh: set[Origin | None]) -> None:
    """Send PUBREL for what the branch has sent with QoS 2 and is not sent again under the same identifier.

    The client may have it from the branch, and would take the next message with that identifier for the same one."""
    inflight, outbound = session.window.inflight, session.outbound
    for item in items:
        over = item.message is None or (item.qos == 2 and item.origin not in fresh)
        if item.packet_id and over and item.packet_id not in inflight:
            if item.message is not None:
                hit("identifier of a branch released")
            inflight[item.packet_id] = None
            if outbound is not None:
                outbound.send_release(item.packet_id)
