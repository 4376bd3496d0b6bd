"""Describes the faults of password and ACL files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Fault(NamedTuple):
    """One fault of a file, with its line."""

    line: int
    """Line number, from 1."""
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class FileError(ValueError):
    """A file has faults. `faults` holds all of them in the order of their lines."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line)
        super().__init__("; ".join(map(str, self.faults)))
