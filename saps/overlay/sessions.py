"""The sessions of one broker in the mesh: each client has one at a time, at the broker it connected to last.

A CONNECT **claims** the client: a stamp of the hybrid clock goes to the holders of the client's bucket
(`saps.overlay.directory`), which tell who else has tenure. Of two claims at least one sees the other, as both reach
every holder; the greater stamp is the later one. Who finds a greater one than its own has lost against a CONNECT that
came after its own; if that stamp is beyond the present, the clocks differ, and it claims again. So claims are in one
order, and each takes the session over from the one before (`saps.overlay.handover`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from saps.mesh import Arrival
from saps.overlay.calls import Outcome, RangeCalls
from saps.overlay.directory import Directory, bucket_of, shelf
from saps.overlay.frames import Claim, Offer, Roster, Tenure, Tenures
from saps.overlay.port import Port

if TYPE_CHECKING:
    from saps.mesh import Origin, SessionHost
    from saps.messages import Message
    from saps.overlay.handover import Handovers

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""Range calls for one claim; after that what the last one has brought must do."""
ROUNDS = 3
"""Times a claim is made again with a later stamp, before the client is told to try again."""
LINGER = 1.0
"""Seconds for which ended tenures gather, so that many are told in one call, or with the next claim. A client that has
moved on meanwhile costs its new broker a question more."""

Done = Callable[[Arrival], None]


class Quest:
    """A claim under way."""

    __slots__ = ("client", "done", "keep", "over", "rounds", "user")

    def __init__(self, client: str, user: str | None, keep: bool, done: Done) -> None:
        self.client = client
        self.user = user
        self.keep = keep
        self.done = done
        self.rounds = 0
        self.over = False


class _Writer:
    """What this broker has to tell the holders of one bucket: one call at a time, with all that has gathered."""

    __slots__ = ("busy", "claims", "released", "scheduled", "told")

    def __init__(self) -> None:
        self.claims: dict[str, Quest | None] = {}
        """By client; None where nobody waits."""
        self.released: dict[str, int] = {}
        self.busy = False
        self.scheduled = False


