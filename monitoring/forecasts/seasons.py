"""Values by the hour or the day, of one topic or of many: the only part of a forecast that is changed in place."""

from __future__ import annotations

import struct
from typing import Any

from monitoring.forecasts.arrays import Value

LARGEST = 65_000.0
"""Of a value in half precision."""
_HALF = struct.Struct("e")


class Season:
    """One value a slot."""

    __slots__ = ("_half", "_rows", "values")

    def __init__(self, values: Any, rows: Any = None, half: bool = False) -> None:
        """`values`: a list for one topic; an array of topics by slots for many, of which `rows` are meant (None: all).
        `half`: values are kept in half precision, rounded to even, as they are in such an array."""
        self.values = values
        self._rows = rows
        self._half = half

    def part(self, index: Value) -> Season:
        """Of the topics at an index. What is put into it is put into this."""
        return Season(self.values, index if self._rows is None else self._rows[index], self._half)

    def at(self, slot: Value) -> Value:
        """The value in a slot, or in one slot of each topic."""
        if isinstance(self.values, list):
            return self.values[slot]
        found = self.values[:, slot] if self._rows is None and isinstance(slot, int) else self.values[self._at(), slot]
        return found.astype("f8")

    def put(self, slot: Value, value: Value) -> None:
        """Change it."""
        if not isinstance(self.values, list):
            self.values[self._at(), slot] = value
        else:
            self.values[slot] = _HALF.unpack(_HALF.pack(value))[0] if self._half else value

    def _at(self) -> Value:
        if self._rows is None:
            import numpy as np

            self._rows = np.arange(len(self.values))
        return self._rows


def season(like: Value, slots: int, value: float, half: bool = False) -> Season:
    """The same value in all slots, of one topic, or of as many as the array `like` has."""
    if isinstance(like, float):
        return Season([value] * slots, half=half)
    import numpy as np

    return Season(np.full((len(like), slots), value, dtype="f2" if half else "f8"), half=half)
