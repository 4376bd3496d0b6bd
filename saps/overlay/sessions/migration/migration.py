"""Moves a session from one broker to another, so that no message is lost or delivered twice.

The **target**, to which the client has connected, leads. The **source** answers, and answers repeated requests again.

1. `TakeOver`: the source closes the client's connection. From now on it only queues messages for the session.
2. `Pull` of stage 0: the source sends settings and filters, and the target subscribes to the filters. Once the
   subscriptions hold everywhere, the target asks the publishers (`Unsettled`) until members have acknowledged all that
   was published by then, and the source has got what it missed. So earlier publications are at the source, and later
   ones come to the target.
3. `Pull` of stage 1: the source packs the session's messages. The target asks the publishers once more, so that
   publications that take both ways have come. Both brokers know the origin of each message. The target drops those of
   its own that the source has sent or had passed on before.
4. `Arrived`: the target has the whole session, on disk if it stores sessions. The source forgets the session and
   answers `Departed`. Only then does the target serve the client.

So exactly one broker has the session at any time. If the target dies before its `Arrived` has come, the source goes on
with the session. If the source dies before `Departed`, the target goes on: with the session after `Arrived`, without it
before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import Arrived, Departed, Offer, Pull, Snapshot, TakeOver, TakeOverAnswer
from saps.overlay.port import Handlers, Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.claiming import Claiming
from saps.overlay.sessions.migration.source import MigrationSource
from saps.overlay.sessions.migration.target import MigrationTarget, Stage
from saps.overlay.sessions.sessions import Sessions

logger = logging.getLogger(__name__)

TELL_AGAIN = 2.0
"""Seconds until the holders are asked again whether the session here or another broker's is the later one."""


class Migrations:
    """The migrations to and from one broker."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        passed: Callable[[BrokerRef, str], int],
        waiting: Callable[[list[str]], bool],
    ) -> None:
        """`passed` returns the number of a broker's last publication to a topic that went to the subscribers here.

        `waiting` returns whether a publication that matches some filters has come and could not be passed on yet."""
        self._port = port
        self._sessions = sessions
        self._offering: set[str] = set()
        """Clients of older sessions here that other brokers have been told of (`Offer`) in the last `TELL_AGAIN`
        seconds."""
        self.target = MigrationTarget(port, calls, sessions, waiting)
        self.source = MigrationSource(port, sessions, passed, waiting)

    def offer(self, client: str) -> bool:
        """Return whether the client's session is moving to another broker."""
        return client in self.source.leaving

    def transfer(self, client: str, asked: bool = True) -> bool:
        """Return whether the client's session is moving here, or, with `asked`, whether a broker is asked for it."""
        transfers = (each for each in self.target.transfers.values() if each.claiming.client == client)
        return any(asked or transfer.stage is not Stage.ASKING for transfer in transfers)

    def take(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        """Fetch a claimed session from the first of these brokers that has one, and make the others end theirs.

        `stamp` is that of the claim, `sources` the leases of other brokers, the latest first."""
        self.target.take(claiming, stamp, sources)

    def awaited(self) -> dict[str, BrokerRef]:
        """Return, by name, the brokers whose failure must be noticed, since a migration waits for them."""
        found = {offer.to.name: offer.to for offer in self.source.leaving.values()}
        found.update((t.source.name, t.source) for t in self.target.transfers.values() if t.source is not None)
        found.update((broker.name, broker) for broker, _ in self.target.dropping.values())
        return found

    @property
    def handlers(self) -> Handlers:
        return {
            TakeOver: self.source.on_take_over,
            TakeOverAnswer: self.target.on_take_over_answer,
            Pull: self.source.on_pull,
            Snapshot: self.target.on_snapshot,
            Arrived: self.source.on_arrived,
            Departed: self.target.on_departed,
            Offer: self._on_offer,
        }

    def tell(self, broker: BrokerRef, client: str) -> None:
        """Report the older session here to a broker with a later one, which ends it.

        Frames may be lost, so the holders are asked again after `TELL_AGAIN` seconds, while the session is here."""
        self._port.send(broker, Offer(client))
        if client not in self._offering:
            self._offering.add(client)
            self._port.after(TELL_AGAIN, lambda: self._look(client))

    def _look(self, client: str) -> None:
        """Report the client's session to the holders again if it is still here."""
        self._offering.discard(client)
        if client in self._sessions.leases and not self.offer(client):
            self._sessions.sync_one(client)

    def _on_offer(self, sender: BrokerRef, frame: Offer) -> None:
        sessions, client = self._sessions, frame.client
        if sessions.host is None or client in sessions.claimings or not sessions.host.birth(client):
            self.offered(sender, client)
        else:  # the holders tell which of the two sessions is the later one
            sessions.sync_one(client)

    def offered(self, sender: BrokerRef, client: str) -> None:
        """Make a broker end its older session of a client.

        A claim under way only notes the broker. If there is no session here either, the holders are told. A branch of
        the session here is fetched before it ends."""
        sessions = self._sessions
        if sessions.host is None or self.offer(client):
            return
        if (claiming := sessions.claimings.get(client)) is not None:
            claiming.offered[sender] = None
            if not self.target.asks(sender, client):  # it may have been asked while it was dead
                claiming.asked.discard(sender)
        elif client not in sessions.leases:
            sessions.withdraw(client)
        elif self.target.ends(sender, client):
            return
        elif sessions.host.birth(client):
            self.target.gather(sender, client, sessions.leases[client])
        else:
            logger.warning("ended an older session of %r at %s: a later one is here", client, sender.name)
            self.target.drop(sender, client, sessions.leases[client], sessions.host.user(client))

    def keep_all(self) -> None:
        """Cancel all migrations from this broker: their sessions stay."""
        for client in list(self.source.leaving):
            self.source.keep(client)

    def forget(self, broker: BrokerRef) -> None:
        """End the migrations to and from a broker that has died or left."""
        self.source.forget(broker)
        self.target.forget(broker)
