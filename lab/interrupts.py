"""Defers Ctrl-C and SIGTERM, while a lab is built or cleared away, to points where the work can stop.

An exception between two lines that belong together, such as making a folder and noting it, would leave traces. Inside
`deferred` a signal is therefore only noted, and `checkpoint` raises it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_noted: list[int] = []


@contextmanager
def deferred() -> Iterator[None]:
    """Defer signals that come in the block to its next `checkpoint`, or to its end.

    Only the main thread handles signals; in any other thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came = list(_noted)
        _noted.clear()
        for pending in came:
            signal.raise_signal(pending)


def _note(number: int, _frame: FrameType | None) -> None:
    _noted.append(number)


def checkpoint() -> None:
    """Raise `KeyboardInterrupt` if a signal has been noted. Call it where the work can be given up."""
    if _noted and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
