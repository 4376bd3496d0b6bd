"""The nodes of one broker, and how a routed frame finds the way among them and onward."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from enum import Enum

from msgspec.structs import replace

from saps.overlay.frames import Frame, Gone, Routed
from saps.overlay.keys import BrokerRef, Key, Ref, between
from saps.overlay.port import Port

MAX_HOPS = 256
"""A routed frame is dropped after so many hops; whoever sent it repeats it."""

Done = Callable[[], None]


class State(Enum):
    JOINING = "joining"
    LINKED = "linked"
    LEAVING = "leaving"


class Node:
    """One key of this broker and its neighbours: `right[i]`, `left[i]` in the list of level i."""

    __slots__ = (
        "asked",
        "attempts",
        "awaited",
        "doubt_until",
        "gone",
        "granted",
        "key",
        "left",
        "ref",
        "right",
        "since",
        "sought",
        "state",
        "waiters",
        "waiting",
    )

    def __init__(self, ref: Ref, now: float) -> None:
        self.ref = ref
        self.key = ref.key
        self.state = State.JOINING
        self.right: list[Ref | None] = [None]
        self.left: list[Ref | None] = [None]
        self.granted: tuple[Key, Ref | None] | None = None
        """The last node linked to the right of this one, and what it was told its right neighbour is."""
        self.waiting: list[tuple[BrokerRef, Frame]] = []
        """Frames that came too early (joining), or that would change the right link (leaving)."""
        self.waiters: list[Done] = []
        self.since = now
        self.doubt_until = 0.0
        """Until then a live node may stand between this one and the one to its right: their common neighbour crashed,
        and it has not noticed yet. What a range call brings from there is not complete."""
        self.gone: tuple[Ref, float] | None = None
        """The right neighbour of which its broker said that it is not there, and since when."""
        self.attempts = 0
        """Insertions sent so far."""
        self.asked = False
        """Linked, but inserted once more and not yet answered."""
        self.sought = 0
        """The highest level whose neighbours were looked for, and how many answers are awaited."""
        self.awaited = 0

    def links(self, rightward: bool) -> list[Ref | None]:
        return self.right if rightward else self.left

    def hint(self, level: int, rightward: bool) -> Ref | None:
        """The neighbour at the highest level up to `level` where there is one; None at the end of the list."""
        links = self.links(rightward)
        for i in range(min(level, len(links) - 1), -1, -1):
            ref = links[i]
            if ref is not None:
                return ref if (ref.key > self.key) == rightward and ref.key != self.key else None
        return None


class Routing:
    """The nodes of one broker, by key and in order, and the way from them to any key."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.nodes: dict[Key, Node] = {}
        self.order: list[Key] = []
        """Keys of the nodes that are in the overlay, sorted."""
        self.contact: BrokerRef | None = None
        """Where to start while no own node is linked."""

    def nearest(self, target: Key, but: Key | None = None) -> Node | None:
        """The own node closest to the left of `target` going around the ring, leaving out `but`."""
        order = self.order
        if not order:
            return None
        i = bisect_left(order, target) - 1
        if order[i] == but:
            if len(order) == 1:
                return None
            i -= 1
        return self.nodes[order[i]]

    def next_hop(self, node: Node, target: Key) -> Ref | None:
        """The farthest right neighbour of `node`, which is the own node nearest to `target`, that is not past `target`.
        An own node in between can only be a link to one that has gone: it leads nowhere."""
        me = self._port.me
        for ref in reversed(node.right):
            if ref is None or ref.broker == me or not between(node.key, ref.key, target):
                continue
            if self._port.reachable(ref.broker):
                return ref
        return None

    def takes(self, node: Node, target: Key) -> bool:
        """True if `target` belongs directly to the right of `node`."""
        right = node.right[0]
        return right is None or self._port.lost(right.broker) or between(node.key, target, right.key)

    def check_via(self, sender: BrokerRef, frame: Routed) -> None:
        if frame.via is not None and frame.via not in self.nodes:
            self._port.send(sender, Gone(frame.via))

    def forward(self, node: Node | None, target: Key, frame: Routed) -> bool:
        """Send a routed frame one hop nearer to `target`. False, and the frame dropped, if there is no way now."""
        if frame.hops >= MAX_HOPS:
            return False
        if node is None:
            if self.contact is None:
                return False
            self._port.send(self.contact, replace(frame, hops=frame.hops + 1, via=None))
            return True
        ref = self.next_hop(node, target)
        if ref is None:
            return False
        self._port.send(ref.broker, replace(frame, hops=frame.hops + 1, via=ref.key))
        return True
