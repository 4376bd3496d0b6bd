"""The source of a migration (`saps.overlay.sessions.migration.migration`). It answers the target's requests, which may
be repeated."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from saps.mesh import SessionHost, Yields
from saps.overlay.frames.sessions import Arrived, Departed, Pull, Snapshot, TakeOver, TakeOverAnswer
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.sessions import Sessions

REMEMBERED = 4096
"""Number of completed migrations that are remembered, to answer a repeated `Arrived`."""

MARGIN = 2.0
"""Seconds beyond a target's patience. A target that has not pulled for so long has given up, and the session stays."""


class _Offer:
    """A session that is moving to another broker."""

    __slots__ = ("asked", "branch", "contents", "description", "passed", "serial", "since", "stamp", "to")

    def __init__(self, to: BrokerRef, serial: int, stamp: int, description: list[bytes], branch: bool) -> None:
        self.stamp = stamp
        """The stamp of the target's claim."""
        self.branch = branch
        """Whether this session is a branch of the target's session."""
        self.to = to
        self.serial = serial
        self.description = description
        self.contents: list[bytes] | None = None
        self.passed: list[int] = []
        self.asked = 0.0
        """Time of the target's last request."""
        self.since: float | None = None
        """Time of the first request for the contents; None before it."""


class MigrationSource:
    """The sessions that move from one broker to others."""

    def __init__(
        self,
        port: Port,
        sessions: Sessions,
        passed: Callable[[BrokerRef, str], int],
        waiting: Callable[[list[str]], bool],
    ) -> None:
        """`passed` and `waiting` as for `saps.overlay.sessions.migration.migration.Migrations`."""
        self._port = port
        self._sessions = sessions
        self._passed = passed
        self._waiting = waiting
        self.leaving: dict[str, _Offer] = {}
        """The migrations under way by client."""
        self._done: OrderedDict[tuple[BrokerRef, int], None] = OrderedDict()
        """Completed migrations (target, serial), the oldest first."""
        self.given = 0
        """Number of sessions that have moved away."""

    @property
    def _host(self) -> SessionHost:
        assert self._sessions.host is not None
        return self._sessions.host

    def on_take_over(self, sender: BrokerRef, frame: TakeOver) -> None:
        """Answer a target's request for a session, or for the end of a session."""
        self._port.send(sender, TakeOverAnswer(frame.serial, self._yield(sender, frame)))

    def _yield(self, sender: BrokerRef, frame: TakeOver) -> int:
        """Begin to hand a session over, if there is one and no later claim forbids it. Return the answer (`Yields`)."""
        client, sessions = frame.client, self._sessions
        if sessions.host is None:
            return Yields.NOTHING
        offer = self.leaving.get(client)
        if offer is not None:
            if offer.to == sender and offer.serial == frame.serial:
                return Yields.SESSION
            if offer.to != sender and not self._port.lost(offer.to):
                return Yields.LATER if offer.stamp > frame.stamp else Yields.MOVING
            self.keep(client)
        mine = sessions.leases.get(client, 0)
        if (claiming := sessions.claimings.get(client)) is not None:
            claiming.later = max(claiming.later, frame.stamp if claiming.user == frame.user else 0)
            return Yields.LATER if mine > frame.stamp else Yields.WAIT
        if mine > frame.stamp:
            return Yields.LATER
        branch = bool(frame.birth) and sessions.host.birth(client) == frame.birth
        answer = sessions.host.surrender(client, frame.user, frame.keep or branch)
        if answer is Yields.NOTHING and sessions.copied.restores(client):
            answer = Yields.WAIT
        elif answer is Yields.NOTHING:
            sessions.withdraw(client)
        elif answer is Yields.SESSION:
            description = sessions.host.describe(client)
            offer = self.leaving[client] = _Offer(sender, frame.serial, frame.stamp, description, branch)
            self._look(client, offer, self._port.now)
            sessions.leases[client] = max(0, frame.stamp - 2)  # stamp - 1 would mark an adopted session's owner
        return answer

    def _look(self, client: str, offer: _Offer, asked: float) -> None:
        """Keep the session here if the target sends no request for `patience` + `MARGIN` seconds."""

        def look() -> None:
            if self.leaving.get(client) is offer and offer.asked == asked:
                self.keep(client)
                self._sessions.sync_one(client)
            elif self.leaving.get(client) is offer:
                self._look(client, offer, offer.asked)

        offer.asked = asked
        self._port.after(self._sessions.patience + MARGIN, look)

    def keep(self, client: str) -> None:
        """Cancel the migration of the client's session, if one is under way: the session stays here."""
        if self.leaving.pop(client, None) is not None:
            self._host.stay(client)

    def _given_to(self, sender: BrokerRef, serial: int) -> str | None:
        """Return the client of a migration under way, or None."""
        for client, offer in self.leaving.items():
            if offer.to == sender and offer.serial == serial:
                return client
        return None

    def on_pull(self, sender: BrokerRef, frame: Pull) -> None:
        """Send one part of a session, or no parts while the contents are not settled.

        Without such a migration the answer is `Departed`, not granted: the session stayed here or has gone."""
        client = self._given_to(sender, frame.serial)
        if client is None:
            self._port.send(sender, Departed(frame.serial, False))
            return
        offer = self.leaving[client]
        offer.asked = self._port.now
        if frame.stage and offer.contents is None:
            self._pack(client, offer, frame.asked)
        parts = offer.contents if frame.stage else offer.description
        if parts is None:
            self._port.send(sender, Snapshot(frame.serial, frame.stage, frame.part, 0, b""))
        elif frame.part < len(parts):
            passed = offer.passed if frame.stage and not frame.part else []
            part = Snapshot(frame.serial, frame.stage, frame.part, len(parts), parts[frame.part], passed)
            self._port.send(sender, part)

    def _pack(self, client: str, offer: _Offer, asked: Iterable[tuple[BrokerRef, str]]) -> None:
        """Pack the session's contents, unless matching publications wait here; after `patience` seconds regardless.

        `asked` has pairs of broker and topic; for each the number of the last publication passed on here is noted."""
        now = self._port.now
        if offer.since is None:
            offer.since = now
        late = now - offer.since > self._sessions.patience
        if self._waiting(self._host.filters(client)) and not late:
            return
        offer.contents = self._host.pack(client, late, (offer.to.name, offer.to.incarnation) if offer.branch else None)
        offer.passed = [self._passed(origin, topic) for origin, topic in asked]

    def on_arrived(self, sender: BrokerRef, frame: Arrived) -> None:
        """Forget a session that has arrived at its target, and grant it; a repeated frame gets the same answer."""
        client = self._given_to(sender, frame.serial)
        if client is not None:
            del self.leaving[client]
            self._host.depart(client)
            self.given += 1
            self._done[sender, frame.serial] = None
            if len(self._done) > REMEMBERED:
                self._done.popitem(last=False)
        self._port.send(sender, Departed(frame.serial, (sender, frame.serial) in self._done))

    def forget(self, broker: BrokerRef) -> None:
        """Keep the sessions that were moving to a broker that has died or left.

        Its claims are over: nobody adopts a session that it never had. So the session here counts as the later one."""
        for client, offer in list(self.leaving.items()):
            if offer.to == broker:
                self.keep(client)
                if not offer.branch:
                    self._sessions.leases[client] = offer.stamp + 1
                self._sessions.sync_one(client)
