"""Holds the keys of one broker: for each topic the newest key, and for a while its predecessors.

When the members of a tree change, all of them get a new key. Each sender continues with the old key until it is told
that the others have the new one (`use`). Receivers accept both keys meanwhile. A lost `use` does no harm: half of the
`overlap` after the new key arrived, its holder seals with it anyway. At the end of the `overlap` the old key is
dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from saps.ofm.keys.hierarchy import Chain, Key
from saps.ofm.keys.sealing import FORM, HEADER, OVERHEAD, Epoch, Refusal, first_count, label_of
from saps.overlay.frames.delivery import GroupKeys
from saps.overlay.ring.keys import BrokerRef

GROUPS = 4
"""Most hierarchies of one topic that a broker takes part in at a time. There is more than one if the key server has
changed."""
EPOCHS = 8
"""Most keys of one topic that are held at a time."""


class Opened(NamedTuple):
    """The content of a datagram, the epoch that opened it, and the sender number in its header."""

    plain: bytes
    epoch: Epoch
    sender: int


class _Topic:
    """The keys of one topic."""

    __slots__ = ("chains", "epochs", "roots", "told")

    def __init__(self) -> None:
        self.chains: dict[bytes, Chain] = {}
        """The key chains by group, the latest last."""
        self.roots: dict[bytes, int] = {}
        """The name of the newest root held, by group."""
        self.epochs: list[Epoch] = []
        """The keys, the newest last."""
        self.told: Epoch | None = None
        """The key that this broker seals with until it lapses; None: the newest key."""


class Keyring:
    """All keys of one broker. Every `now` is a time in seconds of the same clock."""

    def __init__(self, me: BrokerRef, on_labels: Callable[[Iterable[bytes]], None] = lambda labels: None) -> None:
        """`on_labels` is called with the labels of all keys held, whenever these change."""
        self._me = me
        self._on_labels = on_labels
        self._topics: dict[str, _Topic] = {}
        self._labels: dict[bytes, Epoch] = {}
        self._changed = False
        self._count = first_count(me.incarnation)
        """The highest count under a key that was dropped. The next key may be one of these again."""

    def take(self, keys: GroupKeys, now: float) -> bool:
        """Take in keys from the key server. Return whether this broker now has the group's key."""
        taken = self._take(keys, now)
        if self._changed:
            self._changed = False
            self._on_labels(self._labels.keys())
        return taken

    def _take(self, keys: GroupKeys, now: float) -> bool:
        if not keys.root:
            self._retire(keys, now)
            return True
        topic = self._topics.get(keys.topic)
        if topic is None:
            if keys.leaf is None:
                return False
            topic = self._topics[keys.topic] = _Topic()
        chain = topic.chains.get(keys.group)
        if keys.leaf is not None and (chain is None or chain.leaf != keys.leaf[0]):
            chain = topic.chains[keys.group] = Chain(keys.group, Key(*keys.leaf))
            while len(topic.chains) > GROUPS:
                topic.roots.pop(oldest := next(iter(topic.chains)), None)
                del topic.chains[oldest]
        if chain is None:
            return False
        known = topic.roots.get(keys.group, 0)
        if keys.root <= known:
            return keys.root == known
        chain.take(keys.wraps)
        secret = chain.secret(keys.root)
        if secret is None or len(secret) != 32:
            return False
        held = self._labels.get(label_of(keys.topic, secret))
        count = self._count if held is None else max(self._count, held.count)
        try:
            epoch = Epoch(keys.topic, keys.group, secret, chain.leaf, count)
        except struct.error:
            return False
        topic.roots[keys.group] = keys.root
        if held is not None:
            self._forget(topic, held)
        self._add(topic, epoch, max(0.0, keys.overlap), now)
        return True

    def _add(self, topic: _Topic, epoch: Epoch, overlap: float, now: float) -> None:
        # Others may not have the new key yet, so this broker first continues to seal with the previous one.
        if topic.epochs and topic.told is None:
            topic.told = topic.epochs[-1]
        for older in topic.epochs:
            older.until = min(older.until, now + overlap)
            older.lapses = min(older.lapses, now + overlap / 2)
        topic.epochs.append(epoch)
        self._labels[epoch.label] = epoch
        self._changed = True
        over = [e for e in topic.epochs if e.until <= now] or topic.epochs[:-EPOCHS]
        for older in over:
            self._forget(topic, older)

    def _forget(self, topic: _Topic, epoch: Epoch) -> None:
        topic.epochs.remove(epoch)
        del self._labels[epoch.label]
        self._count = max(self._count, epoch.count)
        self._changed = True
        if topic.told is epoch:
            topic.told = None

    def _retire(self, keys: GroupKeys, now: float) -> None:
        """Retire the keys of a group that this broker has left, or that has ended. Without the latest group there is no
        tree any more: then all keys of the topic go."""
        topic = self._topics.get(keys.topic)
        if topic is None or topic.chains.pop(keys.group, None) is None:
            return
        topic.roots.pop(keys.group, None)
        over = not topic.chains or (bool(topic.epochs) and topic.epochs[-1].group == keys.group)
        for epoch in list(topic.epochs):
            if epoch.group == keys.group:
                epoch.until = min(epoch.until, now + max(0.0, keys.overlap))
            if over or epoch.until <= now:
                self._forget(topic, epoch)
        if over:
            del self._topics[keys.topic]

    def use(self, topic: str, label: bytes) -> None:
        """Seal with this key from now on, as all readers of the topic hold it. Unknown labels are ignored. So are the
        labels of keys older than the one in use: such a message is late, and brokers have joined since."""
        held, epoch = self._topics.get(topic), self._labels.get(label)
        if held is None or epoch is None or epoch not in held.epochs:
            return
        used = held.told or held.epochs[-1]
        if held.epochs.index(epoch) > held.epochs.index(used):
            held.told = epoch if epoch is not held.epochs[-1] else None

    def seal(self, topic: str, plain: bytes, now: float) -> bytes | None:
        """Return a sealed datagram, or None without a key for the topic."""
        held = self._topics.get(topic)
        if held is None or not held.epochs:
            return None
        if held.told is not None and now < held.told.lapses:
            return held.told.seal(plain)
        return held.epochs[-1].seal(plain)

    def open(self, raw: bytes, now: float) -> Opened | Refusal:
        """Open a datagram, or return why it is refused. The cheap checks come first."""
        if len(raw) < OVERHEAD:
            return Refusal.FORM
        form, label, sender, count = HEADER.unpack_from(raw)
        if form != FORM:
            return Refusal.FORM
        epoch = self._labels.get(label)
        if epoch is None or epoch.until <= now:
            return Refusal.KEY
        opened = epoch.open(raw, sender, count)
        return opened if isinstance(opened, Refusal) else Opened(opened, epoch, sender)

    def peek(self, raw: bytes) -> bytes | None:
        """Return the content of a datagram without recording its number, or None if no held key opens it."""
        epoch = self._labels.get(raw[1:9])
        return None if epoch is None else epoch.peek(raw)
