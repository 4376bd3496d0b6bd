"""Connects the hub of one broker to the state machines of the overlay: implements `saps.mesh.Mesh`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saps.mesh import Done, Recalled, TopicRoute
from saps.messages import Message, Properties
from saps.overlay.delivery.delivery import Delivery
from saps.overlay.node_port import NodePort
from saps.overlay.rendezvous.rendezvous import Rendezvous
from saps.overlay.rendezvous.streams import Phase
from saps.overlay.retained.publisher import RetainedPublisher
from saps.overlay.wills import Wills
from saps.policy.model import Policy
from saps.routing.batch import Batch


class OverlayMesh:
    """Implements `saps.mesh.Mesh`, which documents the methods."""

    def __init__(
        self, port: NodePort, rendezvous: Rendezvous, delivery: Delivery, retained: RetainedPublisher, wills: Wills
    ) -> None:
        self._port = port
        self._subscriptions = rendezvous.subscriptions
        self._publishers = rendezvous.publishers
        self._multicast = delivery.multicast
        self._sharing = delivery.sharing
        self._retained = retained
        self._wills = wills

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        self._subscriptions.subscribe(topic_filter, done)

    def unsubscribe(self, topic_filter: str) -> None:
        self._retained.withdrawn(topic_filter)
        self._subscriptions.unsubscribe(topic_filter)

    def route(self, topic: str) -> TopicRoute:
        return self._publishers.stream(topic)

    def publish(self, batch: Batch, done: Done | None) -> None:
        self._multicast.publish(batch, done)
        if self._port.own:  # a new topic: finish the local steps of its rendezvous before the next packet is handled
            self._port.run_own()

    def guard_will(self, client: str, will: Message | None, delay: float) -> None:
        if will is not None and not self._publishers.unrestricted(will.topic):
            will = None  # guardians may be brokers that must not see it: only this broker may publish it
        self._wills.guard_will(client, will, delay)

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        stream = self._publishers.streams.get(message.topic)
        known = stream is not None and stream.phase is Phase.OPEN and stream.members is not None
        brokers = stream.groups.get(topic_filter, []) if stream is not None and known else None
        self._sharing.redeliver(topic_filter, message, settled, brokers)

    def stamp(self, properties: Properties | None) -> Properties | None:
        return self._retained.stamp(properties)

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        self._retained.recall(topic_filter, done)

    def obey(self, policy: Policy | None) -> None:
        """Apply a policy to the publications that leave this broker. Drops the retained messages that this broker must
        not hold any more."""
        self._publishers.obey(policy)
        self._retained.store.purge(self._publishers.unrestricted)
