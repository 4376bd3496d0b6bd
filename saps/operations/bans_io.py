"""Reads and writes a broker's file of bans: JSON, always written as a whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from saps.operations.bans import Ban, BanList
from saps.runtime.atomic_file import replacing


class BanFileError(Exception):
    """Raised when the file of bans cannot be used; the text gives the reason."""


def read_bans(path: Path) -> list[Ban]:
    """Return the bans in the file, or an empty list if there is no file. Raises `BanFileError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=BanList).bans
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BanFileError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise BanFileError(f"{path}: {error}") from None


def write_bans(path: Path, found: BanList) -> None:
    """Replace the file's content by these bans, atomically and durably. Raises `OSError`."""
    with replacing(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(found), indent=1))
