"""The routing cache of a broker: for each topic its local subscribers, and whether brokers elsewhere want it."""

from __future__ import annotations

from collections.abc import Callable

from saps.mesh import Alone, Mesh, TopicRoute
from saps.routing.reserved import is_reserved
from saps.routing.subscriptions import Group, SubscriptionIndex, Target
from saps.statistics import Statistics
from saps.topics import is_wildcard

MAX_ROUTES = 65_536
"""Most cached routes, of about 0.5 KiB each; beyond that the cache starts anew."""
LONGEST_KEPT = 512
"""Most characters of a topic with a cached route: else any client could fill 4 GiB with 65,536 topics of 64 KiB."""


class Route:
    """The local subscribers of a topic, and its route in the mesh.

    Use a route for one publication only: it is replaced when subscriptions change.
    """

    __slots__ = ("groups", "mesh", "targets", "topic")

    def __init__(
        self, topic: str, mesh: TopicRoute, targets: tuple[Target, ...], groups: tuple[Group, ...] = ()
    ) -> None:
        self.topic = topic
        self.mesh = mesh
        self.targets = targets
        """The local subscribers; topics with the same subscribers share one tuple."""
        self.groups = groups
        """The matching shared subscriptions with members here."""


class Routes:
    """The routes of one hub, derived from its subscriptions, its mesh, and its policy."""

    def __init__(self, index: SubscriptionIndex) -> None:
        self._index = index
        self.mesh: Mesh = Alone()
        self.known: dict[str, Route] = {}
        """Cached routes by topic, only of topics that clients may publish to."""
        self.restricted = False
        """Whether access rules exist, so that the rights of each agent must be checked."""
        self.receives: Callable[[str], bool] | None = None
        """Returns whether subscribers here may receive a topic; None: all topics (`obey`)."""
        self.statistics: Statistics | None = None
        """Counts by topic, if enabled."""

    def clear(self) -> None:
        """Forget all routes, as something that they derive from has changed."""
        self.known.clear()

    def obey(self, receives: Callable[[str], bool] | None) -> None:
        """Restrict the topics that subscribers here receive, whichever way messages come; None: no restriction."""
        self.receives = receives
        self.known.clear()

    def may_get(self, topic: str) -> bool:
        return self.receives is None or self.receives(topic)

    def count_members(self, topic_filter: str, before: bool = False) -> None:
        """Count the subscribers of a filter without wildcards, before a change (`before`) or after it."""
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
        """Return the route of a valid topic name, from the cache or newly built."""
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
        """Return the subscribers of a topic that have the right to read it."""
        targets = self._index.targets(topic)
        if self.restricted and not all([target.agent.may_read(topic) for target in targets]):
            return tuple([target for target in targets if target.agent.may_read(topic)])
        return targets
