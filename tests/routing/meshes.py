"""Meshes for the tests of the local half."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saps.mesh import Done, Recalled, TopicRoute
from saps.messages import NOBODY, Message, Properties, Reached
from saps.routing.batch import Batch


class DelayingMesh:
    """A mesh that does nothing until told to: it keeps every callback, and counts as the hub's `Mesh`."""

    def __init__(self, remote: bool = True) -> None:
        self.remote = remote
        self.subscribed: list[str] = []
        self.unsubscribed: list[str] = []
        self.recalled: list[str] = []
        self.published: list[Message] = []
        self.shared: list[tuple[str, Message]] = []
        self.routes: dict[str, TopicRoute] = {}
        self._subscribing: list[Callable[[], None]] = []
        self._publishing: list[tuple[int, Done]] = []

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        self.subscribed.append(topic_filter)
        self._subscribing.append(done)

    def unsubscribe(self, topic_filter: str) -> None:
        self.unsubscribed.append(topic_filter)

    def route(self, topic: str) -> TopicRoute:
        route = self.routes.setdefault(topic, TopicRoute(topic))
        route.remote = self.remote
        route.used = False
        return route

    def publish(self, batch: Batch, done: Done | None) -> None:
        self.published += batch.messages
        if done is not None:
            self._publishing.append((len(batch.topics), done))

    def guard_will(self, client: str, will: Message | None, delay: float) -> None:
        pass

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        self.shared.append((topic_filter, message))

    def stamp(self, properties: Properties | None) -> Properties | None:
        return properties

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        self.recalled.append(topic_filter)
        done(())

    def complete_subscriptions(self) -> None:
        """Every subscription so far has been taken up."""
        waiting, self._subscribing = self._subscribing, []
        for done in waiting:
            done()

    def complete_one(self, number: int, reached: Reached) -> None:
        """Of what has not arrived yet, this batch has."""
        topics, done = self._publishing.pop(number % len(self._publishing))
        done([reached] * topics)

    def complete_publications(self, reached: Reached = NOBODY) -> None:
        """Every publication so far has arrived."""
        waiting, self._publishing = self._publishing, []
        for topics, done in waiting:
            done([reached] * topics)
