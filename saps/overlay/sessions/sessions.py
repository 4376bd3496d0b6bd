"""The sessions of one broker in the mesh: each client has one at a time, at the broker it connected to last.

A CONNECT **claims** the client: a stamp of the hybrid clock goes to the holders of the client's partition
(`saps.overlay.sessions.directory`), which tell who else has lease. Of two claims at least one sees the other, as
both reach every holder; the greater stamp is the later one. Who finds a greater one than its own has lost against a
CONNECT that came after its own; if that stamp is beyond the present, the clocks differ, and it claims again. So claims
are in one order, and each takes the session over from the one before (`saps.overlay.sessions.migration.migration`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from saps.mesh import Arrival
from saps.overlay.frames.calls import Claim, Roster, SessionLease, SessionLeases
from saps.overlay.frames.sessions import Offer
from saps.overlay.port import Bodies, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.retained.notices import Notices
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.directory import Directory, partition_of
from saps.overlay.timeouts import SharedTimeout
from saps.storage.journal import Row, Table

if TYPE_CHECKING:
    from saps.mesh import SessionHost
    from saps.overlay.sessions.migration.migration import Migrations

logger = logging.getLogger(__name__)

ROUNDS = 3
"""Times a claim is made again with a later stamp, before the client is told to try again."""

HEIR = 0.1
"""Seconds between two questions whether somebody has adopted a session."""

HEIRS_SHARE = 0.8
"""Of the time that a CONNECT waits: so long for an heir, before older sessions of the client are looked for."""

Done = Callable[[Arrival], None]


class CopiesHere(Protocol):
    """Copies of other brokers' sessions at this one (`saps.overlay.sessions.replicas.holders`)."""

    def leases(self) -> list[SessionLease]:
        """Of those whose brokers are dead: nobody else tells of them."""

    def restores(self, client: str) -> bool:
        """Is it to be found out whether the client's session goes on here, from a copy in this broker's file?"""


class Claiming:
    """A claim under way."""

    __slots__ = (
        "asked",
        "branch",
        "client",
        "done",
        "given",
        "inheriting",
        "keep",
        "offered",
        "over",
        "rounds",
        "since",
        "user",
        "waited",
    )

    def __init__(self, client: str, user: str | None, keep: bool, done: Done) -> None:
        self.client = client
        self.user = user
        self.keep = keep
        self.done = done
        self.rounds = 0
        self.given: SessionLease | None = None
        """Nobody has connected: the broker of this lease leaves, and the session is to be here instead."""
        self.asked: set[BrokerRef] = set()
        """Who has been asked for the session."""
        self.offered: dict[BrokerRef, None] = {}
        """Who has said meanwhile that it has an older session."""
        self.over = False
        self.branch = False
        """The session is here, and another broker has adopted it: what that one has beside is to come."""
        self.inheriting = False
        """The session is being adopted here from a broker that has died."""
        self.since = 0.0
        self.waited = False
        """A broker that was asked did not know yet if it has the session."""


