"""A sender's state of one topic's tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from saps.ofm.datapath.flights import Flights
from saps.ofm.datapath.loads import Waiting
from saps.ofm.datapath.marks import Marks
from saps.ofm.datapath.reach import Reach
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.datapath.trial import Trial
from saps.ofm.datapath.unanswered import Unanswered
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.ofm.stateless.directory import Directory
from saps.ofm.stateless.sending import Sending
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.frames.delivery import Publish
from saps.overlay.port import Port
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef

KEPT = 20.0
"""Seconds for which members may ask for what was sent: more than they take to notice a gap and to give it up."""


class History:
    """The publications that were sent along one tree lately, with their members, which may miss them."""

    def __init__(self, most: int) -> None:
        """`most`: datagrams that are kept."""
        self._sent: deque[tuple[float, Publish, tuple[BrokerRef, ...]]] = deque(maxlen=most)

    def add(self, now: float, body: Publish, members: tuple[BrokerRef, ...]) -> None:
        """Note publications that leave now, after all others."""
        while self._sent and self._sent[0][0] < now - KEPT:
            self._sent.popleft()
        self._sent.append((now, body, members))

    def follow(self, former: History) -> None:
        """Keep also what was sent along the tree before this one."""
        self._sent.extendleft(reversed(former._sent))

    def lacking(self, member: BrokerRef, after: int, upto: int) -> list[Publish]:
        """Return what was sent to a member with numbers above `after` and up to `upto`, or more, the oldest first."""
        found: list[Publish] = []
        for _, body, members in reversed(self._sent):
            if body.seqs[-1] <= after:
                break
            if body.seqs[0] <= upto and member in members:
                found.append(body)
        return found[::-1]


class Path:
    """The tree of one topic, as this broker's publications use it."""

    def __init__(
        self,
        port: Port,
        stream: Stream,
        served: Served,
        settings: DatapathSettings,
        changed: Callable[[Path], None],
        directory: Directory | None = None,
    ) -> None:
        """`changed` is called when the tree serves other members. With a `directory` the path stands for stateless
        delivery instead of a tree of the topic's own."""
        self.stream = stream
        self.served = served
        self.waiting = Waiting()
        self.overheads: dict[BrokerRef | None, int] = {}
        """Origin (None: this broker) -> most bytes of a datagram without publications."""
        self.flights = Flights(settings.loopback)
        self.history = History(settings.history)
        self.sending = None if directory is None else Sending(stream.topic, directory)
        """Addresses and plane of stateless delivery. None along a tree."""
        self.group = stream.topic if directory is None else EVERY_TOPIC
        """The topic whose key seals the datagrams."""
        self.unanswered = Unanswered(settings.repeat if directory is None else settings.loopback)
        self.marks = Marks(port, stream.topic, settings, self.unanswered.members)
        self.reach = Reach(port, settings, lambda: changed(self))
        self.trial = Trial(settings.retry, settings.retry_at_most)
        self.wake_at = float("inf")

    @property
    def in_use(self) -> bool:
        """Whether publications leave by the tree; otherwise they leave by ALM."""
        return self.trial.left_at is None

    def addresses(self, members: tuple[BrokerRef, ...] | list[BrokerRef]) -> list[str]:
        """Return the OFM addresses that reach these members."""
        return [self.served.tree.address] if self.sending is None else self.sending.addresses(members)

    @property
    def usable(self) -> Served:
        """The tree with the brokers that it is known to reach."""
        return self.reach.usable(self.served)

    @property
    def members(self) -> list[BrokerRef]:
        """The topic's members that the tree is to serve."""
        brokers = self.usable.brokers
        return [member for member in self.stream.members or () if (member.name, member.incarnation) in brokers]
