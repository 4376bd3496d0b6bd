"""Why nothing new can be stored."""

from __future__ import annotations

from typing import NamedTuple


class StorageFault(NamedTuple):
    """The state of a storage that takes nothing new."""

    broken: bool
    """Nothing can be written. False: only the size that was allowed has been reached."""
    full: bool
    """There is no space; else it is a fault of the disk."""
    text: str
