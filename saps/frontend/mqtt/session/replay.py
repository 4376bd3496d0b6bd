"""Sends retained messages for new subscriptions at the client's pace (MQTT 5.0, section 3.3.1.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import ENTRY_COST
from saps.messages import Subscription
from saps.routing.batch import Batch
from saps.routing.reserved import is_reserved
from saps.routing.subscriptions import Target

if TYPE_CHECKING:
    from saps.frontend.mqtt.session.session import Session


class Replay:
    """The retained messages that one client has not got yet, as references into the retained store."""

    __slots__ = ("_scheduled", "_session", "waiting")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.waiting: deque[tuple[Iterator[Batch], Subscription]] = deque()
        self._scheduled = False
        """Whether a timer will send the next portion."""

    def pump(self, fresh: bool = False) -> None:
        """Send one portion, as large as the transport's high-water mark.

        `fresh`: the messages have just come from the retained store, so the replay need not check them again.
        """
        session, waiting = self._session, self.waiting
        outbound = session.outbound
        if outbound is None:
            return
        room = outbound.common.limits.write_high_water
        while waiting and room > 0 and session.ready:
            retained, subscription = waiting[0]
            single = next(retained, None) if subscription.filter in session.subscriptions else None
            if single is None:
                waiting.popleft()
            elif fresh or still_retained(session, single):
                session.deliver(single, Target(session, (subscription,)))
                room -= single.size + ENTRY_COST
        if not waiting:
            session.replay = None
        elif room <= 0 and not self._scheduled:
            self._scheduled = True
            outbound.common.timers.at(session.hub.clock(), self._go_on)

    def _go_on(self, now: float) -> None:
        self._scheduled = False
        self._session.pump()


def still_retained(session: Session, single: Batch) -> bool:
    """Return whether the client may read the message, and its topic still retains it."""
    topic = single.topic
    return session.may_read(topic) and (is_reserved(topic) or single in session.hub.retained_for(topic))
