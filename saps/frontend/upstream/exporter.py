"""The upstream's subscriber agent, which receives the mesh's messages for the upstream."""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.user import SubscriberAgent
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.routing.subscriptions import Target


class Exporter(SubscriberAgent):
    """A subscriber agent that passes each publication to a function."""

    __slots__ = ("take",)

    def __init__(self, hub: Hub, client_id: str, take: Callable[[Batch], None]) -> None:
        """`take` is called with each publication, as a batch of one."""
        super().__init__(hub, client_id)
        self.take = take

    def deliver(self, batch: Batch, target: Target) -> None:
        """Pass each publication of a batch to `take`, and count it."""
        self.delivered += len(batch)
        for single in batch.singles:
            self.take(single)
