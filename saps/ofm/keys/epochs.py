"""The keys one broker holds: for each topic the newest, and for a while those before it.

When the members of a tree change, all get a new key. Each sender goes on with the old one until it is told that the
others have the new one (`use`); receivers take both meanwhile. Nobody has to tell: half of the `overlap` after the new
key has come its holder seals with it by itself, and after all of it the old one is forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from saps.ofm.keys.hierarchy import Chain, Key
from saps.ofm.keys.sealing import FORM, HEADER, OVERHEAD, Epoch, Refusal
from saps.overlay.frames.delivery import GroupKeys
from saps.overlay.ring.keys import BrokerRef

GROUPS = 4
"""Hierarchies of one topic that a broker takes part in at a time: more than one if the key server has changed."""
EPOCHS = 8
"""Keys of one topic that are held at a time."""


class Opened(NamedTuple):
    """What a datagram held."""

    plain: bytes
    epoch: Epoch
    sender: int


class _Topic:
    """The keys of one topic."""

    __slots__ = ("chains", "epochs", "roots", "told")

    def __init__(self) -> None:
        self.chains: dict[bytes, Chain] = {}
        """By group, the latest last."""
        self.roots: dict[bytes, int] = {}
        """Group -> name of the newest root held."""
        self.epochs: list[Epoch] = []
        """The newest last."""
        self.told: Epoch | None = None
        """What this broker seals with, until it lapses; None: with the newest."""


class Keyring:
    """All keys of one broker. `now` is in seconds, of the clock of all calls."""

    def __init__(self, me: BrokerRef, on_labels: Callable[[Iterable[bytes]], None] = lambda labels: None) -> None:
        """`on_labels` gets the labels of all keys held, whenever these change."""
        self._me = me
        self._on_labels = on_labels
        self._topics: dict[str, _Topic] = {}
        self._labels: dict[bytes, Epoch] = {}
        self._changed = False

    def take(self, keys: GroupKeys, now: float) -> bool:
        """Keys have come from the key server. True if this broker now has the group's key."""
        taken = self._take(keys, now)
        if self._changed:
            self._changed = False
            self._on_labels(self._labels.keys())
        return taken

    def _take(self, keys: GroupKeys, now: float) -> bool:
        if not keys.root:
            self._retire(keys, now)
            return True
        topic = self._topics.setdefault(keys.topic, _Topic())
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
        try:
            epoch = Epoch(keys.topic, secret, chain.leaf, self._me.incarnation)
        except struct.error:
            return False
        topic.roots[keys.group] = keys.root
        self._add(topic, epoch, max(0.0, keys.overlap), now)
        return True

    def _add(self, topic: _Topic, epoch: Epoch, overlap: float, now: float) -> None:
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
        self._changed = True
        if topic.told is epoch:
            topic.told = None

    def _retire(self, keys: GroupKeys, now: float) -> None:
        """This broker is not in the group any more, or there is none."""
        topic = self._topics.get(keys.topic)
        if topic is None or topic.chains.pop(keys.group, None) is None:
            return
        topic.roots.pop(keys.group, None)
        for epoch in list(topic.epochs):
            epoch.until = min(epoch.until, now + max(0.0, keys.overlap))
            if epoch.until <= now or not topic.chains:
                self._forget(topic, epoch)
        if not topic.chains:
            del self._topics[keys.topic]

    def use(self, topic: str, label: bytes) -> None:
        """Whoever is to read the topic holds this key: seal with it from now on. Ignored are unknown labels, and those
        of keys older than the one in use: word of them has been long on its way, and brokers have come since."""
        held, epoch = self._topics.get(topic), self._labels.get(label)
        if held is None or epoch is None or epoch not in held.epochs:
            return
        used = held.told or held.epochs[-1]
        if held.epochs.index(epoch) > held.epochs.index(used):
            held.told = epoch if epoch is not held.epochs[-1] else None

    def seal(self, topic: str, plain: bytes, now: float) -> bytes | None:
        """A sealed datagram; None without a key for the topic."""
        held = self._topics.get(topic)
        if held is None or not held.epochs:
            return None
        if held.told is not None and now < held.told.lapses:
            return held.told.seal(plain)
        return held.epochs[-1].seal(plain)

    def open(self, raw: bytes, now: float) -> Opened | Refusal:
        """What a datagram holds, or why that is not told. The cheap questions come first."""
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
        """What a datagram holds, without taking note of it; None if no key that is held opens it."""
        epoch = self._labels.get(raw[1:9])
        return None if epoch is None else epoch.peek(raw)
