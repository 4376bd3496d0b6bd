"""Whether the modules that every publication passes run compiled, or as the Python files they are compiled from.

`scripts/compile_hot.py` (``make setup``) compiles them and writes `STAMP`. Whoever changes a source afterwards runs the
sources, all of them, until they are compiled again; so does a process with ``PURE_SAPS=1``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import source_hash
from types import ModuleType

FOLDER = os.path.dirname(os.path.dirname(__file__))
STAMP = os.path.join(FOLDER, "compiled.json")
"""The hash of each source as it was compiled, by its path below the folder that holds the package."""
ASKED_FOR = "PURE_SAPS"
"""Environment variable: run the sources. Empty or 0: as if it were not set."""


class Modules(StrEnum):
    """What runs."""

    PURE = "pure"
    COMPILED = "compiled"
    STALE = "stale"
    """The sources, as they have changed since they were compiled."""


def hash_of(path: str | os.PathLike[str]) -> str:
    """Of a source."""
    with open(path, "rb") as file:
        return source_hash(file.read()).hex()


def settle() -> Modules:
    """Find out what is to run, before any of it is imported. Takes about 1 ms where something is compiled."""
    if os.environ.get(ASKED_FOR, "") not in ("", "0"):
        use_sources()
        return Modules.PURE
    try:
        with open(STAMP, "rb") as file:
            stamp = file.read()
    except OSError:
        return Modules.PURE
    if _is_stale(stamp):
        use_sources()
        return Modules.STALE
    return Modules.COMPILED


def use_sources() -> None:
    """From now on import Python files only, whatever is compiled beside them."""
    if _Sources not in sys.meta_path:
        sys.meta_path.insert(0, _Sources)


def _is_stale(stamp: bytes) -> bool:
    import json

    root = os.path.dirname(FOLDER)
    try:
        return any(hash_of(os.path.join(root, source)) != digest for source, digest in json.loads(stamp).items())
    except (OSError, ValueError, AttributeError):
        return True


@cache
def _finder(folder: str) -> FileFinder:
    """Of one folder: it remembers what is in it."""
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


class _Sources:
    """Finds the modules of the package among Python files alone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None, /) -> ModuleSpec | None:
        if path is None or not name.startswith("saps."):
            return None
        for folder in path:
            found = _finder(folder).find_spec(name)
            if found is not None and found.loader is not None:
                return found
        return None


modules = settle()
"""What this process runs."""
