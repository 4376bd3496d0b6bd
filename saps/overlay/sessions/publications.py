"""What sessions that move or are adopted have to know of the publications under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch


class Publications(Protocol):
    """The publications under way at this broker (`saps.overlay.delivery.delivery`)."""

    @property
    def adopting(self) -> dict[int, BrokerRef]:
        """By number of adoption: the dead brokers whose sessions are being adopted here. What their next incarnations
        publish is not acknowledged meanwhile."""

    def waiting(self, topic_filters: list[str]) -> bool:
        """Return whether a matching publication has come, or was published here, and was not passed on yet."""

    def queued(self) -> Callable[[], bool]:
        """Return a function that returns whether a publication made here before this call still waits for the
        subscribers of its topic to be known."""

    def passed(self, origin: BrokerRef, topic: str) -> int:
        """Return the number of a broker's last publication to a topic that went to the subscribers here."""

    def brings(self, topic_filters: list[str]) -> list[tuple[str, int, int]]:
        """Return brokers (name, incarnation), each with a number above which all its publications that match these
        plain filters have come here since a cut, or will come."""

    def missed_by(self, broker: BrokerRef, topic_filters: list[str]) -> list[Batch]:
        """Return the publications made here that match these plain filters, and that a broker may not have got."""

    @property
    def cut(self) -> bool:
        """Whether some broker is lost to this one, or was lately."""
