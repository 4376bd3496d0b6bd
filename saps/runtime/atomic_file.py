"""Files that are there complete, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""Ending of a file that is being written. Its name begins with a dot: Spark and others pass over such files."""


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Write a file anew: who reads it sees the old one or the new one, also after a crash. Raises OSError."""
    partial = file.with_name(f".{file.name}{PARTIAL}")
    with partial.open("wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory outlive a loss of power. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
