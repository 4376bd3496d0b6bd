"""A wall clock that can be set for one process: Debian's libfaketime, preloaded, with the difference in a file.

Only the time of day jumps, as when an administrator or NTP sets it; the monotonic clock goes on, as it does then.
"""

from __future__ import annotations

import os
from glob import glob
from pathlib import Path

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")
"""Where the package libfaketime puts it."""
NOTICED = 1
"""Seconds after which a process has looked at the file again."""


def library() -> str | None:
    """The library, if it is there."""
    return next((path for pattern in LIBRARIES for path in sorted(glob(pattern))), None)


class WallClock:
    """The clock of one process, and of whatever takes its place."""

    def __init__(self, file: Path) -> None:
        """`file`: where the difference is kept; its folder need not be there yet."""
        self._file = file

    @property
    def environment(self) -> dict[str, str]:
        """What the process must find in its environment; nothing where there is no library."""
        preloaded = library()
        if preloaded is None:
            return {}
        return {
            "LD_PRELOAD": preloaded,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else a thread that waits for the interpreter never waits
            "FAKETIME_CACHE_DURATION": str(NOTICED),
        }

    def set(self, ahead: float) -> None:
        """From now on, or `NOTICED` seconds later, it is so many seconds ahead of this machine's."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{ahead:+.1f}\n")
        os.replace(written, self._file)
