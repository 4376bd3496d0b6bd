"""User agents: a publisher agent and a subscriber agent stand for each client of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saps.agents.api import remote
from saps.messages import Message
from saps.subscriptions import Subscription, Takes, Target

if TYPE_CHECKING:
    from saps.hub import Burst, Hub, Publication


def _ignore() -> None:
    pass


class PublisherAgent:
    """Publishes for one client. Registered with the hub as ``<client id>/pub`` until `close`."""

    __slots__ = ("client_id", "hub", "published", "twin")

    def __init__(self, hub: Hub, client_id: str, twin: SubscriberAgent | None = None) -> None:
        """`twin`: the same client's subscriber agent; its no-local subscriptions do not see this agent's messages."""
        self.hub = hub
        self.client_id = client_id
        self.twin = twin
        self.published = 0
        hub.agents[self.name] = self

    @property
    def name(self) -> str:
        return self.client_id + "/pub"

    @property
    def present(self) -> bool:
        """The client is connected."""
        return self.twin is None or self.twin.present

    def publish(self, message: Message, done: Callable[[int], None] | None = None) -> None:
        """Publish; `done` as for `Hub.publish`."""
        self.published += 1
        self.hub.publish(message, self.twin, done)

    def close(self) -> None:
        """Take the agent out of the hub."""
        if self.hub.agents.get(self.name) is self:
            del self.hub.agents[self.name]

    @remote
    def describe(self) -> dict[str, Any]:
        """Plain values, for remote calls and status pages."""
        return {"name": self.name, "client": self.client_id, "role": "publisher", "published": self.published}


class SubscriberAgent:
    """Receives for one client. Registered with the hub as ``<client id>/sub`` until `close`.

    This class hands each message to a function; a frontend's session is a subclass that sends it to its client.
    """

    __slots__ = ("client_id", "delivered", "dropped", "hub", "receiver", "subscriptions", "wire")

    stored = False
    """What it has to deliver outlives the process, so that packets are not passed on before they are stored."""

    def __init__(self, hub: Hub, client_id: str, receiver: Callable[[Message], None] | None = None) -> None:
        self.hub = hub
        self.client_id = client_id
        self.receiver = receiver
        self.wire = 0
        """The wire format this agent takes verbatim by `relay` (MQTT: the protocol level); 0: none."""
        self.subscriptions: dict[str, Subscription] = {}
        self.delivered = 0
        self.dropped = 0
        """Messages given up: the client was away or too slow, and the limits were reached."""
        hub.agents[self.name] = self

    @property
    def name(self) -> str:
        return self.client_id + "/sub"

    @property
    def present(self) -> bool:
        """The client is connected."""
        return True

    def subscribe(self, subscription: Subscription, done: Callable[[], None] = _ignore) -> None:
        """Add or replace a subscription; `done` as for `Hub.subscribe`."""
        self.subscriptions[subscription.filter] = subscription
        self.hub.subscribe(self, subscription, done)

    def unsubscribe(self, topic_filter: str) -> bool:
        """End a subscription. False if there was none."""
        if self.subscriptions.pop(topic_filter, None) is None:
            return False
        self.hub.unsubscribe(self, topic_filter)
        return True

    def takes(self, topic: str) -> Takes:
        """Whether this agent can take a message to `topic` on behalf of a group."""
        return Takes.NOW

    def deliver(self, publication: Publication, target: Target) -> None:
        """Take one message; `target` says with which quality of service and identifiers."""
        self.delivered += 1
        if self.receiver is not None:
            self.receiver(publication.message)
        if publication.share is not None:
            publication.share.settled()

    def deliver_burst(self, burst: Burst, target: Target) -> None:
        """Take several messages at once, in order."""
        for publication in burst.publications:
            self.deliver(publication, target)

    def relay(self, packets: bytes, count: int) -> None:
        """Take `count` encoded packets in the format `wire`. Never called while `wire` is 0."""
        raise NotImplementedError(f"{type(self).__name__} takes no encoded packets")

    def close(self) -> None:
        """End all subscriptions and take the agent out of the hub."""
        for topic_filter in list(self.subscriptions):
            self.unsubscribe(topic_filter)
        if self.hub.agents.get(self.name) is self:
            del self.hub.agents[self.name]

    @remote
    def describe(self) -> dict[str, Any]:
        """Plain values, for remote calls and status pages."""
        return {
            "name": self.name,
            "client": self.client_id,
            "role": "subscriber",
            "subscriptions": {s.filter: s.qos for s in self.subscriptions.values()},
            "delivered": self.delivered,
            "dropped": self.dropped,
        }
