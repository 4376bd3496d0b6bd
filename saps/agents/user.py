"""User agents: a publisher agent and a subscriber agent stand for each client of the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from saps.agents.api import remote
from saps.messages import Message, Reached, Subscription
from saps.routing.batch import Batch
from saps.routing.subscriptions import Subscriber, Takes, Target

if TYPE_CHECKING:
    from saps.routing.hub import Hub


Action = Literal["publish", "subscribe"]


class Asker(Protocol):
    """A source of a client's rights that must be asked topic by topic. The client's rights allow only what `settle` has
    noted."""

    timeout: float
    """Longest time in seconds that a question may wait until it can be asked."""

    def known(self, action: Action, topic: str) -> bool | None:
        """Return whether the action is permitted, or None if that has to be asked."""

    def ask(self, action: Action, topic: str, done: Callable[[bool], None], /) -> bool:
        """Ask about a topic. `done` gets the answer, and never runs before `ask` returns. Returns False, and does
        nothing, if too many questions wait."""

    def settle(self, action: Action, found: dict[str, bool]) -> None:
        """Use these answers for the request at hand, until the next call with the same action."""

    def may_keep(self, topic_filter: str) -> bool:
        """Return whether a subscription that was permitted may go on."""


class Rights(Protocol):
    """The rights of a client to publish and receive (`saps.frontend.mqtt.access.acl`)."""

    publishable: set[str]
    """Topics that the client is known to be permitted to publish to."""

    @property
    def asker(self) -> Asker | None:
        """The source to ask first about each topic of a request. None if the answers here are complete."""

    def may_publish(self, topic: str) -> bool:
        """Return whether the client may publish to the topic."""

    def may_read(self, topic: str) -> bool:
        """Return whether the client may receive messages of the topic."""

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether the client may subscribe to the filter."""


def _ignore() -> None:
    pass


class PublisherAgent:
    """Publishes for one client. The hub knows the agent as ``<client id>/pub`` until `close`."""

    __slots__ = ("client_id", "hub", "published", "twin")

    def __init__(self, hub: Hub, client_id: str, twin: SubscriberAgent | None = None) -> None:
        """`twin` is the same client's subscriber agent: its no-local subscriptions do not see this agent's messages."""
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
        """Whether the client is connected."""
        return self.twin is None or self.twin.present

    def publish(self, message: Message, done: Callable[[Reached], None] | None = None) -> int:
        """Publish a message, and return the number of its subscribers at this broker (`Hub.publish`). `done` gets the
        brokers and subscribers reached beyond this broker, or `REFUSED` if the client may not publish the message."""
        self.published += 1
        told = None if done is None else lambda reached: done(reached[0])
        return self.hub.publish(Batch.of(message), self.twin, told)[0]

    def close(self) -> None:
        """Take the agent out of the hub."""
        if self.hub.agents.get(self.name) is self:
            del self.hub.agents[self.name]
        self.twin = None

    @remote
    def describe(self) -> dict[str, Any]:
        """Return plain values, for remote calls and status pages."""
        return {"name": self.name, "client": self.client_id, "role": "publisher", "published": self.published}


class SubscriberAgent(Subscriber):
    """Receives for one client. The hub knows the agent as ``<client id>/sub`` until `close`.

    This class hands each message to a function. A frontend's session is a subclass that sends the message to its
    client.
    """

    __slots__ = ("delivered", "dropped", "hub", "receiver", "rights", "subscriptions")

    def __init__(self, hub: Hub, client_id: str, receiver: Callable[[Message], None] | None = None) -> None:
        super().__init__(client_id)
        self.hub = hub
        self.receiver = receiver
        self.rights: Rights | None = None
        """The rights of the client to receive, and of its publisher agent to publish. None permits everything. The hub
        enforces them: call `forget_agent_routes` when they change."""
        self.subscriptions: dict[str, Subscription] = {}
        self.delivered = 0
        self.dropped = 0
        """Messages dropped because the client was away or too slow and the limits were reached."""
        hub.agents[self.name] = self

    @property
    def name(self) -> str:
        return self.client_id + "/sub"

    @property
    def present(self) -> bool:
        return True

    def lost(self, singles: Sequence[Batch], why: str) -> None:
        """Tell the tracer, if any, that the client does not get these publications, and `why`."""
        tracer = self.hub.tracer
        if tracer is not None:
            for single in singles:
                tracer.lost(self, single, why)

    def subscribe(self, subscription: Subscription, done: Callable[[], None] = _ignore) -> None:
        """Add or replace a subscription; `done` as for `Hub.subscribe`."""
        self.subscriptions[subscription.filter] = subscription
        self.hub.subscribe(self, subscription, done)

    def resubscribe(self, subscription: Subscription, done: Callable[[], None] = _ignore) -> None:
        """Go on with a subscription of before, elsewhere or in an earlier incarnation: the client has got the retained
        messages. `done` as for `Hub.subscribe`."""
        self.subscriptions[subscription.filter] = subscription
        self.hub.subscribe(self, subscription, done, retained=False)

    def unsubscribe(self, topic_filter: str) -> bool:
        """End a subscription. Returns False if there was none."""
        if self.subscriptions.pop(topic_filter, None) is None:
            return False
        self.hub.unsubscribe(self, topic_filter)
        return True

    def takes(self, topic: str) -> Takes:
        return Takes.NOW

    def may_read(self, topic: str) -> bool:
        return self.rights is None or self.rights.may_read(topic)

    def deliver(self, batch: Batch, target: Target) -> None:
        self.delivered += len(batch)
        if self.receiver is not None:
            for message in batch.messages:
                self.receiver(message)
        if batch.share is not None:
            batch.share.settled()

    def close(self) -> None:
        """End all subscriptions and take the agent out of the hub."""
        for topic_filter in list(self.subscriptions):
            self.unsubscribe(topic_filter)
        if self.hub.agents.get(self.name) is self:
            del self.hub.agents[self.name]

    @remote
    def describe(self) -> dict[str, Any]:
        """Return plain values, for remote calls and status pages."""
        return {
            "name": self.name,
            "client": self.client_id,
            "role": "subscriber",
            "subscriptions": {s.filter: s.qos for s in self.subscriptions.values()},
            "delivered": self.delivered,
            "dropped": self.dropped,
        }
