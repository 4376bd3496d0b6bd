"""What is wrong with a file that says who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Fault(NamedTuple):
    """One fault, and the line it stands in."""

    line: int
    """Counted from 1."""
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class FileError(ValueError):
    """A text that cannot be used, with all its faults in the order of their lines."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line)
        super().__init__("; ".join(map(str, self.faults)))
