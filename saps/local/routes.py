"""What one broker knows about each topic: who gets its messages here, and whether anyone wants them elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from saps.local.reserved import is_reserved
from saps.local.subscriptions import Group, SubscriptionIndex, Target
from saps.mesh import Alone, Mesh, TopicRoute
from saps.statistics import Statistics
from saps.topics import is_wildcard

MAX_ROUTES = 65_536
"""Topics whose route is kept at hand (about 0.5 KiB each); beyond it the cache starts anew."""
LONGEST_KEPT = 512
"""Characters of the longest topic whose route is: 65,536 topics of 64 KiB would be 4 GiB that any client can fill."""


class Route:
    """What is known about one topic: who gets its messages here, and whether anyone wants them elsewhere.

    Do not keep a route beyond one publication: it is replaced when subscriptions change.
    """

    __slots__ = ("groups", "mesh", "targets", "topic")

    def __init__(
        self, topic: str, mesh: TopicRoute, targets: tuple[Target, ...], groups: tuple[Group, ...] = ()
    ) -> None:
        self.topic = topic
        self.mesh = mesh
        self.targets = targets
        """Its subscribers here: the same tuple for topics with the same ones."""
        self.groups = groups
        """The shared subscriptions with members here."""


class Routes:
    """The routes of one hub. They are found by its subscriptions, its mesh, and what may be received here."""

    def __init__(self, index: SubscriptionIndex) -> None:
        self._index = index
        self.mesh: Mesh = Alone()
        self.known: dict[str, Route] = {}
        """Routes by topic; only topics that clients may publish to are in it."""
        self.restricted = False
        """There are access rules: whether an agent may get a topic is looked at."""
        self.receives: Callable[[str], bool] | None = None
        """Says if subscribers here may get a topic; None: all of them (`obey`)."""
        self.statistics: Statistics | None = None
        """Counts by topic, if they are wanted."""

    def clear(self) -> None:
        """What the routes are found by has changed."""
        self.known.clear()

    def obey(self, receives: Callable[[str], bool] | None) -> None:
        """From now on subscribers here get messages only of topics that may be received, whichever way they come."""
        self.receives = receives
        self.known.clear()

    def may_get(self, topic: str) -> bool:
        return self.receives is None or self.receives(topic)

    def count_members(self, topic_filter: str, before: bool = False) -> None:
        """The subscribers of a filter are about to change (`before`), or have; with wildcards the routes tell."""
        if self.statistics is not None and not is_wildcard(topic_filter):
            count = self.statistics.of(topic_filter)
            if not before or count.subscribers < 0:
                count.members(len(self._index.targets(topic_filter)))

    def forget(self, topic_filter: str) -> None:
        if is_wildcard(topic_filter):
            self.known.clear()
        else:
            self.known.pop(topic_filter, None)

    def find(self, topic: str) -> Route:
        """The route of a valid topic name; from the cache, or built now."""
        route = self.known.get(topic)
        if route is None:
            allowed = self.may_get(topic)
            targets = self.readers(topic) if allowed else ()
            if self.statistics is not None:
                self.statistics.of(topic).members(len(targets))
            route = Route(topic, self.mesh.route(topic), targets, self._index.groups(topic) if allowed else ())
            if len(self.known) >= MAX_ROUTES:
                self.known.clear()
            if len(topic) <= LONGEST_KEPT and not is_reserved(topic):
                self.known[topic] = route
        return route

    def readers(self, topic: str) -> tuple[Target, ...]:
        """The subscribers of a topic that may read it."""
        targets = self._index.targets(topic)
        if self.restricted and not all([target.agent.may_read(topic) for target in targets]):
            return tuple([target for target in targets if target.agent.may_read(topic)])
        return targets
