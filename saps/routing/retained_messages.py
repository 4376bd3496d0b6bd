"""The retained messages that one broker knows, and which subscriber has got which (MQTT 5.0, 3.3.1.3).

In a mesh the broker knows those of topics subscribed here: a new filter fetches what is retained elsewhere
(`saps.mesh.Mesh.recall`), and later changes arrive as publications. Without a mesh it knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from saps.mesh import Recalled
from saps.messages import BROKER_BITS, stamp_in
from saps.routing.batch import Batch
from saps.routing.retained import RetainedStore
from saps.routing.subscriptions import Subscriber

TOMBSTONE = 60.0
"""Seconds for which the deletion of a retained message is remembered."""
SWEEP = 60.0
"""Least seconds between two searches of a full store for what has expired."""
LOST_AFTER = 3.0
"""Most seconds for which a retained message may be on its way here as a publication."""
MAX_GIVEN = 4096
"""Most remembered retained messages that were sent to new subscribers and may also come as publications."""
NEVER, COMING = 0, 1 << 62
"""Moments before and after all others, of messages that never were, or are yet to be, delivered as publications."""


class Retained:
    """The retained message of a topic."""

    __slots__ = ("batch", "moment")

    def __init__(self, batch: Batch, moment: int) -> None:
        self.batch = batch
        """The batch of one for new subscribers."""
        self.moment = moment
        """When it was delivered here as a publication."""


class RetainedMessages:
    """The last retained message of each topic."""

    def __init__(self, clock: Callable[[], float], subscribed: Callable[[str], bool]) -> None:
        """`clock` returns seconds; `subscribed` returns whether a topic is subscribed here."""
        self._clock = clock
        self._subscribed = subscribed
        self._store: RetainedStore[Retained] = RetainedStore()
        self._now = 1
        """The current moment: the number of retained messages published or received so far."""
        self._since: dict[tuple[Subscriber, str], int] = {}
        """The moment at which each new subscription began, until it gets the retained messages."""
        self._given: dict[tuple[Subscriber, str], int] = {}
        """By agent and topic: the stamp of the message from elsewhere that the agent got; newest last."""
        self._coming: dict[str, float] = {}
        """Topics whose message is on its way here as a publication, with the time when that became known."""
        self._sweep_after = -inf

    def __len__(self) -> int:
        return len(self._store)

    # --- subscriptions ----------------------------------------------------------------------------------------

    def begin(self, agent: Subscriber, topic_filter: str) -> None:
        """Begin a subscription: from now on the agent gets publications."""
        self._since[agent, topic_filter] = self._now

    def end(self, agent: Subscriber, topic_filter: str) -> None:
        """End a subscription."""
        self._since.pop((agent, topic_filter), None)

    def matching(self, topic_filter: str, agent: Subscriber | None) -> list[Batch]:
        """Return the retained messages for a new subscription. With an `agent` it does so once, leaves out messages
        that the agent got since it subscribed, and returns none if the subscription has ended meanwhile."""
        since = self._now if agent is None else self._since.pop((agent, topic_filter), None)
        if since is None:
            return []
        now, found = self._clock(), list[Batch]()
        for retained in self._store.matching(topic_filter):
            batch = retained.batch
            if batch.deadline is not None and batch.deadline <= now:
                self._store.remove(batch.topic)
            elif batch.payload and self._moment(retained, now) <= since:
                found.append(batch)
                if agent is not None and retained.moment == NEVER:
                    self._give(agent, batch)
        return found

    def _moment(self, retained: Retained, now: float) -> int:
        """Return when a message was delivered as a publication. One that has not come within `LOST_AFTER` was lost."""
        topic = retained.batch.topic
        if retained.moment == COMING and now - self._coming.get(topic, -LOST_AFTER) >= LOST_AFTER:
            retained.moment = NEVER
            self._coming.pop(topic, None)
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

    def published(self, batch: Batch) -> None:
        """Store a batch of one that is delivered to the subscribers now."""
        self._now += 1
        self._put(batch, self._now)

    def recalled(self, found: Sequence[Recalled]) -> None:
        """Store messages found elsewhere in the mesh."""
        now = self._clock()
        for message, coming in found:
            batch = Batch.of(message)
            batch.set_deadlines(now)
            self._put(batch, COMING if coming else NEVER)
            if coming:
                self._coming.setdefault(message.topic, now)

    def drop(self, topic_filter: str) -> None:
        """Forget messages that match and whose topics are not subscribed here: the mesh reports no changes of those."""
        for retained in self._store.matching(topic_filter):
            if not self._subscribed(retained.batch.topic):
                self._store.remove(retained.batch.topic)

    def _put(self, batch: Batch, moment: int) -> None:
        """Store a message unless a later one is known."""
        topic, stamp = batch.topic, _stamp(batch)
        known = self._store.get(topic)
        if known is not None:
            if _age(known.batch) > _age(batch):
                return
            if NEVER < known.moment < COMING and stamp == _stamp(known.batch) != 0:
                return  # the same one, and it was delivered
        if moment < COMING:
            self._coming.pop(topic, None)
        if not batch.payload and not stamp:
            self._store.remove(topic)
            return
        kept = Batch([topic], batch.which, batch.payloads, batch.qos, batch.retain, batch.properties)
        kept.replayed, kept.deadlines = True, batch.deadlines
        if not batch.payload:  # an older one may still be under way
            kept.deadlines = [self._clock() + TOMBSTONE]
        if not self._store.put(topic, Retained(kept, moment)) and self._swept():
            self._store.put(topic, Retained(kept, moment))

    def _swept(self) -> bool:
        """Remove what has expired, as the store is full; not again for `SWEEP` seconds. Return whether it has."""
        now = self._clock()
        if now < self._sweep_after:
            return False
        self._sweep_after = now + SWEEP
        for retained in self._store.values():
            if retained.batch.deadline is not None and retained.batch.deadline <= now:
                self._store.remove(retained.batch.topic)
        return True


def _stamp(batch: Batch) -> int:
    return 0 if batch.properties is None else stamp_in(batch.properties[0])


def _age(batch: Batch) -> tuple[int, bytes]:
    """Return the order of retained messages. In a mesh two stamps are hardly ever equal; without a mesh all are."""
    stamp = _stamp(batch)
    return stamp, batch.payload if stamp else b""
