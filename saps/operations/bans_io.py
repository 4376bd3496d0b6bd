"""The file in which a broker keeps the bans: JSON, written whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from saps.operations.bans import Ban, BanList
from saps.runtime.atomic_file import replacing


class BanFileError(Exception):
    """The file cannot be used; the text says why."""


def read_bans(path: Path) -> list[Ban]:
    """What is in the file; nothing if there is none. Raises `BanFileError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=BanList).bans
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BanFileError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise BanFileError(f"{path}: {error}") from None


def write_bans(path: Path, found: BanList) -> None:
    """Put these in the place of what is there, durably. Raises `OSError`."""
    with replacing(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(found), indent=1))
