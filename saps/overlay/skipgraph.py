"""The Skip Graph of keys: insertion, removal, search, repair (Aspnes & Shah, Skip Graphs; list maintenance without
locks after Abe & Yoshida, DDLL).

Level 0 is a ring of all keys in order. Its right links are the truth: a key is in the overlay from the moment its
predecessor points at it, and only the predecessor changes that. Left links and the links of the levels above are
hints that make search short; a wrong one costs a retry, never a key. This is what a range call (`saps.overlay.calls`)
stands on: going right from any node, no key that was linked before is missed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec.structs import replace

from saps.overlay.frames import (
    Astray,
    Check,
    Find,
    Found,
    Frame,
    Gone,
    Insert,
    Inserted,
    Level,
    Relink,
    Routed,
    Seek,
    SetLeft,
    Unlink,
    Unlinked,
)
from saps.overlay.keys import MEMBERSHIP_BITS, BrokerRef, Key, Ref, between, common_prefix, membership
from saps.overlay.port import Port

MAX_HOPS = 256
"""A routed frame is dropped after so many hops; whoever sent it repeats it."""
RETRY = 0.5
"""Seconds after which an insertion or removal that got no answer is repeated."""
CHECK_EVERY = 1.0
"""Seconds between two rounds of checking own nodes against their left neighbours."""
CHECKS = 64
"""Nodes checked a round. More finds damage sooner, at one frame a node whose left neighbour is on another broker."""

Done = Callable[[], None]


class State(Enum):
    JOINING = "joining"
    LINKED = "linked"
    LEAVING = "leaving"


class Node:
    """One key of this broker and its neighbours: `right[i]`, `left[i]` in the list of level i."""

    __slots__ = (
        "asked",
        "awaited",
        "doubt_until",
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


class SkipGraph:
    """The nodes of one broker, and the one mutator `handle` for the frames that concern them."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.nodes: dict[Key, Node] = {}
        self.order: list[Key] = []
        """Keys of the nodes that are in the overlay, sorted."""
        self.contact: BrokerRef | None = None
        """Where to start while no own node is linked."""
        self.touched: list[tuple[Key, Ref | None]] = []
        """Changes of right links since the last look (for the simulator)."""
        self._unsettled: dict[Key, None] = {}
        """Nodes that wait for an answer, in the order they began to (a set's order would differ from run to run)."""
        self._cursor = 0
        self._stays = 0
        self._finds: dict[int, Callable[[Found], None]] = {}
        self._serial = 0
        self.redeliver: Callable[[BrokerRef, Frame], object] = self.handle
        """Takes frames that were kept for a node back to where all frames come in."""
        self.on_repaired: Callable[[Key], None] = lambda key: None
        """Told of each linked key that had to be linked again."""
        self._on: dict[type, Callable[[BrokerRef, Frame], None]] = {
            Insert: self._on_insert,
            Inserted: self._on_inserted,
            SetLeft: self._on_set_left,
            Unlink: self._on_unlink,
            Unlinked: self._on_unlinked,
            Relink: self._on_relink,
            Seek: self._on_seek,
            Level: self._on_level,
            Find: self._on_find,
            Found: self._on_found,
            Gone: self._on_gone,
            Check: self._on_check,
            Astray: self._on_astray,
        }

    def _new_ref(self, key: Key) -> Ref:
        self._stays += 1
        return Ref(key, self._port.me, self._stays)

    # --- what the broker asks for ---------------------------------------------------------------------

    def start_alone(self, key: Key) -> None:
        """Begin a new mesh: the ring of one."""
        node = Node(self._new_ref(key), self._port.now)
        node.right = [node.ref]
        node.left = [node.ref]
        self.nodes[key] = node
        self._link_node(node)

    def insert(self, key: Key, done: Done) -> None:
        """Put a key into the overlay. `done` runs once every range call started from then on will find it."""
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(self._new_ref(key), self._port.now)
            node.waiters.append(done)
            self._unsettled[key] = None
            self._send_insert(node)
        elif node.state is State.JOINING:
            node.waiters.append(done)
        elif node.state is State.LINKED:
            done()
        else:
            node.waiters.append(lambda: self.insert(key, done))

    def remove(self, key: Key, done: Done) -> None:
        """Take a key out. `done` runs when its predecessor has let go of it."""
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
            node.since = self._port.now
            self._unsettled[key] = None
            self._send_unlink(node)

    def find(self, target: Key, found: Callable[[Found], None], start: BrokerRef | None = None) -> None:
        """Search, beginning at `start` (None: here): the node before `target`, and the one at it or behind it, by
        O(log n) hops. `found` may never run if a broker fails meanwhile."""
        self._serial += 1
        self._finds[self._serial] = found
        self._finds.pop(self._serial - MAX_HOPS, None)
        self._port.send(start or self._port.me, Find(0, None, target, self._port.me, self._serial))

    def rejoin(self, contact: BrokerRef | None = None) -> None:
        """Insert every own key once more, starting at `contact`: merges two rings into one."""
        for key in list(self.order):
            node = self.nodes[key]
            if node.state is not State.LINKED:
                continue
            if contact is None:
                self._again(node)
            else:
                node.asked = True
                node.since = self._port.now
                self._unsettled[key] = None
                self._port.send(contact, Insert(0, None, node.ref))

    @property
    def settled(self) -> bool:
        """False while a linked key of this broker may be out of its place."""
        return not any(key in self.nodes and self.nodes[key].asked for key in self._unsettled)

    def neighbours(self) -> dict[str, BrokerRef]:
        """The brokers beside own nodes in level 0: those whose crash this broker has to notice."""
        me = self._port.me.name
        found: dict[str, BrokerRef] = {}
        for node in self.nodes.values():
            for ref in (node.right[0], node.left[0]):
                if ref is not None and ref.broker.name != me:
                    found[ref.broker.name] = ref.broker
        return found

    def forget(self, broker: BrokerRef) -> None:
        """Drop every link to a broker that died; nodes that lost their left neighbour look for a new one."""
        for node in self.nodes.values():
            for links in (node.right, node.left):
                for i, ref in enumerate(links):
                    if ref is not None and _same_life(ref.broker, broker):
                        links[i] = None
            if node.left[0] is None and node.state is State.LINKED:
                self._again(node)

    def _on_gone(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Gone)
        for node in self.nodes.values():
            for links in (node.right, node.left):
                for i, known in enumerate(links):
                    if known is not None and known.key == frame.key and known.broker == sender:
                        links[i] = None

    def tick(self) -> None:
        """Repeat what got no answer; check some nodes against their left neighbours."""
        now = self._port.now
        for key in list(self._unsettled):
            node = self.nodes.get(key)
            if node is None or (node.state is State.LINKED and not node.asked):
                self._unsettled.pop(key, None)
            elif now - node.since >= RETRY:
                node.since = now
                if node.state is State.LEAVING:
                    self._send_unlink(node)
                else:
                    self._send_insert(node)

    def check(self) -> None:
        """One round of `CHECKS` own nodes: ask the left neighbour whether it still points here; mend the levels."""
        for _ in range(min(CHECKS, len(self.order))):
            self._cursor = (self._cursor + 1) % len(self.order)
            node = self.nodes[self.order[self._cursor]]
            left = node.left[0]
            if node.state is not State.LINKED:
                continue
            if left is None or self._port.lost(left.broker):
                self._again(node)
            else:
                self._port.send(left.broker, Check(left.key, node.ref))
            if None in node.right[1:-1] or None in node.left[1:-1]:
                self._seek(node, 1)

    # --- routing ------------------------------------------------------------------------------------------

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

    def handle(self, sender: BrokerRef, frame: Frame) -> bool:
        """Handle one frame; False if it is not one of the Skip Graph's."""
        action = self._on.get(type(frame))
        if action is None:
            return False
        if isinstance(frame, Routed):
            self.check_via(sender, frame)
        action(sender, frame)
        return True

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

    # --- insertion ----------------------------------------------------------------------------------------

    def _send_insert(self, node: Node) -> None:
        """Start an insertion near the node: at an own node, else at whatever neighbour is left, else at the contact."""
        frame = Insert(0, None, node.ref)
        start = self.nearest(node.key, but=node.key)
        if start is not None:
            self._port.send(self._port.me, frame)
            return
        for ref in (*reversed(node.right), *reversed(node.left)):
            if ref is not None and ref.broker != self._port.me and self._port.reachable(ref.broker):
                self._port.send(ref.broker, frame)
                return
        if node.state is State.LINKED and self._left_lost(node):
            self._close_ring(node)
        elif self.contact is not None:
            self._port.send(self.contact, frame)

    def _close_ring(self, node: Node) -> None:
        """Everyone else is gone: the last node's neighbour is the node itself."""
        node.right, node.left = [node.ref], [node.ref]

    def _on_insert(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Insert)
        ref = frame.ref
        if self._port.lost(ref.broker):
            return
        node = self.nearest(ref.key, but=ref.key if ref.broker == self._port.me else None)
        if node is None:
            self.forward(None, ref.key, frame)
            return
        right = node.right[0]
        if right == ref:
            self._confirm(node, ref, frame)
        elif node.state is State.LEAVING:
            node.waiting.append((sender, frame))
        elif right is not None and right.key == ref.key:
            if right.broker.incarnation < ref.broker.incarnation:
                self._link(node, ref, None, frame.hops)
        elif self.takes(node, ref.key):
            self._link(node, ref, None if right is None or self._port.lost(right.broker) else right, frame.hops)
        else:
            self.forward(node, ref.key, frame)

    def _confirm(self, node: Node, ref: Ref, frame: Insert) -> None:
        granted = node.granted[1] if node.granted and node.granted[0] == ref.key else None
        self._port.send(ref.broker, Inserted(ref, node.ref, granted, frame.hops, self._doubt_left(node), again=True))

    def _doubt(self, node: Node, right: Ref | None) -> None:
        """A right link is about to be made; `right` is the one before, None if that was lost."""
        if right is None:
            node.doubt_until = self._port.now + self._port.grace

    def _doubt_left(self, node: Node) -> float:
        return max(0.0, node.doubt_until - self._port.now)

    def _again(self, node: Node) -> None:
        """Insert a linked node once more; it cannot leave until that is answered."""
        node.asked = True
        node.since = self._port.now
        self._unsettled[node.key] = None
        self._send_insert(node)

    def _on_check(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Check)
        node = self.nodes.get(frame.at)
        if node is None or node.right[0] != frame.ref:
            self._port.send(sender, Astray(frame.ref))

    def _on_astray(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Astray)
        node = self.nodes.get(frame.ref.key)
        if node is not None and node.ref == frame.ref and node.state is State.LINKED and not node.asked:
            self._again(node)

    def _link(self, node: Node, ref: Ref, right: Ref | None, hops: int) -> None:
        """The moment at which `ref` is in the overlay."""
        self._doubt(node, right)
        node.right[0] = ref
        node.granted = (ref.key, right)
        self.touched.append((node.key, node.right[0]))
        self._port.send(ref.broker, Inserted(ref, node.ref, right, hops, self._doubt_left(node)))
        if right is not None:
            self._port.send(right.broker, SetLeft(right.key, ref, None))

    def _on_inserted(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Inserted)
        node = self.nodes.get(frame.ref.key)
        if node is None or node.ref != frame.ref:
            # A repeated insertion came after the removal.
            self._port.send(sender, Unlink(0, None, frame.ref, frame.right, frame.doubt))
            return
        node.left[0] = frame.left
        node.asked = False
        node.doubt_until = max(node.doubt_until, self._port.now + frame.doubt)
        if node.state is State.JOINING:
            node.right[0] = frame.right
            self._link_node(node)
            return
        if not frame.again:
            self._merge_right(node, frame.right)
            self.on_repaired(node.key)
        if node.state is State.LINKED:
            self._run_waiters(node)

    def _link_node(self, node: Node) -> None:
        node.state = State.LINKED
        insort(self.order, node.key)
        self.touched.append((node.key, node.right[0]))
        self._unsettled.pop(node.key, None)
        early, node.waiting = node.waiting, []
        for sender, frame in early:
            self.redeliver(sender, frame)
        self._run_waiters(node)
        self._seek(node, 1)

    def _run_waiters(self, node: Node) -> None:
        waiters, node.waiters = node.waiters, []
        for done in waiters:
            done()

    def _merge_right(self, node: Node, other: Ref | None) -> None:
        """A node of this ring was linked into another one: keep the nearer right neighbour, lead the other to it."""
        right = node.right[0]
        if other is None or other.key == node.key or other == right:
            return
        if right is None or self._port.lost(right.broker) or right.key == node.key:
            self._doubt(node, None)
            node.right[0] = other
        elif right.key == other.key:
            return
        elif between(node.key, other.key, right.key):
            node.right[0] = other
            self._port.send(other.broker, Insert(0, None, right))
        else:
            self._port.send(right.broker, Insert(0, None, other))
        self.touched.append((node.key, node.right[0]))

    def _on_set_left(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, SetLeft)
        node = self.nodes.get(frame.at)
        if node is None:
            return
        known = node.left[0]
        if (
            known is None
            or self._port.lost(known.broker)
            or known.key in (frame.gone, node.key)
            or between(known.key, frame.left.key, node.key)
        ):
            node.left[0] = frame.left

    def _left_lost(self, node: Node) -> bool:
        left = node.left[0]
        return left is None or self._port.lost(left.broker)

    # --- removal ------------------------------------------------------------------------------------------

    def _send_unlink(self, node: Node) -> None:
        right = node.right[0]
        if right is not None and right.key == node.key:
            self._gone(node, None)
            return
        frame = Unlink(0, None, node.ref, right, self._doubt_left(node))
        left = node.left[0]
        if left is not None and left.broker != self._port.me and self._port.reachable(left.broker):
            self._port.send(left.broker, frame)
        elif self.nearest(node.key, but=node.key) is not None:
            self._port.send(self._port.me, frame)
        elif right is not None:
            self._port.send(right.broker, frame)

    def _on_unlink(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Unlink)
        ref = frame.ref
        node = self.nearest(ref.key, but=ref.key if ref.broker == self._port.me else None)
        if node is None:
            self.forward(None, ref.key, frame)
            return
        right = node.right[0]
        if node.state is State.LEAVING:
            node.waiting.append((sender, frame))
        elif right == ref or right is None:
            self._doubt(node, right)
            node.doubt_until = max(node.doubt_until, self._port.now + frame.doubt)
            node.right[0] = frame.right
            self.touched.append((node.key, node.right[0]))
            if frame.right is not None:
                self._port.send(frame.right.broker, SetLeft(frame.right.key, node.ref, ref.key))
            self._port.send(ref.broker, Unlinked(ref, node.ref))
        elif right.key == ref.key or between(node.key, ref.key, right.key):
            self._port.send(ref.broker, Unlinked(ref, node.ref))
        else:
            self.forward(node, ref.key, frame)

    def _on_unlinked(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Unlinked)
        node = self.nodes.get(frame.ref.key)
        if node is None or node.ref != frame.ref or node.state is not State.LEAVING:
            return
        self._gone(node, frame.by.broker)

    def _gone(self, node: Node, left: BrokerRef | None) -> None:
        i = bisect_left(self.order, node.key)
        if i < len(self.order) and self.order[i] == node.key:
            del self.order[i]
        del self.nodes[node.key]
        self._unsettled.pop(node.key, None)
        self._part_from_levels(node)
        for sender, frame in node.waiting:
            if left is not None and isinstance(frame, Insert | Unlink):
                self._port.send(left, frame)
            else:
                self.redeliver(sender, frame)
        for done in node.waiters:
            done()

    def _part_from_levels(self, node: Node) -> None:
        for rightward in (True, False):
            for level in range(1, len(node.links(rightward))):
                ref = node.links(rightward)[level]
                others = node.links(not rightward)
                if ref is not None:
                    other = others[level] if level < len(others) else None
                    self._port.send(ref.broker, Relink(ref.key, level, not rightward, node.key, other))

    def _on_relink(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Relink)
        node = self.nodes.get(frame.at)
        if node is None or frame.level >= len(node.links(frame.rightward)):
            return
        links = node.links(frame.rightward)
        ref = links[frame.level]
        if ref is not None and ref.key == frame.gone:
            beyond = frame.ref is not None and (frame.ref.key > node.key) == frame.rightward
            links[frame.level] = frame.ref if beyond else None

    # --- levels above 0 -------------------------------------------------------------------------------------

    def _seek(self, node: Node, level: int) -> None:
        """Look for the neighbours of a node in the list of `level`, then in the next one, until it is alone."""
        if level >= MEMBERSHIP_BITS:
            return
        starts = [(rightward, node.hint(level - 1, rightward)) for rightward in (True, False)]
        node.sought = level
        node.awaited = sum(start is not None for _, start in starts)
        for rightward, start in starts:
            if start is not None:
                seek = Seek(start.key, level, rightward, node.ref, MAX_HOPS)
                if start.broker == self._port.me:
                    self._on_seek(self._port.me, seek)
                else:
                    self._port.send(start.broker, seek)

    def _on_seek(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Seek)
        vector = membership(frame.origin.key)
        at: Key | None = frame.at
        found: Ref | None = None
        while at is not None:
            node = self.nodes.get(at)
            if node is None:
                break
            if common_prefix(membership(at), vector) >= frame.level:
                found = node.ref
                self._improve(node, frame.level, not frame.rightward, frame.origin)
                break
            ahead = node.hint(frame.level - 1, frame.rightward)
            if ahead is None or frame.ttl <= 0:
                break
            if ahead.broker != self._port.me:
                self._port.send(
                    ahead.broker, Seek(ahead.key, frame.level, frame.rightward, frame.origin, frame.ttl - 1)
                )
                return
            at = ahead.key
        answer = Level(frame.origin.key, frame.level, frame.rightward, found)
        if frame.origin.broker == self._port.me:
            self._on_level(self._port.me, answer)
        else:
            self._port.send(frame.origin.broker, answer)

    def _on_level(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Level)
        node = self.nodes.get(frame.at)
        if node is None:
            return
        if frame.found is not None:
            self._improve(node, frame.level, frame.rightward, frame.found)
        if frame.level == node.sought:
            node.awaited -= 1
            if node.awaited == 0 and any(len(links) > frame.level for links in (node.right, node.left)):
                self._seek(node, frame.level + 1)

    def _improve(self, node: Node, level: int, rightward: bool, ref: Ref) -> None:
        """Take `ref` as neighbour if it is nearer than the one known, or the known one is lost."""
        links = node.links(rightward)
        while len(links) <= level:
            links.append(None)
        known = links[level]
        if known is None or self._port.lost(known.broker) or (ref.key < known.key) == rightward:
            links[level] = ref

    # --- search ---------------------------------------------------------------------------------------------

    def _on_find(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Find)
        node = self.nearest(frame.target)
        right = None if node is None else node.right[0]
        if node is not None and (self.takes(node, frame.target) or (right is not None and right.key == frame.target)):
            self._port.send(frame.origin, Found(frame.token, node.ref, right, frame.hops))
        else:
            self.forward(node, frame.target, frame)

    def _on_found(self, sender: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Found)
        found = self._finds.pop(frame.token, None)
        if found is not None:
            found(frame)

    # --- invariants -------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError if an own node breaks what holds after every event, faults or not."""
        assert self.order == sorted(self.order), "own nodes out of order"
        linked = set(self.order)
        for node in self.nodes.values():
            assert (node.state is State.JOINING) == (node.key not in linked), f"state of {node.key}"
            for rightward in (True, False):
                for level, ref in self._hints(node, rightward):
                    assert (ref.key > node.key) == rightward, f"{node.key}: level {level} points back"
                    shared = common_prefix(membership(ref.key), membership(node.key))
                    assert shared >= level, f"{node.key}: level {level} neighbour shares {shared} bits only"

    def _hints(self, node: Node, rightward: bool) -> Iterator[tuple[int, Ref]]:
        for level, ref in enumerate(node.links(rightward)):
            if level > 0 and ref is not None:
                yield level, ref


def _same_life(a: BrokerRef, b: BrokerRef) -> bool:
    return a.name == b.name and a.incarnation == b.incarnation
