"""Handles Ctrl-C while a program is being imported: the process ends at once and prints nothing.

Without this the interrupt would show a traceback of an import, or get lost there. Entry points import this module
first, and everything else within `Loading`.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
"""Exit status of a program that SIGINT has ended, by the convention of shells: 128 + 2."""


class Loading:
    """A context manager around imports. It does nothing if SIGINT is ignored or has another handler."""

    def __enter__(self) -> None:
        self._attended = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if not self._attended:
            try:
                signal.signal(signal.SIGINT, _end)
            except ValueError:  # only the main thread may, and only there an interrupt is raised
                self._attended = True

    def __exit__(self, *_: object) -> None:
        if not self._attended:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    os._exit(INTERRUPTED)
