"""What can be fuzzed: a target is a name, a function that does something with bytes, and the bounds it must keep.

A target raises if what it looks at breaks: an exception that nobody catches, a limit that does not hold, somebody else
who notices. `corpus` holds for each target a few inputs that together reach much of its code, in text files with one
input a line; `crashers` what once broke something. The tests try all of both; `scripts/fuzz.py` looks for more.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
CRASHERS = Path(__file__).parent / "crashers"


@dataclass(frozen=True)
class Target:
    """One parser or machine that faces a network."""

    name: str
    sender: str
    """Who sends it what, in a few words."""
    run: Callable[[bytes], object]
    """Raises if the input breaks something."""
    seeds: Callable[[], list[bytes]]
    """Inputs to begin with."""
    longest: int = 4096
    """Bytes of one input that are used."""
    timeout: float = 1.0
    """Seconds of the processor that one input may take, on a machine that is not busy."""


def corpus(name: str) -> list[bytes]:
    """The inputs kept for a target."""
    path = CORPUS / f"{name}.txt"
    return [b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Make these the corpus of a target."""
    CORPUS.mkdir(exist_ok=True)
    lines = sorted(b64encode(data).decode() for data in inputs)
    (CORPUS / f"{name}.txt").write_text("\n".join(sorted(lines, key=len)) + "\n")


def crashers() -> list[tuple[str, Path]]:
    """The target and the file of each input that once broke something."""
    return [(path.name.rpartition("-")[0], path) for path in sorted(CRASHERS.glob("*-*"))]
