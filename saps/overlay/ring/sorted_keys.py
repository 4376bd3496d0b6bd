"""Keys in order, of which a broker may have a million: to add one, to take one out and to find one costs about the same
however many there are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from saps.overlay.ring.keys import Key

LONGEST = 1000
"""Most keys in a part. Shorter parts are cheaper to insert into, and more of them dearer to find one among."""


class SortedKeys:
    """A sorted list without repetitions, kept in parts. A search compares keys in one part only, and then has the key
    at hand: a list that counts positions over all parts takes three times as long."""

    def __init__(self) -> None:
        self._parts: list[list[Key]] = []
        """In order; none is empty."""
        self._greatest: list[Key] = []
        """The greatest key of each part."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Key]:
        for part in self._parts:
            yield from part

    def __getitem__(self, index: int) -> Key:
        """The key at a position, from 0 up to the number of keys: counted through the parts. Raises IndexError."""
        for part in self._parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError

    def add(self, key: Key) -> bool:
        """Put a key in. False, and nothing changes, if it is there."""
        greatest = self._greatest
        at = bisect_left(greatest, key)
        if at < len(greatest):
            part = self._parts[at]
            place = bisect_left(part, key)
            if part[place] == key:
                return False
            part.insert(place, key)
        elif at:
            at -= 1
            part = self._parts[at]
            part.append(key)
            greatest[at] = key
        else:
            part = [key]
            self._parts.append(part)
            greatest.append(key)
        self._count += 1
        if len(part) > LONGEST:
            half = len(part) // 2
            self._parts.insert(at + 1, part[half:])
            greatest.insert(at, part[half - 1])
            del part[half:]
        return True

    def discard(self, key: Key) -> None:
        """Take a key out; nothing if it is not there."""
        at = bisect_left(self._greatest, key)
        if at == len(self._greatest):
            return
        part = self._parts[at]
        place = bisect_left(part, key)
        if part[place] != key:
            return
        del part[place]
        self._count -= 1
        if part:
            self._greatest[at] = part[-1]
        else:
            del self._parts[at], self._greatest[at]

    def before(self, key: Key) -> Key | None:
        """The greatest key less than this one."""
        at = bisect_left(self._greatest, key)
        if at < len(self._parts) and (place := bisect_left(self._parts[at], key)):
            return self._parts[at][place - 1]
        return self._greatest[at - 1] if at else None

    def after(self, key: Key) -> Key | None:
        """The least key greater than this one."""
        at = bisect_right(self._greatest, key)
        if at == len(self._parts):
            return None
        part = self._parts[at]
        return part[bisect_right(part, key)]

    def at_or_after(self, key: Key) -> Key | None:
        """The least key that is not less than this one."""
        at = bisect_left(self._greatest, key)
        if at == len(self._parts):
            return None
        part = self._parts[at]
        return part[bisect_left(part, key)]

    def first(self) -> Key | None:
        """The least key."""
        return self._parts[0][0] if self._parts else None

    def last(self) -> Key | None:
        """The greatest key."""
        return self._greatest[-1] if self._greatest else None

    def between(self, low: Key, high: Key) -> list[Key]:
        """All keys k with ``low <= k < high``, in order."""
        found: list[Key] = []
        for at in range(bisect_left(self._greatest, low), len(self._parts)):
            part = self._parts[at]
            end = bisect_left(part, high)
            found += part[bisect_left(part, low) : end]
            if end < len(part):
                break
        return found
