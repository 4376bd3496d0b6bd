"""The stream of a topic at its publishing broker: its phase, its members, and the branches to them."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from saps.mesh import Done, TopicRoute
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.delivery.tree import Branch
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef, Key
from saps.routing.batch import Batch

if TYPE_CHECKING:
    from saps.overlay.delivery.outgoing import OutgoingFrame

Publication = tuple[Batch, Done | None]
"""Publications to one topic, and the callback for whom they have reached."""


class Phase(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class Way:
    """The branches along which publications leave; topics with the same branches share one object."""

    __slots__ = ("branches", "frames")

    def __init__(self, branches: list[Branch]) -> None:
        self.branches = branches
        self.frames: dict[int, OutgoingFrame] = {}
        """By QoS and retain flag: the frames of this turn, which further publications may join."""


NOWHERE = Way([])


class Stream(TopicRoute):
    """The stream of a topic at its publishing broker."""

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
        """The other brokers with a matching subscriber, sorted by place; None if they must be computed again."""
        self.groups: dict[str, list[BrokerRef]] = {}
        """The brokers with members of each matching shared subscription."""
        self.behind: tuple[BrokerRef, ...] = ()
        """Brokers with a matching subscriber that get it later (`saps.overlay.missed`)."""
        self.abroad = False
        """Whether some members are in other OpenFlow domains."""
        self.way = NOWHERE
        """The ALM branches to the members that are not in `served`."""
        self.frame = 0
        """Serial of the frame with the last own publication to this topic (`OutgoingFrame.serial`)."""
        self.tree: Served | None = None
        """The OpenFlow tree along which publications leave, if there is one."""
        self.served: tuple[BrokerRef, ...] = ()
        """The members that the tree serves."""
        self.last_seq = 0
        """Sequence number of the last publication, 0 before the first."""
        self.recent: deque[tuple[Publish, tuple[BrokerRef, ...]]] | None = None
        """The last publications, with their members, if some went to other OpenFlow domains, whose trees may lose some;
        they are then repeated from here."""
        self.idle_since = 0.0

    def divide_again(self) -> None:
        """Have the members computed again before the next publication."""
        self.members, self.remote = None, True
