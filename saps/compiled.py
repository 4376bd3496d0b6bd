"""Whether the MQTT codec runs as Python or compiled from the same files (``make compiled``, decision 120)."""

from __future__ import annotations

import hashlib
import json
import logging
from enum import StrEnum
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from saps import plain

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
"""The folder the package is in."""
STAMP = Path("saps/compiled.json")
"""Under the root: the SHA-256 of each source as it was compiled. `scripts/compile_codec.py` writes it."""


class Codec(StrEnum):
    """What runs."""

    PURE = "pure"
    COMPILED = "compiled"
    STALE = "stale"
    """Compiled from sources that have changed since, or are not known."""


def codec() -> Codec:
    """What this process runs. Reads the sources of a compiled codec: about 0.1 ms."""
    if not str(plain.__file__).endswith(tuple(EXTENSION_SUFFIXES)):
        return Codec.PURE
    return Codec.COMPILED if _is_fresh(ROOT) else Codec.STALE


def say_codec() -> None:
    """The log says that the codec is compiled, and warns if it is not what the sources say."""
    match codec():
        case Codec.COMPILED:
            logger.info("the MQTT codec is compiled")
        case Codec.STALE:
            logger.warning("the MQTT codec was compiled from other sources: run make compiled, or make pure")
        case Codec.PURE:
            pass


def _is_fresh(root: Path) -> bool:
    """True if no source has changed since it was compiled. One that is not there cannot have."""
    try:
        digests: dict[str, str] = json.loads((root / STAMP).read_bytes())
    except (OSError, ValueError):
        return False
    return all(hashlib.sha256(path.read_bytes()).hexdigest() == digest for path, digest in _sources(root, digests))


def _sources(root: Path, digests: dict[str, str]) -> list[tuple[Path, str]]:
    return [(path, digest) for name, digest in digests.items() if (path := root / name).exists()]
