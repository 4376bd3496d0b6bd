"""The reason why a storage accepts nothing new."""

from __future__ import annotations

from typing import NamedTuple


class StorageFault(NamedTuple):
    """The state of a storage that accepts nothing new."""

    broken: bool
    """Whether writing fails. If False, the storage has only reached its configured maximum size."""
    full: bool
    """Whether the reason is lack of space; otherwise the disk or the server is at fault."""
    text: str
    """The reason, for the log and for operators."""
