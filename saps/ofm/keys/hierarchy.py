"""The logical key hierarchy: one group secret, renewed after a member's leave by O(log n) wrapped keys (Wong, Gouda and
Lam 1998; RFC 2627, 5.4).

The members are the leaves of a binary tree of keys. Each member knows the keys from its own leaf to the root, and the
root is the group's secret. When a member joins or leaves, all keys above its leaf are drawn anew, each wrapped under
both of its children. So members that have left know none of the new keys, and new members learn none of the old ones.
Names are drawn once and never reused, so a late or repeated wrapped key does no harm.
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
"""Length of a secret in bytes."""
SPARSE = 4
"""A tree with at least this many times as many places as members is rebuilt over its leaves. So its height stays within
log2(n) + 2, at an average cost of two wraps for each leave before."""

M = TypeVar("M")
Place = tuple[int, int]
"""Pair (level, position). Level 0 holds the leaves; position p is below position p // 2 of the next level."""


class Key(NamedTuple):
    """A key of the tree: one version of a node's key."""

    id: int
    """Name within the hierarchy. Names grow: a key has a greater name than all keys it is wrapped under."""
    secret: bytes


class Wrap(NamedTuple):
    """A key `id`, encrypted under the key `under`."""

    id: int
    under: int
    sealed: bytes


def expand(secret: bytes, purpose: bytes) -> bytes:
    """Return a key for one purpose, 32 bytes: HKDF-Expand with SHA-256 (RFC 5869, 2.3; the secret is uniform already,
    3.3)."""
    return hmac.digest(secret, purpose + b"\x01", "sha256")


def wrap(group: bytes, key: Key, under: Key) -> Wrap:
    """Return a key wrapped under another. The nonce is the wrapped key's name: no two different keys are ever sealed
    under one key with the same nonce."""
    sealed = AESGCM(expand(under.secret, b"saps ofm wrap")).encrypt(key.id.to_bytes(12, "big"), key.secret, group)
    return Wrap(key.id, under.id, sealed)


class Hierarchy(Generic[M]):
    """The key server's side of one group."""

    def __init__(self, group: bytes, draw: Callable[[int], bytes]) -> None:
        """`group` names the group and is bound into every wrap. `draw` returns the given number of random bytes, fit
        for secrets."""
        self._group = group
        self._draw = draw
        self._height = 1
        self._free = [0, 1]
        self._slots: dict[M, int] = {}
        self._keys: dict[Place, Key] = {}
        self.drawn = 0
        """Number of keys drawn so far, which is also the highest name."""

    @property
    def members(self) -> set[M]:
        """The members of the group."""
        return set(self._slots)

    @property
    def root(self) -> Key | None:
        """The key that holds the group's secret; None without members."""
        return self._keys.get((self._height, 0))

    def leaf(self, member: M) -> Key:
        """Return the member's own key, to be given to it once, in confidence. Raises `KeyError` for a non-member."""
        return self._keys[0, self._slots[member]]

    def path(self, member: M) -> list[Wrap]:
        """Return the wraps that lead the member from its leaf to the root. Raises `KeyError` for a non-member."""
        slot = self._slots[member]
        keys = [self._keys[level, slot >> level] for level in range(self._height + 1)]
        return [wrap(self._group, key, under) for under, key in pairwise(keys)]

    def change(self, joined: Iterable[M] = (), gone: Iterable[M] = ()) -> list[Wrap]:
        """Add and remove members, and draw a new root in any case. Return the wraps for all members, lower keys first.
        Raises `KeyError` if a member of `gone` is unknown."""
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
        """Draw all keys above these leaves anew, and the root. Return their wraps, lower keys first."""
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
        """Double the places: the old root becomes the left child of the new one."""
        size = 1 << self._height
        self._height += 1
        self._free = list(range(size, 2 * size))

    def _compact(self) -> set[int]:
        """Move the members together into a smaller tree, with the leaves they have. Return the slots of all leaves."""
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
    """A member's side: the keys from its leaf to the root, as far as it has received them."""

    def __init__(self, group: bytes, leaf: Key) -> None:
        self._group = group
        self.leaf = leaf.id
        self._secrets = {leaf.id: leaf.secret}
        self._above: dict[int, int] = {}

    def take(self, wraps: Iterable[tuple[int, int, bytes]]) -> None:
        """Unwrap the keys that this member can unwrap, and ignore all others."""
        for id, under, sealed in wraps:
            secret = self._secrets.get(under)
            # Names grow towards the root, so no wrap, forged or repeated, can close a cycle or replace a newer key.
            if secret is None or not under < id < 1 << 64 or id in self._secrets:
                continue
            if id <= self._above.get(under, 0):
                continue  # older than the key that is held
            try:
                opener = AESGCM(expand(secret, b"saps ofm wrap"))
                opened = opener.decrypt(id.to_bytes(12, "big"), sealed, self._group)
            except InvalidTag:
                continue
            self._secrets[id] = opened
            self._above[under] = id
        self._prune()

    def secret(self, id: int) -> bytes | None:
        """Return the secret of a key of the chain, or None if this member does not have it."""
        return self._secrets.get(id)

    def _prune(self) -> None:
        """Drop the keys that are no longer between leaf and root."""
        chain = [self.leaf]
        while (above := self._above.get(chain[-1])) is not None:
            chain.append(above)
        self._secrets = {id: self._secrets[id] for id in chain}
        self._above = {under: self._above[under] for under in chain[:-1]}
