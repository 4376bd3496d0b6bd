"""Which members a tree reaches: those that say nothing, or do not get on, are served by ALM for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saps.ofm.datapath.congestion import Progress
from saps.ofm.datapath.settings import DatapathSettings
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef


class Reach:
    """Of one tree, as its sender has found it."""

    def __init__(self, port: Port, settings: DatapathSettings, changed: Callable[[], None]) -> None:
        """`changed` is called when other members are served."""
        self._port = port
        self._changed = changed
        self._at_most = settings.retry_at_most
        self._rejoin = settings.retry
        """Seconds until those without are sent to along the tree again."""
        self.progress = Progress()
        self._held_since: float | None = None
        """Since when it is waited for members that are behind; None: it is not."""
        self._without: frozenset[tuple[str, int]] = frozenset()
        """Name and incarnation of members that the tree does not reach, for now."""

    def usable(self, served: Served) -> Served:
        """The tree, for those whom it is known to reach."""
        return served._replace(brokers=served.brokers - self._without) if self._without else served

    def held(self) -> float | None:
        """Since when a member is so far behind that nothing more may leave; None: nobody is."""
        if not self.progress.left_behind():
            self._held_since = None
        elif self._held_since is None:
            self._held_since = self._port.now
        return self._held_since

    def acknowledged(self, member: BrokerRef, seq: int) -> None:
        """A member has everything up to a number."""
        self.progress.acknowledged(member, seq)
        self._held_since = None

    def check(self, timeout: float) -> None:
        """Members that are behind, and do not get on for so many seconds, do not hold up the others."""
        if self._held_since is not None and self._port.now - self._held_since >= timeout - 1e-9:
            self._held_since = None
            behind = self.progress.left_behind()
            for member in behind:
                self.progress.forget(member)
            self.do_without(behind)

    def do_without(self, members: Iterable[BrokerRef]) -> None:
        """These get nothing by the tree, although the sender's copies come back: ALM for them, for a while."""
        names = frozenset((member.name, member.incarnation) for member in members)
        delay, self._rejoin = self._rejoin, min(2 * self._rejoin, self._at_most)

        def again() -> None:
            self._without -= names
            self._changed()

        self._without |= names
        self._changed()
        self._port.after(delay, again)
