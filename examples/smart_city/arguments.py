"""Words on the command line, as argparse takes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def positive(text: str) -> float:
    """More than 0, and finite."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def count(most: int) -> Callable[[str], int]:
    """From 1 to `most`."""

    def _count(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"must be 1 to {most}")
        return value

    return _count


def addresses(text: str) -> list[tuple[str, int]]:
    """``HOST:PORT,...``."""
    found = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise argparse.ArgumentTypeError(f"{part!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def new_file(text: str) -> Path:
    """A file that can be written: refused now, not after the run."""
    file = Path(text)
    if not file.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(file.parent)!r}")
    if file.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder")
    return file
