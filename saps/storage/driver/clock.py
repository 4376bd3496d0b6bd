"""How much time has passed since a file was written last, where the machine's clock may have jumped meanwhile.

Expiries are stored by the wall clock. Within one boot of the machine the time since boot tells what has really passed.
After another boot the wall clock is believed, unless it says less than nothing or more than `LONG`: then only what has
passed since boot counts, so that nothing expires early; after a real stop that long it lasts longer by as much.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

LONG = 86_400.0
"""Seconds without a broker that are taken for a clock that has jumped. More lets smaller jumps expire sessions; less
prolongs sessions after shorter stops."""
JUMP = 1.0
"""Seconds from which it is a jump: clocks are steered by less."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Moment(NamedTuple):
    """A moment as a machine knows it."""

    wall: float
    """Seconds since the epoch."""
    boot: str
    """Which start of the machine; empty if it does not say."""
    up: float
    """Seconds since that start."""

    @property
    def text(self) -> str:
        """By the wall clock, in UTC."""
        try:
            return datetime.fromtimestamp(self.wall, UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError, OSError):
            return f"{self.wall:.0f} s after 1970"


def moment(wall: float | None = None) -> Moment:
    """Now. `wall`: what the wall clock is to be taken for."""
    return Moment(time.time() if wall is None else wall, _boot(), _up())


@cache
def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _up() -> float:
    return time.clock_gettime(_SINCE_BOOT)


def jump(then: Moment, now: Moment) -> float:
    """Seconds by which the wall clock has gone on more than is to be counted; negative: less."""
    told = now.wall - then.wall
    if then.boot and then.boot == now.boot and now.up >= then.up:
        passed = now.up - then.up
    elif 0 <= told <= LONG:
        passed = told
    else:
        passed = now.up
    found = told - passed
    return found if abs(found) >= JUMP else 0.0
