"""Level 0 of the Skip Graph: the ring of all keys in order (list maintenance without locks after Abe & Yoshida, DDLL).

The right links are the truth: a key is in the overlay from the moment its predecessor points at it, and only the
predecessor changes that. Left links are hints that lead to the predecessor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from saps.marks import hit
from saps.overlay.frames.base import Frame
from saps.overlay.frames.ring import Insert, Inserted, Ping, RingSplit, SetLeft, Unlink, Unlinked
from saps.overlay.port import Port
from saps.overlay.ring.checks import Checks
from saps.overlay.ring.doubts import Doubts
from saps.overlay.ring.keys import BrokerRef, Key, Ref, between
from saps.overlay.ring.levels import Levels
from saps.overlay.ring.routing import Done, Node, Routing, State
from saps.overlay.ring.unanswered import Unanswered

ATTEMPTS = 4
"""Repetitions for which a joining node waits for the answer that names its right neighbour."""
TOUCHED = 4096
"""Most remembered changes of right links; only the simulator reads them."""


class Ring(Routing, ABC):
    """The own nodes in level 0: insertion, removal, repair.

    A node is JOINING until its predecessor's right link points at it (`Inserted`), then LINKED, then LEAVING until that
    link points past it (`Unlinked`). Each right link is changed by its own node's broker alone, so insertions and
    removals at one place are put in order there, without locks. Frames may be late, duplicated or lost: every request
    is repeated until it is answered, and every handler below is idempotent.
    """

    def __init__(
        self,
        port: Port,
        redeliver: Callable[[BrokerRef, Frame], object] | None = None,
        repaired: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """`redeliver` handles frames that were kept for a node; None: `handle` does. `repaired` is called with each
        linked key that had to be linked again."""
        self.levels = Levels(port, self, self.meet)
        super().__init__(port, self.levels.rise_soon)
        self._redeliver = redeliver or self.handle
        self._repaired = repaired
        self.touched: deque[tuple[Key, Ref | None]] = deque(maxlen=TOUCHED)
        """Changes of right links since the simulator last read them."""
        self.unanswered = Unanswered(port, self.nodes, self._send_insert, self._send_unlink)
        self.doubts = Doubts(port, self.nodes)
        self.checks = Checks(port, self, self.levels, self.doubts, self._again)
        self._stays = 0

    @abstractmethod
    def handle(self, sender: BrokerRef, frame: Frame) -> None:
        """Handle one frame that concerns the overlay's links."""

    @abstractmethod
    def claim(self, node: Node, left: Ref) -> None:
        """Decide whether `left`, which points at a linked node, is its left neighbour."""

    @abstractmethod
    def merge_right(self, node: Node, other: Ref | None) -> None:
        """Handle a node that was linked into another ring as well, before `other`."""

    @abstractmethod
    def meet(self, ref: Ref) -> None:
        """Take note of another broker's key in the overlay."""

    # --- what the broker asks for ---------------------------------------------------------------------

    def start_alone(self, key: Key) -> None:
        """Begin a new mesh: a ring of one key."""
        node = Node(self._new_ref(key), self._port.now)
        self.nodes[key] = node
        self._close_ring(node)
        self._link_node(node)

    def close_alone(self, key: Key) -> None:
        """Make an own key that is being inserted a ring of one, since there are no other brokers."""
        node = self.nodes.get(key)
        if node is not None and node.state is State.JOINING:
            self._close_ring(node)
            self._link_node(node)

    def insert(self, key: Key, done: Done) -> None:
        """Insert a key. `done` runs when every range call started from then on will find it."""
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(self._new_ref(key), self._port.now)
            node.waiters.append(done)
            self.unanswered.wait(node)
            self._send_insert(node)
        elif node.state is State.JOINING:
            node.waiters.append(done)
        elif node.state is State.LINKED:
            done()
        else:
            node.waiters.append(lambda: self.insert(key, done))

    def remove(self, key: Key, done: Done) -> None:
        """Remove a key. `done` runs when its predecessor no longer points at it."""
        node = self.nodes.get(key)
        if node is None:
            done()
        elif node.state is State.JOINING or node.asked:
            node.waiters.append(lambda: self.remove(key, done))
        elif node.state is State.LEAVING:
            node.waiters.append(done)
        else:
            node.state = State.LEAVING
            node.waiters.append(done)
            self.unanswered.wait(node)
            self._send_unlink(node)

    @property
    def settled(self) -> bool:
        """Whether all linked keys of this broker are known to be in their places."""
        return not self.unanswered.asked

    @property
    def alone(self) -> bool:
        """Whether the ring has own keys only and no pending insertion, so that no other broker takes part in
        removals."""
        return not self._beside and self.settled and len(self.order) == len(self.nodes)

    def neighbours(self) -> dict[str, BrokerRef]:
        """Return by name the brokers next to own nodes in level 0, whose crashes this broker has to notice."""
        me = self._port.me.name
        return {broker.name: broker for broker in self._next_to if broker.name != me}

    # --- insertion ------------------------------------------------------------------------------------

    def _new_ref(self, key: Key) -> Ref:
        self._stays += 1
        return Ref(key, self._port.me, self._stays)

    def _send_insert(self, node: Node) -> None:
        """Start an insertion near the node: at an own node, or at a neighbour on any level. Each repetition starts at
        the next of them: an unnoticed crash may block the way from one, but seldom from all."""
        frame = Insert(0, None, node.ref)
        starts = self._starts(node)
        node.attempts += 1
        if starts:
            self._port.send(starts[(node.attempts - 1) % len(starts)], frame)
        elif node.state is State.LINKED and self._left_lost(node):
            self._close_ring(node)
        elif self.contact is not None:
            self._port.send(self.contact, frame)

    def _starts(self, node: Node) -> list[BrokerRef]:
        """Return the brokers where an insertion of the node may start, best first."""
        starts: dict[str, BrokerRef] = {}
        if self.nearest(node.key, but=node.key) is not None:
            starts[self._port.me.name] = self._port.me
        for ref in (*node.left, *node.right):
            if ref is not None and ref.broker != self._port.me and self._port.reachable(ref.broker):
                starts[ref.broker.name] = ref.broker
        return list(starts.values())

    def _close_ring(self, node: Node) -> None:
        """Close the ring of the last node: it becomes its own neighbour."""
        for links in (node.right, node.left):
            for level in range(len(links) - 1, -1, -1):
                self.point(node, links is node.right, level, None if level else node.ref)
        node.right, node.left = [node.ref], [node.ref]

    def _on_insert(self, sender: BrokerRef, frame: Insert) -> None:
        """Link `ref` if it belongs behind an own node, else forward the frame towards its place.

        A repeated request gets the same answer as the first one (`_confirm`), as the answer may be lost but the link
        exists. A leaving node keeps requests for its place, since another node decides there after `Unlinked`."""
        ref = frame.ref
        node = self.nearest(ref.key, but=ref.key if ref.broker == self._port.me else None)
        if self._port.lost(ref.broker):
            # Not so, if it hears this: then it says so itself, and inserts the key from here.
            self._port.send(ref.broker, RingSplit(ref, self._port.me))
            if node is not None and self.takes(node, ref.key):
                hit("a broker that is lost here only belongs beside a node")
                self.doubts.keep(node, self._port.grace)
            return
        if node is None:
            self.forward(None, ref.key, frame)
            return
        right = node.right[0]
        if right == ref:
            self._confirm(node, ref, frame)
        elif node.state is State.LEAVING:
            node.waiting.append((sender, frame))
        elif right is not None and right.key == ref.key:
            if right.broker == ref.broker and right.stay < ref.stay:
                # It has been taken out and put in again, and this node has not heard of it: what is behind is unknown.
                self._link(node, ref, None, frame.hops)
            elif right.broker.incarnation < ref.broker.incarnation:
                # Others may say so; once the later incarnation says it itself, the earlier one is out of the way.
                self._port.send(ref.broker, Ping())
        elif self.takes(node, ref.key):
            self._link(node, ref, None if right is None or self._port.lost(right.broker) else right, frame.hops)
        else:
            self.forward(node, ref.key, frame)

    def _confirm(self, node: Node, ref: Ref, frame: Insert) -> None:
        """Answer again that `ref` is linked, with the right neighbour it got then: by now others may have been inserted
        behind `ref`."""
        granted = node.granted[1] if node.granted and node.granted[0] == ref.key else None
        self._port.send(ref.broker, Inserted(ref, node.ref, granted, frame.hops, self.doubts.left(node), again=True))

    def _link(self, node: Node, ref: Ref, right: Ref | None, hops: int) -> None:
        """Point a node at `ref`: from this moment `ref` is in the overlay."""
        self.doubts.relinked(node, right)
        self.point(node, True, 0, ref)
        node.granted = (ref.key, right)
        self.touched.append((node.key, node.right[0]))
        self._port.send(ref.broker, Inserted(ref, node.ref, right, hops, self.doubts.left(node)))
        if right is not None:
            self._port.send(right.broker, SetLeft(right.key, ref, None))

    def _on_inserted(self, sender: BrokerRef, frame: Inserted) -> None:
        """Handle the confirmation that an own node is in the ring. If it was linked before, it was inserted again to
        repair the ring: then compare the left neighbours (`claim`), and merge the right ones, which may belong to
        different rings (`merge_right`)."""
        node = self.nodes.get(frame.ref.key)
        if node is None or node.ref != frame.ref:
            # A repeated insertion came after the removal.
            self._port.send(sender, Unlink(0, None, frame.ref, frame.right, frame.doubt))
            return
        if frame.again and frame.right is None and node.state is State.JOINING and node.attempts <= ATTEMPTS:
            return  # the first answer, which says what is to the right, is still on its way
        if node.state is State.JOINING:
            self.point(node, False, 0, frame.left)
        else:
            self.claim(node, frame.left)
        self.unanswered.answered(node)
        node.attempts = 0
        self.doubts.until(node, frame.doubt)
        if node.state is State.JOINING:
            self.doubts.relinked(node, frame.right)
            self.point(node, True, 0, frame.right)
            self._link_node(node)
            return
        if not frame.again:
            self.merge_right(node, frame.right)
            self._repaired(node.key)
        if node.state is State.LINKED and not node.asked:
            self._run_waiters(node)

    def _link_node(self, node: Node) -> None:
        """Let the node take part in searches, and handle the frames that came too early."""
        node.state = State.LINKED
        self.into_order(node)
        self.touched.append((node.key, node.right[0]))
        self.unanswered.forget(node)
        early, node.waiting = node.waiting, []
        for sender, frame in early:
            self._redeliver(sender, frame)
        self._run_waiters(node)

    def _run_waiters(self, node: Node) -> None:
        waiters, node.waiters = node.waiters, []
        for done in waiters:
            done()

    # --- repair -----------------------------------------------------------------------------------------

    def _again(self, node: Node) -> None:
        """Insert a linked node again; it cannot leave until that is answered."""
        self.unanswered.ask_again(node)
        self._send_insert(node)

    def _left_lost(self, node: Node) -> bool:
        left = node.left[0]
        return left is None or self._port.lost(left.broker)

    # --- removal ----------------------------------------------------------------------------------------

    def _send_unlink(self, node: Node) -> None:
        right = node.right[0]
        if right is not None and right.key == node.key:
            self._gone(node, None)
            return
        frame = Unlink(0, None, node.ref, right, self.doubts.left(node))
        left = node.left[0]
        if left is not None and left.broker != self._port.me and self._port.reachable(left.broker):
            self._port.send(left.broker, frame)
        elif self.nearest(node.key, but=node.key) is not None:
            self._port.send(self._port.me, frame)
        elif right is not None:
            self._port.send(right.broker, frame)

    def _on_unlink(self, sender: BrokerRef, frame: Unlink) -> None:
        """Remove `ref` if it is the right neighbour of an own node; else it is removed already, or the frame is
        forwarded to its place. The doubt about the leaving node's right link moves to the link that this node takes
        over."""
        ref = frame.ref
        node = self.nearest(ref.key, but=ref.key if ref.broker == self._port.me else None)
        if node is None:
            self.forward(None, ref.key, frame)
            return
        right = node.right[0]
        if node.state is State.LEAVING:
            node.waiting.append((sender, frame))
        elif right == ref or right is None:
            self.doubts.relinked(node, right)
            self.doubts.until(node, frame.doubt)
            self.point(node, True, 0, frame.right)
            self.touched.append((node.key, node.right[0]))
            if frame.right is not None:
                self._port.send(frame.right.broker, SetLeft(frame.right.key, node.ref, ref.key))
            self._port.send(ref.broker, Unlinked(ref, node.ref))
        elif right.key == ref.key or between(node.key, ref.key, right.key):
            self._port.send(ref.broker, Unlinked(ref, node.ref))
        else:
            self.forward(node, ref.key, frame)

    def _on_unlinked(self, sender: BrokerRef, frame: Unlinked) -> None:
        node = self.nodes.get(frame.ref.key)
        if node is None or node.ref != frame.ref or node.state is not State.LEAVING:
            return
        self._gone(node, frame.by.broker)

    def _gone(self, node: Node, left: BrokerRef | None) -> None:
        """Forget a node that is out of the ring, and forward requests for its place to `left`, which decides there
        now."""
        self.out_of_order(node)
        self.unanswered.forget(node)
        self.levels.part(node)
        for sender, frame in node.waiting:
            if left is not None and isinstance(frame, Insert | Unlink):
                self._port.send(left, frame)
            else:
                self._redeliver(sender, frame)
        for done in node.waiters:
            done()
