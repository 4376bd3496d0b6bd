"""What a frontend may ask of the mesh of brokers, and what the mesh asks of a broker's local half.

The two protocols keep the rings apart: a frontend knows nothing of the overlay, the overlay nothing of MQTT.
`saps.overlay` implements `Mesh`; `saps.hub` implements `Local`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

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
        With QoS 1 or 2 `done` runs when all of them have it; with QoS 0 it runs when the message has been sent.
        With the retain flag (and a stamp) it is kept in the mesh as well, and `done` waits for that, too."""

    def entrust(self, client: str, will: Message | None, delay: float) -> None:
        """The will of a client of this broker (None: it is void) and its delay in seconds: it is to be published
        elsewhere if this broker dies."""

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        """No member of a shared subscription (``$share/group/filter``) is ready here: find one elsewhere. If there
        is none, `Local.take` is to give it to one that is away. `settled` runs when it has been delivered or lost."""

    def stamp(self, message: Message) -> Message:
        """The message, to be retained, with the stamp that says which of a topic's retained messages is the last."""

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        """What is retained elsewhere in the mesh and matches a filter that has been subscribed. `done` gets what
        `Local` may not have heard of; from then on it hears of every change by `Local.deliver`."""


class Recalled(NamedTuple):
    """A retained message found elsewhere; one without payload has been deleted."""

    message: Message
    """Its message expiry is what is left of it."""
    coming: bool
    """It is on its way to this broker as a publication, too."""


class Local(Protocol):
    """A broker's local half, as seen by the mesh."""

    def deliver(self, message: Message) -> int:
        """A message from another broker, for the local subscribers. Returns how many matched."""

    def matching(self, topic: str) -> int:
        """How many local subscribers a message to `topic` has now."""

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Give a message to one member of a shared subscription. `forced`: also to one that is away. False if there is
        none. `settled` runs when the member has acknowledged it (with QoS 0: at once)."""

    def connected(self, client: str) -> bool:
        """Is this client connected here?"""

    def bequeath(self, will: Message) -> None:
        """Publish the will of a client of a broker that has died."""

    def kept(self, message: Message) -> None:
        """A retained message published here is kept elsewhere: it need not be remembered for the mesh's sake."""


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

    def entrust(self, client: str, will: Message | None, delay: float) -> None:
        pass

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        raise NotImplementedError("the hub does not ask itself")

    def stamp(self, message: Message) -> Message:
        return message

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        done(())
