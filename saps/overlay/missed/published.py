"""A frame of a broker's own publications, and what is known of its sending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from saps.overlay.delivery.publications import select
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef


class Published(NamedTuple):
    """A frame of a broker's own publications."""

    body: Publish
    at: float
    """When it was published, in seconds of the port's clock."""
    sent: frozenset[BrokerRef]
    """The brokers to which it was sent."""

    def first(self) -> int:
        """Return the sequence number of the first publication."""
        return self.body.seqs[0]

    def of(self, indexes: Sequence[int]) -> Published:
        """Return only these publications."""
        return self._replace(body=select(self.body, indexes))
