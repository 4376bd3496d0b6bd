"""The owner's side: keeps its log of changes, and the brokers that follow the log.

1. The owner chooses `copies` - 1 holders among the brokers it knows: those of its own site first, there those in other
   zones. When better ones come it changes to these: a new holder follows the log before the one it replaces is let go.
2. A holder gets a snapshot of everything, and each commit since its beginning once, in order. It answers each frame.
   The snapshot is read session by session as the holder answers, between commits, so that no broker stands still for
   it: what is read late has the commits before it, and taking one of them again changes nothing.
3. A holder that has answered the snapshot is **in sync**. A commit is done when all holders in sync have it. While
   none is in sync but one is alive, the commit waits until the first is in sync. So acknowledged changes are at two
   brokers at least, and each holder in sync has all of them.
4. A dead holder is replaced. If no holder is left, the owner goes on alone, or waits for one (`refuse`).
5. A holder that refuses the log has adopted its sessions, as this broker was declared dead. The owner begins another
   log, and asks the session directory who has its sessions; not if enough others follow, and this one never did.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import NamedTuple

from saps.marks import hit
from saps.overlay.frames.copies import Changes
from saps.overlay.frames.sessions import Append, Appended, Replaced
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.changes import Owner, Snapshot, changes_of, snapshot, some, urgent
from saps.storage.journal import Batch

logger = logging.getLogger(__name__)

WINDOW = 16
"""Most unacknowledged frames to one holder. A larger window would delay other traffic on the link."""
REPEAT = 0.25
"""Seconds between two checks whether holders answer and whether another broker can become a holder."""
SILENT = 0.5
"""Seconds without progress after which frames are retransmitted, as a link may have broken."""
FENCED = 1.0
"""Seconds until a holder that has refused a log is asked to follow the next one."""
EXCHANGE = 10.0
"""Seconds between two exchanges of holders for better ones, where there are enough: each begins with a snapshot."""


class _Holder:
    """A broker that follows the log."""

    __slots__ = ("acked", "progress", "queue", "ref", "seq", "snapshot", "stream", "sure_at", "unacked", "whole_at")

    def __init__(self, ref: BrokerRef, stream: int, snapshot: Snapshot) -> None:
        self.ref = ref
        self.stream = stream
        self.snapshot: Snapshot | None = snapshot
        """The sessions not read yet; None once the last one is."""
        self.seq = 0
        """Number of the last frame made for this holder."""
        self.acked = 0
        """Number of the last frame acknowledged."""
        self.whole_at = 0
        """Number of the frame that completes the snapshot."""
        self.sure_at = 0
        """Number of the last frame for which no commit has waited: it was made before the snapshot was answered."""
        self.queue: deque[Append] = deque()
        """Frames not sent yet."""
        self.unacked: deque[Append] = deque()
        self.progress = 0.0
        """Time at which the first unacknowledged frame was sent, retransmitted, or the one before acknowledged."""

    @property
    def in_sync(self) -> bool:
        return self.acked >= self.whole_at > 0

    @property
    def complete(self) -> bool:
        """Whether it has all that is done."""
        return self.in_sync and self.acked >= self.sure_at


class _Commit(NamedTuple):
    """A commit that waits for holders."""

    done: Callable[[], None]
    due: dict[str, tuple[int, int]]
    """By holder: the stream and the number of the frame that must be acknowledged."""


class Source:
    """The log of one broker's sessions (a `saps.storage.commits.Copier`)."""

    def __init__(
        self,
        port: Port,
        candidates: Callable[[], Iterable[BrokerRef]],
        owner: Owner,
        copies: int,
        wall: Callable[[], float],
    ) -> None:
        """`candidates` returns the brokers that may hold copies, `owner` has the sessions.

        `copies` is the number of copies of each session, this broker's included. `wall` returns the time in seconds
        since the epoch."""
        self._port = port
        self._wall = wall
        self._candidates = candidates
        self._owner = owner
        self._wanted = copies - 1
        self.refuse = False
        """Whether commits wait while no other broker has a copy (`session.minority`)."""
        self.shown: Callable[[], None] = _nothing
        """Called before rows are read for a holder, even rows of no commit yet. If such a row is removed before a
        commit has it, the next commit must report the removal."""
        self._log = 1
        self._commit = 0
        """Number of commits that had something to copy."""
        self._streams = 0
        self._holders: dict[str, _Holder] = {}
        self._barred: dict[str, tuple[BrokerRef, float, int]] = {}
        """By name: until when brokers that have refused a log are not asked to hold copies, and of which log; 0: of
        any."""
        self._exchanged = -EXCHANGE
        """When a holder was last begun in exchange for another one, in seconds of the port's clock."""
        self._waiting: _Commit | None = None
        """The commit that waits for holders."""
        self._ticking = False

    # ---- commits

    @property
    def alone(self) -> bool:
        """Whether no other broker is known that could follow the log, and no commit waits for one."""
        return self._wanted <= 0 or not (self._holders or self.refuse or any(True for _ in self._candidates()))

    def append(self, batch: Batch, done: Callable[[], None]) -> None:
        """Send these changes to the holders. `done` runs when those in sync have them; at once if no acknowledgement
        depends on the changes, or no copy is wanted or possible."""
        self._waiting = None
        if not self._holders:
            self.review()
        alone = self._commit > 0 and not (self._holders or self.refuse)  # a later holder gets a snapshot
        changes = None if alone or self._wanted <= 0 else changes_of(batch, self._owner.owned)
        if changes is None or not some(changes):
            done()
            return
        self._commit += 1
        if self._commit == 1:
            self.review()
        for holder in self._holders.values():
            self._enqueue(holder, changes)
        if not urgent(changes):
            done()
            return
        due = {holder.ref.name: (holder.stream, holder.seq) for holder in self._holders.values()}
        self._waiting = _Commit(done, due)
        self._settle()
        self._watch()

    def _settle(self) -> None:
        """Complete the waiting commit if all holders in sync have it."""
        if self._waiting is None:
            return
        synced = [holder for holder in self._holders.values() if holder.in_sync]
        for holder in synced:
            stream, seq = self._waiting.due.get(holder.ref.name, (0, 0))
            if stream == holder.stream and holder.acked < seq:
                return
        if not synced and (self._holders or self.refuse):
            return
        commit, self._waiting = self._waiting, None
        commit.done()

    # ---- the holders

    @property
    def holders(self) -> list[BrokerRef]:
        """The brokers that follow the log."""
        return [holder.ref for holder in self._holders.values()]

    @property
    def _followers(self) -> list[BrokerRef]:
        """The holders that have answered, or all if none has. One that refuses the log as it had adopted it would tell
        those that asked it who is the heir that the log is over."""
        return [holder.ref for holder in self._holders.values() if holder.acked] or self.holders

    @property
    def in_sync(self) -> list[BrokerRef]:
        """The holders that have acknowledged their snapshots."""
        return [holder.ref for holder in self._holders.values() if holder.in_sync]

    def awaited(self) -> dict[str, BrokerRef]:
        """Return, by name, the holders: their failure must be noticed."""
        return {holder.ref.name: holder.ref for holder in self._holders.values()}

    def review(self) -> None:
        """Drop lost holders, choose new ones while there are too few, and exchange them for better ones."""
        if not self._commit:
            return
        for holder in [each for each in self._holders.values() if self._port.lost(each.ref)]:
            self._drop(holder)
        chosen = self._chosen()
        new = [ref for ref in chosen if ref.name not in self._holders]
        spare = [each for each in self._holders.values() if each.ref not in chosen]
        if new and len(self._holders) >= self._wanted:
            if self._port.now - self._exchanged < EXCHANGE:
                return
            self._exchanged = self._port.now
        if new:
            self._begin(new)
        elif spare and all(self._holders[ref.name].complete for ref in chosen):
            self._release(spare)

    def _chosen(self) -> list[BrokerRef]:
        """Return who should follow the log. Of equally good brokers those that do are preferred."""
        found = {holder.ref.name: holder.ref for holder in self._holders.values()}
        for ref in self._candidates():
            known = ref.name == self._port.me.name or ref.name in found
            if not (known or self._is_barred(ref)) and self._port.reachable(ref):
                found[ref.name] = ref
        chosen: list[BrokerRef] = []
        while found and len(chosen) < self._wanted:
            best = min(found.values(), key=lambda ref: self._rank(ref, chosen))
            del found[best.name]
            chosen.append(best)
        return chosen

    def _is_barred(self, ref: BrokerRef) -> bool:
        barred, until, log = self._barred.get(ref.name, (ref, 0.0, 0))
        return barred == ref and until > self._port.now and log in (0, self._log)

    def _rank(self, ref: BrokerRef, chosen: list[BrokerRef]) -> tuple[bool, bool, bool, bytes]:
        """Return the sort key of a candidate: the same site first, then a zone without a copy, a holder, a hash."""
        me = self._port.me
        zones = {me.zone, *(each.zone for each in chosen)}
        turn = blake2b(f"{me.name}\0{ref.name}".encode(), digest_size=8).digest()
        return ref.cluster != me.cluster, ref.zone in zones, ref.name not in self._holders, turn

    def _begin(self, refs: list[BrokerRef]) -> None:
        """Send the log to more brokers. The holders hear of them when they have answered (`_followers`)."""
        begun = list[_Holder]()
        for ref in refs:
            self._streams += 1
            begun.append(_Holder(ref, self._streams, snapshot(self._owner.rows(), self._owner.owned)))
            self._holders[ref.name] = begun[-1]
        for holder in begun:
            self._send(holder)

    def _release(self, holders: list[_Holder]) -> None:
        """Let holders go that better ones have replaced, and tell all."""
        hit("holder exchanged for a better one")
        for holder in holders:
            self._drop(holder)
            self._port.send(holder.ref, Replaced(holder.stream))
        self._tell([*self._holders.values()])

    def _tell(self, holders: list[_Holder]) -> None:
        """Send an empty change: its frame names the holders."""
        for holder in holders:
            self._enqueue(holder, Changes())

    def _enqueue(self, holder: _Holder, changes: Changes) -> None:
        self._add(holder, changes)
        self._send(holder)

    def _add(self, holder: _Holder, changes: Changes) -> None:
        holder.seq += 1
        whole = holder.snapshot is None
        wall = max(0.0, self._wall())
        holder.queue.append(Append(self._log, holder.stream, holder.seq, self._commit, whole, [], changes, wall))

    def _read_on(self, holder: _Holder, snapshot: Snapshot) -> None:
        """Read the next sessions of the holder's snapshot."""
        self.shown()
        parts, last = next(snapshot)
        for part in parts[:-1]:
            self._add(holder, part)
        if last:
            holder.snapshot, holder.whole_at = None, holder.seq + 1
        self._add(holder, parts[-1])

    def _send(self, holder: _Holder) -> None:
        if not holder.queue and holder.snapshot is None:
            return
        if not holder.unacked:
            holder.progress = self._port.now
        while len(holder.unacked) < WINDOW:
            if not holder.queue and holder.snapshot is not None:
                self._read_on(holder, holder.snapshot)
            if not holder.queue:
                break
            frame = holder.queue.popleft()
            frame.holders = [*dict.fromkeys([*self._followers, holder.ref])]
            holder.unacked.append(frame)
            self._port.send(holder.ref, frame)
        self._watch()

    def _watch(self) -> None:
        """Schedule `_tick` if an acknowledgement is missing, or a commit waits without any holder."""
        if self._ticking:
            return
        if (self._waiting is not None and not self._holders) or any(each.unacked for each in self._holders.values()):
            self._ticking = True
            self._port.after(REPEAT, self._tick)

    def _tick(self) -> None:
        """Retransmit the unacknowledged frames of silent holders."""
        self._ticking = False
        self.review()
        for holder in self._holders.values():
            silent = self._port.now - holder.progress >= SILENT
            if holder.unacked and silent and self._port.reachable(holder.ref):
                holder.progress = self._port.now
                for frame in holder.unacked:
                    self._port.send(holder.ref, frame)
        self._watch()

    def on_appended(self, sender: BrokerRef, frame: Appended) -> None:
        """Handle a holder's acknowledgement, or its refusal of the log (`fenced`). A broker that this one has replaced
        as a holder, when it did not hear it, is told so."""
        holder = self._holders.get(sender.name)
        if holder is None or holder.ref != sender or holder.stream != frame.stream:
            if frame.seq:
                self._port.send(sender, Replaced(frame.stream))
            return
        if frame.fenced and not holder.acked and len(self.in_sync) >= self._wanted:
            hit("log fenced by a broker that never followed it")  # the sessions that it had adopted are here again
            self._barred[sender.name] = sender, math.inf, self._log
            self._drop(holder)
            self.review()
            return
        if frame.fenced:
            logger.warning("%s has adopted the sessions of this broker, which it took for dead", sender.name)
            hit("log fenced")
            self._barred[sender.name] = sender, self._port.now + FENCED, 0
            self._log += 1
            for each in [*self._holders.values()]:
                self._drop(each)
            self.review()
            self._port.after(FENCED, self.review)
            self._owner.fenced()
            return
        if frame.declined:
            self._barred[sender.name] = sender, math.inf, 0
        if frame.declined or (not frame.seq and holder.acked):  # or the holder took this broker for dead
            self._drop(holder)
            self.review()
            return
        first, synced = not holder.acked, holder.in_sync
        holder.acked = max(holder.acked, min(frame.seq, holder.seq))
        if holder.in_sync and not synced:
            holder.sure_at = holder.seq
        if first and holder.acked:
            self._tell([*self._holders.values()])
        while holder.unacked and holder.unacked[0].seq <= holder.acked:
            holder.unacked.popleft()
            holder.progress = self._port.now
        self._send(holder)
        self._settle()

    def _drop(self, holder: _Holder) -> None:
        del self._holders[holder.ref.name]
        self._settle()

    def forget(self, broker: BrokerRef) -> None:
        """Replace a holder that has died or left."""
        holder = self._holders.get(broker.name)
        if holder is not None and holder.ref == broker:
            self._drop(holder)
            self.review()
            self._settle()

    def end(self) -> None:
        """Wait for no other broker from now on, as this one has left the mesh: nobody answers it any more."""
        self._wanted, self.refuse = 0, False
        self._holders.clear()
        self._settle()


def _nothing() -> None:
    pass
