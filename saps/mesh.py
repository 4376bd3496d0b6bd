"""The interfaces between a broker's local half (frontend and hub) and the mesh of brokers.

The protocols keep the two apart: a frontend knows nothing of the overlay, and the overlay nothing of MQTT.
`saps.overlay` implements `Mesh` and `Sessions`, `saps.routing.hub` implements `Local`, and the frontend `SessionHost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from saps.messages import NOBODY, Message, Properties, Reached
from saps.routing.batch import Batch
from saps.storage.journal import Change
from saps.storage.saved import SavedMessage, SavedSession


class TopicRoute:
    """The mesh's knowledge of one topic. A frontend may keep it for as long as the mesh lives.

    `remote` is False only while the mesh knows that no other broker has a matching subscriber, so that
    `Mesh.publish` would do nothing; it changes without notice. Set `used` at each publication that skips the mesh.
    """

    __slots__ = ("published", "remote", "topic", "used")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.published = 0
        """Number of publications to the topic that have left this broker."""
        self.remote = True
        self.used = True


Done = Callable[[Sequence[Reached]], None]
"""Callback with the reach of a batch: one `Reached` for each of its topics."""


class Mesh(Protocol):
    """The mesh, as one broker's hub sees it. All calls return at once; callbacks may run before the call returns."""

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        """Subscribe this broker to `topic_filter`. Call it for each subscription; only a filter's first costs frames.

        `done` runs once every message published from then on, anywhere in the mesh, will arrive here; at once if that
        holds already. The caller may then send SUBACK."""

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe this broker from `topic_filter`, whose last local subscriber has gone."""

    def route(self, topic: str) -> TopicRoute:
        """Return the route of `topic`. It stays valid for as long as the mesh lives."""

    def publish(self, batch: Batch, done: Done | None) -> None:
        """Carry publications to every other broker with a matching subscriber, for each topic in the order of the
        calls.

        With QoS 1 or 2 `done` runs when all these brokers have the batch, with QoS 0 when it has been sent. With the
        retain flag (and stamps) the publications go to the retained store as well, and `done` waits for that, too."""

    def guard_will(self, client: str, will: Message | None, delay: float) -> None:
        """Leave a client's will with other brokers, which publish it if this broker dies.

        `will` None makes the client's former will void. `delay` is the will delay interval in seconds."""

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        """Give a message to a member of a shared subscription (``$share/group/filter``) elsewhere, as none is ready
        here.

        If no member is ready anywhere, `Local.take` gives it to one that is away. `settled` runs when the message has
        been delivered or lost."""

    def stamp(self, properties: Properties | None) -> Properties | None:
        """Return the properties of a message to be retained, with a stamp: of a topic's retained messages, the one with
        the greatest stamp is the last."""

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        """Fetch the retained messages of the mesh that match a subscribed filter.

        `done` gets those that `Local` may not know. From then on `Local.deliver` gets every change."""


class Recalled(NamedTuple):
    """A retained message from elsewhere; an empty payload means that it has been deleted."""

    message: Message
    """The message; its expiry interval is the rest of its lifetime."""
    coming: bool
    """Whether the message is also on its way to this broker as a publication."""


class Local(Protocol):
    """A broker's local half, as the mesh sees it."""

    def deliver(self, batch: Batch) -> list[int]:
        """Deliver publications from another broker to the local subscribers. Return each topic's number of them."""

    def matching(self, topic: str) -> int:
        """Return the number of local subscribers that a message to `topic` has now."""

    @property
    def lagging(self) -> bool:
        """Whether a connected client does not keep up with what is delivered: its queue is half full."""

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Give a message to one member of a shared subscription; with `forced`, even to a member that is away.

        Return False, and never run `settled`, if there is no such member. `settled` runs when the member has
        acknowledged the message; with QoS 0 at once."""

    def connected(self, client: str) -> bool:
        """Return whether this client is connected here."""

    def bequeath(self, will: Message) -> None:
        """Publish the will of a client whose broker has died."""

    def kept(self, message: Message) -> None:
        """Note that the retained store has a message published here, which need not be remembered for the mesh."""


class Arrival(Enum):
    """The outcome of a claim to a client's session."""

    HERE = "here"
    """No other broker has a session of the client; it may have one here."""
    MOVED = "moved"
    """The session has come from another broker."""
    LATER = "later"
    """The client has since connected to another broker."""
    FORBIDDEN = "forbidden"
    """The session belongs to another user."""
    BUSY = "busy"
    """The claim cannot be decided now. The client must try again."""


class Yields(IntEnum):
    """A broker's answer to a request for a client's session. `SessionHost.surrender` returns `NOTHING`, `SESSION` or
    `FORBIDDEN`; brokers answer each other with all of them."""

    NOTHING = 0
    """The broker has no session of the client, or has just ended it."""
    SESSION = 1
    """The broker hands its session over."""
    WAIT = 2
    """The broker cannot say yet. It must be asked again."""
    MOVING = 3
    """The session is moving to another broker."""
    LATER = 4
    """The client has since connected to the broker that answers, or to one to which the session is moving."""
    FORBIDDEN = 5
    """The session belongs to another user."""


class Sessions(Protocol):
    """The sessions of the whole mesh, as a frontend sees them. Each client has one, at the broker it connected to
    last."""

    host: SessionHost | None
    """The frontend's sessions at this broker; None before there is a frontend."""

    def at_home(self, client: str) -> bool:
        """Return whether certainly no other broker has a session of this client."""

    def claimed(self, client: str) -> bool:
        """Return whether the caller must call `release` when the client's session here has ended."""

    def claim(self, client: str, user: str | None, keep: bool, arrived: Callable[[Arrival], None]) -> None:
        """Claim the session of a client that has connected here as `user`, and end its connections elsewhere.

        With `keep` its session moves here by calls of `SessionHost`; without it the session ends. `arrived` gets the
        outcome, perhaps before this call returns. The caller makes one claim of a client at a time."""

    def release(self, client: str) -> None:
        """Release a client whose session here has ended."""

    def renew(self, client: str) -> None:
        """Report that a client whose session is `at_home` connects once more: this claim is later than all before."""

    def restored(self, clients: Iterable[str]) -> None:
        """Note sessions from an earlier incarnation of this broker, whose clients may have moved on meanwhile."""


