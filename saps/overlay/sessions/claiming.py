"""The claim of one session, and the copies that claims have to know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from saps.mesh import Arrival
from saps.overlay.frames.calls import SessionLease
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.timeouts import SharedTimeout

AGAIN = 15.0
"""Seconds for which a client is told to try again, while its session is not found."""
REMEMBERED = 1024
"""Clients told so from which on those of before are looked through."""

Done = Callable[[Arrival], None]


class CopiesHere(Protocol):
    """Copies of other brokers' sessions at this one (`saps.overlay.sessions.replicas.holders`)."""

    def leases(self) -> list[SessionLease]:
        """Return the leases of the copied sessions that no live broker reports."""

    def restores(self, client: str) -> bool:
        """Return whether this broker's file has a copy of the client's session whose adoption is still undecided."""

    @property
    def former(self) -> BrokerRef | None:
        """The last earlier incarnation of this broker that has written to its file; None without one."""

    @property
    def expects(self) -> bool:
        """Whether former members have not been heard since this broker started again, and may be starting as well."""

    @property
    def young(self) -> bool:
        """Whether brokers that were in the mesh with this one, before it started again, may be starting as well."""


class Claiming:
    """A claim that is under way.

    `keep` says whether the session itself is wanted; `done` gets the outcome, and is None afterwards. `rounds` counts
    the repetitions with a later stamp, `since` is the time when it began."""

    __slots__ = (
        "asked",
        "bereft",
        "branch",
        "client",
        "done",
        "given",
        "inheriting",
        "keep",
        "later",
        "offered",
        "rounds",
        "silent",
        "since",
        "user",
        "waited",
    )

    def __init__(self, client: str, user: str | None, keep: bool, done: Done, since: float) -> None:
        self.client = client
        self.user = user
        self.keep = keep
        self.done: Done | None = done
        self.rounds = 0
        self.given: SessionLease | None = None
        """The lease of a leaving broker whose session this broker adopts; None if the client has connected."""
        self.asked: set[BrokerRef] = set()
        """The brokers that have been asked for the session."""
        self.offered: dict[BrokerRef, None] = {}
        """The brokers that have reported an older session during the claim, in that order."""
        self.bereft = False
        """Whether the holders of the directory may lack leases (`SessionLeases.bereft`)."""
        self.branch = False
        """Whether the session is here and the claim only fetches its branch, which another broker has adopted."""
        self.inheriting = False
        """Whether this broker is adopting the session of a dead broker."""
        self.since = since
        self.later = 0
        """The greatest stamp of a claim of the same user that has asked for the session meanwhile."""
        self.silent: list[BrokerRef] = []
        """The brokers that may have the session and do not answer, though they seem to live."""
        self.waited = False
        """Whether a broker could not say yet if it has the session (`Yields.WAIT`)."""

    @property
    def over(self) -> bool:
        """Whether the claim has ended."""
        return self.done is None

    def beside(self) -> list[SessionLease]:
        """Return leases of brokers that have reported an older session, and have not been asked for it."""
        return [SessionLease(self.client, broker, 0) for broker in self.offered if broker not in self.asked]


class ClaimTimeouts:
    """The limits of claims. A client whose session is not found by then is to try again for `AGAIN` seconds in all, as
    the brokers that have it may be out of reach for a moment, or starting."""

    def __init__(self, port: Port, timeout: float, over: Callable[[Claiming], None]) -> None:
        """`over` is called with each claim that has taken `timeout` seconds."""
        self._port = port
        self.timeouts: SharedTimeout[Claiming] = SharedTimeout(port, timeout, over)
        self._tries: dict[str, tuple[float, float]] = {}
        """By client: when the first of its attempts began and the last one ended, in seconds of the port's clock."""

    def add(self, claiming: Claiming) -> None:
        """Let the time of a claim begin."""
        self.timeouts.add(claiming)

    def again(self, claiming: Claiming) -> bool:
        """End an attempt of a client whose session is not found. Return whether it is to try again."""
        client, now = claiming.client, self._port.now
        first, last = self._tries.pop(client, (claiming.since, claiming.since))
        if claiming.since - last > AGAIN:
            first = claiming.since
        if now - first >= AGAIN:
            return False
        if len(self._tries) >= REMEMBERED:
            self._tries = {each: tries for each, tries in self._tries.items() if now - tries[1] <= AGAIN}
        self._tries[client] = first, now
        return True
