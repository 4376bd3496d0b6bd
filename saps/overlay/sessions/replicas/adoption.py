"""Adoption: the heir makes a dead owner's sessions its own.

1. The heir claims each client in the session directory with the owner's stamp plus one, so any later CONNECT wins. A
   broker that asks for the session meanwhile is told to wait.
2. The heir begins the sessions with their subscriptions. They queue what is published from now on.
3. Once the subscriptions hold everywhere, and earlier publications have left this broker, the heir asks all brokers
   for what the owner has missed (`Inherit`): unacknowledged publications, and those published for it since. All that
   the owner had acknowledged is in the copy.
4. The heir waits until publications under way have come, and completes the sessions: first with the copy, then with
   the rest in each publisher's order, each once.
5. The sessions are in use. Later or earlier sessions in the directory are settled as after a partition merge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from saps.marks import hit
from saps.overlay.delivery.publications import batch_of
from saps.overlay.delivery.settling import Settling
from saps.overlay.frames.calls import Bequeathed, Inherit
from saps.overlay.frames.copies import LONG_AGO, Heirloom, SessionCopy
from saps.overlay.frames.delivery import Publish
from saps.overlay.frames.sessions import Bequest
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef
from saps.overlay.sessions.claiming import Claiming
from saps.overlay.sessions.publications import Publications
from saps.overlay.sessions.replicas.copies import Copy
from saps.overlay.sessions.sessions import Sessions
from saps.storage.saved import SavedMessage, SavedSession
from saps.topics import shared

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""Most range calls of a round for what the owner has missed. The last one counts, complete or not."""
ROUNDS = 5
"""Most rounds, while announced frames are missing or answers incomplete."""
ARRIVE = 0.5
"""Limit in seconds for the arrival of announced frames; afterwards a link must have broken."""

ATTENDED, AGAIN = 40, 0.05
"""Most checks whether a session is moving or asked for, and seconds between two. Afterwards a mere question no longer
delays the adoption, since the broker that is asked may wait for this one."""


class _Adopted:
    """A session under adoption."""

    __slots__ = ("claiming", "complete")

    def __init__(self, claiming: Claiming, complete: Callable[[], None]) -> None:
        self.claiming = claiming
        self.complete = complete


