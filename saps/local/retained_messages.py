"""The retained messages that one broker knows, and who has been given which (MQTT 5.0, section 3.3.1.3).

In a mesh these are the messages of the topics that are subscribed here: what is retained when a filter is subscribed
comes from elsewhere (`saps.mesh.Mesh.recall`), what changes later comes as publications. Without a mesh it is all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saps.local.batch import Batch
from saps.local.retained import RetainedStore
from saps.local.subscriptions import Subscriber
from saps.mesh import Recalled
from saps.messages import BROKER_BITS, stamp_in

TOMBSTONE = 60.0
"""Seconds for which it is remembered that a retained message was deleted."""
PATIENCE = 3.0
"""Seconds for which a retained message may be on its way here as a publication."""
MAX_GIVEN = 4096
"""Retained messages given to new subscribers that are remembered, should they come once more as publications."""
NEVER, COMING = 0, 1 << 62
"""Moments before and after all others: it was not, or it will be, delivered here as it was published."""


class Retained:
    """The retained message of a topic."""

    __slots__ = ("batch", "moment")

    def __init__(self, batch: Batch, moment: int) -> None:
        self.batch = batch
        """As it is sent to new subscribers: a batch of one."""
        self.moment = moment
        """When it was delivered here as it was published."""


class RetainedMessages:
    """The last retained message of each topic."""

    def __init__(self, clock: Callable[[], float], subscribed: Callable[[str], bool]) -> None:
        """`clock` gives seconds; `subscribed` says if a topic is subscribed here."""
        self._clock = clock
        self._subscribed = subscribed
        self._store: RetainedStore[Retained] = RetainedStore()
        self._now = 1
        """The present moment: counts the retained messages published or received."""
        self._since: dict[tuple[Subscriber, str], int] = {}
        """When each new subscription began that has not been given the retained messages yet."""
        self._given: dict[tuple[Subscriber, str], int] = {}
        """Stamps of messages from elsewhere that an agent was given; newest last."""
        self._coming: dict[str, float] = {}
        """Topics whose message is on its way here as a publication, and since when that is known."""

    def __len__(self) -> int:
        return len(self._store)

    # --- subscriptions ----------------------------------------------------------------------------------------

    def begin(self, agent: Subscriber, topic_filter: str) -> None:
        """The agent subscribes; from now on it gets what is published."""
        self._since[agent, topic_filter] = self._now

    def end(self, agent: Subscriber, topic_filter: str) -> None:
        """The agent's subscription has ended."""
        self._since.pop((agent, topic_filter), None)

    def matching(self, topic_filter: str, agent: Subscriber | None) -> list[Batch]:
        """What a new subscription gets. With `agent` only once, without what the agent was sent since it subscribed,
        and nothing if the subscription has ended meanwhile."""
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
        """When it was delivered as it was published. One that was to come and did not has been lost."""
        topic = retained.batch.topic
        if retained.moment == COMING and now - self._coming.get(topic, -PATIENCE) >= PATIENCE:
            retained.moment = NEVER
            self._coming.pop(topic, None)
        return retained.moment

    def _give(self, agent: Subscriber, batch: Batch) -> None:
        """The agent gets a message as a retained one that may be under way to it as a publication."""
        if stamp := _stamp(batch):
            self._given[agent, batch.topic] = stamp
            if len(self._given) > MAX_GIVEN:
                del self._given[next(iter(self._given))]

    def was_given(self, agent: Subscriber, batch: Batch) -> bool:
        """Has the agent got this one, or a later one of the same broker, as a retained message? Then it was published
        before the agent's subscription counted, and is here for the sake of another, earlier one."""
        given, stamp = self._given.get((agent, batch.topic), 0), _stamp(batch)
        return 0 < stamp <= given and (stamp ^ given) & BROKER_BITS == 0

    # --- messages ---------------------------------------------------------------------------------------------

    def published(self, batch: Batch) -> None:
        """A batch of one is delivered to the subscribers now."""
        self._now += 1
        self._put(batch, self._now)

    def recalled(self, found: Sequence[Recalled]) -> None:
        """These were found elsewhere."""
        now = self._clock()
        for message, coming in found:
            batch = Batch.of(message)
            batch.set_deadlines(now)
            self._put(batch, COMING if coming else NEVER)
            if coming:
                self._coming.setdefault(message.topic, now)

    def drop(self, topic_filter: str) -> None:
        """Forget what matches, but for what is subscribed: of the rest the mesh does not tell any more."""
        for retained in self._store.matching(topic_filter):
            if not self._subscribed(retained.batch.topic):
                self._store.remove(retained.batch.topic)

    def _put(self, batch: Batch, moment: int) -> None:
        """Remember it, unless a later one is known."""
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
        self._store.put(topic, Retained(kept, moment))


def _stamp(batch: Batch) -> int:
    return 0 if batch.properties is None else stamp_in(batch.properties[0])


def _age(batch: Batch) -> tuple[int, bytes]:
    """By what the last one is found. In a mesh two stamps are the same only by a rare chance; without one all are."""
    stamp = _stamp(batch)
    return stamp, batch.payload if stamp else b""
