"""Rounds in which own nodes and their neighbours on level 0 are compared, so that damage does not stay unnoticed."""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.ring import Check, RingSplit, SetLeft
from saps.overlay.port import Port
from saps.overlay.ring.doubts import Doubts
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.levels import Levels
from saps.overlay.ring.routing import Node, Routing, State

CHECK_EVERY = 2
"""Heartbeats between two rounds of checking own nodes against their neighbours."""
CLAIM_EVERY = 8
"""In each such round a node tells its right neighbour that it points there, in the others it asks the left one whether
that does. So two nodes that point at the same one do not stay unnoticed."""
CHECKS = 64
"""Nodes checked a round. More finds damage sooner, at one frame a node whose left neighbour is on another broker."""


class Checks:
    """Those of one broker."""

    def __init__(
        self, port: Port, routing: Routing, levels: Levels, doubts: Doubts, again: Callable[[Node], None]
    ) -> None:
        """`again` inserts a linked node once more."""
        self._port = port
        self._routing = routing
        self._levels = levels
        self._doubts = doubts
        self._again = again
        self._cursor = 0
        self._round = 0

    def next_round(self) -> None:
        """One round of `CHECKS` own nodes: do they and their neighbours agree? Mend the levels."""
        self._round += 1
        for _ in range(min(CHECKS, len(self._routing.order))):
            self._cursor = (self._cursor + 1) % len(self._routing.order)
            node = self._routing.nodes[self._routing.order[self._cursor]]
            if node.state is State.LINKED:
                self._check(node)
                if None in node.right[1:] or None in node.left[1:]:
                    self._levels.rise(node)
        self._levels.rise_again()

    def _check(self, node: Node) -> None:
        left, right = node.left[0], node.right[0]
        if left is None or self._port.lost(left.broker):
            self._again(node)
        elif self._round % CLAIM_EVERY or right is None:
            self._port.send(left.broker, Check(left.key, node.ref))
        else:
            self._port.send(right.broker, SetLeft(right.key, node.ref, None))

    def on_check(self, sender: BrokerRef, frame: Check) -> None:
        """Somebody takes an own node for its left neighbour. If that does not point at it, it inserts itself again. A
        doubt wanders left only where it lengthens the one that is known: in a ring of doubts it would never end."""
        node = self._routing.nodes.get(frame.at)
        if node is None or node.right[0] != frame.ref:
            self._port.send(sender, RingSplit(frame.ref))
        elif 0 < self._doubts.left(node) < frame.doubt - self._port.grace / 4:  # else it would go round for ever
            self._doubts.keep(node, frame.doubt)
