"""Shared subscriptions at one broker: chooses the member that gets a message (MQTT 5.0, 4.8.2)."""

from __future__ import annotations

from collections.abc import Callable

from saps.mesh import Alone, Mesh
from saps.messages import Message
from saps.routing.batch import Batch, Share
from saps.routing.routes import Routes
from saps.routing.subscriptions import Group, SubscriptionIndex


def _nothing() -> None:
    pass


class Groups:
    """The shared subscriptions of one hub."""

    def __init__(self, index: SubscriptionIndex, routes: Routes, clock: Callable[[], float]) -> None:
        self._index = index
        self._routes = routes
        self._clock = clock
        self.mesh: Mesh = Alone()
        self.delivered = 0
        """Messages delivered to members here."""

    def publish(self, group: Group, single: Batch) -> None:
        """Deliver a publication of this broker, a batch of one, to one member: here if one is ready, else elsewhere."""
        if not self._offer(group, single, False, _nothing):
            self._share_elsewhere(group.name, single.message, _nothing)

    def _share_elsewhere(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        """Have the mesh find a member, as none is ready here."""
        if isinstance(self.mesh, Alone):
            if not self.take(topic_filter, message, True, settled):
                settled()
        else:
            self.mesh.share(topic_filter, message, settled)

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Deliver a message to one member of a shared subscription: `saps.mesh.Local.take`."""
        group = self._index.group(topic_filter) if self._routes.may_get(message.topic) else None
        if group is None:
            return False
        single = Batch.of(message)
        single.set_deadlines(self._clock())
        return self._offer(group, single, forced, settled)

    def redeliver(self, single: Batch) -> None:
        """Deliver a publication to another member, as its member has left without acknowledging it."""
        share = single.share
        if share is not None and not self.take(share.topic_filter, single.message, False, share.settled):
            self._share_elsewhere(share.topic_filter, single.message, share.settled)

    def _offer(self, group: Group, single: Batch, forced: bool, settled: Callable[[], None]) -> bool:
        """Deliver a batch of one to the member whose turn it is. Returns False if there is none."""
        target = group.pick(single.topic, away=forced)
        if target is None:
            return False
        self.delivered += 1
        if single.qos and target.qos:
            target.agent.deliver(single.for_member(Share(group.name, settled)), target)
        else:
            target.agent.deliver(single, target)
            settled()
        return True
