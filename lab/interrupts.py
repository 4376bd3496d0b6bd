"""Ctrl-C and SIGTERM while a lab is being built or cleared away: they take effect where it can be left, not anywhere.

An exception between two lines that belong together, such as making a folder and noting that it was made, is what leaves
traces. So inside `deferred` a signal is only noted, and `checkpoint` raises it.
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
    """Signals that come in the block take their usual effect after it, or at its next `checkpoint`.

    Only the main thread ever handles signals; in any other this does nothing."""
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
    """Raises `KeyboardInterrupt` if a signal has been noted: here the work can be given up."""
    if _noted and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