class Sessions:
    """Claims and leases of one broker. (A `saps.mesh.Sessions`.)"""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        directory: Directory,
        stamp: Callable[[int], int],
        joined: Callable[[], bool],
        alone: Callable[[], bool],
        patience: float,
        copies: int = 1,
    ) -> None:
        """`copies`: brokers that have each session that lasts.

        `stamp` gives a stamp later than all before and than the one it is told; `joined` says if this broker is in
        the mesh, `alone` if nobody else is; `patience`: seconds that a CONNECT waits for somebody who does not
        answer."""
        self._port = port
        self.directory = directory
        self._stamp = stamp
        self._alone = alone
        self.patience = patience
        self._waiting: SharedTimeout[Claiming] = SharedTimeout(port, patience, self._give_up)
        self.host: SessionHost | None = None
        """Who has the sessions; until there is somebody, nothing is ever claimed."""
        self.migrations: Migrations
        """Set by whoever puts the two together."""
        self.leases: dict[str, int] = {}
        """Clients claimed here, with the stamps."""
        self.claimings: dict[str, Claiming] = {}
        self._unsure: set[str] = set()
        """Sessions of an earlier life that may have a later one elsewhere."""
        self._returned: dict[tuple[str, BrokerRef], None] = {}
        """Sessions adopted from brokers that live, which have been told so once."""
        self._untold: set[str] = set()
        """Whose sessions were here when this broker joined, and the holders may not know of yet."""
        self._told: Callable[[], None] = _nothing
        """Waits until there are none."""
        self._copied = copies > 1
        self.copied: CopiesHere
        """Set by whoever puts the two together."""
        self.notices: Notices[Claiming | None] = Notices(port, calls, joined, self.leases, self.goes_on, self._answered)

    # --- the frontend's side ----------------------------------------------------------------------------------------

    def at_home(self, client: str) -> bool:
        if self._alone():
            return not self.copied.restores(client)
        return (
            client in self.leases
            and client not in self.claimings
            and client not in self._unsure
            and not self.migrations.offer(client)
        )

    def claimed(self, client: str) -> bool:
        return client in self.leases

    def claim(self, client: str, user: str | None, keep: bool, arrived: Done) -> None:
        if self._alone() and not self.copied.restores(client):
            arrived(Arrival.HERE)
            return
        claiming = self.claimings[client] = Claiming(client, user, keep, arrived)
        claiming.since = self._port.now
        self.leases[client] = self._stamp(0)
        self._waiting.add(claiming)
        self.notices.claim(client, claiming)

    def adopt(self, lease: SessionLease, user: str | None, arrived: Done) -> bool:
        """Have the session of a client that has not connected here, from a broker that leaves. Every CONNECT since the
        claim of that one counts as later. False if there was one here, or the session is coming anyway."""
        client = lease.client
        if client in self.claimings or self.leases.get(client, -1) > lease.stamp:
            return False
        claiming = self.claimings[client] = Claiming(client, user, True, arrived)
        claiming.given = lease
        self.leases[client] = lease.stamp + 1
        self._waiting.add(claiming)
        self.notices.claim(client, claiming)
        return True

    def inherit(self, client: str, user: str | None, stamp: int) -> Claiming | None:
        """The session of a broker that has died is to go on here; `stamp`: of its lease. Returns the claim of whoever
        waits for it, or one without `done`; None if there is a later session here, or on its way."""
        claiming = self.claimings.get(client)
        self.migrations.target.interrupt(client)
        self.migrations.source.keep(client)
        if claiming is None:
            assert self.host is not None
            if self.leases.get(client, -1) > stamp and self.host.birth(client):
                return None
            claiming = self.claimings[client] = Claiming(client, user, True, _waits)
            self.leases[client] = max(self.leases.get(client, 0), stamp + 1)
        elif self.migrations.transfer(client) or not claiming.keep or claiming.branch:
            return None
        claiming.inheriting = True
        self.notices.claim(client, claiming)
        return claiming

    def moving(self, client: str, asked: bool) -> bool:
        """Is the client's session on its way here, from another broker or as a copy? `asked`: or asked for only, or on
        its way from here."""
        claiming, migrations = self.claimings.get(client), self.migrations
        inheriting = claiming is not None and claiming.inheriting
        return inheriting or migrations.transfer(client, asked) or (asked and migrations.offer(client))

    def inherited(self, claiming: Claiming, arrival: Arrival) -> None:
        """It is here."""
        claiming.inheriting = False
        self.finish(claiming, arrival)

    def await_heir(self, claiming: Claiming) -> bool:
        """The session was at a broker that is dead, and has copies elsewhere: somebody is about to adopt it. False if
        that has been waited for long enough, or is not wanted, or this one has adopted it."""
        assert self.host is not None
        late = self._port.now - claiming.since >= HEIRS_SHARE * self.patience
        here = claiming.client not in self._unsure and self.host.birth(claiming.client)
        if late or here or not claiming.keep or claiming.given is not None:
            return False

        def again() -> None:
            if not (claiming.over or claiming.inheriting) and self.claimings.get(claiming.client) is claiming:
                self.notices.claim(claiming.client, claiming)

        self._port.after(HEIR, again)
        return True

    def refresh(self, client: str) -> None:
        if client in self.leases and not self._alone():
            self.notices.claim(client, self.claimings.get(client))

    def rows(self) -> Iterable[tuple[Table, Any, Row]]:
        """Of all sessions here that last, as the journal has them."""
        return () if self.host is None else self.host.rows()

    def goes_on(self, client: str) -> bool:
        """Does the client's session go on elsewhere when this broker goes?"""
        return self._copied and self.host is not None and self.host.lasting(client)

    def release(self, client: str) -> None:
        self._unsure.discard(client)
        self._settled((client,))
        stamp = self.leases.pop(client, None)
        if stamp is not None and not self._alone():
            self.notices.release(client, stamp)

    def withdraw(self, client: str) -> None:
        """Somebody takes this broker for the one that has the client's session, and there is none."""
        self.leases.pop(client, None)
        self._settled((client,))
        self.notices.release(client, self._stamp(0))

    def restored(self, clients: Iterable[str]) -> None:
        self._unsure.update(clients)

    @property
    def bodies(self) -> Bodies:
        return {Claim: self.directory.run, Roster: lambda body, keys: self._roster(body)}

    def _roster(self, body: Roster) -> list[SessionLeases]:
        """This broker's leases in a partition."""
        if self.host is None:
            return []
        me, leases = self._port.me, self.leases
        mine = {client: 0 for client in self.host.clients() if partition_of(client) == body.partition}
        mine.update((client, stamp) for client, stamp in leases.items() if partition_of(client) == body.partition)
        found = [SessionLease(client, me, stamp, self.goes_on(client)) for client, stamp in mine.items()]
        found += [lease for lease in self.copied.leases() if partition_of(lease.client) == body.partition]
        return [SessionLeases(me, True, found)] if found else []

    def begin(self, told: Callable[[], None]) -> None:
        """This broker has joined. `told` runs when a client that connects elsewhere from then on is found to have its
        session here, if it has one; after `patience` seconds in any case."""
        if self.host is None or self._alone():
            told()
            return
        self._untold, self._told = set(self.host.clients()), told
        if self._untold:
            self._port.after(self.patience, self._told_late)
        self.sync()
        self._settled(())

    def _settled(self, clients: Iterable[str]) -> None:
        """The holders know of these clients' sessions here, or there are none any more."""
        self._untold.difference_update(clients)
        if not self._untold:
            told, self._told = self._told, _nothing
            told()

    def _told_late(self) -> None:
        if self._untold:
            logger.warning(
                "the mesh has not heard in %g s of all sessions that are here, %d are missing: clients of these that "
                "connect elsewhere may be served without",
                self.patience,
                len(self._untold),
            )
        told, self._told = self._told, _nothing
        told()

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left."""
        self.directory.forget(broker)
        self.migrations.forget(broker)

    def rejoined(self) -> None:
        """This broker was cut off, or its ring was cut in two."""
        self.directory.rejoined()
        self.sync()

    def sync(self) -> None:
        """Tell the holders of all sessions here: some may not know of them, or of later ones elsewhere."""
        if self.host is None or self._alone():
            return
        clients = [client for client in self.host.clients() if client not in self.claimings]
        for client in clients:
            self.leases.setdefault(client, 0)
        self.notices.search_again(dict.fromkeys(clients))

    def sync_one(self, client: str) -> None:
        """The same for one client."""
        if client not in self.claimings:
            self.leases.setdefault(client, 0)
            self.notices.claim(client, None)

    def finish(self, claiming: Claiming, arrival: Arrival) -> None:
        """A claim is over."""
        if not claiming.over:
            claiming.over = True
            if self.claimings.get(claiming.client) is claiming:
                del self.claimings[claiming.client]
            claiming.done(arrival)
            if arrival in (Arrival.HERE, Arrival.MOVED):
                self._unsure.discard(claiming.client)
                for broker in [each for each in claiming.offered if each not in claiming.asked]:
                    self.migrations.offered(broker, claiming.client)

    # --- what the holders answer ------------------------------------------------------------------------------------

    def _answered(self, number: int, claims: dict[str, Claiming | None], outcome: Outcome) -> None:
        answers = [result for result in outcome.results if isinstance(result, SessionLeases)]
        ready = {answer.broker.name for answer in answers if answer.ready}
        if claims and not ready:  # nobody knows: find out, and be the one who does
            self.directory.join(number, lambda: self.notices.claim_again(claims))
            return
        if outcome.complete:
            self._settled(claims)
        else:
            self.notices.claim_again(dict.fromkeys(self._untold.intersection(claims)))
        self.directory.balance(number, ready, {answer.broker.name for answer in answers})
        others: dict[str, dict[BrokerRef, SessionLease]] = {}
        for answer in answers:
            for lease in answer.leases:
                if lease.broker != self._port.me and (lease.kept or not self._port.lost(lease.broker)):
                    known = others.setdefault(lease.client, {})
                    first = known.setdefault(lease.broker, lease)
                    if first.stamp < lease.stamp:
                        known[lease.broker] = lease
        for client, claiming in claims.items():
            found = sorted(others.get(client, {}).values(), key=_age, reverse=True)
            if claiming is None:
                self._synced(client, found)
            elif not claiming.over and self.claimings.get(client) is claiming:
                self._resolve(claiming, found)

    def _resolve(self, claiming: Claiming, others: list[SessionLease]) -> None:
        """It is known who else has lease."""
        client, mine = claiming.client, self.leases.get(claiming.client, 0)
        given = claiming.given
        if claiming.inheriting:
            return
        if claiming.branch:
            self._reunite(claiming, mine, [lease for lease in others if not self._port.lost(lease.broker)])
            return
        if beside := claiming.offered.keys() - {lease.broker for lease in others}:
            others = sorted([*others, *(SessionLease(client, broker, 0) for broker in beside)], key=_age, reverse=True)
        if given is not None and all(lease.broker != given.broker for lease in others):
            others = sorted([*others, given], key=_age, reverse=True)
        if not others and self.copied.restores(client) and self.await_heir(claiming):
            return
        if others and _age(others[0]) > (mine, self._port.me.name):
            claiming.rounds += 1
            if given is not None or others[0].stamp < self._stamp(0):  # made while this claim was under way
                if client in self._unsure:  # who has claimed later may have done so before it was known here
                    self.migrations.tell(others[0].broker, client)
                self.finish(claiming, Arrival.LATER)
                return
            if claiming.rounds > ROUNDS:
                self.finish(claiming, Arrival.BUSY)
                return
            self.leases[client] = self._stamp(others[0].stamp)
            self.notices.claim(client, claiming)
        else:
            self.migrations.take(claiming, mine, others)

    def _reunite(self, claiming: Claiming, mine: int, others: list[SessionLease]) -> None:
        """Have what those who have adopted the session from here have beside; unless its client is there by now."""
        if others and _age(others[0]) > (mine, self._port.me.name):
            self.migrations.tell(others[0].broker, claiming.client)
            self.finish(claiming, Arrival.LATER)
        else:
            self.migrations.take(claiming, mine, others)

    def _synced(self, client: str, others: list[SessionLease]) -> None:
        """The holders know of a session here. Of several the broker of the latest one sees that the others end."""
        mine = self.leases.get(client)
        if mine is None or client in self.claimings or self.migrations.offer(client):
            return
        others = [lease for lease in others if not self._port.lost(lease.broker)]
        if others and others[0].stamp == mine + 1 and client not in self._unsure and self.goes_on(client):
            assert self.host is not None  # it was adopted while this broker was taken for dead
            claiming = self.claimings[client] = Claiming(client, self.host.user(client), True, _waits)
            claiming.branch, claiming.since = True, self._port.now
            self.leases[client] = self._stamp(others[0].stamp)
            self._waiting.add(claiming)
            self.notices.claim(client, claiming)
        elif others and _age(others[0]) > (mine, self._port.me.name):
            self.migrations.tell(others[0].broker, client)
        else:
            self._unsure.discard(client)
            for lease in others:
                if lease.stamp and lease.stamp + 1 == mine and (client, lease.broker) not in self._returned:
                    self._returned[client, lease.broker] = None  # adopted from one that lives: it may have it back
                    self._port.send(lease.broker, Offer(client))
                else:
                    self._returned.pop((client, lease.broker), None)
                    self.migrations.offered(lease.broker, client)

    def _give_up(self, claiming: Claiming) -> None:
        """It has not been found out in time who has the session."""
        if not self.migrations.transfer(claiming.client) and not claiming.inheriting:
            if claiming.given is None and not claiming.branch:
                logger.warning(
                    "the session of %r was not found within %g s; the client is served without it",
                    claiming.client,
                    self.patience,
                )
            self.finish(claiming, Arrival.HERE)
            self.sync_one(claiming.client)  # when it has been found out, the one elsewhere ends


def _nothing() -> None:
    pass


def _waits(arrival: Arrival) -> None:
    """Of a claim that nobody waits for."""


def _age(lease: SessionLease) -> tuple[int, str]:
    """The order of claims."""
    return lease.stamp, lease.broker.name
