"""Decides whether the modules on the path of a publication run compiled, or as Python sources.

`scripts/compile_hot.py` (``make setup``) compiles them and writes `STAMP`. After a change of any source all of them run
as sources, until they are compiled again. A process with ``PURE_SAPS=1`` always runs the sources.
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
"""JSON file with the hash of each compiled source, by its path relative to the folder that holds the package."""
ASKED_FOR = "PURE_SAPS"
"""Environment variable that asks for the sources. Empty or 0 counts as not set."""


class Modules(StrEnum):
    """The kind of modules that a process runs."""

    PURE = "pure"
    COMPILED = "compiled"
    STALE = "stale"
    """The sources, since one has changed after they were compiled."""


def hash_of(path: str | os.PathLike[str]) -> str:
    """Return the hash of a source file in hexadecimal. Raises `OSError`."""
    with open(path, "rb") as file:
        return source_hash(file.read()).hex()


def settle() -> Modules:
    """Decide what to run before any of these modules is imported. Takes about 1 ms with compiled modules."""
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
    """Import only Python sources of the package from now on, even where compiled modules lie beside them."""
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
    """Return the source finder of one folder, which caches the folder's content."""
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


class _Sources:
    """A finder for the package's modules that ignores compiled ones."""

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
"""The kind of modules that this process runs."""
