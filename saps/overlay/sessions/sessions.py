"""The claims and leases of one broker. Each client has one session, at the broker it connected to last.

A CONNECT **claims** the client: the broker sends a stamp of the hybrid clock to the holders of the client's partition
(`saps.overlay.sessions.directory`), and they answer with the leases of other brokers. Both of two claims reach every
holder, so at least one of them sees the other. The greater stamp is the later claim.

A broker that finds a greater stamp than its own has lost to a later CONNECT. If that stamp lies in the future, the
clocks differ, and the broker claims again. So claims have one order, and each takes the session over from the claim
before it (`saps.overlay.sessions.migration.migration`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from saps.marks import hit
from saps.mesh import Arrival
from saps.overlay.frames.calls import Claim, Roster, SessionLease, SessionLeases
from saps.overlay.frames.copies import LONG_AGO, Heirloom
from saps.overlay.port import Bodies, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.retained.notices import Notices
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.claiming import Claiming, ClaimTimeouts, CopiesHere, Done
from saps.overlay.sessions.directory import Directory, partition_of
from saps.overlay.sessions.doubts import Doubts
from saps.overlay.sessions.untold import Untold

if TYPE_CHECKING:
    from saps.mesh import SessionHost
    from saps.overlay.sessions.migration.migration import Migrations

logger = logging.getLogger(__name__)

ROUNDS = 3
"""Most times that a claim is repeated with a later stamp before the client is told to try again."""

HEIR = 0.1
"""Seconds between two claims of a CONNECT that waits for another broker to adopt its session."""

TAKE_BACK = 5.0
"""Seconds that an heir leaves a former owner that is alive to take its session back. Then it fetches what is there."""

HEIRS_SHARE = 0.8
"""Share of a CONNECT's waiting time for which it waits for an heir. Afterwards it takes an older session."""


