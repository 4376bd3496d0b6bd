"""The Skip Graph of keys (Aspnes & Shah, Skip Graphs): level 0 (`saps.overlay.ring.ring`), the levels above it, search.

The links of the upper levels are hints that make searches short; a wrong one costs a retry, never a key. Range calls
(`saps.overlay.rendezvous.range_calls`) rely on level 0: going right from any node misses no key that was linked before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Set

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Gone
from saps.overlay.frames.ring import (
    Check,
    Find,
    Found,
    Insert,
    Inserted,
    Level,
    Relink,
    RingSplit,
    Routed,
    Seek,
    SetLeft,
    Unlink,
    Unlinked,
)
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef, Key, Ref, common_prefix, membership
from saps.overlay.ring.partition_merge import Merging
from saps.overlay.ring.routing import MAX_HOPS, Node, State

GONE_AFTER = 1.0
"""Seconds for which a right link to a missing node is kept, as the node may be in the middle of its removal."""

DROP_EVERY = 0.1
"""Least seconds between two searches of the own nodes for links to missing nodes."""


class SkipGraph(Merging):
    """The nodes of one broker. `handle` is the only entry for frames about them."""

    def __init__(
        self,
        port: Port,
        redeliver: Callable[[BrokerRef, Frame], object] | None = None,
        repaired: Callable[[Key], None] = lambda key: None,
    ) -> None:
        super().__init__(port, redeliver, repaired)
        self._finds: dict[int, Callable[[Found], None]] = {}
        self._serial = 0
        self._missing: dict[BrokerRef, set[Key]] = {}
        """By broker: keys without a node that frames were addressed to since `_drop_gone` last ran."""
        self._drop_next = 0.0
        """When `_drop_gone` may run again."""
        self._on: Handlers = {
            Insert: self._on_insert,
            Inserted: self._on_inserted,
            SetLeft: self._on_set_left,
            Unlink: self._on_unlink,
            Unlinked: self._on_unlinked,
            Relink: self.levels.on_relink,
            Seek: self.levels.on_seek,
            Level: self.levels.on_level,
            Find: self._on_find,
            Found: self._on_found,
            Gone: self._on_gone,
            Check: self.checks.on_check,
            RingSplit: self._on_ring_split,
        }

    @property
    def handlers(self) -> Handlers:
        return dict.fromkeys(self._on, self.handle)

    def handle(self, sender: BrokerRef, frame: Frame) -> None:
        """Handle a frame of the Skip Graph."""
        if isinstance(frame, Routed):
            self.check_via(sender, frame)
        self._on[type(frame)](sender, frame)

    def forget(self, broker: BrokerRef) -> None:
        """Drop all links to a dead broker. Nodes that have lost their left neighbour search a new one."""
        keys = set(self._beside).union(*(keys for ref, keys in self._linking.items() if ref.same_incarnation(broker)))
        for node in sorted(map(self.nodes.__getitem__, keys), key=_stay):
            for rightward in (True, False):
                for i, link in enumerate(node.links(rightward)):
                    if link is not None and link.broker.same_incarnation(broker):
                        self.point(node, rightward, i, None)
            if node.left[0] is None and node.state is State.LINKED:
                self._again(node)

    def _on_gone(self, sender: BrokerRef, frame: Gone) -> None:
        if not self._missing:
            self._port.after(max(0.0, self._drop_next - self._port.now), self._drop_gone)
        self._missing.setdefault(sender, set()).add(frame.key)

    def _drop_gone(self) -> None:
        """Drop the links of own nodes to nodes that are gone. A client that goes takes many with it: all own nodes are
        looked through once."""
        gone, self._missing = self._missing, {}
        self._drop_next = self._port.now + DROP_EVERY
        for broker, keys in gone.items():
            linking = self.nodes if broker == self._port.me else self._linking.get(broker, ())
            self._drop_links(linking, broker, keys)

    def _drop_links(self, keys: Iterable[Key], broker: BrokerRef, gone: Set[Key]) -> None:
        """Drop the links of the own nodes at `keys` to nodes of a broker that are `gone`."""
        nodes = map(self.nodes.__getitem__, keys)
        found = [n for n in nodes if any(ref is not None and ref.key in gone for ref in (*n.right, *n.left))]
        for node in sorted(found, key=_stay):
            for rightward in (True, False):
                for i, known in enumerate(node.links(rightward)):
                    if known is None or known.key not in gone or known.broker != broker:
                        continue
                    if i or not rightward or self._is_lost_for_good(node, known):
                        self.point(node, rightward, i, None)

    def _is_lost_for_good(self, node: Node, right: Ref) -> bool:
        """Return whether the missing node to the right is lost for good. If a repeated insertion has linked it after
        its removal, its broker removes it again and names the node behind it. The right link is given up only if that
        has not happened within `GONE_AFTER` seconds."""
        if node.gone is None or node.gone[0] != right:
            node.gone = right, self._port.now
        return self._port.now - node.gone[1] > GONE_AFTER

    def linked_brokers(self) -> Iterator[BrokerRef]:
        """Yield the other brokers that own nodes have links to on any level; some may come twice."""
        return (ref for ref in list(self._linking) if ref.name != self._port.me.name)

    # --- search -----------------------------------------------------------------------------------------

    def find(self, target: Key, found: Callable[[Found], None], start: BrokerRef | None = None) -> None:
        """Search for the node before `target` and the one at or behind it, in O(log n) hops, starting at the broker
        `start` (None: here). `found` may never run if a broker fails meanwhile."""
        self._serial += 1
        self._finds[self._serial] = found
        self._finds.pop(self._serial - MAX_HOPS, None)
        self._port.send(start or self._port.me, Find(0, None, target, self._port.me, self._serial))

    def _on_find(self, sender: BrokerRef, frame: Find) -> None:
        """Answer if the target belongs behind an own node, else forward the frame along the longest link that does not
        lead past it."""
        node = self.nearest(frame.target)
        right = None if node is None else node.right[0]
        if node is not None and (self.takes(node, frame.target) or (right is not None and right.key == frame.target)):
            self._port.send(frame.origin, Found(frame.token, node.ref, right, frame.hops))
        else:
            self.forward(node, frame.target, frame)

    def _on_found(self, sender: BrokerRef, frame: Found) -> None:
        found = self._finds.pop(frame.token, None)
        if found is not None:
            found(frame)

    # --- invariants -------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise `AssertionError` if an own node violates an invariant; they hold after every event, faults or not."""
        order = list(self.order)
        assert order == sorted(order), "own nodes out of order"
        linked = set(order)
        self._validate_indexes(order)
        for node in self.nodes.values():
            assert (node.state is State.JOINING) == (node.key not in linked), f"state of {node.key}"
            for rightward in (True, False):
                for level, ref in self._hints(node, rightward):
                    assert (ref.key > node.key) == rightward, f"{node.key}: level {level} points back"
                    shared = common_prefix(membership(ref.key), membership(node.key))
                    assert shared >= level, f"{node.key}: level {level} neighbour shares {shared} bits only"

    def _validate_indexes(self, order: list[Key]) -> None:
        me, linking = self._port.me, defaultdict[BrokerRef, set[Key]](set)
        next_to = Counter(
            ref.broker for n in self.nodes.values() for ref in (n.right[0], n.left[0]) if ref and ref.broker != me
        )
        assert next_to == self._next_to, "links by broker in level 0"
        for node in self.nodes.values():
            for ref in (*node.right, *node.left):
                if ref is not None and ref.broker != me:
                    linking[ref.broker].add(node.key)
            beside = any(ref is None or ref.broker != me for ref in (node.right[0], node.left[0]))
            assert beside == (node.key in self._beside) or node.state is State.JOINING, f"beside {node.key}"
        assert linking == self._linking, "links by broker"
        for key, following in zip(order, [*order[1:], None], strict=False):
            right = self.nodes[key].right[0]
            straight = right is not None and right.key == following and right.broker == me
            assert straight == (self.ends.at_or_after(key) != key), f"end of a row at {key}"

    def _hints(self, node: Node, rightward: bool) -> Iterator[tuple[int, Ref]]:
        for level, ref in enumerate(node.links(rightward)):
            if level > 0 and ref is not None:
                yield level, ref


def _stay(node: Node) -> int:
    """Return the number of a node's stay: own nodes sort by the order of their insertions."""
    return node.ref.stay
