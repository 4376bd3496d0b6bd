"""Meshes for the tests of the local half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from saps.mesh import Recalled, RunDone, TopicRoute, publish_each
from saps.messages import NOBODY, Message, MessageRun, Reached
from saps.overlay.frames import Part
from saps.overlay.runs import encoded, stretch_of
from saps.plain import Encoded


class DelayingMesh:
    """A mesh that does nothing until told to: it keeps every callback, and counts as the hub's `Mesh`."""

    def __init__(self, remote: bool = True) -> None:
        self.remote = remote
        self.part = 3
        """Messages of a run that arrive together."""
        self.subscribed: list[str] = []
        self.unsubscribed: list[str] = []
        self.published: list[Message] = []
        self.shared: list[tuple[str, Message]] = []
        self.routes: dict[str, TopicRoute] = {}
        self._subscribing: list[Callable[[], None]] = []
        self._publishing: list[Callable[[Reached], None]] = []

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

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        self.published.append(message)
        if done is not None:
            self._publishing.append(done)

    def publish_run(self, run: MessageRun, done: RunDone | None) -> None:
        for start in range(0, len(run), self.part):
            part = run.messages[start : start + self.part]
            self.published += part
            if done is not None:
                self._publishing.append(partial(done, start, len(part)))

    def publish_stretch(self, stretch: Encoded) -> None:
        arrived = encoded(stretch_of(stretch, [Part(topic, 1, 0) for topic in stretch.topics]))
        for run in arrived.runs():
            self.publish_run(run, None)

    def publish_several(self, runs: Sequence[MessageRun], done: RunDone | None) -> None:
        publish_each(self.publish_run, runs, done)

    def entrust(self, client: str, will: Message | None, delay: float) -> None:
        pass

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        self.shared.append((topic_filter, message))

    def stamp(self, message: Message) -> Message:
        return message

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        done(())

    def complete_subscriptions(self) -> None:
        """Every subscription so far has been taken up."""
        waiting, self._subscribing = self._subscribing, []
        for done in waiting:
            done()

    def complete_one(self, number: int, reached: Reached) -> None:
        """Of what has not arrived yet, this one has."""
        self._publishing.pop(number % len(self._publishing))(reached)

    def complete_publications(self, reached: Reached = NOBODY) -> None:
        """Every publication so far has arrived."""
        waiting, self._publishing = self._publishing, []
        for done in waiting:
            done(reached)
