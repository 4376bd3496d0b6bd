"""What a frontend may ask of the mesh of brokers, and what the mesh asks of a broker's local half.

The two protocols keep the rings apart: a frontend knows nothing of the overlay, the overlay nothing of MQTT.
`saps.overlay` implements `Mesh`; `saps.hub` implements `Local`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from saps.messages import NOBODY, Message, Reached


class TopicRoute:
    """Where the mesh keeps what it knows about one topic; a frontend may hold on to it.

    `remote` is False only while the mesh knows that no other broker has a matching subscriber, so that
    `Mesh.publish` would do nothing; it changes without notice. Set `used` at each publication that skips the mesh.
    """

    __slots__ = ("remote", "topic", "used")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.remote = True
        self.used = True


class Mesh(Protocol):
    """The mesh, as seen by one broker's hub. All calls return at once; callbacks may run before the call returns."""

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        """This broker now has a subscriber for `topic_filter`. `done` runs once every message published from then on,
        anywhere in the mesh, will arrive (immediately, if that holds already): it is the time to send SUBACK.
        To be called for every subscription; only the first for a filter costs messages."""

    def unsubscribe(self, topic_filter: str) -> None:
        """The last local subscriber of `topic_filter` has gone."""

    def route(self, topic: str) -> TopicRoute:
        """The route of `topic`. It stays valid for as long as the mesh lives."""

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        """Carry `message` to every other broker with a matching subscriber, in the order of the calls per topic.
        With QoS 1 or 2 `done` runs when all of them have it; with QoS 0 it runs when the message has been sent."""


class Local(Protocol):
    """A broker's local half, as seen by the mesh."""

    def deliver(self, message: Message) -> int:
        """A message from another broker, for the local subscribers. Returns how many matched."""


class Alone:
    """The mesh of a broker without a mesh: nobody else is there. (A `Mesh`.)"""

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        done()

    def unsubscribe(self, topic_filter: str) -> None:
        pass

    def route(self, topic: str) -> TopicRoute:
        route = TopicRoute(topic)
        route.remote = False
        return route

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        if done is not None:
            done(NOBODY)
