"""The expected ring of a simulation without faults."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from saps.overlay.ring.keys import Key, Ref


class Ring:
    """An oracle for the level-0 ring while nothing fails: it follows each change of a right link."""

    def __init__(self) -> None:
        self.keys: list[Key] = []

    def check(self, key: Key, right: Ref | None) -> None:
        """Check a changed right link: it may insert one key, remove one, or give a new node its right neighbour."""
        if not self.keys:
            self.keys.append(key)
        assert right is not None, f"{key} points nowhere"
        assert key in self, f"{key} has a right link but is not in the ring"
        if right.key not in self:
            insort(self.keys, right.key)
        successor = self._after(key)
        if successor != right.key:
            assert self._after(successor) == right.key, f"{key} points at {right.key}, past {successor}"
            self.keys.remove(successor)

    def __contains__(self, key: Key) -> bool:
        i = bisect_left(self.keys, key)
        return i < len(self.keys) and self.keys[i] == key

    def _after(self, key: Key) -> Key:
        return self.keys[bisect_right(self.keys, key) % len(self.keys)]
