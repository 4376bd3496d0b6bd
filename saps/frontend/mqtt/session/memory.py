"""What a session remembers of the publications that it has had."""

from __future__ import annotations

from math import inf

from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.session import Session
from saps.routing.batch import Origin
from saps.storage.past import RECENT, Asked, firsts


class Memory:
    """Which of some publications a session is known to have had."""

    def __init__(self, session: Session, late: bool, asked: Asked) -> None:
        """`late`: what is older than what the session remembers counts as had. `asked`: the publications."""
        self._known: set[Origin | None] = {copy[0].origin for copy in session.queue.copies or ()}
        self._first: dict[tuple[str, int], int] | None = None
        """The number of the first publication of each incarnation that it remembers; None if all counts."""
        if isinstance(session, DurableSession):
            self._known |= session.among(asked)
            if late and session.remembers >= RECENT:
                self._first = firsts(session.unbroken)
                for origin in session.pending:
                    self._first[origin[:2]] = min(origin.seq, self._first.get(origin[:2], origin.seq))

    def lacks(self, origin: Origin | None) -> bool:
        """Return whether the session may not have had a publication. It must be one of those that were asked for."""
        if origin in self._known:
            return False
        return origin is None or self._first is None or origin.seq > self._first.get(origin[:2], inf)
