"""Controls how much freed memory a process keeps."""

from __future__ import annotations

KEPT = 16 << 20
"""Most freed bytes at the end of the heap that the process keeps. Each turn of a busy broker needs some MiB for what it
reads, for the frames and packets made of it, and for what it writes. Returning and requesting them each turn would cost
a page fault for every 4 KiB."""
LARGE = 4 << 20
"""Bytes above which a buffer gets a mapping of its own, which is always returned."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt` (malloc.h of the GNU C library)."""


def keep_freed() -> bool:
    """Have this process keep up to `KEPT` freed bytes for reuse. Returns False, and changes nothing, if its C library
    is not GNU's."""
    try:
        from ctypes import CDLL  # here: most programs need none of it

        library = CDLL(None)
        library.gnu_get_libc_version  # noqa: B018
        return bool(library.mallopt(_TRIM_THRESHOLD, KEPT) and library.mallopt(_MMAP_THRESHOLD, LARGE))
    except (ImportError, OSError, AttributeError, TypeError):
        return False
