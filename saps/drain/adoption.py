"""The receiving side of a drain: a broker adopts sessions whose clients have not connected to it.

1. The offer makes a claim to the client; any CONNECT since then counts as later (`saps.overlay.sessions.sessions`).
2. The session migrates as if its client had connected here and left again (`saps.overlay.sessions.migration`).
3. The draining broker forgets the session only when this broker has all of it, on disk if it stores sessions.

The offer also carries the client's waiting will and the remaining life of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from saps.drain.values import Offer
from saps.frontend.mqtt.budget import ENTRY_COST
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import FOREVER, LastWill, Session
from saps.mesh import Arrival
from saps.overlay.frames.calls import SessionLease


class Claims(Protocol):
    """The part of `saps.overlay.sessions.sessions.Sessions` that a drain needs."""

    leases: dict[str, int]

    def adopt(self, lease: SessionLease, user: str | None, arrived: Callable[[Arrival], None]) -> bool: ...

    def sync_one(self, client: str) -> None: ...


class Adopter:
    """Adopts offered sessions for one broker."""

    def __init__(self, frontend: Frontend, claims: Claims, welcome: Callable[[Session], None] = lambda session: None):
        """`welcome` is called with each adopted session, to give it the rights of its user."""
        self._frontend = frontend
        self._claims = claims
        self._welcome = welcome
        self.adopted = 0
        """Sessions adopted since the start."""

    def adopt(self, offer: Offer) -> str:
        """Begin to adopt a session. Returns an empty text, or the reason for refusing."""
        frontend, migration = self._frontend, self._frontend.sessions.migration
        limits, budget = frontend.limits, frontend.queued
        if migration is None:
            return "sessions do not move here"
        if offer.stamp < 0 or not (offer.remaining >= 0 and 0 <= offer.will_in <= FOREVER):
            return "no offer"
        if frontend.storage.refusal is not None or frontend.orders.redirect is not None or frontend.sessions.leaving:
            return "not now"
        if len(frontend.sessions) >= limits.maximum_sessions:
            return "no room"
        cost = offer.bytes + offer.queued * ENTRY_COST
        if offer.queued > limits.maximum_queued or offer.bytes > limits.maximum_queued_bytes:
            return "too much waits for it"
        if budget.used + cost > budget.limit:
            return "too much waits here"
        lease = SessionLease(offer.client, offer.source, offer.stamp)
        begun = migration.adopt(
            offer.client,
            lambda arrived: self._claims.adopt(lease, offer.user, arrived),
            partial(self._settle, offer, frontend.clock()),
        )
        return "" if begun else "there is one here"

    def _settle(self, offer: Offer, since: float, session: Session) -> None:
        """Give a session that has arrived the expiry and will of its offer."""
        frontend = self._frontend
        self.adopted += 1
        session.ends_at = since + min(offer.remaining, session.expiry)
        if offer.will is not None:
            due = since + offer.will_in
            session.will = LastWill(offer.will, max(0, round(offer.will_in)), due)
            frontend.hub.guard_will(offer.client, offer.will, max(0.0, due - frontend.clock()))
        self._welcome(session)
