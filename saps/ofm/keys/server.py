"""The key server: distributes the keys of each topic's tree. It is part of the leading OFGate (decision 084).

Each change of a tree's brokers gives its group a new secret. Brokers that stay get it wrapped, by way of each other
(`saps.overlay.delivery.broadcast`): the server sends O(log n) messages with O(log n) wrapped keys each. Brokers that
join or have missed a message get their own key and all keys above it directly from the server, over a confidential
link. Only then does the topic continue, so its senders switch to a key that its receivers have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from saps.ofm.keys.hierarchy import Hierarchy, Key
from saps.ofm.keys.sealing import LABEL, label_of
from saps.overlay.delivery.tree import by_place
from saps.overlay.frames.delivery import GroupKeys
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

OVERLAP = 6.0
"""Seconds for which a broker still accepts an old key after it has received the next one. Within half of this time
everyone has switched. A longer overlap lets a former member write for longer; a shorter one leaves less time to
distribute."""
TIMEOUT = 2.0
"""Longest wait of a topic, in seconds, for brokers that do not confirm their keys. Less than half of `OVERLAP`."""
ROUND = 0.6
"""Limit of one attempt to reach brokers, in seconds."""
AGAIN, AGAIN_AT_MOST = 0.1, 3.0
"""First and longest pause in seconds between two attempts at a broker that does not confirm; the pause doubles each
time."""
WORN = 1 << 31
"""Keys after which a hierarchy is replaced by a new one, since their names are 4 bytes long in datagrams."""

Done = Callable[[], None]


class Tell(Protocol):
    """The signature of `saps.overlay.delivery.broadcast.Broadcaster.tell`."""

    def __call__(
        self,
        brokers: Iterable[BrokerRef],
        body: GroupKeys,
        timeout: float,
        done: Callable[[list[BrokerRef]], None],
        /,
    ) -> None: ...


class _Group:
    """The brokers of one topic's tree, and their keys."""

    def __init__(self, name: bytes, draw: Callable[[int], bytes]) -> None:
        self.name = name
        self.hierarchy: Hierarchy[BrokerRef] = Hierarchy(name, draw)
        self.holders: set[BrokerRef] = set()
        """The brokers that have confirmed the present secret."""
        self.serial = 0
        """Number of changes so far; it marks outdated answers."""
        self.then: Done | None = None
        """The callback for when all members hold the present secret; None once it has run."""

    @property
    def members(self) -> set[BrokerRef]:
        return self.hierarchy.members

    @property
    def root(self) -> Key:
        root = self.hierarchy.root
        assert root is not None, "a group has members"
        return root


