"""The logical key hierarchy: one secret for a group, renewed for a member's leave by O(log n) wrapped keys (Wong, Gouda
and Lam 1998; RFC 2627, 5.4).

The members are the leaves of a binary tree of keys; each knows the keys from its own leaf to the root, and the root is
the group's secret. Whoever joins or leaves, all keys above its leaf are drawn anew, each wrapped under both of its
children; nobody who has left knows any of these, and nobody who joins learns what was there before. Names are drawn
once and never used again, so a wrapped key may be repeated, late or twice, and harms nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRET = 32
"""Bytes of a secret."""
SPARSE = 4
"""A tree with this many times as many places as members is built anew over the leaves: so its height stays within
log2(n) + 2, at a cost of two wraps for each leave before, on average."""

M = TypeVar("M")
Place = tuple[int, int]
"""(level, position): level 0 are the leaves; position p is below p // 2 of the next level."""


class Key(NamedTuple):
    """A key of the tree, of some life of its node."""

    id: int
    """Names it within the hierarchy. Grows: a key is younger than all that it is wrapped under."""
    secret: bytes


class Wrap(NamedTuple):
    """A key, readable for whoever knows another one."""

    id: int
    under: int
    sealed: bytes


def expand(secret: bytes, purpose: bytes) -> bytes:
    """A key for one purpose, 32 bytes: HKDF-Expand with SHA-256 (RFC 5869, 2.3; the secret is uniform already, 3.3)."""
    return hmac.digest(secret, purpose + b"\x01", "sha256")


def wrap(group: bytes, key: Key, under: Key) -> Wrap:
    """The nonce is the key's name: under no key are two different ones ever sealed with the same."""
    sealed = AESGCM(expand(under.secret, b"saps ofm wrap")).encrypt(key.id.to_bytes(12, "big"), key.secret, group)
    return Wrap(key.id, under.id, sealed)


class Hierarchy(Generic[M]):
    """The key server's side, for one group."""

    def __init__(self, group: bytes, draw: Callable[[int], bytes]) -> None:
        """`group` names it, and is bound into every wrap. `draw` gives so many random bytes, fit for secrets."""
        self._group = group
        self._draw = draw
        self._height = 1
        self._free = [0, 1]
        self._slots: dict[M, int] = {}
        self._keys: dict[Place, Key] = {}
        self.drawn = 0
        """Keys drawn so far, and the highest name."""

    @property
    def members(self) -> set[M]:
        """Who is in it."""
        return set(self._slots)

    @property
    def root(self) -> Key | None:
        """The group's secret; None without members."""
        return self._keys.get((self._height, 0))

    def leaf(self, member: M) -> Key:
        """The member's own key, to be given to it in confidence, once. Raises KeyError for others."""
        return self._keys[0, self._slots[member]]

    def path(self, member: M) -> list[Wrap]:
        """What the member needs to get from its leaf to the root. Raises KeyError for others."""
        slot = self._slots[member]
        keys = [self._keys[level, slot >> level] for level in range(self._height + 1)]
        return [wrap(self._group, key, under) for under, key in pairwise(keys)]

    def change(self, joined: Iterable[M] = (), gone: Iterable[M] = ()) -> list[Wrap]:
        """Members join and leave; there is a new root in any case. The wraps are for all members, lower keys first.
        Raises KeyError if one that leaves is none."""
        dirty = set()
        for member in gone:
            slot = self._slots.pop(member)
            del self._keys[0, slot]
            heappush(self._free, slot)
            dirty.add(slot)
        for member in joined:
            if not self._free:
                self._grow()
            slot = self._slots[member] = heappop(self._free)
            self._keys[0, slot] = self._fresh()
            dirty.add(slot)
        if self._height > 1 and SPARSE * len(self._slots) <= 1 << self._height:
            dirty = self._compact()
        return self._renew(dirty)

    def _renew(self, slots: set[int]) -> list[Wrap]:
        """Draw all keys above these leaves anew, and the root."""
        wraps = []
        for level in range(1, self._height + 1):
            places = {slot >> level for slot in slots} | ({0} if level == self._height else set())
            for at in sorted(places):
                below = [self._keys.get((level - 1, child)) for child in (2 * at, 2 * at + 1)]
                self._keys.pop((level, at), None)
                if any(below):
                    key = self._keys[level, at] = self._fresh()
                    wraps += [wrap(self._group, key, under) for under in below if under is not None]
        return wraps

    def _grow(self) -> None:
        """Twice as many places: the old root becomes the left child of the new one."""
        size = 1 << self._height
        self._height += 1
        self._free = list(range(size, 2 * size))

    def _compact(self) -> set[int]:
        """The members move together into a smaller tree, with the leaves they have."""
        leaves = [(member, self.leaf(member)) for member in self._slots]
        self._height = max(1, (len(leaves) - 1).bit_length())
        self._keys = {(0, slot): key for slot, (_, key) in enumerate(leaves)}
        self._slots = {member: slot for slot, (member, _) in enumerate(leaves)}
        self._free = list(range(len(leaves), 1 << self._height))
        heapify(self._free)
        return set(self._slots.values())

    def _fresh(self) -> Key:
        self.drawn += 1
        return Key(self.drawn, self._draw(SECRET))


class Chain:
    """A member's side: the keys from its leaf to the root, as far as it has been told."""

    def __init__(self, group: bytes, leaf: Key) -> None:
        self._group = group
        self.leaf = leaf.id
        self._secrets = {leaf.id: leaf.secret}
        self._above: dict[int, int] = {}

    def take(self, wraps: Iterable[tuple[int, int, bytes]]) -> None:
        """Unwrap what can be. Anything else is passed over, whatever it is."""
        for id, under, sealed in wraps:
            secret = self._secrets.get(under)
            if secret is None or not under < id < 1 << 64 or id in self._secrets:
                continue
            if id <= self._above.get(under, 0):
                continue  # older than what is there
            try:
                opener = AESGCM(expand(secret, b"saps ofm wrap"))
                opened = opener.decrypt(id.to_bytes(12, "big"), sealed, self._group)
            except InvalidTag:
                continue
            self._secrets[id] = opened
            self._above[under] = id
        self._prune()

    def secret(self, id: int) -> bytes | None:
        """The secret of a key of the chain; None if this member does not have it."""
        return self._secrets.get(id)

    def _prune(self) -> None:
        """Forget the keys that are no longer between leaf and root."""
        chain = [self.leaf]
        while (above := self._above.get(chain[-1])) is not None:
            chain.append(above)
        self._secrets = {id: self._secrets[id] for id in chain}
        self._above = {under: self._above[under] for under in chain[:-1]}
