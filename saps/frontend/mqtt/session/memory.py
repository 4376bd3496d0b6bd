"""What a session remembers of the publications that it has had."""

from __future__ import annotations

from math import inf

from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.session import Session
from saps.routing.batch import Origin
from saps.storage.past import RECENT


class Memory:
    """The publications that a session is known to have had."""

    def __init__(self, session: Session, late: bool) -> None:
        """`late`: what is older than what the session remembers counts as had."""
        over, had = dict[Origin, None](), dict[Origin, None]()
        if isinstance(session, DurableSession):
            over = session.over
            had = over | session.pending
        self._known = {copy[0].origin for copy in session.queue.copies or ()} | had.keys()
        self._first: dict[tuple[str, int], int] | None = None
        """The number of the first publication of each incarnation that it remembers; None if all counts."""
        if late and len(over) >= RECENT:
            self._first = {}
            for origin in had:
                self._first[origin[:2]] = min(origin.seq, self._first.get(origin[:2], origin.seq))

    def lacks(self, origin: Origin | None) -> bool:
        """Return whether the session may not have had a publication."""
        if origin in self._known:
            return False
        return origin is None or self._first is None or origin.seq > self._first.get(origin[:2], inf)