class Sessions:
    """The claims and leases of one broker (a `saps.mesh.Sessions`). The creator sets `migrations` and `copied`."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        directory: Directory,
        stamp: Callable[[int], int],
        joined: Callable[[], bool],
        alone: Callable[[], bool],
        timeout: float,
        stall: float,
        copies: int = 1,
    ) -> None:
        """`stamp` returns a stamp later than all its former ones and than its argument.

        `joined` returns whether this broker is in the mesh, `alone` whether no other broker is. `timeout` is the
        time in seconds that a CONNECT waits for a silent broker, `stall` as for `Doubts`. `copies` is the number of
        brokers that hold each lasting session, this one included."""
        self._port = port
        self.directory = directory
        self._stamp = stamp
        self._alone = alone
        self._waiting = ClaimTimeouts(port, timeout, self.give_up)
        self.host: SessionHost | None = None
        """The frontend's sessions at this broker. While it is None, no client is claimed."""
        self.migrations: Migrations
        """The migrations to and from this broker; set by the creator."""
        self.leases: dict[str, int] = {}
        """The stamps of the leases here, by client."""
        self.claimings: dict[str, Claiming] = {}
        self.doubts = Doubts(port, stall, self)
        self._returned: dict[str, tuple[int, float]] = {}
        """By client of a session adopted here: the stamp of its lease, and since when its former owner, if alive, has
        been told."""
        self._untold = Untold(port)
        self.replicated = copies > 1
        """Whether other brokers have copies of lasting sessions."""
        self.copied: CopiesHere
        """The copies of other brokers' sessions here; set by the creator."""
        self.notices: Notices[Claiming | None] = Notices(port, calls, joined, self.leases, self.goes_on, self._answered)

    @property
    def timeout(self) -> float:
        """Seconds that a CONNECT waits for a silent broker."""
        return self._waiting.timeouts.seconds

    # --- the frontend's side ----------------------------------------------------------------------------------------

    def at_home(self, client: str) -> bool:
        self.doubts.look()
        if self._alone():
            return not (self.copied.restores(client) or self.copied.expects)
        return (
            client in self.leases
            and client not in self.claimings
            and client not in self.doubts
            and not self.migrations.offer(client)
        )

    def claimed(self, client: str) -> bool:
        return client in self.leases

    def claim(self, client: str, user: str | None, keep: bool, arrived: Done) -> None:
        if self._alone() and self.at_home(client):
            arrived(Arrival.HERE)
            return
        claiming = self.claimings[client] = Claiming(client, user, keep, arrived, self._port.now)
        self.leases[client] = self._stamp(0)
        self._waiting.add(claiming)
        self.notices.claim(client, claiming)

    def adopt(self, lease: SessionLease, user: str | None, arrived: Done) -> bool:
        """Claim the session of a leaving broker, though the client has not connected here.

        `lease` is the leaving broker's; every CONNECT since then counts as later. `arrived` gets the outcome. Return
        False, without calling `arrived`, if a claim of the client is under way or a later lease is here."""
        client = lease.client
        if client in self.claimings or self.leases.get(client, -1) > lease.stamp:
            return False
        claiming = self.claimings[client] = Claiming(client, user, True, arrived, self._port.now)
        claiming.given = lease
        self.leases[client] = lease.stamp + 1
        self._waiting.add(claiming)
        self.notices.claim(client, claiming)
        return True

    def inherit(self, client: str, user: str | None, stamp: int) -> Claiming | None:
        """Claim the session of a dead broker for this one, which adopts it. `stamp` is that of the dead broker's lease.

        Return the claim of the CONNECT that waits for the session, or a new claim that nobody waits for. Return None
        if a later session is here or on its way, or the waiting CONNECT wants no session. The caller must call
        `inherited` when the session is complete."""
        claiming = self.claimings.get(client)
        self.migrations.target.interrupt(client)
        self.migrations.source.keep(client)
        if claiming is None:
            assert self.host is not None
            if self.leases.get(client, -1) > stamp and self.host.birth(client):
                return None
            claiming = self.claimings[client] = Claiming(client, user, True, _waits, self._port.now)
            self.leases[client] = max(self.leases.get(client, 0), stamp + 1)
        elif self.migrations.transfer(client) or not claiming.keep or claiming.branch:
            return None
        claiming.inheriting = True
        self.notices.claim(client, claiming)
        return claiming

    def moving(self, client: str, asked: bool) -> bool:
        """Return whether the client's session is on its way here, from another broker or from a copy.

        With `asked`, also return True if another broker has only been asked for it, or if it is leaving this broker."""
        claiming, migrations = self.claimings.get(client), self.migrations
        inheriting = claiming is not None and claiming.inheriting
        return inheriting or migrations.transfer(client, asked) or (asked and migrations.offer(client))

    def inherited(self, claiming: Claiming) -> None:
        """End the claim of an adopted session that is complete, once its known branches have come; then report it."""
        self.migrations.target.reunite(claiming, self.leases.get(claiming.client, 0))

    def await_heir(self, claiming: Claiming) -> bool:
        """Repeat a claim after `HEIR` seconds: a holder of copies will adopt the session, or a broker that knows it may
        be heard.

        Return False, and do nothing, if the claim has waited long enough, needs no session, or this broker has it."""
        late = self._port.now - claiming.since >= HEIRS_SHARE * self.timeout
        here = has_session(self.host, claiming.client) and claiming.client not in self.doubts.unsure
        if late or here or not claiming.keep or claiming.given is not None:
            return False

        def again() -> None:
            if not (claiming.over or claiming.inheriting) and self.claimings.get(claiming.client) is claiming:
                self.notices.claim(claiming.client, claiming)

        self._port.after(HEIR, again)
        return True

    def renew(self, client: str) -> None:
        self.leases[client] = self._stamp(0)
        if not self._alone():
            self.notices.claim(client, None)

    def goes_on(self, client: str) -> bool:
        """Return whether the client's session goes on elsewhere if this broker dies. One that it adopts has copies."""
        claiming = self.claimings.get(client)
        adopts = claiming is not None and claiming.inheriting
        return self.replicated and self.host is not None and (adopts or self.host.lasting(client))

    def release(self, client: str) -> None:
        self.doubts.discard(client)
        self._returned.pop(client, None)
        self._untold.settled((client,))
        stamp = self.leases.pop(client, None)
        if stamp is not None and not self._alone():
            self.notices.release(client, stamp)

    def withdraw(self, client: str) -> None:
        """Release a client that has no session here, though another broker believes so."""
        self.leases.pop(client, None)
        self._returned.pop(client, None)
        self._untold.settled((client,))
        self.notices.release(client, self._stamp(0))

    def restored(self, clients: Iterable[str]) -> None:
        self.doubts.unsure.update(clients)
        if (former := self.copied.former) is not None:
            for client in clients:
                self.migrations.heritage.add(client, [Heirloom(former, LONG_AGO)])

    @property
    def bodies(self) -> Bodies:
        return {Claim: self.directory.run, Roster: lambda body, keys: self._roster(body)}

    def _roster(self, body: Roster) -> list[SessionLeases]:
        """Return the leases of a partition that this broker reports: its own, and those of `copied`."""
        if self.host is None:
            return []
        me, leases = self._port.me, self.leases
        mine = {client: 0 for client in self.host.clients() if partition_of(client) == body.partition}
        mine.update((client, stamp) for client, stamp in leases.items() if partition_of(client) == body.partition)
        found = [SessionLease(client, me, stamp, self.goes_on(client)) for client, stamp in mine.items()]
        found += [lease for lease in self.copied.leases() if partition_of(lease.client) == body.partition]
        return [SessionLeases(me, True, found)] if found else []

    def begin(self, told: Callable[[], None]) -> None:
        """Report all sessions here to the holders, since this broker has joined.

        `told` runs when the holders know them: from then on a claim at another broker finds the session here. It runs
        after `timeout` seconds at the latest, and at once if there is nothing to report."""
        if self.host is None or self._alone():
            told()
            self.notices.search_again({})  # clients that connected before
            return
        self._untold.begin(self.host.clients(), told, self.timeout)
        self.sync()
        self._untold.settled(())

    def forget(self, broker: BrokerRef) -> None:
        """Forget a broker that has died or left."""
        self.directory.forget(broker)
        self.migrations.forget(broker)

    def rejoined(self) -> None:
        """Collect the partitions anew and report all sessions, after a rejoin or a partition merge."""
        self.directory.rejoined()
        self.sync()

    def sync(self) -> None:
        """Report all sessions here to the holders: some may not know them, or may know later sessions elsewhere."""
        if self.host is None or self._alone():
            return
        clients = [client for client in self.host.clients() if client not in self.claimings]
        for client in clients:
            self.leases.setdefault(client, 0)
        self.notices.search_again(dict.fromkeys(clients))

    def sync_one(self, client: str) -> None:
        """Report one client's session here to the holders, unless a claim of the client is under way."""
        if client not in self.claimings:
            self.leases.setdefault(client, 0)
            self.notices.claim(client, None)

    def finish(self, claiming: Claiming, arrival: Arrival) -> None:
        """End a claim with this outcome; a second call does nothing. Older sessions reported meanwhile are dealt
        with if the session is here.

        A claim that this broker would win by answers from before a doubt is repeated. If a later claim waits for the
        session, the client does not enter."""
        client, won = claiming.client, arrival in (Arrival.HERE, Arrival.MOVED)
        if won and claiming.given is None and claiming.later > self.leases.get(client, 0):
            arrival, won = Arrival.LATER, False
        if claiming.done is None:
            return
        if won and self.claimings.get(client) is claiming:
            if arrival is Arrival.HERE and _hidden(claiming, self.copied, self.host) and self.await_heir(claiming):
                return
            if self.doubts.outdated(claiming):
                claiming.inheriting = False
                claiming.asked.clear()
                self._waiting.add(claiming)
                self.notices.claim(client, claiming)
                return
        if arrival is Arrival.HERE and self.migrations.offer(client):
            hit("session stays that was leaving")  # else the client would be served by what is about to go
            self.migrations.source.keep(client)
        done, claiming.done = claiming.done, None
        adopted, claiming.inheriting = claiming.inheriting, False
        if self.claimings.get(client) is claiming:
            del self.claimings[client]
        done(arrival)
        if won:
            self.doubts.discard(client)
            for lease in claiming.beside():
                self.migrations.offered(lease.broker, client)
        if adopted:
            self.sync_one(client)

    # --- what the holders answer ------------------------------------------------------------------------------------

    def _answered(self, number: int, claims: dict[str, Claiming | None], outcome: Outcome) -> None:
        """Handle the holders' answers to claims of one partition, and to reports of sessions (None)."""
        answers = [result for result in outcome.results if isinstance(result, SessionLeases)]
        ready = {answer.broker.name for answer in answers if answer.ready}
        if claims and not ready:  # no holder has the whole partition: become one, then claim again
            self.directory.join(number, lambda: self.notices.claim_again(claims))
            return
        if outcome.complete:
            self._untold.settled(claims)
        else:
            self.notices.claim_again(dict.fromkeys(self._untold.clients.intersection(claims)))
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
            found = sorted(others.get(client, {}).values(), key=partial(_order, self._port), reverse=True)
            if claiming is None:
                self._synced(client, found)
            elif not claiming.over and self.claimings.get(client) is claiming:
                claiming.bereft = any(answer.bereft for answer in answers)
                self._resolve(claiming, found)

    def _resolve(self, claiming: Claiming, others: list[SessionLease]) -> None:
        """Decide a claim by the leases of other brokers, the latest first: repeat, lose, or fetch the session."""
        client, mine = claiming.client, self.leases.get(claiming.client, 0)
        given = claiming.given
        if claiming.inheriting or self.migrations.fetches(claiming):  # by an earlier answer
            return
        if claiming.branch:
            self._reunite(claiming, mine, [lease for lease in others if not self._port.lost(lease.broker)])
            return
        if beside := claiming.offered.keys() - {lease.broker for lease in others}:
            others = sorted([*others, *(SessionLease(client, broker, 0) for broker in beside)], key=_age, reverse=True)
        if given is not None and all(lease.broker != given.broker for lease in others):
            others = sorted([*others, given], key=_age, reverse=True)
        if others and _age(others[0]) > (mine, self._port.me.name):
            claiming.rounds += 1
            if given is not None or others[0].stamp < self._stamp(0):  # a claim made while this one was under way
                if client in self.doubts:
                    # The later claim may have missed the session here, unknown to holders then.
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
        """Fetch the branches of a session here from the brokers that adopted it, unless its client is there by now."""
        if others and _age(others[0]) > (mine, self._port.me.name):
            self.migrations.tell(others[0].broker, claiming.client)
            self.finish(claiming, Arrival.LATER)
        else:
            self.migrations.take(claiming, mine, others)

    def _synced(self, client: str, others: list[SessionLease]) -> None:
        """Handle the holders' answer to a report of a session here. `others`: leases elsewhere, the latest first.

        The broker of the latest lease makes the other brokers end their sessions, or fetches them as branches."""
        mine = self.leases.get(client)
        if mine is None or client in self.claimings or self.migrations.offer(client):
            return
        others = [lease for lease in others if not self._port.lost(lease.broker)]
        if others and self.take_back(client, others[0].stamp):
            return
        if others and _age(others[0]) > (mine, self._port.me.name):
            self.migrations.tell(others[0].broker, client)
        else:
            self.doubts.discard(client)
            stamp, told = self._returned.get(client, (0, 0.0))
            if others and stamp != mine:
                told = self._port.now
                self._returned[client] = mine, told
            for lease in others:
                if lease.stamp and lease.stamp + 1 == mine and self._port.now - told < TAKE_BACK:
                    self.migrations.tell(lease.broker, client)  # the former owner is alive: it may take it back
                else:
                    self.migrations.offered(lease.broker, client)

    def take_back(self, client: str, stamp: int) -> bool:
        """Claim the session here anew if a claim with this `stamp` is that of an heir, which adopted the session while
        this broker was declared dead. Returns whether it is."""
        mine = self.leases.get(client)
        if self.host is None or mine is None or stamp != mine + 1:
            return False
        if client in self.claimings or client in self.doubts.unsure or not self.goes_on(client):
            return False
        claiming = self.claimings[client] = Claiming(client, self.host.user(client), True, _waits, self._port.now)
        claiming.branch = True
        self.leases[client] = self._stamp(stamp)
        self.host.renewed(client)
        self._waiting.add(claiming)
        self.notices.claim(client, claiming)
        return True

    def give_up(self, claiming: Claiming) -> None:
        """End a claim that has taken `timeout` seconds, or for which brokers are silent: the client is to try again, or
        is served without its former session."""
        client = claiming.client
        if self.migrations.fetches(claiming) or claiming.inheriting:
            return
        connects = claiming.given is None and not claiming.branch
        if connects and claiming.keep and self._waiting.again(claiming):
            hit("a client is to try again, as its session was not found")
            self.withdraw(client)
            self.finish(claiming, Arrival.BUSY)
            return
        if connects:
            logger.warning("the session of %r was not found in time; the client is served without it", client)
        for broker in claiming.silent:
            self.migrations.target.drop(broker, client, self.leases.get(client, 0), claiming.user)
        self.finish(claiming, Arrival.HERE)
        self.sync_one(client)  # the session elsewhere ends as soon as the holders report it


def has_session(host: SessionHost | None, client: str) -> bool:
    """Return whether a broker has a lasting session of the client of its own. `host` has its sessions, None: none."""
    return host is not None and host.birth(client) > 0


def _nothing() -> None:
    pass


def _waits(arrival: Arrival) -> None:
    """Ignore the outcome of a claim that nobody waits for."""


def _hidden(claiming: Claiming, copied: CopiesHere, host: SessionHost | None) -> bool:
    """Return whether a broker that cannot be heard yet may have the session, of which nobody else knows."""
    known = has_session(host, claiming.client)
    return copied.restores(claiming.client) or ((claiming.bereft or copied.young) and not known)


def _age(lease: SessionLease) -> tuple[int, str]:
    """Return the sort key of a lease: claims are ordered by stamp, then by broker name."""
    return lease.stamp, lease.broker.name


def _order(port: Port, lease: SessionLease) -> tuple[int, bool, str]:
    """Return the sort key of a found lease: of two heirs with one stamp the one that lives comes last."""
    return lease.stamp, not port.lost(lease.broker), lease.broker.name
