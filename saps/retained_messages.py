"""The retained messages that one broker knows, and who has been given which (MQTT 5.0, section 3.3.1.3).

In a mesh these are the messages of the topics that are subscribed here: what is retained when a filter is subscribed
comes from elsewhere (`saps.mesh.Mesh.recall`), what changes later comes as publications. Without a mesh it is all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from saps.mesh import Recalled
from saps.messages import BROKER_BITS, Message, stamp_of
from saps.publication import Publication
from saps.retained import RetainedStore

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent

TOMBSTONE = 60.0
"""Seconds for which it is remembered that a retained message was deleted."""
PATIENCE = 3.0
"""Seconds for which a retained message may be on its way here as a publication."""
MAX_GIVEN = 4096
"""Retained messages given to new subscribers that are remembered, should they come once more as publications."""
NEVER, COMING = 0, 1 << 62
"""Moments before and after all others: it was not, or it will be, delivered here as it was published."""


class Retained(Publication):
    """The retained message of a topic."""

    __slots__ = ("moment",)

    def __init__(self, message: Message, expires: float | None, moment: int) -> None:
        super().__init__(message, expires, retained=True)
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
        self._since: dict[tuple[SubscriberAgent, str], int] = {}
        """When each new subscription began that has not been given the retained messages yet."""
        self._given: dict[tuple[SubscriberAgent, str], int] = {}
        """Stamps of messages from elsewhere that an agent was given; newest last."""
        self._coming: dict[str, float] = {}
        """Topics whose message is on its way here as a publication, and since when that is known."""

    def __len__(self) -> int:
        return len(self._store)

    # --- subscriptions ----------------------------------------------------------------------------------------

    def begin(self, agent: SubscriberAgent, topic_filter: str) -> None:
        """The agent subscribes; from now on it gets what is published."""
        self._since[agent, topic_filter] = self._now

    def end(self, agent: SubscriberAgent, topic_filter: str) -> None:
        """The agent's subscription has ended."""
        self._since.pop((agent, topic_filter), None)

    def matching(self, topic_filter: str, agent: SubscriberAgent | None) -> list[Publication]:
        """What a new subscription gets. With `agent` only once, without what the agent was sent since it subscribed,
        and nothing if the subscription has ended meanwhile."""
        since = self._now if agent is None else self._since.pop((agent, topic_filter), None)
        if since is None:
            return []
        now, found = self._clock(), list[Publication]()
        for retained in self._store.matching(topic_filter):
            if retained.expires is not None and retained.expires <= now:
                self._store.remove(retained.message.topic)
            elif retained.message.payload and self._moment(retained, now) <= since:
                found.append(retained)
                if agent is not None and retained.moment == NEVER:
                    self._give(agent, retained.message)
        return found

    def _moment(self, retained: Retained, now: float) -> int:
        """When it was delivered as it was published. One that was to come and did not has been lost."""
        topic = retained.message.topic
        if retained.moment == COMING and now - self._coming.get(topic, -PATIENCE) >= PATIENCE:
            retained.moment = NEVER
            self._coming.pop(topic, None)
        return retained.moment

    def _give(self, agent: SubscriberAgent, message: Message) -> None:
        """The agent gets a message as a retained one that may be under way to it as a publication."""
        if stamp := stamp_of(message):
            self._given[agent, message.topic] = stamp
            if len(self._given) > MAX_GIVEN:
                del self._given[next(iter(self._given))]

    def was_given(self, agent: SubscriberAgent, message: Message) -> bool:
        """Has the agent got this one, or a later one of the same broker, as a retained message? Then it was published
        before the agent's subscription counted, and is here for the sake of another, earlier one."""
        given, stamp = self._given.get((agent, message.topic), 0), stamp_of(message)
        return 0 < stamp <= given and (stamp ^ given) & BROKER_BITS == 0

    # --- messages ---------------------------------------------------------------------------------------------

    def published(self, publication: Publication) -> None:
        """It is delivered to the subscribers now."""
        self._now += 1
        self._put(publication.message, publication.expires, self._now)

    def recalled(self, found: Sequence[Recalled], expires: Callable[[Message], float | None]) -> None:
        """These were found elsewhere."""
        for message, coming in found:
            self._put(message, expires(message), COMING if coming else NEVER)
            if coming:
                self._coming.setdefault(message.topic, self._clock())

    def drop(self, topic_filter: str) -> None:
        """Forget what matches, but for what is subscribed: of the rest the mesh does not tell any more."""
        for retained in self._store.matching(topic_filter):
            if not self._subscribed(retained.message.topic):
                self._store.remove(retained.message.topic)

    def _put(self, message: Message, expires: float | None, moment: int) -> None:
        """Remember it, unless a later one is known."""
        topic, stamp = message.topic, stamp_of(message)
        known = self._store.get(topic)
        if known is not None:
            if _age(known.message) > _age(message):
                return
            if NEVER < known.moment < COMING and stamp == stamp_of(known.message) != 0:
                return  # the same one, and it was delivered
        if moment < COMING:
            self._coming.pop(topic, None)
        if message.payload:
            self._store.put(topic, Retained(message, expires, moment))
        elif stamp:  # an older one may still be under way
            self._store.put(topic, Retained(message, self._clock() + TOMBSTONE, moment))
        else:
            self._store.remove(topic)


def _age(message: Message) -> tuple[int, bytes]:
    """By what the last one is found. In a mesh two stamps are the same only by a rare chance; without one all are."""
    stamp = stamp_of(message)
    return stamp, message.payload if stamp else b""
