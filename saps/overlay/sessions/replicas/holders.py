"""The holders' side: keeps copies of other brokers' sessions, and decides who adopts them when the owner dies.

1. A holder watches the owners whose logs it follows. When it declares one dead, it asks the other holders (`Heir`).
2. If one of them still hears the owner, it asks again after `ASK_AGAIN` seconds: of three brokers two decide.
3. Else the holder whose copy reaches furthest adopts the sessions (`saps.overlay.sessions.replicas.adoption`); of
   equal ones the first in the owner's list. The other holders stand by, and ask again if the heir dies. A holder that
   reaches no other decides alone.
4. From then on the heir refuses the owner's frames, so the owner learns that it was declared dead.
5. When the adopted sessions are stored and copied as the heir's own, the other holders drop their copies
   (`Inherited`).

The table of states is in `saps.overlay.sessions.replicas.states`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from saps.marks import hit
from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import Append, Appended, Bequest, Heir, HeirAnswer, Inherited, Replaced
from saps.overlay.port import Handlers, Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.publications import Publications
from saps.overlay.sessions.replicas.adoption import Adoption
from saps.overlay.sessions.replicas.copies import Copy
from saps.overlay.sessions.replicas.restored import Restored
from saps.overlay.sessions.replicas.shelf import Shelf
from saps.overlay.sessions.replicas.source import Source
from saps.overlay.sessions.replicas.states import Event, State, following
from saps.overlay.sessions.sessions import Sessions, has_session

logger = logging.getLogger(__name__)

ASK_AGAIN = 0.1
"""Seconds until the other holders are asked again, while one of them hears the owner."""
ANSWER = 1.0
"""Limit in seconds for the answer of a holder that has not been declared dead."""
CONFIRM = 2.0
"""Seconds between two confirmations that this broker follows a log."""
REMIND = 1.0
"""Seconds between two questions to another holder that adopts, whether it has adopted: its `Inherited` may be lost."""
STAND_BY = 15.0
"""Limit in seconds for another holder's adoption."""
LATE = 1.0
"""Longest time in seconds that a frame takes from its owner to here."""
FENCED = 4096
"""Number of ended logs that are remembered, to refuse their frames."""

Log = tuple[BrokerRef, int]


class _Vote:
    """The answers of the other holders of a log, while the heir is being decided."""

    __slots__ = ("answers", "heir", "limit")

    def __init__(self) -> None:
        self.answers: dict[str, HeirAnswer] = {}
        self.limit = 0.0
        self.heir: BrokerRef | None = None


