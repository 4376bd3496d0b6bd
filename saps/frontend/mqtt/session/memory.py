"""What a session remembers of the publications that it has had."""

from __future__ import annotations

from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.session import Session
from saps.routing.batch import Origin
from saps.topics import matches, shared


class PlainTopics:
    """The topics to which a session has a plain subscription: it gets all publications to them."""

    def __init__(self, session: Session) -> None:
        self._filters = [each for each in session.subscriptions if shared(each) is None]
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = any(matches(each, topic) for each in self._filters)
        return known


class Memory:
    """The publications that a session is known to have had, or to have got from other brokers' sessions lately."""

    def __init__(self, session: Session) -> None:
        self._known = {copy[0].origin for copy in session.queue.copies or ()}
        self._older = session.older if isinstance(session, DurableSession) else None
        if isinstance(session, DurableSession):
            self._known |= session.had.keys() | session.brought
        self._plain = PlainTopics(session)

    def lacks(self, origin: Origin | None, topic: str) -> bool:
        """Return whether the session may not have had a publication."""
        if origin is None:
            return True
        before = self._older is not None and self._older.covers(origin, topic) and topic in self._plain
        return not before and origin not in self._known
