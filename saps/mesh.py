"""What a frontend may ask of the mesh of brokers, and what the mesh asks of a broker's local half.

The two protocols keep the rings apart: a frontend knows nothing of the overlay, the overlay nothing of MQTT.
`saps.overlay` implements `Mesh`; `saps.local.hub` implements `Local`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol

from saps.local.batch import Batch
from saps.messages import NOBODY, Message, Properties, Reached
from saps.storage.journal import Row, Table
from saps.storage.saved import SavedMessage, SavedSession


class TopicRoute:
    """Where the mesh keeps what it knows about one topic; a frontend may hold on to it.

    `remote` is False only while the mesh knows that no other broker has a matching subscriber, so that
    `Mesh.publish` would do nothing; it changes without notice. Set `used` at each publication that skips the mesh.
    """

    __slots__ = ("published", "remote", "topic", "used")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.published = 0
        """Publications to it that have left this broker."""
        self.remote = True
        self.used = True


Done = Callable[[Sequence[Reached]], None]
"""Told whom the publications of a batch have reached: one for each of its topics."""


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

    def publish(self, batch: Batch, done: Done | None) -> None:
        """Carry the publications to every other broker with a matching subscriber, in the order of the calls per topic.
        With QoS 1 or 2 `done` runs when all of them have the batch; with QoS 0 it runs when it has been sent. With the
        retain flag (and stamps) the publications are kept in the mesh as well, and `done` waits for that, too."""

    def expect_acknowledgement(self, client: str, will: Message | None, delay: float) -> None:
        """The will of a client of this broker (None: it is void) and its delay in seconds: it is to be published
        elsewhere if this broker dies."""

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        """No member of a shared subscription (``$share/group/filter``) is ready here: find one elsewhere. If there
        is none, `Local.take` is to give it to one that is away. `settled` runs when it has been delivered or lost."""

    def stamp(self, properties: Properties | None) -> Properties | None:
        """The properties of a message that is to be retained, with the stamp that says which of a topic's retained
        messages is the last."""

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

    def deliver(self, batch: Batch) -> list[int]:
        """Publications from another broker, for the local subscribers. Returns how many each topic has."""

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


class Arrival(Enum):
    """What came of a claim to a client's session."""

    HERE = "here"
    """No other broker has a session of it: what there is, is here."""
    MOVED = "moved"
    """It has come from another broker."""
    LATER = "later"
    """The client has connected to another broker since."""
    FORBIDDEN = "forbidden"
    """It is another user's."""
    BUSY = "busy"
    """It cannot be said now: the client is to try again."""


class Yields(IntEnum):
    """What a broker has to give of a client's session."""

    NOTHING = 0
    """There is no session here (any more)."""
    SESSION = 1
    WAIT = 2
    """Not yet. (Between brokers only, as are the next two.)"""
    MOVING = 3
    """It is on its way to another broker."""
    LATER = 4
    """The client has connected here since."""
    FORBIDDEN = 5
    """It is another user's."""


class Sessions(Protocol):
    """The sessions of the whole mesh, as a frontend sees them: a client has one, at the broker it connected to last."""

    host: SessionHost | None
    """Who has the sessions of this broker."""

    def at_home(self, client: str) -> bool:
        """Is it known that no other broker has a session of this client?"""

    def claimed(self, client: str) -> bool:
        """Must the mesh be told when there is no session of the client here any more?"""

    def claim(self, client: str, user: str | None, keep: bool, arrived: Callable[[Arrival], None]) -> None:
        """The client has connected here: end its connections elsewhere, and have its session here (`keep`), by the
        calls of `SessionHost`, or ended. `arrived` may run before this returns. One claim a client at a time."""

    def release(self, client: str) -> None:
        """There is no session of the client here any more."""

    def refresh(self, client: str) -> None:
        """Its session here lasts from now on, or not any more (`SessionHost.lasting`)."""

    def restored(self, clients: Iterable[str]) -> None:
        """These sessions are from an earlier life of this broker; their clients may have moved on meanwhile."""


class SessionHost(Protocol):
    """The sessions of one broker, as the mesh sees them. Parts are in the frontend's own terms."""

    def clients(self) -> Iterable[str]:
        """Whose sessions are here."""

    def user(self, client: str) -> str | None:
        """Whose the client's session is."""

    def lasting(self, client: str) -> bool:
        """Does, or will, the client's session outlive its connection?"""

    def birth(self, client: str) -> int:
        """The own name of a session that lasts; 0: there is none."""

    def rows(self) -> Iterable[tuple[Table, Any, Row]]:
        """All sessions that last, as the journal has them."""

    def surrender(self, client: str, user: str | None, keep: bool) -> Yields:
        """The client has connected elsewhere as `user`: close its connection. With `keep` the session goes on taking
        in messages, until `depart` or `stay`; else it ends."""

    def filters(self, client: str) -> list[str]:
        """What the session has subscribed to."""

    def describe(self, client: str) -> list[bytes]:
        """A surrendered session's settings and subscriptions."""

    def pack(self, client: str, force: bool, branch: bool = False) -> list[bytes] | None:
        """All that it has to deliver and to acknowledge. None: something is not settled yet, come again; or, with
        `force`, do without. `branch`: but not what it had when it was adopted, or its repaired file had."""

    def depart(self, client: str) -> None:
        """Another broker has it now."""

    def stay(self, client: str) -> None:
        """It was not handed over: it goes on here."""

    def receive(self, client: str, parts: list[bytes], subscribed: Callable[[], None]) -> list[str]:
        """Begin a session with these settings and subscriptions; it takes in messages. `subscribed` runs when no
        message published later can be missed. Returns the filters; raises ValueError if the parts make no sense."""

    def queued(self, client: str) -> list[Batch]:
        """What it has taken in since, each a batch of one."""

    def unpack(self, client: str, parts: list[bytes], passed: Callable[[Batch], bool]) -> None:
        """The rest of it, and which of what is queued here had `passed` at the other broker. Raises ValueError."""

    def discard(self, client: str) -> None:
        """It was not handed over after all."""

    def inherit(
        self, saved: SavedSession, messages: dict[int, SavedMessage], subscribed: Callable[[], None]
    ) -> tuple[list[str], Callable[[Arrival], None], Callable[[], None]]:
        """Begin a session of a broker that has died as `receive` does, from what is known of it. Returns its filters,
        what says that it is here or is not to come, and what is to be called before: it completes the session."""

    def absorb(self, saved: SavedSession, messages: dict[int, SavedMessage]) -> None:
        """As `merge`, if the session here is the same one: this is how it was at a broker that has died."""

    def make_up(self, clients: Iterable[str], batch: Batch) -> None:
        """What these sessions have missed; they may have had some of it."""

    def merge(self, client: str, parts: list[bytes]) -> None:
        """What a branch of a session has packed: it has what it has not had. Raises ValueError."""


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

    def publish(self, batch: Batch, done: Done | None) -> None:
        if done is not None:
            done([NOBODY] * len(batch.topics))

    def expect_acknowledgement(self, client: str, will: Message | None, delay: float) -> None:
        pass

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        raise NotImplementedError("the hub does not ask itself")

    def stamp(self, properties: Properties | None) -> Properties | None:
        return properties

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        done(())
