"""What the publishers' side asks about brokers that are cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from saps.local.batch import Batch
from saps.overlay.ring.keys import BrokerRef


class Absent(Protocol):
    """Brokers that have missed something, or are lost (`saps.overlay.missed.catchup`)."""

    def keeping(self) -> bool:
        """Is all that is published with QoS 1 and 2 kept for them?"""

    def keep(self, batch: Batch, members: Sequence[tuple[BrokerRef, ...]], groups: list[list[str]]) -> None:
        """These publications are about to leave, those to each topic for its members, and for groups if there are."""

    def behind(self, broker: BrokerRef, topic: str) -> bool:
        """Does the broker get what is published to the topic later, as it has missed something before it?"""

    def owes(self, broker: BrokerRef, topic: str, seq: int) -> bool:
        """Is this publication under way to the broker?"""

    def noted(self, broker: BrokerRef, topic_filter: str, seq: int) -> None:
        """A broker has announced a filter that was not known: from this publication on it counts."""

    def stale_incarnation(self, broker: BrokerRef) -> None:
        """Others have told of a later life of it."""
