"""What a process does with memory it has freed."""

from __future__ import annotations

KEPT = 16 << 20
"""Bytes freed at the end of the heap that are not given back to the system. Each turn of a busy broker needs some MiB
for what has been read, the frames and packets made of it, and what is to be written: given back and taken again they
cost a page fault for every 4 KiB."""
LARGE = 4 << 20
"""Bytes above which a buffer is on its own, and always given back."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt` (malloc.h of the GNU C library)."""


def keep_freed() -> bool:
    """From now on this process keeps up to `KEPT` bytes that it has freed, for its next use of them. False if its C
    library is not GNU's: then nothing is changed."""
    try:
        from ctypes import CDLL  # here: most programs need none of it

        library = CDLL(None)
        library.gnu_get_libc_version  # noqa: B018
        return bool(library.mallopt(_TRIM_THRESHOLD, KEPT) and library.mallopt(_MMAP_THRESHOLD, LARGE))
    except (ImportError, OSError, AttributeError, TypeError):
        return False
