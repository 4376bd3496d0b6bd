"""Keys in order, of which a broker may have a million: to add one, to take one out and to find one costs about the same
however many there are."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList

from saps.overlay.ring.keys import Key


class SortedKeys:
    """A sorted list without repetitions."""

    def __init__(self) -> None:
        self._keys: SortedList[Key] = SortedList()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __getitem__(self, index: int) -> Key:
        """The key at a position, from 0 up to the number of keys. Raises IndexError."""
        return self._keys[index]

    def add(self, key: Key) -> bool:
        """Put a key in. False, and nothing changes, if it is there."""
        if self.at_or_after(key) == key:
            return False
        self._keys.add(key)
        return True

    def discard(self, key: Key) -> None:
        """Take a key out; nothing if it is not there."""
        self._keys.discard(key)

    def before(self, key: Key) -> Key | None:
        """The greatest key less than this one."""
        i = self._keys.bisect_left(key)
        return self._keys[i - 1] if i else None

    def after(self, key: Key) -> Key | None:
        """The least key greater than this one."""
        return self._at(self._keys.bisect_right(key))

    def at_or_after(self, key: Key) -> Key | None:
        """The least key that is not less than this one."""
        return self._at(self._keys.bisect_left(key))

    def first(self) -> Key | None:
        """The least key."""
        return self._at(0)

    def last(self) -> Key | None:
        """The greatest key."""
        return self._keys[-1] if self._keys else None

    def between(self, low: Key, high: Key) -> list[Key]:
        """All keys k with ``low <= k < high``, in order."""
        return list(self._keys.irange(low, high, inclusive=(True, False)))

    def _at(self, index: int) -> Key | None:
        return self._keys[index] if index < len(self._keys) else None
