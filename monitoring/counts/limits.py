"""Checks rows of counts: the bounds of their numbers, and the characters of their names.

One row beyond these limits would stop the job for good. The sum of a window would overflow, or a cluster's name would
split the list of sites at the wrong place. `fault` checks one row, `faults` a whole Arrow table; they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_type_hints

from saps.config.settings import cluster_fault, name_fault
from saps.statistics import Row

if TYPE_CHECKING:
    import pyarrow as pa

_YEAR_10000 = 253_402_300_800_000
_WEEK = 7 * 86_400
_COUNT, _BYTES, _BROKERS = 10**11, 10**15, 10**5
"""Bounds within one row. The reach is a sum of messages x brokers; 900 rows at both bounds fit in 64 bits."""
BOUNDS: Mapping[str, tuple[int, int]] = {
    "incarnation": (0, 2**63 - 1),
    "start": (0, _YEAR_10000),
    "seconds": (0, _WEEK),
    "messages": (0, _COUNT),
    "bytes": (0, _BYTES),
    "received": (0, _COUNT),
    "received_bytes": (0, _BYTES),
    "publishers": (0, _COUNT),
    "subscribers": (0, _COUNT),
    "brokers": (0, _BROKERS),
    "priority": (0, 7),
    "copies": (0, _COUNT * 10),
    "by_tree": (0, _COUNT),
    "joins": (0, _COUNT),
    "leaves": (0, _COUNT),
    "missed": (0, _COUNT),
}
"""Least and largest value of each number in a row."""
_NAMES: Mapping[str, Callable[[str], str | None]] = {
    "broker": lru_cache(4096)(name_fault),
    "cluster": lru_cache(4096)(cluster_fault),
}
_KINDS = get_type_hints(Row)


def fault(row: Row) -> str | None:
    """Return why a row is impossible, or None if it is valid."""
    for name, kind in _KINDS.items():
        value: Any = getattr(row, name)
        if value is None:
            return f"{name} has no value"
        if not _is_a(value, (int, float) if kind is float else list if name == "latency" else kind):
            return f"{name} is {value!r}"
        if name in BOUNDS and not BOUNDS[name][0] <= value <= BOUNDS[name][1]:
            return _beyond(name, value)
        if name in _NAMES and (reason := _NAMES[name](value)) is not None:
            return f"{name}: {reason}"
    return None


def faults(table: pa.Table) -> dict[int, str]:
    """Return the first fault of each impossible row, by row number. The table has the columns and types of a file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[int, str] = {}
    for name in Row._fields:
        column = table[name]
        if column.null_count:
            for number in pc.indices_nonzero(pc.is_null(column)).to_pylist():
                found.setdefault(number, f"{name} has no value")
        if name in BOUNDS:
            low, high = (pa.scalar(bound, column.type) for bound in BOUNDS[name])
            within = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
            if not pc.all(within).as_py():
                for number in pc.indices_nonzero(pc.invert(within)).to_pylist():
                    found.setdefault(number, _beyond(name, column[number].as_py()))
        if name in _NAMES:
            said = {value: _NAMES[name](value) for value in pc.unique(column).to_pylist() if value is not None}
            bad = pa.array([value for value, reason in said.items() if reason is not None], column.type)
            if len(bad):
                for number in pc.indices_nonzero(pc.is_in(column, value_set=bad)).to_pylist():
                    found.setdefault(number, f"{name}: {said[column[number].as_py()]}")
    return found


def _is_a(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _beyond(name: str, value: object) -> str:
    low, high = BOUNDS[name]
    return f"{name} is {value}, not between {low} and {high}"