class Sessions:
    """Claims and tenures of one broker. (A `saps.mesh.Sessions`.)"""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        directory: Directory,
        stamp: Callable[[int], int],
        joined: Callable[[], bool],
        alone: Callable[[], bool],
        patience: float,
    ) -> None:
        """`stamp` gives a stamp later than all before and than the one it is told; `joined` says if this broker is in
        the mesh, `alone` if nobody else is; `patience`: seconds that a CONNECT waits for somebody who does not
        answer."""
        self._port = port
        self._calls = calls
        self._directory = directory
        self._stamp = stamp
        self._joined = joined
        self._alone = alone
        self.patience = patience
        self.host: SessionHost | None = None
        """Who has the sessions; until there is somebody, nothing is ever claimed."""
        self.handovers: Handovers
        """Set by whoever puts the two together."""
        self.tenures: dict[str, int] = {}
        """Clients claimed here, with the stamps."""
        self.quests: dict[str, Quest] = {}
        self._unsure: set[str] = set()
        """Sessions of an earlier life that may have a later one elsewhere."""
        self._writers: dict[int, _Writer] = {}

    # --- the frontend's side ----------------------------------------------------------------------------------------

    def at_home(self, client: str) -> bool:
        return self._alone() or (
            client in self.tenures
            and client not in self.quests
            and client not in self._unsure
            and not self.handovers.giving(client)
        )

    def claimed(self, client: str) -> bool:
        return client in self.tenures

    def claim(self, client: str, user: str | None, keep: bool, arrived: Done) -> None:
        if self._alone():
            arrived(Arrival.HERE)
            return
        quest = self.quests[client] = Quest(client, user, keep, arrived)
        self.tenures[client] = self._stamp(0)
        self._port.after(self.patience, lambda: self._give_up(quest, self.tenures.get(client)))
        self._note(client, quest)

    def release(self, client: str) -> None:
        self._unsure.discard(client)
        stamp = self.tenures.pop(client, None)
        if stamp is not None and not self._alone():
            number = bucket_of(client)
            self._writer(number).released[client] = stamp
            self._soon(number, LINGER)

    def withdraw(self, client: str) -> None:
        """Somebody takes this broker for the one that has the client's session, and there is none."""
        number = bucket_of(client)
        self.tenures.pop(client, None)
        self._writer(number).released[client] = self._stamp(0)
        self._soon(number, LINGER)

    def restored(self, clients: Iterable[str]) -> None:
        self._unsure.update(clients)

    def identify(self, message: Message) -> Origin | None:
        return self.handovers.record.identify(message)

    # --- the mesh's side --------------------------------------------------------------------------------------------

    def roster(self, body: Roster) -> list[Tenures]:
        """This broker's tenures in a bucket (answers `Roster`)."""
        if self.host is None:
            return []
        me, tenures = self._port.me, self.tenures
        mine = {client: 0 for client in self.host.clients() if bucket_of(client) == body.bucket}
        mine.update((client, stamp) for client, stamp in tenures.items() if bucket_of(client) == body.bucket)
        return [Tenures(me, True, [Tenure(client, me, stamp) for client, stamp in mine.items()])] if mine else []

    def sync(self) -> None:
        """Tell the holders of all sessions here: some may not know of them, or of later ones elsewhere."""
        if self.host is None or self._alone():
            return
        for client in self.host.clients():
            self.sync_one(client)
        for number in self._writers:  # what was claimed before this broker was in the mesh
            self._write(number)

    def sync_one(self, client: str) -> None:
        """The same for one client."""
        if client not in self.quests:
            self.tenures.setdefault(client, 0)
            self._note(client, None)

    def finish(self, quest: Quest, arrival: Arrival) -> None:
        """A claim is over."""
        if not quest.over:
            quest.over = True
            if self.quests.get(quest.client) is quest:
                del self.quests[quest.client]
            self._unsure.discard(quest.client)
            quest.done(arrival)

    # --- telling the holders ----------------------------------------------------------------------------------------

    def _writer(self, number: int) -> _Writer:
        writer = self._writers.get(number)
        if writer is None:
            writer = self._writers[number] = _Writer()
        return writer

    def _note(self, client: str, quest: Quest | None) -> None:
        number = bucket_of(client)
        self._writer(number).claims[client] = quest
        self._write(number)

    def _soon(self, number: int, delay: float) -> None:
        writer = self._writers[number]
        if not writer.scheduled:
            writer.scheduled = True

            def due() -> None:
                writer.scheduled = False
                self._write(number)

            self._port.after(delay, due)

    def _write(self, number: int) -> None:
        writer = self._writers[number]
        if writer.busy or not self._joined() or not (writer.claims or writer.released):
            return
        writer.busy = True
        claims, writer.claims = writer.claims, {}
        released, writer.released = writer.released, {}
        for client in claims:
            released.pop(client, None)  # the new tenure takes the place of the old one
        told = {client: self.tenures[client] for client in claims if client in self.tenures}
        body = Claim(number, self._port.me, list(told.items()), list(released.items()))

        def answered(outcome: Outcome) -> None:
            writer.busy = False
            self._answered(number, {c: quest for c, quest in claims.items() if c in told}, outcome)
            self._write(number)

        self._calls.call(shelf(number), body, answered, ATTEMPTS)

    def _answered(self, number: int, claims: dict[str, Quest | None], outcome: Outcome) -> None:
        answers = [result for result in outcome.results if isinstance(result, Tenures)]
        ready = {answer.broker.name for answer in answers if answer.ready}
        if claims and not ready:  # nobody knows: find out, and be the one who does
            self._directory.join(number, lambda: self._again(number, claims))
            return
        self._directory.balance(number, ready, {answer.broker.name for answer in answers})
        others: dict[str, dict[str, Tenure]] = {}
        for answer in answers:
            for tenure in answer.tenures:
                if tenure.broker.name != self._port.me.name and not self._port.lost(tenure.broker):
                    known = others.setdefault(tenure.client, {})
                    first = known.setdefault(tenure.broker.name, tenure)
                    if first.stamp < tenure.stamp:
                        known[tenure.broker.name] = tenure
        for client, quest in claims.items():
            found = sorted(others.get(client, {}).values(), key=_age, reverse=True)
            if quest is None:
                self._synced(client, found)
            elif not quest.over and self.quests.get(client) is quest:
                self._resolve(quest, found)

    def _again(self, number: int, claims: dict[str, Quest | None]) -> None:
        for client, quest in claims.items():
            self._writer(number).claims.setdefault(client, quest)
        self._write(number)

    def _resolve(self, quest: Quest, others: list[Tenure]) -> None:
        """It is known who else has tenure."""
        client, mine = quest.client, self.tenures.get(quest.client, 0)
        if others and _age(others[0]) > (mine, self._port.me.name):
            quest.rounds += 1
            if others[0].stamp < self._stamp(0):  # made while this claim was under way
                self.finish(quest, Arrival.LATER)
                return
            if quest.rounds > ROUNDS:
                self.finish(quest, Arrival.BUSY)
                return
            self.tenures[client] = self._stamp(others[0].stamp)
            self._note(client, quest)
        else:
            self.handovers.take(quest, mine, others)

    def _synced(self, client: str, others: list[Tenure]) -> None:
        """The holders know of a session here. If there is a later one, its broker sees to it that this one ends."""
        mine = self.tenures.get(client)
        if mine is None or client in self.quests:
            return
        if others and _age(others[0]) > (mine, self._port.me.name):
            self._port.send(others[0].broker, Offer(client))
        else:
            self._unsure.discard(client)

    def _give_up(self, quest: Quest, stamp: int | None) -> None:
        """Has it been found out in time who has the session?"""
        if not quest.over and not self.handovers.taking(quest.client):
            logger.warning(
                "the session of %r: the mesh does not say in %g s where it is; the client is served without",
                quest.client,
                self.patience,
            )
            self.finish(quest, Arrival.HERE)


def _age(tenure: Tenure) -> tuple[int, str]:
    """The order of claims."""
    return tenure.stamp, tenure.broker.name