class Adoption:
    """The adoption of one owner's sessions; `begin` starts it."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        publications: Publications,
        serial: int,
        copy: Copy,
        done: Callable[[], None],
    ) -> None:
        """`serial` identifies the adoption in frames. `done` runs when all sessions are complete here."""
        self._port = port
        self._calls = calls
        self._sessions = sessions
        self._publications = publications
        self._serial = serial
        self.owner = copy.owner
        self._copy = copy
        self._done = done
        self.clients: dict[str, _Adopted] = {}
        self._filters: dict[str, None] = {}
        self._unsubscribed = 0
        self._rounds = 0
        self._come: dict[BrokerRef, tuple[int, list[tuple[BrokerRef, Publish]]]] = {}
        """By broker: the last round in which it has sent missed publications, and these, each with its publisher's
        broker."""
        self._over = False
        self.answered: set[str] = set()
        """Names of the brokers that have sent all that the owner had missed from them."""

    def begin(self, now: float, elsewhere: dict[str, int], attempt: int = 0) -> None:
        """Claim the sessions and begin them, once none of them is moving here.

        `now` is in seconds since the epoch. `elsewhere` has the stamps of other copies of the same clients' sessions;
        a session with a later copy is left out, and so is one that has expired."""
        clients = [each.client for each in self._copy.sessions.values()]
        if any(self._sessions.moving(client, attempt < ATTENDED) for client in clients):
            self._port.after(AGAIN, lambda: self.begin(now, elsewhere, attempt + 1))
            return
        saved, messages = self._copy.saved()
        copied = {each.client: each for each in self._copy.sessions.values()}
        self._unsubscribed = 1
        for each in saved:
            copy = copied[each.client_id]
            over = each.ends is not None and each.ends <= now
            if not over and elsewhere.get(each.client_id, -1) <= copy.stamp:
                told = self._copy.came(each.number, now, self._port.now)
                self._adopt(each, messages, copy, told, max(told, self._copy.reached(now, self._port.now)))
        self._subscribed()

    def _adopt(
        self, saved: SavedSession, messages: dict[int, SavedMessage], copy: SessionCopy, told: float, upto: float
    ) -> None:
        """Begin one session; if it is here already or on its way, merge the copy into it. `told`: when the copy came,
        `upto`: until when it got what the owner got, in seconds of the port's clock."""
        client, host = saved.client_id, self._sessions.host
        assert host is not None
        if self._copy.restored and saved.birth and host.birth(client) == saved.birth:
            return  # this broker adopted the session before the loss of power
        claiming = self._sessions.inherit(client, saved.user, copy.stamp)
        if claiming is None:
            host.absorb(saved, messages)
            return
        self._unsubscribed += 1
        owner = self.owner.name, self.owner.incarnation
        filters, arrived, complete = host.inherit(saved, messages, owner, self._subscribed)
        claiming.done = arrived
        self._filters.update(dict.fromkeys(each for each in filters if shared(each) is None))
        self.clients[client] = _Adopted(claiming, complete)
        *former, last = copy.heritage or [Heirloom(self.owner, 0.0)]
        heirlooms = [*former, msgspec.structs.replace(last, age=LONG_AGO + told - upto)]
        self._sessions.migrations.heritage.add(client, heirlooms, told=told)

    def _subscribed(self) -> None:
        self._unsubscribed -= 1
        if not self._unsubscribed:
            self._await_own(self._publications.queued(), self._port.now + self._sessions.timeout)

    def _await_own(self, queued: Callable[[], bool], limit: float) -> None:
        """Ask for what the owner has missed, once no earlier publication from here waits for its subscribers.

        The log of missed publications does not have such a publication yet."""
        if queued() and self._port.now < limit:
            hit("an heir's own publications are queued")
            self._port.after(0.02, lambda: self._await_own(queued, limit))
        else:
            self._inherit()

    # ---- what the owner has missed

    def _inherit(self) -> None:
        self._rounds += 1
        body = Inherit(self.owner, self._port.me, self._serial, self._rounds, list(self._filters))
        self._calls.call(ALL_BROKERS, body, self._told, ATTEMPTS)

    def bequeathed(self, sender: BrokerRef, frame: Bequest) -> None:
        """Take a missed publication from a broker. It may leave, or die, before a round is complete."""
        if self._over:
            return
        turn, come = self._come.get(sender, (0, []))
        if frame.turn > turn:
            turn, come = self._come[sender] = frame.turn, []
        if frame.turn == turn:
            come.append((frame.origin or sender, frame.body))

    def _told(self, outcome: Outcome) -> None:
        expected = {each.broker: each.frames for each in outcome.results if isinstance(each, Bequeathed)}
        self._collect(expected, outcome.complete, self._port.now + ARRIVE)

    def _collect(self, expected: dict[str, int], complete: bool, limit: float) -> None:
        """Wait for the announced frames until `limit`; begin another round if some are missing."""
        come = {each.name: len(frames) for each, (turn, frames) in self._come.items() if turn == self._rounds}
        missing = any(come.get(name, 0) < count for name, count in expected.items())
        if missing and self._port.now < limit:
            self._port.after(0.02, partial(self._collect, expected, complete, limit))
        elif (missing or not complete) and self._rounds < ROUNDS:
            self._inherit()
        else:
            self.answered = {name for name, count in expected.items() if come.get(name, 0) >= count}
            if any(turn < self._rounds for turn, _ in self._come.values()):
                hit("bequeathed by a broker that has gone since")
            self._make_up()

    def _make_up(self) -> None:
        """Give the sessions what the owner has missed, and wait for the publications that are under way."""
        host = self._sessions.host
        assert host is not None
        come = (batch_of(body, sender) for _, frames in self._come.values() for sender, body in frames)
        host.make_up(self.clients, come, again=True, late=False)
        limit = self._port.now + self._sessions.timeout
        waiting, filters = self._publications.waiting, list(self._filters)
        Settling(
            self._port, self._calls, waiting, filters, limit, lambda: True, lambda _: self._complete(), owner=self.owner
        )

    def _complete(self) -> None:
        """Complete all sessions, end their claims, and report them to the holders of the directory."""
        self._over = True
        self._come.clear()
        for client, adopted in self.clients.items():
            adopted.complete()
            self._sessions.migrations.heritage.answered(client, self.owner, self.answered)
            if not (self._copy.restored or self._port.lost(self.owner)):  # it is back, with what it has got meanwhile
                adopted.claiming.offered[self.owner] = None
                adopted.claiming.asked.discard(self.owner)
            self._sessions.inherited(adopted.claiming)
        self._done()
        self.clients.clear()
        del self._copy, self._done  # frees the messages, before all is stored
