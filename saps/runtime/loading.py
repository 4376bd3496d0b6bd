"""Ctrl-C while a program is loaded, most of the time before it does anything: it ends at once and says nothing.

Otherwise the interrupt would show as a traceback of whatever was being imported, or be swallowed there. So the entry
points import this alone, and the rest within `Loading`.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
"""Exit status of a program that SIGINT has ended, as shells tell it: 128 + 2."""


class Loading:
    """A context manager, which does nothing where SIGINT is ignored, or somebody else attends to it."""

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
