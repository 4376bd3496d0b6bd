"""What carries publications between brokers, at one broker: out, in, to groups, and to those that were cut off."""

from __future__ import annotations

from collections.abc import Callable

from saps.mesh import Local
from saps.messages import Message
from saps.overlay.delivery.broadcast import Broadcaster
from saps.overlay.delivery.forwarding import Outbox
from saps.overlay.delivery.multicast import Keep, Multicast
from saps.overlay.delivery.order import Inbox
from saps.overlay.groups import Sharing
from saps.overlay.missed.catchup import CatchUp
from saps.overlay.port import Bodies, Handlers
from saps.overlay.rendezvous.rendezvous import Rendezvous
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef
from saps.topics import matches


class Delivery:
    """The machines of the data path, put together."""

    def __init__(self, port: Outbox, rendezvous: Rendezvous, inbox: Inbox, local: Local, keep: Keep) -> None:
        """`keep`: as for `Multicast`."""
        publishers, subscriptions = rendezvous.publishers, rendezvous.subscriptions
        self._me = port.me
        self._publishers = publishers
        self._subscriptions = subscriptions
        self.inbox = inbox
        self.multicast = Multicast(port, publishers, inbox, keep, self._share)
        self.broadcaster = Broadcaster(port)
        self.sharing = Sharing(port, rendezvous.calls, local, publishers.permitted)
        share = self.sharing.publish
        self.catch_up = CatchUp(port, rendezvous.calls, self.multicast, publishers, inbox, subscriptions, share)

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
        """Hand a publication to the groups that have members at other brokers only."""
        wants = self._subscriptions.has
        self.sharing.publish({g: brokers for g, brokers in stream.groups.items() if not wants(g)}, message, done)

    def session_started(self, sender: BrokerRef) -> None:
        """A new link session from a broker begins."""
        self.multicast.session_started(sender)
        self.sharing.session_started(sender)

    def link_down(self, peer: BrokerRef) -> None:
        """The link to a broker broke, or could not be made."""
        self.multicast.link_down(peer)
        self.sharing.link_down(peer)

    def forget(self, broker: BrokerRef, over: bool) -> None:
        """A broker is dead or has left. `over`: for certain, it does not come back in this life."""
        self.multicast.forget(broker, over)
        self.sharing.forget(broker)

    def awaited(self) -> dict[str, BrokerRef]:
        """The brokers from which an answer is due: their failure must be noticed."""
        return self.multicast.acknowledgements.awaited() | self.sharing.awaited()

    @property
    def settled(self) -> bool:
        """Nothing that was published here is under way."""
        return self.multicast.settled and self.sharing.settled

    def passed(self, origin: BrokerRef, topic: str) -> int:
        """The number of the last publication of a broker to a topic that has gone to the subscribers here."""
        return self._publishers.seq if origin == self._me else self.inbox.delivered(origin, topic)

    def waiting(self, topic_filters: list[str]) -> bool:
        """Something that matches has come or was published here, and has not gone on yet."""
        topics = {*self.inbox.waiting(), *(t for t, stream in self._publishers.streams.items() if stream.queue)}
        return any(matches(topic_filter, topic) for topic in topics for topic_filter in topic_filters)

    def queued(self) -> Callable[[], bool]:
        """Does something that has been published here until now wait for its topic's subscribers to be known?"""
        queues = [(stream, stream.queue) for stream in self._publishers.streams.values() if stream.queue]
        return lambda: any(stream.queue is queue for stream, queue in queues)
