"""Computes the time that has passed since a file was last written, although the wall clock may have jumped meanwhile.

Expiries are stored by the wall clock.

1. Within one boot of the machine, the time since boot tells how much time has really passed.
2. After another boot, the wall clock is trusted if it has advanced by 0 to `LONG` seconds.
3. Otherwise only the time since boot counts, so that nothing expires early. After a real stop longer than `LONG`,
   sessions and messages therefore last longer by the rest of that stop.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

LONG = 86_400.0
"""Longest stop of a broker in seconds; a longer one counts as a jump of the clock. A greater value lets smaller jumps
expire sessions; a smaller one prolongs sessions after shorter stops."""
JUMP = 1.0
"""Smallest jump of the clock in seconds; time synchronisation slews a clock by less."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Moment(NamedTuple):
    """A moment by the wall clock and by the time since boot."""

    wall: float
    """Seconds since the epoch."""
    boot: str
    """Identifier of the machine's boot; empty if the system has none."""
    up: float
    """Seconds since that boot."""

    @property
    def text(self) -> str:
        """The wall clock in UTC, as ISO 8601."""
        try:
            return datetime.fromtimestamp(self.wall, UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError, OSError):
            return f"{self.wall:.0f} s after 1970"


def moment(wall: float | None = None) -> Moment:
    """Return the present moment. `wall`: seconds since the epoch to use instead of the wall clock's time."""
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
    """Return the seconds by which the wall clock has advanced beyond the time that counts (see the module); negative if
    it fell behind, 0 below `JUMP`."""
    told = now.wall - then.wall
    if then.boot and then.boot == now.boot and now.up >= then.up:
        passed = now.up - then.up
    elif 0 <= told <= LONG:
        passed = told
    else:
        passed = now.up
    found = told - passed
    return found if abs(found) >= JUMP else 0.0
