"""The queue of a program's subscription: a user agent on the hub, like those of MQTT clients, with a bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from saps.agents.user import SubscriberAgent
from saps.messages import Message, Properties, Subscription
from saps.routing.batch import Batch
from saps.routing.subscriptions import Takes, Target
from saps.topics import shared

if TYPE_CHECKING:
    from saps.routing.hub import Hub


class Inbox(SubscriberAgent):
    """Receives a subscription's messages from the hub and keeps them until the program takes them."""

    __slots__ = ("_backlog", "_begun", "_ended", "_news", "_on_overrun", "_qos", "_queue", "overrun", "room")

    def __init__(self, hub: Hub, name: str, room: int, on_overrun: Callable[[], None]) -> None:
        super().__init__(hub, name)
        self._queue: deque[tuple[Batch, int, bool]] = deque()
        """Each message with its QoS here, and whether to keep its retain flag."""
        self._backlog: Iterator[Batch] = iter(())
        """The retained messages of the start that were not taken yet, still in the retained store."""
        self._news = asyncio.Event()
        self._on_overrun = on_overrun
        self._begun = self._ended = False
        self._qos = 0
        self.room = room
        self.overrun = False
        """Whether a message of QoS 1 or 2 came when there was no room."""

    async def begin(self, subscription: Subscription) -> None:
        """Subscribe. Returns when no later message can be missed, or at once if ended meanwhile."""
        self._qos = subscription.qos

        def done() -> None:
            if not self._ended and subscription.retain_handling == 0 and shared(subscription.filter) is None:
                self._backlog = iter(self.hub.retained_for(subscription.filter, self))
            self._begun = True
            self._news.set()

        self.subscribe(subscription, done)
        while not (self._begun or self._ended):
            self._news.clear()
            await self._news.wait()

    def takes(self, topic: str) -> Takes:
        if self._ended or self.overrun:
            return Takes.NEVER
        return Takes.NOW if len(self._queue) < self.room else Takes.LATER

    def deliver(self, batch: Batch, target: Target) -> None:
        qos = min(batch.qos, target.qos)
        for single in batch.singles:
            if self.overrun or self._ended:
                self._give_back(single)
            elif len(self._queue) < self.room:
                self._queue.append((single, qos, target.retain_as_published))
                self._news.set()
            elif qos:
                self.overrun = True
                self._give_back(single)
                self._on_overrun()
            else:
                self._lose(single)

    async def take(self) -> Message | None:
        """Wait for the next message and return it; None at the end."""
        while True:
            found = self._next()
            if found is not None:
                self.delivered += 1
                single, qos, as_published = found
                if single.share is not None:
                    single.share.settled()
                return handed(single, qos, as_published, self.hub.clock())
            if self._ended or self.overrun:
                return None
            self._news.clear()
            await self._news.wait()

    def end(self) -> None:
        """Unsubscribe. Waiting messages of a group go to another member. Other waiting messages can still be taken if
        the subscription ends for lack of room."""
        self._ended = True
        self.close()
        waiting, self._queue = self._queue, deque()
        for entry in waiting:
            if entry[0].share is not None:
                self._give_back(entry[0])
            elif self.overrun:
                self._queue.append(entry)
        self._backlog = iter(())
        self._news.set()

    def _next(self) -> tuple[Batch, int, bool] | None:
        now = self.hub.clock()
        while self._queue:
            found = self._queue.popleft()
            if not found[0].expired(now):
                return found
            self._lose(found[0])
        for single in self._backlog:
            if single in self.hub.retained_for(single.topic):  # else it was overtaken
                return single, min(single.qos, self._qos), False
        return None

    def _lose(self, single: Batch) -> None:
        self.dropped += 1
        if single.share is not None:
            single.share.settled()

    def _give_back(self, single: Batch) -> None:
        if single.share is not None:
            asyncio.get_running_loop().call_soon(self.hub.groups.redeliver, single)


def handed(single: Batch, qos: int, as_published: bool, now: float) -> Message:
    """Convert a publication to what its subscriber sees: without properties used between brokers only, and with its
    remaining lifetime."""
    message, deadline = single.message, single.deadline
    properties = message.properties
    if properties is not None:
        left = None if deadline is None else max(0, ceil(deadline - now))
        properties = msgspec.structs.replace(properties, stamp=None, message_expiry=left)
        properties = None if properties == Properties() else properties
    retain = single.replayed or (message.retain and as_published)
    return Message(message.topic, message.payload, qos, retain, properties)