class Replicas:
    """The session replicas of one broker: the copies it has others make (`source`), and the copies it holds."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        source: Source,
        publications: Publications,
        wall: Callable[[], float],
    ) -> None:
        """`wall` returns the time in seconds since the epoch."""
        self._port = port
        self._calls = calls
        self._sessions = sessions
        self._publications = publications
        self._wall = wall
        self.source = source
        self.shelf = Shelf()
        self.copies: dict[Log, Copy] = {}
        self._votes: dict[Log, _Vote] = {}
        self._over: OrderedDict[Log, None] = OrderedDict()
        self._serial = 0
        self.adoptions: dict[int, Adoption] = {}
        """Adoptions under way, by the serial number of their `Inherit`."""
        self.adopted = 0
        """Number of sessions adopted here."""
        self.restored = Restored(
            port,
            calls,
            self.shelf,
            self.copies,
            self._over,
            lambda client: has_session(sessions.host, client),
            self._adopt,
            self._done,
            self._forget_log,
        )
        self.when_stored: Callable[[Callable[[], None]], None] = _at_once
        """Runs an action when all changes so far are stored and copied."""

    @property
    def held(self) -> int:
        """Number of other brokers' sessions held here."""
        return sum(len(copy.sessions) for copy in self.copies.values())

    # ---- frames

    @property
    def handlers(self) -> Handlers:
        return {
            Append: self._on_append,
            Appended: self.source.on_appended,
            Replaced: self._on_replaced,
            Heir: self._on_heir,
            HeirAnswer: self._on_answer,
            Inherited: lambda sender, frame: self._done((frame.owner, frame.log)),
            Bequest: self._on_bequest,
        }

    def _on_bequest(self, sender: BrokerRef, frame: Bequest) -> None:
        if (adoption := self.adoptions.get(frame.serial)) is not None:
            adoption.bequeathed(sender, frame)

    def _on_append(self, sender: BrokerRef, frame: Append) -> None:
        """Apply a frame of an owner's log, in order and once, and acknowledge it.

        Frames of a log whose sessions were adopted are refused. A frame of an older stream is ignored."""
        if self._sessions.host is None:
            hit("copies declined")
            self._port.send(sender, Appended(frame.stream, 0, declined=True))
            return
        log = sender, frame.log
        copy = self.copies.get(log)
        if log in self._over or (copy is not None and copy.state is State.ADOPTING):
            self._port.send(sender, Appended(frame.stream, 0, True))
            return
        if copy is None or copy.stream < frame.stream:
            if frame.seq != 1:  # the owner retransmits frame 1, or learns that the copy is gone if frame 1 was answered
                self._port.send(sender, Appended(frame.stream, 0))
                return
            self._begin_anew(sender, frame.log)
            copy = self.copies[log] = Copy(sender, frame.log, frame.stream)
        if copy.stream > frame.stream:
            return
        self._step(copy, Event.OWNER_HEARD)
        if frame.seq == copy.seq + 1:
            now = self._wall()
            frame.changes.shift(now - frame.wall, now)
            self.shelf.take(copy, frame.changes)
            over = copy.take(frame, self._port.now, self._publications.cut)
            copy.upto = self._port.now - LATE
            self.shelf.note(copy, frame.changes, over, now - LATE)
        if frame.seq <= copy.seq:
            self._port.send(sender, Appended(frame.stream, copy.seq))

    def confirm(self) -> None:
        """Tell the owners how far this broker follows their logs, every `CONFIRM` seconds: an owner may have replaced
        it meanwhile. Adopted later, such a copy would bring back what has been delivered. If there are too few holders
        of this broker's sessions, look for others: some may have come since the last change."""
        self.source.review()
        for copy in self.copies.values():
            if copy.state is State.FOLLOWING:
                self._port.send(copy.owner, Appended(copy.stream, copy.seq))

    def _on_replaced(self, sender: BrokerRef, frame: Replaced) -> None:
        for log, copy in list(self.copies.items()):
            if copy.owner == sender and copy.stream == frame.stream and copy.state is State.FOLLOWING:
                hit("holder replaced")
                self._forget_log(log)

    def _begin_anew(self, owner: BrokerRef, number: int) -> None:
        """An owner begins anew: what there is of its log, or of one before, is of no use."""
        for log, copy in list(self.copies.items()):
            if copy.owner == owner and copy.log <= number:
                self._step(copy, Event.RENEWED)
                if copy.state is State.FORGOTTEN:
                    self._forget_log(log)

    # ---- the owners' fate

    def watched(self) -> dict[str, BrokerRef]:
        """Return, by name, the brokers whose failure must be noticed: holders, owners and rivals of a vote."""
        found = self.source.awaited()
        for log, copy in self.copies.items():
            if copy.state is State.FOLLOWING:
                found[copy.owner.name] = copy.owner
            for ref in copy.holders if log in self._votes else ():
                if ref.name != self._port.me.name:
                    found[ref.name] = ref
        return found

    def died(self, broker: BrokerRef, left: bool = False) -> None:
        """Handle the death or leaving (`left`) of a broker, as a holder, an owner or an heir."""
        self.source.forget(broker)
        for log, copy in list(self.copies.items()):
            if copy.owner.name == broker.name and copy.owner.incarnation <= broker.incarnation:
                if left and not copy.restored:
                    copy.upto = self._port.now
                if copy.state is State.FOLLOWING and not (copy.whole and copy.sessions):
                    self._forget_log(log)
                elif self._step(copy, Event.OWNER_LOST):
                    self._ask(log, copy)
            elif (vote := self._votes.get(log)) is not None:
                if vote.heir is not None and vote.heir == broker and self._step(copy, Event.HEIR_LOST):
                    hit("heir lost")
                    self._ask(log, copy)
                self._decide(log, copy)

    def back(self, broker: BrokerRef) -> None:
        """Follow the logs of an owner again that is heard again in the same incarnation."""
        for log, copy in self.copies.items():
            if copy.owner == broker and self._step(copy, Event.OWNER_HEARD):
                self._votes.pop(log, None)

    def _step(self, copy: Copy, event: Event) -> bool:
        """Apply an event to a copy. Return whether its state has changed."""
        before, copy.state = copy.state, following(copy.state, event)
        return copy.state is not before

    def _forget_log(self, log: Log) -> None:
        if (copy := self.copies.pop(log, None)) is not None:
            self.shelf.drop(copy)
            for each in copy.sessions.values() if copy.restored else ():  # reported when this broker joined
                if each.client not in self._sessions.leases:
                    self._sessions.withdraw(each.client)
        self._votes.pop(log, None)

    def _done(self, log: Log) -> None:
        """End a log whose sessions another broker or this one owns now: refuse its frames and drop the copy."""
        self._over[log] = None
        if len(self._over) > FENCED:
            self._over.popitem(last=False)
        copy = self.copies.get(log)
        if copy is not None and self._step(copy, Event.DONE):
            self._forget_log(log)

    # ---- the choice of the heir

    def _others(self, copy: Copy) -> list[BrokerRef]:
        """Return the other holders of a log that are not lost, in the owner's order."""
        me = self._port.me.name
        return [ref for ref in copy.holders if ref.name != me and not self._port.lost(ref)]

    def _ask(self, log: Log, copy: Copy) -> None:
        """Ask the other holders whether this broker is to adopt the sessions of a log."""
        vote = self._votes[log] = _Vote()
        vote.limit = self._port.now + ANSWER
        for ref in self._others(copy):
            self._port.send(ref, Heir(*log))
        self._port.after(ANSWER, lambda: self._decide(log, copy))
        self._decide(log, copy)

    def _on_heir(self, sender: BrokerRef, frame: Heir) -> None:
        """Answer another holder: whether this broker hears the owner, whether it adopts, and its last commit (0
        without a complete copy); or that the sessions have been adopted, or the owner has begun another log."""
        log = frame.owner, frame.log
        if log in self._over or any(owner == log[0] and number > log[1] for owner, number in self.copies):
            self._port.send(sender, Inherited(*log))
            return
        copy = self.copies.get(log)
        alive = copy is not None and copy.state is State.FOLLOWING
        adopts = copy is not None and copy.state is State.ADOPTING
        commit = copy.commit if copy is not None and copy.whole else 0
        self._port.send(sender, HeirAnswer(*log, alive, adopts, commit))

    def _on_answer(self, sender: BrokerRef, frame: HeirAnswer) -> None:
        log = frame.owner, frame.log
        copy, vote = self.copies.get(log), self._votes.get(log)
        if copy is not None and vote is not None and any(sender == ref for ref in copy.holders):
            vote.answers[sender.name] = frame
            self._decide(log, copy)

    def _decide(self, log: Log, copy: Copy) -> None:
        """Decide on the heir once the other live holders have answered or `ANSWER` seconds have passed."""
        vote = self._votes.get(log)
        if vote is None or copy.state is not State.ASKING or self.copies.get(log) is not copy:
            return
        others = self._others(copy)
        if any(ref.name not in vote.answers for ref in others) and self._port.now < vote.limit:
            return
        answers = [(ref, vote.answers[ref.name]) for ref in others if ref.name in vote.answers]
        heir = next((ref for ref, answer in answers if answer.adopts), None)
        if heir is None and any(answer.alive for _, answer in answers):
            vote.answers.clear()
            vote.limit = float("inf")
            self._port.after(ASK_AGAIN, lambda: self._ask_again(log, copy, vote))
            return
        names = [ref.name for ref in copy.holders]
        reach = {self._port.me: copy.commit, **{ref: answer.commit for ref, answer in answers}}
        if heir is None:
            heir = max(reach, key=lambda ref: (reach[ref], -names.index(ref.name) if ref.name in names else 0))
        if heir == self._port.me:
            self._step(copy, Event.FIRST)
            self._adopt(log, copy)
        else:
            hit("another holder adopts")
            self._step(copy, Event.SECOND)
            vote.heir = heir
            self._port.after(REMIND, lambda: self._remind(log, copy, vote))
            self._port.after(STAND_BY, lambda: self._overdue(log, copy, vote))

    def _ask_again(self, log: Log, copy: Copy, vote: _Vote) -> None:
        if self._votes.get(log) is vote and copy.state is State.ASKING:
            self._ask(log, copy)

    def _remind(self, log: Log, copy: Copy, vote: _Vote) -> None:
        """Ask the heir for its `Inherited` while this broker stands by. A copy kept for longer would be adopted again,
        without what was delivered meanwhile, after a loss of power."""
        if self._votes.get(log) is vote and copy.state is State.STANDBY and vote.heir is not None:
            self._port.send(vote.heir, Heir(*log))
            self._port.after(REMIND, lambda: self._remind(log, copy, vote))

    def _overdue(self, log: Log, copy: Copy, vote: _Vote) -> None:
        if self._votes.get(log) is vote and self._step(copy, Event.HEIR_LOST):
            self._ask(log, copy)

    def _adopt(self, log: Log, copy: Copy) -> None:
        """Adopt the sessions of a log; once they are stored and copied, tell the other holders."""
        self._votes.pop(log, None)
        self._serial += 1
        serial = self._serial
        logger.warning("%s is dead: adopted its sessions, %d", copy.owner.name, len(copy.sessions))

        def done() -> None:
            self.adopted += len(adoption.clients)
            self.when_stored(over)

        def over() -> None:
            del self.adoptions[serial]
            del self._publications.adopting[serial]
            self._done(log)
            for ref in self._others(copy):
                self._port.send(ref, Inherited(*log))

        self._publications.adopting[serial] = copy.owner
        adoption = self.adoptions[serial] = Adoption(
            self._port, self._calls, self._sessions, self._publications, serial, copy, done
        )
        adoption.begin(self._wall(), self._elsewhere(copy))

    def _elsewhere(self, copy: Copy) -> dict[str, int]:
        """Return the clients whose sessions other copies here have, with the greatest stamps.

        Another log of the same owner, while it is followed, does not count: a later incarnation began it from its disk,
        and lacks what was published meanwhile."""
        found: dict[str, int] = {}
        for other in self.copies.values():
            again = other.owner.name == copy.owner.name and other.state in (State.FOLLOWING, State.RESTORED)
            if other is not copy and not again and other.state is not State.FORGOTTEN:
                for each in other.sessions.values():
                    found[each.client] = max(found.get(each.client, -1), each.stamp)
        return found

    def leases(self) -> list[SessionLease]:
        """Return the leases of dead owners, and of restored copies: no live owner reports them."""
        lost = [copy for copy in self.copies.values() if copy.state not in (State.FOLLOWING, State.RESTORED)]
        return self.restored.leases() + [
            SessionLease(each.client, copy.owner, each.stamp, True) for copy in lost for each in copy.sessions.values()
        ]

    def restores(self, client: str) -> bool:
        """Return whether this broker's file has a copy of the client's session whose adoption is still undecided."""
        return client in self.restored.clients

    @property
    def former(self) -> BrokerRef | None:
        """The last earlier incarnation of this broker that has written to its file; None without one."""
        return self.restored.former

    @property
    def expects(self) -> bool:
        """Whether former members have not been heard since this broker started again, and may be starting as well."""
        return self.restored.expects

    @property
    def young(self) -> bool:
        """Whether brokers that were in the mesh with this one, before it started again, may be starting as well."""
        return self.restored.young


def _at_once(action: Callable[[], None]) -> None:
    action()
