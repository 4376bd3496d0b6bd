"""Waits until all publications so far have reached all members, and the subscribers here."""

from __future__ import annotations

import logging
from collections.abc import Callable

from saps.overlay.frames.calls import Outstanding, Unsettled
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.rendezvous.subscriber_registry import audience
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef, Range

logger = logging.getLogger(__name__)

POLL = 0.02
"""Interval between two checks of unsettled publications, in seconds."""
RANGES = 32
"""Most ranges of publishers that are asked separately; for more ranges all brokers are asked at once."""
ATTEMPTS = 4
"""Attempts of one range call."""


class Settling:
    """Calls `then` once when two conditions hold:

    1. All members have the matching publications that were published before the first answer.
    2. This broker has passed on all matching publications that it holds.
    """

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        waiting: Callable[[list[str]], bool],
        filters: list[str],
        limit: float,
        there: Callable[[], bool],
        then: Callable[[frozenset[str] | None], None],
        source: BrokerRef | None = None,
        owner: BrokerRef | None = None,
    ) -> None:
        """`waiting` returns whether a publication that matches these filters is held back here. `then` gets the names
        of the publishers' brokers of which all is there. It is called at `limit` (a time of the port's clock, in
        seconds) at the latest, then with None, and never once `there` returns False. `source` is as in
        `Unsettled`. `owner` is dead, and its sessions are being adopted here: what its next incarnations publish is not
        acknowledged until then (`saps.overlay.delivery.order.Inbox.adopting`), so nothing waits for that."""
        self._port = port
        self._calls = calls
        self._waiting = waiting
        self._filters = filters
        self._limit = limit
        self._there = there
        self._then = then
        self._source = source
        self._owner = owner
        self._upto: dict[tuple[str, int], int] = {}
        """Last sequence number of each publisher at its first answer, by name and incarnation."""
        self._answers: set[str] = set()
        """The publishers' brokers that have answered this time, by name."""
        self._missing = 0
        self._unsettled = ""
        """What is not settled, in words; empty if all is."""
        self._ask()

    def _ask(self) -> None:
        if not self._there():
            return
        places: dict[Range, list[str]] = {}
        for topic_filter in self._filters:
            places.setdefault(audience(topic_filter), []).append(topic_filter)
        if len(places) > RANGES:
            places = {ALL_BROKERS: self._filters}
        self._missing, self._unsettled = 1 + len(places), ""
        self._answers.clear()
        for place, wanted in places.items():
            self._calls.call(place, Unsettled(wanted, self._source), self._answered, ATTEMPTS)
        self._one_done()

    def _answered(self, outcome: Outcome) -> None:
        if not outcome.complete:
            self._unsettled = "not all publishers' brokers have answered"
        for result in outcome.results:
            if isinstance(result, Outstanding):
                target = self._upto.setdefault((result.broker, result.incarnation), result.seq)
                if 0 < result.lowest <= target and not self._held_back(result):
                    self._unsettled = f"{result.broker} has publications that some broker may lack"
                self._answers.add(result.broker)
        self._one_done()

    def _held_back(self, answer: Outstanding) -> bool:
        owner = self._owner
        return owner is not None and answer.broker == owner.name and answer.incarnation > owner.incarnation

    def _one_done(self) -> None:
        self._missing -= 1
        if self._missing or not self._there():
            return
        if not self._unsettled and self._waiting(self._filters):
            self._unsettled = "publications wait for earlier ones here"
        if not self._unsettled:
            self._then(frozenset(self._answers))
        elif self._port.now >= self._limit:
            logger.warning("a session moves before all is settled: %s", self._unsettled)
            self._then(None)
        else:
            self._port.after(POLL, self._ask)
