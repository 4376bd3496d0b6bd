"""Files of a simulated broker's log of what others have missed."""

from __future__ import annotations

from functools import partial

from saps.overlay.missed.segments import InMemory
from saps.simulator import SimBroker

Files = dict[int, "File"]
"""The segments of one broker's log, by number."""


class File(InMemory):
    """A segment in a file that outlives its broker until it is removed. (As
    `saps.storage.driver.missed.FileSegment`.)"""

    def __init__(self, files: Files, number: int) -> None:
        super().__init__()
        self._files, self._number = files, number
        files[number] = self

    def close(self) -> None:
        self._files.pop(self._number, None)


def keep_missed(broker: SimBroker, files: Files) -> None:
    """Have a broker go on with the log in these files, and write to them."""
    catch_up = broker.node.delivery.catch_up
    catch_up.log.spool.make = partial(File, files)
    catch_up.restore(sorted(files.items()), broker.node.port.timers.wall())
