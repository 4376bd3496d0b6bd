"""Seasonal values by hour or day, of one topic or of many: the only part of a forecast that changes in place."""

from __future__ import annotations

import struct
from typing import Any

from monitoring.forecasts.arrays import Value

LARGEST = 65_000.0
"""Largest value kept in half precision; the format's own limit is 65504."""
_HALF = struct.Struct("e")


class Season:
    """A value for each slot, such as an hour of the day."""

    __slots__ = ("_half", "_rows", "values")

    def __init__(self, values: Any, rows: Any = None, half: bool = False) -> None:
        """`values` is a list of slots for one topic, or an array of topics by slots for many.

        `rows` selects topics of the array; None: all. With `half`, a list keeps its values in half precision, rounded
        to even, as an array of that type does."""
        self.values = values
        self._rows = rows
        self._half = half

    def part(self, index: Value) -> Season:
        """Return the season of the topics at an index. Values put into it change this season as well."""
        return Season(self.values, index if self._rows is None else self._rows[index], self._half)

    def at(self, slot: Value) -> Value:
        """Return the value in a slot, or the value of each topic in its slot."""
        if isinstance(self.values, list):
            return self.values[slot]
        found = self.values[:, slot] if self._rows is None and isinstance(slot, int) else self.values[self._at(), slot]
        return found.astype("f8")

    def put(self, slot: Value, value: Value) -> None:
        """Set the value in a slot, or the value of each topic in its slot."""
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
    """Return a season with one value in all slots: of one topic if `like` is a float, else of as many as `like` has."""
    if isinstance(like, float):
        return Season([value] * slots, half=half)
    import numpy as np

    return Season(np.full((len(like), slots), value, dtype="f2" if half else "f8"), half=half)
