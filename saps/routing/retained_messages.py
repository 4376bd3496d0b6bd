"""The retained messages that one broker knows, and which subscriber has got which (MQTT 5.0, 3.3.1.3).

In a mesh the broker knows those of topics subscribed here: a new filter fetches what is retained elsewhere
(`saps.mesh.Mesh.recall`), and later changes arrive as publications. Without a mesh it knows all of them.

When a filter ends, its messages stay for a while, as to find them all would take long. They are not used: a message is
up to date only if a filter that matches its topic has had subscribers since before the message was known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from saps.mesh import Recalled
from saps.messages import BROKER_BITS, Message, stamp_in, stamp_of
from saps.routing.batch import Batch
from saps.routing.retained import RetainedStore
from saps.routing.subscriptions import Subscriber, SubscriptionIndex

TOMBSTONE = 60.0
"""Seconds for which the deletion of a retained message is remembered."""
CHECKED, CHECKED_IF_FULL = 4, 64
"""Number of messages to check for each message of a new topic: whether they are up to date, and have not expired."""
LOST_AFTER = 3.0
"""Most seconds for which a retained message may be on its way here as a publication."""
MAX_GIVEN = 4096
"""Most remembered retained messages that were sent to new subscribers and may also come as publications."""
NEVER, COMING = 0, 1 << 62
"""Moments before and after all others, of messages that never were, or are yet to be, delivered as publications."""


class Retained:
    """The retained message of a topic."""

    __slots__ = ("batch", "known", "moment", "since")

    def __init__(self, batch: Batch, moment: int, known: int, since: float) -> None:
        self.batch = batch
        """The batch of one for new subscribers."""
        self.moment = moment
        """When it was delivered here as a publication."""
        self.known = known
        """When it was last known to be the last one of its topic; `COMING` until the mesh holds it."""
        self.since = since
        """The time since which a message of the topic is on its way here as a publication, if `moment` is `COMING`."""


class RetainedMessages:
    """The last retained message of each topic."""

    def __init__(self, clock: Callable[[], float], index: SubscriptionIndex) -> None:
        """`clock` returns seconds; `index` has the subscriptions here, each added at the `moment` of its time."""
        self._clock = clock
        self._index = index
        self.complete = True
        """Whether the broker knows the messages of all topics, as there is no mesh."""
        self._store: RetainedStore[Retained] = RetainedStore()
        self._checks: deque[Retained] = deque()
        """The messages in the store in the order of their checks, and some that are no longer there."""
        self.moment = 1
        """The current moment. It advances with each retained message that is published, received or recalled."""
        self._since: dict[tuple[Subscriber, str], int] = {}
        """The moment at which each new subscription began, until it gets the retained messages."""
        self._given: dict[tuple[Subscriber, str], int] = {}
        """By agent and topic: the stamp of the message from elsewhere that the agent got; newest last."""
        self.refused = 0
        """Messages that were not stored, as the store was full."""

    def __len__(self) -> int:
        return len(self._store)

    # --- subscriptions ----------------------------------------------------------------------------------------

    def begin(self, agent: Subscriber, topic_filter: str) -> None:
        """Begin a subscription: from now on the agent gets publications."""
        self._since[agent, topic_filter] = self.moment

    def end(self, agent: Subscriber, topic_filter: str) -> None:
        """End a subscription."""
        self._since.pop((agent, topic_filter), None)

    def matching(self, topic_filter: str, agent: Subscriber | None) -> list[Batch]:
        """Return the retained messages for a new subscription. With an `agent` it does so once, leaves out messages
        that the agent got since it subscribed, and returns none if the subscription has ended meanwhile."""
        since = self.moment if agent is None else self._since.pop((agent, topic_filter), None)
        if since is None:
            return []
        now, found, begun = self._clock(), list[Batch](), self._index.since(topic_filter)
        for retained in self._store.matching(topic_filter):
            batch = retained.batch
            if self._is_over(retained, now, begun):
                self._store.remove(batch.topic)
            elif batch.payload and self._moment(retained, now) <= since:
                found.append(batch)
                if agent is not None and retained.moment == NEVER:
                    self._give(agent, batch)
        return found

    def _moment(self, retained: Retained, now: float) -> int:
        """Return when a message was delivered as a publication. One that has not come within `LOST_AFTER` was lost."""
        if retained.moment == COMING and now - retained.since >= LOST_AFTER:
            retained.moment = NEVER
        return retained.moment

    def _give(self, agent: Subscriber, batch: Batch) -> None:
        """Remember that an agent gets a retained message, which may also be on its way to it as a publication."""
        if stamp := _stamp(batch):
            self._given[agent, batch.topic] = stamp
            if len(self._given) > MAX_GIVEN:
                del self._given[next(iter(self._given))]

    def was_given(self, agent: Subscriber, batch: Batch) -> bool:
        """Return whether an agent got this message, or a later one of the same broker, as a retained message. Then it
        was published before the agent's subscription began, and comes because of another, earlier subscription."""
        given, stamp = self._given.get((agent, batch.topic), 0), _stamp(batch)
        return 0 < stamp <= given and (stamp ^ given) & BROKER_BITS == 0

    # --- messages ---------------------------------------------------------------------------------------------

    def published(self, batch: Batch, here: bool = False) -> None:
        """Store a batch of one that is delivered to the subscribers now. `here`: it is published at this broker."""
        self.moment += 1
        self._put(batch, self.moment, COMING if here else self.moment)

    def recalled(self, found: Sequence[Recalled]) -> None:
        """Store messages found elsewhere in the mesh."""
        now = self._clock()
        self.moment += 1
        for message, coming in found:
            batch = Batch.of(message)
            batch.set_deadlines(now)
            self._put(batch, COMING if coming else NEVER, self.moment)
            if (retained := self._store.get(message.topic)) is not None:
                retained.known = max(retained.known, self.moment)

    def kept(self, message: Message) -> None:
        """Note that the mesh holds a message published here; forget it unless its topic is subscribed here."""
        retained = self._store.get(message.topic)
        if retained is None or retained.known < COMING or _stamp(retained.batch) != stamp_of(message):
            return
        self.moment += 1
        retained.known = self.moment
        if not self._index.subscribed(message.topic, self.moment):
            self._store.remove(message.topic)

    def _is_over(self, retained: Retained, now: float, begun: int | None) -> bool:
        """Return whether a message has expired, or the mesh may have reported no change of it. `begun`: the moment
        since which a filter that matches its topic has had subscribers, if one is known."""
        batch = retained.batch
        if batch.expired(now):
            return True
        if self.complete or retained.known == COMING or (begun is not None and begun < retained.known):
            return False
        return not self._index.subscribed(batch.topic, retained.known)

    def _check(self) -> None:
        """Remove those of the next few messages that are over. So each message is checked now and then, and a full
        store gets room."""
        now, checks = self._clock(), self._checks
        most = CHECKED if len(self._store) < self._store.capacity else CHECKED_IF_FULL
        for _ in range(min(most, len(checks))):
            retained = checks.popleft()
            topic = retained.batch.topic
            if self._store.get(topic) is not retained:
                continue
            if self._is_over(retained, now, None):
                self._store.remove(topic)
            else:
                checks.append(retained)

    def _put(self, batch: Batch, moment: int, known_at: int) -> None:
        """Store a message unless a later one is known."""
        topic, stamp = batch.topic, _stamp(batch)
        known = self._store.get(topic)
        if known is not None:
            if _age(known.batch) > _age(batch) and not self._is_over(known, self._clock(), None):
                return
            if NEVER < known.moment < COMING and stamp == _stamp(known.batch) != 0:
                return  # the same one, and it was delivered
        if not batch.payload and not stamp:
            self._store.remove(topic)
            return
        kept = Batch([topic], batch.which, batch.payloads, batch.qos, batch.retain, batch.properties)
        kept.replayed, kept.deadlines = True, batch.deadlines
        if not batch.payload:  # an older one may still be under way
            kept.deadlines = [self._clock() + TOMBSTONE]
        since = known.since if known is not None and known.moment == COMING else self._clock()
        if known is not None:
            known.batch, known.moment, known.known, known.since = kept, moment, known_at, since
            return
        self._check()
        retained = Retained(kept, moment, known_at, since)
        if self._store.put(topic, retained):
            self._checks.append(retained)
        else:
            self.refused += bool(batch.payload)


def _stamp(batch: Batch) -> int:
    return 0 if batch.properties is None else stamp_in(batch.properties[0])


def _age(batch: Batch) -> tuple[int, bytes]:
    """Return the order of retained messages. In a mesh two stamps are hardly ever equal; without a mesh all are."""
    stamp = _stamp(batch)
    return stamp, batch.payload if stamp else b""
