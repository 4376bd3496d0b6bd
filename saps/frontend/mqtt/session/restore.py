"""Restores the stored sessions of an earlier incarnation of this broker."""

from __future__ import annotations

from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.durable import DurableSession, mark
from saps.routing.batch import Batch
from saps.storage.journal import Journal, Stored
from saps.storage.saved import Saved, SavedCopy


def restore(frontend: Frontend, journal: Journal, saved: Saved, with_wills: bool) -> None:
    """Restore the sessions, as if their clients had just gone.

    Expired sessions end, and expired messages are dropped. `with_wills`: restore the wills, as no other broker has
    published them.
    """
    now = frontend.clock()
    journal.begin_after(saved.highest)
    batches: dict[int, Batch] = {}

    def batch_of(copy: SavedCopy) -> Batch:
        batch = batches.get(copy.message)
        if batch is None:
            kept = saved.messages[copy.message]
            batch = batches[copy.message] = Batch.of(kept.message)
            batch.deadlines = None if kept.expires is None else [kept.expires - journal.epoch]
            if kept.origin is not None:
                mark(batch, kept.origin)
            batch.encoded[Stored] = Stored(copy.message, kept.origin)
        return batch

    for found in saved.sessions:
        session = DurableSession(
            frontend.hub, found.client_id, frontend.limits, frontend.queued, journal, found.birth, found.number
        )
        frontend.sessions[found.client_id] = session
        session.load(found, batch_of, now)
        if saved.repaired:
            origins = (saved.messages[copy.message].origin for copy in found.copies)
            session.repaired = frozenset(origin for origin in origins if origin is not None)
        if not with_wills:
            session.will = None
    for restored in list(frontend.sessions.values()):
        restored.persist()
        frontend.sessions.away(restored)