class KeyServer:
    """The key server of one term of OFGate. `close` it when OFGate no longer leads; distributed keys stay valid."""

    def __init__(self, port: Port, tell: Tell, draw: Callable[[int], bytes], late: Callable[[str], None]) -> None:
        """`draw` returns the given number of random bytes, fit for secrets. `late` is called with a topic when one more
        broker holds its key, after the others were told to use it."""
        self._port = port
        self._tell = tell
        self._draw = draw
        self._late = late
        self._groups: dict[str, _Group] = {}
        self._closed = False
        self.changes = 0
        """Number of new secrets so far."""

    def close(self) -> None:
        """Send nothing more, and run no more callbacks."""
        self._closed = True

    def holders(self, topic: str) -> Set[BrokerRef]:
        """Return the brokers that have confirmed the topic's present key, which can read what is sealed with it."""
        group = self._groups.get(topic)
        return frozenset() if group is None else group.holders

    def label(self, topic: str) -> bytes:
        """Return the label of the topic's present key in datagrams; empty if there is none."""
        group = self._groups.get(topic)
        return b"" if group is None else label_of(topic, group.root.secret)

    def fits(self, topic: str, members: Set[BrokerRef]) -> bool:
        """Return whether the topic's group has exactly these members."""
        group = self._groups.get(topic)
        return (group.members if group is not None else set()) == members

    def change(self, topic: str, members: Set[BrokerRef], then: Done, *, renew: bool = False) -> None:
        """Give the topic's key to exactly these brokers from now on. `then` runs when all living members hold it, or
        after `TIMEOUT`. If the members have not changed and `renew` is not set, they keep their key and `then` runs at
        once."""
        if not members:
            self.drop(topic)
            then()
            return
        group = self._groups.get(topic)
        if group is not None and group.hierarchy.drawn > WORN:
            self.drop(topic)
            group = None
        if group is None:
            group = self._groups[topic] = _Group(self._draw(LABEL), self._draw)
        if group.members == members and not renew:
            then()
            return
        self._renew(topic, group, members, then)

    def _renew(self, topic: str, group: _Group, members: Set[BrokerRef], then: Done) -> None:
        self.changes += 1
        group.serial += 1
        gone, joined = group.members - members, members - group.members
        staying, group.holders, group.then = group.holders & members, set(), then
        wraps = group.hierarchy.change(self._in_order(joined), self._in_order(gone))
        serial = group.serial
        body = GroupKeys(topic, group.name, group.root.id, [*wraps], OVERLAP)
        if staying:
            self._tell(staying, body, ROUND, lambda missing: self._told(topic, group, serial, staying, missing))
        for member in self._in_order(members - staying):
            self._welcome(topic, group, serial, member, AGAIN)
        self._part(topic, group, gone)

        def over() -> None:
            if group.serial == serial:
                self._finish(group)

        self._port.after(TIMEOUT, over)

    def drop(self, topic: str) -> None:
        """End the topic's group: there is no tree any more, and nobody needs its keys."""
        group = self._groups.pop(topic, None)
        if group is not None:
            group.serial += 1
            self._part(topic, group, group.members)

    # --- telling --------------------------------------------------------------------------------------------------

    def _welcome(self, topic: str, group: _Group, serial: int, member: BrokerRef, pause: float) -> None:
        """Give one broker its own key and all keys above it, and repeat until it has them."""
        if self._closed or group.serial != serial:
            return
        keys = group.hierarchy
        body = GroupKeys(topic, group.name, group.root.id, [*keys.path(member)], OVERLAP, keys.leaf(member))

        def told(missing: list[BrokerRef]) -> None:
            self._told(topic, group, serial, {member}, missing, pause)

        self._tell((member,), body, ROUND, told)

    def _told(
        self,
        topic: str,
        group: _Group,
        serial: int,
        asked: Set[BrokerRef],
        missing: list[BrokerRef],
        pause: float = 0.0,
    ) -> None:
        if self._closed or group.serial != serial:
            return
        found = asked - set(missing)
        group.holders |= found
        for member in self._in_order(asked - found):
            self._again(topic, group, serial, member, pause)
        if group.then is None:
            if found:
                self._late(topic)
        elif all(member in group.holders or self._port.lost(member) for member in group.members):
            self._finish(group)

    def _again(self, topic: str, group: _Group, serial: int, member: BrokerRef, pause: float) -> None:
        following = min(max(2 * pause, AGAIN), AGAIN_AT_MOST)
        self._port.after(pause, lambda: self._welcome(topic, group, serial, member, following))

    def _finish(self, group: _Group) -> None:
        then, group.then = group.then, None
        if then is not None and not self._closed:
            then()

    def _in_order(self, brokers: Iterable[BrokerRef]) -> list[BrokerRef]:
        return by_place(brokers, self._port.order)

    def _part(self, topic: str, group: _Group, gone: Set[BrokerRef]) -> None:
        """Tell brokers that have left to drop their keys. Security does not depend on it: the new secret excludes
        them."""
        living = [member for member in gone if not self._port.lost(member)]
        if living:
            self._tell(living, GroupKeys(topic, group.name, 0, [], OVERLAP), ROUND, lambda missing: None)
