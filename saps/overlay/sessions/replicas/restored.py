"""Restored copies: an earlier incarnation of this broker left them in its file, before a loss of power.

1. When this broker has joined, it reports the sessions to the session directory, gives the others `SETTLE` seconds to
   start, and asks all of them (`Orphans`).
2. An owner that is alive, or restarted with its file, has all that was acknowledged, and so has an heir. Then the copy
   is of no use.
3. Else the broker whose copy reaches furthest adopts the sessions; of equal ones the first by name. The others ask
   again.

Until then a broker that looks for one of these sessions is told to wait. For `YOUNG` seconds, and for up to `EXPECTED`
until all former members have been heard, a CONNECT here waits for a session that nobody knows: brokers that have it, or
its copies, may be starting, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container
from functools import partial

import msgspec

from saps.marks import hit
from saps.overlay.frames.calls import Claim, Orphaned, Orphans, SessionLease
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef
from saps.overlay.sessions.directory import partition_of, shelf
from saps.overlay.sessions.replicas.copies import Copy
from saps.overlay.sessions.replicas.shelf import Shelf
from saps.overlay.sessions.replicas.states import Event, State, following
from saps.storage.journal import Journal

SETTLE = 2.0
"""Seconds that owners have to restart beside this broker. Sessions of a later owner are merged with those here."""
AGAIN = 1.0
"""Seconds until all brokers are asked again, and until an incomplete report is repeated."""
YOUNG = 5.0
"""Seconds after its start in which a broker that has been in the mesh before counts other brokers as not started."""
EXPECTED = 15.0
"""Seconds after its start in which a broker counts former members that it has not heard yet as not started."""
ROUNDS = 5
"""Number of rounds after which incomplete answers suffice."""

Log = tuple[BrokerRef, int]


class Restored:
    """The restored copies of one broker, until they are adopted or dropped."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        shelf: Shelf,
        copies: dict[Log, Copy],
        over: Container[Log],
        here: Callable[[str], bool],
        adopt: Callable[[Log, Copy], None],
        done: Callable[[Log], None],
        drop: Callable[[Log], None],
    ) -> None:
        """`copies` are all copies here, `over` the logs whose sessions some broker owns again. `here` returns whether
        this broker has a session of the client of its own.

        `adopt` adopts the sessions of a log, `drop` drops a copy that is of no use, `done` also refuses its log."""
        self._port = port
        self._calls = calls
        self._shelf = shelf
        self._copies = copies
        self._over = over
        self._here = here
        self._adopt = adopt
        self._done = done
        self._drop = drop
        self._rounds = 0
        self._begun = -math.inf
        self._former: set[str] = set()
        self.clients: set[str] = set()
        """The clients of the restored sessions."""

    def take(self, journal: Journal, held: dict[str, dict[str, bytes]], jump: float) -> None:
        """Keep copies in a file from now on, and restore those in `held`, its rows by owner and name. `jump` as for
        `Shelf.begin`."""
        for copy in self._shelf.begin(journal, self._port.me, held, jump):
            copy.state = State.RESTORED
            self._copies[copy.owner, copy.log] = copy
        self._logs()

    def leases(self) -> list[SessionLease]:
        """Return leases of this broker for the restored sessions, so that claims find them here for now. Claims find
        this broker by its own session of a client, whose stamp must not be taken for that of the copy."""
        me, copies = self._port.me, self._copies.values()
        found = [each for copy in copies if copy.state is State.RESTORED for each in copy.sessions.values()]
        return [SessionLease(each.client, me, each.stamp, True) for each in found if not self._here(each.client)]

    def begin(self, former: Collection[str]) -> None:
        """Begin to report the restored copies and to ask about them, since this broker has joined. `former` are the
        names of the other members when its last incarnation ended."""
        self._begun = self._port.now
        self._former.update(former)
        if self._logs():
            self._port.after(SETTLE, self._ask)
            partitions: dict[int, dict[str, int]] = {}
            for lease in sorted(self.leases(), key=lambda lease: lease.client):
                partitions.setdefault(partition_of(lease.client), {})[lease.client] = lease.stamp
            for number, leases in partitions.items():
                self._report(number, leases)

    @property
    def former(self) -> BrokerRef | None:
        """The last earlier incarnation of this broker that has written to its file; None without one."""
        last = max(self._shelf.incarnations, default=0)
        return msgspec.structs.replace(self._port.me, incarnation=last) if last else None

    @property
    def young(self) -> bool:
        """Whether brokers that were in the mesh with this one, before it started again, may be starting as well."""
        again = bool(self._shelf.incarnations)
        return (again and self._port.now < self._begun + YOUNG) or self.expects

    @property
    def expects(self) -> bool:
        """Whether former members have not been heard yet, and may be starting as well."""
        return self._port.now < self._begun + EXPECTED and not self._former <= self._port.first_heard.keys()

    def _report(self, number: int, leases: dict[str, int]) -> None:
        """Report leases (stamps by client) of one partition to its holders, until all have heard of those that are
        still undecided."""
        left = {client: stamp for client, stamp in leases.items() if client in self.clients}

        def told(outcome: Outcome) -> None:
            if not outcome.complete:
                self._port.after(AGAIN, lambda: self._report(number, left))

        if left:
            body = Claim(number, self._port.me, list(left.items()), [], kept=list(left))
            self._calls.call(shelf(number), body, told, 1)

    def _logs(self) -> list[Log]:
        """Return the undecided logs, and bring `clients` up to date."""
        found = {log: copy for log, copy in self._copies.items() if copy.state is State.RESTORED}
        self.clients = {each.client for copy in found.values() for each in copy.sessions.values()}
        return list(found)

    def _ask(self) -> None:
        if logs := self._logs():
            self._rounds += 1
            self._calls.call(ALL_BROKERS, Orphans(logs), partial(self._answered, logs), 1)

    def known(self, body: Orphans) -> Orphaned:
        """Answer `Orphans`: how far each log, restored elsewhere, reaches here; -1 if its copies are of no use."""
        return Orphaned(self._port.me.name, [self._standing(log) for log in body.logs])

    def _standing(self, log: Log) -> int:
        """Return the last commit of a complete copy here, 0 without one, or -1 if the log's sessions have an owner."""
        (owner, _), copy, me = log, self._copies.get(log), self._port.me
        lives_on = owner.name == me.name and owner.incarnation in {me.incarnation, *self._shelf.incarnations}
        if lives_on or log in self._over or (copy is not None and copy.state is State.ADOPTING):
            return -1
        return copy.commit if copy is not None and copy.whole else 0

    def _answered(self, logs: list[Log], outcome: Outcome) -> None:
        """Drop or adopt each restored copy by the brokers' answers; ask again about undecided ones."""
        answers = [result for result in outcome.results if isinstance(result, Orphaned)]
        for number, log in enumerate(logs):
            copy = self._copies.get(log)
            if copy is None or copy.state is not State.RESTORED:
                continue
            reach = {answer.broker: answer.reach[number] for answer in answers if number < len(answer.reach)}
            reach[self._port.me.name] = copy.commit
            if -1 in reach.values():
                self._end(log, [name for name, commit in reach.items() if commit == -1])
                continue
            first = min((-commit, name) for name, commit in reach.items())
            if first[1] == self._port.me.name and (outcome.complete or self._rounds >= ROUNDS):
                hit("restored copy adopted")
                copy.state = following(copy.state, Event.FIRST)
                self._adopt(log, copy)
        if self._logs():
            self._port.after(AGAIN, self._ask)

    def _end(self, log: Log, names: list[str]) -> None:
        """Drop the copy of a log whose sessions have an owner, as the brokers with these `names` say. If that is who
        began the log, and still goes on with it, this broker may follow it again."""
        owner, _ = log
        incarnation, _ = self._port.first_heard.get(owner.name, (0, 0.0))
        if names == [owner.name] and incarnation == owner.incarnation:
            hit("restored copy of an owner that went on")
            self._drop(log)
        else:
            self._done(log)
