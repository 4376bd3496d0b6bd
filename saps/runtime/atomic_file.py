"""Writes files atomically: a reader sees the old content or the new one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""Suffix of a file that is being written. Its name begins with a dot, so that Spark and others ignore it."""
PRIVATE = 0o600
"""Mode of a file that only its owner reads."""
_CANNOT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Errors of a file system that cannot sync directories."""


@contextmanager
def replacing(file: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Replace a file atomically: write to the yielded file. After a loss of power it is the old or the new one, once
    this has returned the new one. `mode` is that of the new file, before the umask. Raises `OSError`."""
    partial = file.with_name(f".{file.name}{PARTIAL}")
    with open(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode), "wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that new names in it survive a loss of power, unless its file system cannot do that. Raises
    `OSError`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(descriptor)
