"""A topic as its publishing broker sees it: how far it is, who gets what is published to it, and by which way."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from saps.local.batch import Batch
from saps.mesh import Done, TopicRoute
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.delivery.tree import Branch
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef, Key

if TYPE_CHECKING:
    from saps.overlay.delivery.outgoing import OutgoingFrame

Publication = tuple[Batch, Done | None]
"""Publications to one topic, and who is to be told whom they have reached."""


class Phase(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class Way:
    """The branches by which publications leave; topics with the same ones share it."""

    __slots__ = ("branches", "frames")

    def __init__(self, branches: list[Branch]) -> None:
        self.branches = branches
        self.frames: dict[int, OutgoingFrame] = {}
        """By QoS and retain flag: what leaves with this turn, and others may join."""


NOWHERE = Way([])


class Stream(TopicRoute):
    """A topic as its publishing broker sees it."""

    __slots__ = (
        "abroad", "behind", "frame", "groups", "idle_since", "key", "last_seq", "members", "phase", "queue", "recent",
        "served", "tree", "way",
    )  # fmt: skip

    def __init__(self, topic: str, key: Key) -> None:
        super().__init__(topic)
        self.key = key
        self.phase = Phase.CLOSED
        self.queue: list[Publication] = []
        """Publications that wait for the stream to open."""
        self.members: tuple[BrokerRef, ...] | None = None
        """The other brokers with a matching subscriber, by place; None if it must be computed again."""
        self.groups: dict[str, list[BrokerRef]] = {}
        """The shared subscriptions with members at other brokers, and these brokers."""
        self.behind: tuple[BrokerRef, ...] = ()
        """Brokers with a matching subscriber that get it later (`saps.overlay.missed`)."""
        self.abroad = False
        """Some members are in other OpenFlow domains."""
        self.way = NOWHERE
        """By ALM, to the members that are not in `served`."""
        self.frame = 0
        """The frame of own publications that had the last one to this topic (`OutgoingFrame.serial`)."""
        self.tree: Served | None = None
        """The OpenFlow tree that publications leave by."""
        self.served: tuple[BrokerRef, ...] = ()
        """The members that it serves."""
        self.last_seq = 0
        """Sequence number of the last publication, 0 before the first."""
        self.recent: deque[Publish] | None = None
        """The last publications, if some went to other OpenFlow domains: trees that are not this broker's carry them,
        and lose some."""
        self.idle_since = 0.0

    def divide_again(self) -> None:
        """Who gets what is published from now on must be found out anew."""
        self.members, self.remote = None, True
