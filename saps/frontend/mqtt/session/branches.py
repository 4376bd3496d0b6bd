"""Merges a branch of a session: what another broker did with it that had adopted it, or had served it meanwhile.

The client may have been connected to either broker. What it has acknowledged to the branch's is not sent here, and what
that one has sent keeps its packet identifiers: the client may have got it, and wait for a PUBREL.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.journaled import JournaledInflight
from saps.frontend.mqtt.session.snapshot import (
    Item,
    Part,
    acknowledged_of,
    copies_of,
    had_of,
    incoming_of,
    ordered,
    origin_of,
)
from saps.frontend.mqtt.session.window import Copy
from saps.marks import hit
from saps.routing.batch import Origin
from saps.storage.past import Asked, pack, unpack

if TYPE_CHECKING:
    from saps.frontend.mqtt.common import Common

logger = logging.getLogger(__name__)


def merge_branch(common: Common, session: DurableSession, found: list[Part]) -> None:
    """Merge the parts of a branch into the session here."""
    here = [copy for copy in (*session.window.inflight.values(), *(session.queue.copies or ())) if copy is not None]
    incarnation = incarnation_of(common)
    acknowledged = acknowledged_of(found, Asked(origin_of(copy[0], incarnation) for copy in here))
    _settle(common, session, acknowledged)
    items = [item for part in found for item in part.items]
    had = session.among(Asked(item.origin for item in items))
    sent = _sent_by_branch(session, items)
    known = (item.origin in had or session.came_lately(item.origin) for item in items)
    fresh = [item for item, had_it in zip(items, known, strict=True) if not had_it or item.origin in sent]
    inflight, new = copies_of(fresh, common.clock())
    logger.debug("a branch of the session of %r brings %d in flight and %d waiting; %d were acknowledged there",
                 session.client_id, len(inflight), len(new), len(acknowledged))  # fmt: skip
    _release(session, items, {item.origin for item in fresh})
    _enter(session, inflight)
    waiting = [copy for copy in session.queue.copies or () if copy[0].origin not in sent]
    if session.outbound is None:  # waiting messages may have been published later
        session.queue_again(ordered([*waiting, *new]))
    else:
        if sent:
            session.keep(waiting)
        session.pump()
        for copy in new:
            session.take(*copy)
    for packet_id, reached in incoming_of(found).items():
        if session.incoming is not None and packet_id not in session.incoming:
            session.incoming[packet_id] = reached
    theirs = unpack(had_of(found))
    remembered = session.among(Asked(theirs))
    session.remember(pack(origin for origin in theirs if origin not in remembered))
    session.came((item.origin for item in fresh if item.origin is not None), had_of(found))


def _enter(session: DurableSession, inflight: dict[int, Copy | None]) -> None:
    """Put what the branch has sent into the window, to be sent again to a client that is connected here. The client may
    have it: it keeps its packet identifier if that is free, and its place before what the branch sent later."""
    window, again = session.window, dict[int, Copy]()
    for packet_id, copy in inflight.items():
        if copy is not None:
            number = window.take_id(inflight) if packet_id in window.inflight else packet_id
            window.inflight[number] = again[number] = copy
    if again and session.outbound is not None:
        hit("sent again what a branch has sent to a client that is here")
        window.repeats = {**dict(reversed(again.items())), **(window.repeats or {})}


def incarnation_of(common: Common) -> tuple[str, int]:
    """Return the name and incarnation of this broker, for `items_of`; ("", 0) without a journal."""
    journal = common.storage.journal
    return journal.incarnation if journal is not None else ("", 0)


def _settle(common: Common, session: DurableSession, acknowledged: set[Origin]) -> None:
    """Remove publications that the client has acknowledged to the broker of a branch."""
    incarnation, window, waiting = incarnation_of(common), session.window, session.queue.copies or ()
    kept = [copy for copy in waiting if copy[0].share or origin_of(copy[0], incarnation) not in acknowledged]
    if len(kept) < len(waiting):
        session.keep(kept)
    inflight = [(packet_id, copy) for packet_id, copy in window.inflight.items() if copy is not None]
    found = {i: copy for i, copy in inflight if not copy[0].share and origin_of(copy[0], incarnation) in acknowledged}
    if found:
        hit("acknowledged to the broker of a branch")
        window.elsewhere = (window.elsewhere or {}) | found
        if isinstance(window.inflight, JournaledInflight):
            window.inflight.acknowledged(found)
    if session.outbound is None:
        window.settle()


def _sent_by_branch(session: DurableSession, items: list[Item]) -> set[Origin | None]:
    """Return the publications that wait here and that a branch of the session has already sent.

    The client may have them, under the branch's packet identifiers, and in the branch's order.
    """
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
