"""The members that a tree reaches: ALM serves silent members, and those that fall behind, for a while."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from saps.ofm.datapath.congestion import Progress
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.datapath.trial import PROVEN
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef


class Reach:
    """The reach of one tree, as its sender has found it."""

    def __init__(self, port: Port, settings: DatapathSettings, changed: Callable[[], None]) -> None:
        """`changed` is called when the tree serves other members."""
        self._port = port
        self._changed = changed
        self._at_most = settings.retry_at_most
        self._rejoin = self._at_least = settings.retry
        """Seconds until members that ALM serves are tried along the tree again."""
        self._rejoined = -math.inf
        """Time at which members were last tried again."""
        self.progress = Progress()
        self._held_since: float | None = None
        """Time since which the sender waits for members that are behind. None if it does not wait."""
        self._without: frozenset[tuple[str, int]] = frozenset()
        """Name and incarnation of members that the tree does not reach for now."""

    def usable(self, served: Served) -> Served:
        """Return the tree with the brokers that it is known to reach."""
        return served._replace(brokers=served.brokers - self._without) if self._without else served

    def held(self) -> float | None:
        """Return the time since which a member has been so far behind that nothing more may leave. None if no member
        is."""
        if not self.progress.left_behind():
            self._held_since = None
        elif self._held_since is None:
            self._held_since = self._port.now
        return self._held_since

    def acknowledged(self, member: BrokerRef, seq: int) -> None:
        """Handle a member's acknowledgement of everything up to a number. Without progress nothing has changed: a
        member with a gap repeats its acknowledgement."""
        if self.progress.acknowledged(member, seq):
            self._held_since = None

    def check(self, timeout: float) -> None:
        """Stop waiting for members that are behind and have made no progress for `timeout` seconds."""
        if self._held_since is not None and self._port.now - self._held_since >= timeout - 1e-9:
            self._held_since = None
            behind = self.progress.left_behind()
            for member in behind:
                self.progress.forget(member)
            self.do_without(behind)

    def do_without(self, members: Iterable[BrokerRef]) -> None:
        """Serve these members by ALM for a while. The tree does not reach them, although the sender's copies come
        back."""
        names = frozenset((member.name, member.incarnation) for member in members)
        self._without |= names
        self._changed()
        if not names:
            return
        if self._port.now - self._rejoined > PROVEN:
            self._rejoin = self._at_least
        delay, self._rejoin = self._rejoin, min(2 * self._rejoin, self._at_most)

        def again() -> None:
            self._without -= names
            self._rejoined = self._port.now
            self._changed()

        self._port.after(delay, again)