class Trunk(NamedTuple):
    """The session of which another broker has a branch."""

    broker: tuple[str, int]
    """Name and incarnation of its broker."""
    number: int
    """`SessionHost.number` there."""
    brings: dict[tuple[str, int], int]
    """By publishing broker (name, incarnation): the number above which all its publications for plain subscriptions of
    the session come there through the mesh."""


class SessionHost(Protocol):
    """The sessions of one broker, as the mesh sees them.

    A session that leaves: `surrender`, `describe`, `pack`, then `depart` or `stay`. A session that comes: `receive`,
    `queued`, then `unpack` or `discard`. The parts of a session (`list[bytes]`) are in the frontend's own format."""

    def clients(self) -> Iterable[str]:
        """Return the clients with a session here."""

    def user(self, client: str) -> str | None:
        """Return the user of the client's session; None without a session or a user."""

    def lasting(self, client: str) -> bool:
        """Return whether the client's session outlives its connection, or will when a waiting CONNECT has entered."""

    def number(self, client: str) -> int:
        """Return what identifies the client's lasting session as long as it stays at this broker; 0 without one."""

    def birth(self, client: str) -> int:
        """Return the identity of the client's lasting session, which it keeps when it moves; 0 without one."""

    def renewed(self, client: str) -> None:
        """Have the copies of the client's session learn that its lease has a new stamp."""

    def rows(self) -> Iterable[Iterable[Change]]:
        """Yield the journal's rows of each lasting session. They are read when the session's turn comes: one that has
        ended by then is left out."""

    def surrender(self, client: str, user: str | None, keep: bool) -> Yields:
        """Close the connection of a client that has connected elsewhere as `user`.

        With `keep` the session goes on queueing messages until `depart` or `stay`; else it ends. Return `SESSION` if
        there is a session to hand over, `NOTHING` if not, and `FORBIDDEN`, without any change, if it is another
        user's."""

    def rest(self, client: str) -> list[bytes]:
        """Return the identifiers of QoS 2 messages that the client of a session may not have released, in the form that
        `merge` takes, for the broker that goes on when this session ends; empty if there are none."""

    def filters(self, client: str) -> list[str]:
        """Return the filters of the session's subscriptions."""

    def describe(self, client: str) -> list[bytes]:
        """Return the settings and subscriptions of a surrendered session."""

    def pack(self, client: str, force: bool, trunk: Trunk | None = None) -> list[bytes] | None:
        """Return everything that a surrendered session has to deliver and to acknowledge.

        Return None if something is not settled yet, so that the caller must try again; with `force`, leave that out.
        `trunk` is the session of which this one is a branch. Leave out what a repaired file had of it, and, if it was
        adopted from there, what it had then. If it has only stood in for the trunk, without a client, leave out what
        the mesh brings there: the branch's queue may have had no room for what came before."""

    def depart(self, client: str) -> None:
        """Forget a surrendered session, which another broker has now."""

    def stay(self, client: str) -> None:
        """Go on with a surrendered session that was not handed over."""

    def receive(self, client: str, parts: list[bytes], subscribed: Callable[[], None]) -> list[str]:
        """Begin a session with settings and subscriptions from `describe`; from now on it queues messages.

        `subscribed` runs when no message published later can be missed. Return the filters. Raises `ValueError` for
        malformed parts."""

    def queued(self, client: str) -> list[Batch]:
        """Return the messages that a received session has queued so far, each as a batch of one."""

    def unpack(self, client: str, parts: list[bytes], passed: Callable[[Batch], bool]) -> None:
        """Complete a received session with the contents from `pack`.

        `passed` returns whether the other broker had passed a message queued here on to the session before; such
        messages are dropped. Raises `ValueError` for malformed parts."""

    def discard(self, client: str) -> None:
        """End a received session that was not handed over after all."""

    def inherit(
        self,
        saved: SavedSession,
        messages: dict[int, SavedMessage],
        owner: tuple[str, int],
        subscribed: Callable[[], None],
    ) -> tuple[list[str], Callable[[Arrival], None], Callable[[], None]]:
        """Begin the session of a dead broker (`owner`: name, incarnation) from its copy, as `receive` does.

        Return the session's filters, and two functions. The caller must call the second, which completes the session,
        and then the first with the outcome of the claim; if the session is not to come, only the first."""

    def absorb(self, saved: SavedSession, messages: dict[int, SavedMessage]) -> None:
        """Merge the copy of a dead broker's session into the session here, if that has the same `birth`."""

    def make_up(self, clients: Iterable[str], batches: Iterable[Batch], again: bool, late: bool) -> None:
        """Give these sessions publications that they may have missed; publications they have had are left out. `again`:
        the mesh may bring them, too. `late`: leave out what is older than what the session remembers."""

    def merge(self, client: str, parts: list[bytes]) -> None:
        """Add the packed messages of a branch to the client's session, except those it has had already.

        Raises `ValueError` for malformed parts."""


class Alone:
    """The mesh of a broker that is alone (a `Mesh`)."""

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

    def guard_will(self, client: str, will: Message | None, delay: float) -> None:
        pass

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        raise NotImplementedError("the hub does not ask itself")

    def stamp(self, properties: Properties | None) -> Properties | None:
        return properties

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        done(())
