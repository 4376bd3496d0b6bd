"""The rendezvous at one broker: its filters, streams and OpenFlow trees, and the range calls that connect them with
those of other brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saps.mesh import Done
from saps.overlay.delivery.ofm_members import Trees
from saps.overlay.frames.calls import AnnounceTree, Collect, DesignPart, Result, Survey
from saps.overlay.port import Bodies, Port
from saps.overlay.rendezvous.designed import Designs
from saps.overlay.rendezvous.designer import Designer, DesignSettings
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.rendezvous.ways import Ways
from saps.overlay.ring.keys import BrokerRef, Key
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.slices import Backlog
from saps.routing.batch import Batch


class Rendezvous:
    """Both sides of the rendezvous at one broker."""

    def __init__(
        self,
        port: Port,
        graph: SkipGraph,
        calls: RangeCalls,
        publish: Callable[[Batch, Done | None], None],
        design: DesignSettings | None,
    ) -> None:
        """`publish` is called with the publications that have waited for a stream to open. `design` has the settings of
        the designed overlay, if ALM uses one."""
        self._port = port
        self.calls = calls
        self.subscriptions = Subscriptions(port, graph, calls)
        self.trees = Trees(port, graph, calls, self._publishes)
        self.designs: Designs | None = None
        self.designer: Designer | None = None
        if design is not None:
            self.designs = Designs(port, self._divide_again)
            self.designer = Designer(port, graph, calls, self.designs, design)
        self.ways = Ways(port, self.designs)
        self.publishers = PublisherRegistry(port, graph, calls, publish, self.trees, self.ways)
        self._stale = Backlog(port, self.publishers.collect_again)
        self._idle = Backlog(port, self.publishers.end_idle)

    def _publishes(self, topic: str) -> bool:
        return self.publishers.publishes(topic)

    def _divide_again(self, topics: Iterable[str]) -> None:
        self.publishers.divide_again(topics)

    @property
    def bodies(self) -> Bodies:
        return {
            Collect: self._collected,
            AnnounceTree: self._tree_announced,
            Survey: self._surveyed,
            DesignPart: self._designed,
        }

    def _collected(self, body: Collect, keys: list[Key]) -> list[Result]:
        return [*self.subscriptions.interests(keys, body), *self.trees.members(keys)]

    def _tree_announced(self, body: AnnounceTree, keys: list[Key]) -> list[Result]:
        self.trees.note(body)
        return []

    def _surveyed(self, body: Survey, keys: list[Key]) -> list[Result]:
        if self.designs is None:
            return []
        topics = filter(self.publishers.publishes, self.publishers.streams)
        return [self.designs.surveyed(self.subscriptions.registrations, topics)]

    def _designed(self, body: DesignPart, keys: list[Key]) -> list[Result]:
        if self.designs is not None:
            self.designs.accept(body)
        return []

    def forget(self, broker: BrokerRef, *, exactly: bool = False) -> None:
        """Forget a broker that is dead or has left; with `exactly` only this incarnation."""
        self.calls.forget(broker)
        self.publishers.forget(broker, exactly=exactly)
        self.trees.forget(broker, exactly=exactly)

    def key_again(self, key: Key) -> None:
        """Announce and collect again for a key that was out of the ring for a while, or whose ring was cut."""
        self.subscriptions.announce_key_again(key)
        self._stale.add(self.publishers.sources(key))
        self.trees.announce_again(key)

    def rejoined(self) -> None:
        """Announce and collect everything again after a cut."""
        self.subscriptions.announce_again()
        self.trees.announce_again()
        self._stale.add(self.publishers.sources())

    def close_idle(self) -> None:
        """Close the streams that have had no publication for a while."""
        self._idle.add(self.publishers.idle())

    def withdraw(self, owed: bool, done: Callable[[], None]) -> None:
        """Withdraw publisher keys, trees and, unless publications are `owed` for them, filters. `done` runs when all
        concerned brokers know."""
        filters = [] if owed else list(self.subscriptions.registrations)
        streams = list(self.publishers.streams.values())
        topics = self.trees.topics
        missing = 1 + len(filters) + len(streams) + len(topics)

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        # The last key first: its left neighbour is still there, so that it waits for no other broker.
        closing = Backlog[Stream](self._port, lambda stream: self.publishers.close(stream, one_done))
        closing.add(sorted(streams, key=lambda stream: stream.key))
        for topic in topics:
            self.trees.leave(topic, one_done)
        for topic_filter in filters:
            self.subscriptions.unsubscribe(topic_filter, one_done)
        one_done()
