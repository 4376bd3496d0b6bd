"""The interface through which the publishers' side treats brokers that are cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch


class Absent(Protocol):
    """The brokers that are lost or have missed publications (implemented by `saps.overlay.missed.catchup`)."""

    def keeping(self) -> bool:
        """Return whether all publications with QoS 1 and 2 are logged for these brokers."""

    def keep(self, batch: Batch, members: Sequence[tuple[BrokerRef, ...]], groups: list[list[str]]) -> None:
        """Log publications that are about to leave. `members` are the receivers of each topic of the batch, `groups`
        the shared subscriptions of each topic; `groups` is empty if no topic has any."""

    def behind(self, broker: BrokerRef, topic: str) -> bool:
        """Return whether publications to the topic reach the broker through the log only, because it has missed an
        earlier one."""

    def owes(self, broker: BrokerRef, topic: str, seq: int) -> bool:
        """Return whether the broker will get this publication from the log."""

    def lacks(self, broker: BrokerRef, topic_filters: list[str]) -> int:
        """Return the number of the first publication that the broker may still get from the log, if any of these
        matches a filter; else 0."""

    def noted(self, broker: BrokerRef, topic_filter: str, seq: int) -> None:
        """Handle a broker's announcement of an unknown filter, which counts for publications above `seq`."""

    def owed_above(self, broker: BrokerRef, seq: int) -> int:
        """Return the number above which a broker is to wait for publications, if it is served from `seq` on: less if it
        still gets some from the log. Otherwise a later one that comes by a tree would not wait for them, and they would
        come too late."""

    def stale_incarnation(self, broker: BrokerRef) -> None:
        """Handle a report that a later incarnation of the broker exists."""
