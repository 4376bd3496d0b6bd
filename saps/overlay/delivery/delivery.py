"""The data path of one broker: outgoing and incoming publications, shared subscriptions, and catch-up after a cut."""

from __future__ import annotations

from collections.abc import Callable

from saps.mesh import Done, Local
from saps.messages import Message
from saps.overlay.delivery.broadcast import Broadcaster
from saps.overlay.delivery.forwarding import Outbox
from saps.overlay.delivery.multicast import Keep, Multicast
from saps.overlay.delivery.order import Inbox
from saps.overlay.delivery.publications import batch_of, first_seq
from saps.overlay.groups import Sharing
from saps.overlay.missed.catchup import CatchUp
from saps.overlay.port import Bodies, Handlers
from saps.overlay.rendezvous.rendezvous import Rendezvous
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch
from saps.topics import matches


class Delivery:
    """The state machines of the data path, wired together."""

    def __init__(self, port: Outbox, rendezvous: Rendezvous, inbox: Inbox, local: Local, keep: Keep) -> None:
        """`keep` stores retained publications (see `Multicast`); `local` delivers to the clients of shared
        subscriptions here."""
        publishers, subscriptions = rendezvous.publishers, rendezvous.subscriptions
        self._port = port
        self._me = port.me
        self.on_numbered: list[Callable[[Batch], None]] = []
        """Listeners, called with publications that have waited for their subscribers to be known, and been sent."""
        self._publishers = publishers
        self._subscriptions = subscriptions
        self.inbox = inbox
        self.multicast = Multicast(port, publishers, inbox, keep, self._share)
        self.broadcaster = Broadcaster(port)
        self.sharing = Sharing(port, rendezvous.calls, local, publishers.permitted)
        share = self.sharing.publish
        self.catch_up = CatchUp(
            port, rendezvous.calls, self.multicast, publishers, inbox, subscriptions, share, lambda: local.lagging
        )

    @property
    def handlers(self) -> Handlers:
        return {
            **self.multicast.handlers,
            **self.sharing.handlers,
            **self.broadcaster.handlers,
            **self.catch_up.handlers,
        }

    @property
    def bodies(self) -> Bodies:
        return {**self.multicast.acknowledgements.bodies, **self.catch_up.bodies}

    def _share(self, stream: Stream, message: Message, done: Callable[[int], None] | None) -> None:
        """Hand a publication to the groups whose members are all at other brokers."""
        wants = self._subscriptions.has
        self.sharing.publish({g: brokers for g, brokers in stream.groups.items() if not wants(g)}, message, done)

    def publish_waiting(self, batch: Batch, done: Done | None) -> None:
        """Publish what has waited for its subscribers to be known."""
        self.multicast.publish(batch, done)
        for numbered in self.on_numbered:
            numbered(batch)

    def session_started(self, sender: BrokerRef) -> None:
        """Handle the start of a new link session from a broker."""
        self.multicast.session_started(sender)
        self.sharing.session_started(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """Handle a link to a broker that broke or could not be opened."""
        self.multicast.link_down(peer)
        self.sharing.link_down(peer)

    def forget(self, broker: BrokerRef, over: bool) -> None:
        """Forget a broker that has died or left. `over` says that this incarnation certainly does not come back."""
        self.multicast.forget(broker, over)
        self.sharing.forget(broker)

    def awaited(self) -> dict[str, BrokerRef]:
        """Return the brokers that owe an answer, by name. The caller must detect their failure."""
        return self.multicast.acknowledgements.awaited() | self.sharing.awaited()

    @property
    def settled(self) -> bool:
        """Whether no publication of this broker is under way."""
        return self.multicast.settled and self.sharing.settled

    @property
    def adopting(self) -> dict[int, BrokerRef]:
        return self.inbox.adopting

    def passed(self, origin: BrokerRef, topic: str) -> int:
        """Return the sequence number of the last publication from `origin` to a topic that the local subscribers got,
        or
        0. For this broker itself, return its last sequence number over all topics."""
        return self._publishers.seq if origin == self._me else self.inbox.delivered(origin, topic)

    def brings(self, topic_filters: list[str]) -> list[tuple[str, int, int]]:
        """Implement `saps.overlay.sessions.publications.Publications`: a broker brings them if it has said so, was
        known before the cut, or has heard of the filters since; and what this broker publishes, they have."""
        known, heirs = self._port.first_heard, self.catch_up.heirs
        found = [(self._me.name, self._me.incarnation, 0)]
        ever_lost = heirs.ever_lost
        for origin in self.inbox.origins | ever_lost:  # after a long cut nothing else is known of it
            start = self.inbox.starts.get(origin)
            first, _ = known.get(origin.name, (0, 0.0))  # what it publishes may come by others only
            if start is None and (origin in ever_lost or (first == origin.incarnation and heirs.was_there(origin))):
                start = 0
            baseline = self._subscriptions.owed_above(
                topic_filters, (origin.name, origin.incarnation), surely=start is None
            )
            if baseline is not None and not self._port.lost(origin):
                found.append((origin.name, origin.incarnation, max(baseline, start or 0)))
        return found

    def missed_by(self, broker: BrokerRef, topic_filters: list[str]) -> list[Batch]:
        found, log = self.catch_up.heirs.missed_by(broker, topic_filters), self.catch_up.log
        return [batch_of(body, log.incarnation_of(first_seq(body)) or self._me) for body in found]

    @property
    def cut(self) -> bool:
        return self.catch_up.log.active

    def waiting(self, topic_filters: list[str]) -> bool:
        """Return whether a matching publication is held back here: received out of order, or queued for its stream."""
        topics = {*self.inbox.waiting(), *(t for t, stream in self._publishers.streams.items() if stream.queue)}
        return any(matches(topic_filter, topic) for topic in topics for topic_filter in topic_filters)

    def queued(self) -> Callable[[], bool]:
        """Return a function that tells whether a publication queued by now still waits for its topic's subscribers to
        be known."""
        queues = [(stream, stream.queue) for stream in self._publishers.streams.values() if stream.queue]
        return lambda: any(stream.queue is queue for stream, queue in queues)
