"""The other broker's side of a drain: it takes sessions over that nobody has asked for.

An offer makes a claim to the client that any CONNECT made since counts as later than
(`saps.overlay.sessions.sessions`); then
the session is handed over as if its client had connected here and gone again
(`saps.overlay.sessions.migration.migration`), and only when
this broker has all of it, on disk if it stores sessions, does the other one forget it. A will that waits, and how long
the session lasts yet, come with the offer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from saps.drain.values import Offer
from saps.frontend.mqtt.budget import ENTRY_COST
from saps.frontend.mqtt.frontend import FOREVER, Frontend
from saps.frontend.mqtt.session.session import LastWill, Session
from saps.mesh import Arrival
from saps.overlay.frames.calls import SessionLease


class Claims(Protocol):
    """What a drain needs of the sessions of the mesh (`saps.overlay.sessions.sessions.Sessions`)."""

    leases: dict[str, int]

    def adopt(self, lease: SessionLease, user: str | None, arrived: Callable[[Arrival], None]) -> bool: ...

    def sync_one(self, client: str) -> None: ...


class Adopter:
    """Takes over sessions for one broker."""

    def __init__(self, frontend: Frontend, claims: Claims, welcome: Callable[[Session], None] = lambda session: None):
        """`welcome` is told of each session that has come, to give it the rights of its user."""
        self._frontend = frontend
        self._claims = claims
        self._welcome = welcome
        self.adopted = 0
        """Sessions that have come."""

    def adopt(self, offer: Offer) -> str:
        """Begin to take a session over. Why not, or an empty text."""
        frontend, migration = self._frontend, self._frontend.sessions.migration
        limits, budget = frontend.limits, frontend.sessions.budget
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
        """The session is here: what came with the offer holds for it."""
        frontend = self._frontend
        self.adopted += 1
        session.ends_at = since + min(offer.remaining, session.expiry)
        if offer.will is not None:
            due = since + offer.will_in
            session.will = LastWill(offer.will, max(0, round(offer.will_in)), due)
            frontend.hub.expect_acknowledgement(offer.client, offer.will, max(0.0, due - frontend.clock()))
        self._welcome(session)
