"""Moving a session from one broker to another, so that nothing is lost and nothing comes twice.

The **target**, to which the client has connected, leads; the **source** answers, and may be asked the same thing again.

1. `TakeOver`: the source closes the client's connection. From now on it only takes in messages for the session.
2. `Pull` of stage 0: the target subscribes to the session's filters. When that has been taken up everywhere it asks the
   publishers until all that they had published by then is acknowledged by its members (`Unsettled`): so what was
   published before is with the source, what is published later comes to the target.
3. `Pull` of stage 1: the source packs what there is, and the target asks the publishers once more, so that what comes
by
   both ways has come. Both brokers know which publication each message was, so the target drops of its own what is
   among
   the source's, or had passed there before.
4. `Arrived`: the target has it all, stored if it stores sessions. The source forgets the session and says `Departed`;
   only then does the target serve the client.

So one broker has the session at any time. If the target dies before `Arrived` came the source goes on with it; if the
source dies before `Departed`, the target does so after `Arrived`, and without the session before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import Arrived, Departed, Offer, Pull, Snapshot, TakeOver, TakeOverAnswer
from saps.overlay.port import Handlers, Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.migration.source import MigrationSource
from saps.overlay.sessions.migration.target import MigrationTarget, Stage
from saps.overlay.sessions.sessions import Claiming, Sessions

logger = logging.getLogger(__name__)

TELL_AGAIN = 2.0
"""Seconds until the holders are asked once more whose session is the later one."""


class Migrations:
    """The sessions that come to one broker and leave it."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        passed: Callable[[BrokerRef, str], int],
        waiting: Callable[[list[str]], bool],
    ) -> None:
        """`passed`: the number of the last publication of a broker to a topic that has gone to the subscribers here.
        `waiting`: is there a matching one that has come and could not yet?"""
        self._port = port
        self._sessions = sessions
        self._offering: set[str] = set()
        """Clients of older sessions here that others have been told of."""
        self.target = MigrationTarget(port, calls, sessions, waiting)
        self.source = MigrationSource(port, sessions, passed, waiting)

    def offer(self, client: str) -> bool:
        """Is the client's session on its way to another broker?"""
        return client in self.source.leaving

    def transfer(self, client: str, asked: bool = True) -> bool:
        """Is another broker being asked for the client's session, or (without `asked`) giving it?"""
        transfers = (each for each in self.target.transfers.values() if each.claiming.client == client)
        return any(asked or transfer.stage is not Stage.ASKING for transfer in transfers)

    def take(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        """Have the session from the first of these brokers that has one; the others end theirs."""
        self.target.take(claiming, stamp, sources)

    def awaited(self) -> dict[str, BrokerRef]:
        """The brokers that something is expected of: their failure must be noticed."""
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
        """A broker has a later session of the client than this one: say so until one has gone (frames may be lost)."""
        self._port.send(broker, Offer(client))
        if client not in self._offering:
            self._offering.add(client)
            self._port.after(TELL_AGAIN, lambda: self._look(client))

    def _look(self, client: str) -> None:
        """Is the client's session still here?"""
        self._offering.discard(client)
        if client in self._sessions.leases and not self.offer(client):
            self._sessions.sync_one(client)

    def _on_offer(self, sender: BrokerRef, frame: Offer) -> None:
        sessions, client = self._sessions, frame.client
        if sessions.host is None or client in sessions.claimings or not sessions.host.birth(client):
            self.offered(sender, client)
        else:  # which of the two wins the holders tell
            sessions.sync_one(client)

    def offered(self, sender: BrokerRef, client: str) -> None:
        """A broker has an older session of a client: it ends, unless the client is waiting for one."""
        sessions = self._sessions
        if sessions.host is None or self.offer(client):
            return
        if (claiming := sessions.claimings.get(client)) is not None:
            claiming.offered[sender] = None
        elif client not in sessions.leases:
            sessions.withdraw(client)
        elif self.target.ends(sender, client):
            return
        elif sessions.host.birth(client):
            self.target.gather(sender, client, sessions.leases[client])
        else:
            logger.warning("ended an older session of %r at %s: a later one is here", client, sender.name)
            self.target.drop(sender, client, sessions.leases[client], sessions.host.user(client))

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left."""
        self.source.forget(broker)
        self.target.forget(broker)
