"""Periodic checks of own nodes against their neighbours on level 0, which find unnoticed damage of the ring."""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.ring import Check, RingSplit, SetLeft
from saps.overlay.port import Port
from saps.overlay.ring.doubts import Doubts
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.levels import Levels
from saps.overlay.ring.routing import Node, Routing, State

CHECK_EVERY = 2
"""Heartbeats between two rounds of checks."""
CLAIM_EVERY = 8
"""In every round with a multiple of this number each checked node tells its right neighbour that it points there; in
the other rounds it asks its left neighbour whether that one points here. This finds two nodes that point at the same
one."""
CHECKS = 64
"""Nodes checked in a round. More find damage sooner, and cost a frame for each node whose left neighbour is at another
broker."""


class Checks:
    """The checks of one broker's nodes."""

    def __init__(
        self, port: Port, routing: Routing, levels: Levels, doubts: Doubts, again: Callable[[Node], None]
    ) -> None:
        """`again` inserts a linked node again."""
        self._port = port
        self._routing = routing
        self._levels = levels
        self._doubts = doubts
        self._again = again
        self._cursor = 0
        self._round = 0

    def next_round(self) -> None:
        """Check the next `CHECKS` own nodes against their neighbours, and repair their upper levels."""
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
        """Handle the check of a node that takes an own node for its left neighbour. If the own node does not point at
        it, it has to insert itself again. The doubt in the frame moves on to the left only if it is longer than the
        known one: otherwise it would circulate for ever in a ring where every link is in doubt."""
        node = self._routing.nodes.get(frame.at)
        if node is None or node.right[0] != frame.ref:
            self._port.send(sender, RingSplit(frame.ref))
        elif 0 < self._doubts.left(node) < frame.doubt - self._port.grace / 4:  # longer by enough to end some time
            self._doubts.keep(node, frame.doubt)
