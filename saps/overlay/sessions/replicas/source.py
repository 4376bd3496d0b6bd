"""The owner's side: its log of changes, and the brokers that follow it.

1. The owner chooses `copies` - 1 holders among the brokers it knows: of its own site first, there in other zones.
2. A holder gets everything (a snapshot, in parts), and then each commit, in order, each once. It answers each.
3. A holder that has answered the snapshot is **in sync**. A commit is done when all that are in sync have it; while
   none is and one is alive, when the first has become so. So what is acknowledged is at two brokers at least, and each
   that is in sync has all of it.
4. A holder that dies is replaced. If none is left the owner goes on alone, or (`refuse`) waits for one.
5. A holder that refuses the log has adopted its sessions: this broker was taken for dead. It begins another log, and
   asks the directory whose its sessions are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from saps.marks import hit
from saps.overlay.frames.copies import Changes
from saps.overlay.frames.sessions import Append, Appended
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.changes import changes_of, snapshot, some, urgent
from saps.storage.journal import Batch, Row, Table

logger = logging.getLogger(__name__)

WINDOW = 16
"""Frames under way to one holder. More hold up what else goes over the link."""
REPEAT = 0.25
"""Seconds between two looks whether a holder answers, and whether there is a broker that can be one more."""
SILENT = 0.5
"""Seconds without progress after which the frames are repeated: a link may have broken."""
FENCED = 1.0
"""Seconds until a holder that has refused a log is asked to follow the next one."""


class _Holder:
    """A broker that follows the log."""

    __slots__ = ("acked", "progress", "queue", "ref", "seq", "stream", "unacked", "whole_at")

    def __init__(self, ref: BrokerRef, stream: int) -> None:
        self.ref = ref
        self.stream = stream
        self.seq = 0
        """Of the last frame made for it."""
        self.acked = 0
        self.whole_at = 0
        """The frame with which it has the snapshot."""
        self.queue: deque[Append] = deque()
        """What is not sent yet."""
        self.unacked: deque[Append] = deque()
        self.progress = 0.0

    @property
    def in_sync(self) -> bool:
        return self.acked >= self.whole_at > 0


class Source:
    """The log of one broker's sessions. (A `saps.storage.commits.Copier`.)"""

    def __init__(
        self, port: Port, candidates: Callable[[], Iterable[BrokerRef]], stamp: Callable[[str], int], copies: int
    ) -> None:
        """`candidates`: brokers that may hold copies; `stamp`: of the lease of a client here. `copies`: of each
        session, this broker's included."""
        self._port = port
        self._candidates = candidates
        self._stamp = stamp
        self._wanted = copies - 1
        self.refuse = False
        """Without a copy elsewhere nothing is acknowledged."""
        self.rows: Callable[[], Iterable[tuple[Table, Any, Row]]] = tuple
        """All sessions that last."""
        self.shown: Callable[[], None] = _nothing
        """Told that somebody gets all that those say, also what no commit has had yet: if it goes before one has it,
        the next one must say so."""
        self.on_fenced: Callable[[], None] = lambda: None
        self._log = 1
        self._commit = 0
        """Commits so far."""
        self._streams = 0
        self._holders: dict[str, _Holder] = {}
        self._refused: dict[str, float] = {}
        """Who has refused a log, and when."""
        self._done: Callable[[], None] | None = None
        """The commit that waits, and (`_due`) for what."""
        self._due: dict[str, tuple[int, int]] = {}
        self._ticking = False
        self._used = False
        """There was something to copy."""
        self.frames = 0
        """Frames sent with changes, snapshots included."""
        self.waited = 0
        """Commits that have waited for a holder."""

    # ---- commits

    @property
    def alone(self) -> bool:
        """No other broker is known that could follow the log, and nothing waits until one is."""
        return self._wanted <= 0 or not (self._holders or self.refuse or any(True for _ in self._candidates()))

    def append(self, batch: Batch, done: Callable[[], None]) -> None:
        """Have the holders take these changes. `done` runs when they have, as far as that is waited for."""
        self._done = None
        if not self._holders:
            self.review()
        alone = self._used and not (self._holders or self.refuse)  # who comes later gets everything
        changes = None if alone or self._wanted <= 0 else changes_of(batch, self._stamp)
        if changes is None or not some(changes):
            done()
            return
        self._commit += 1
        if not self._used:
            self._used = True
            self.review()
        for holder in self._holders.values():
            self._enqueue(holder, changes, True)
        if not urgent(changes):
            done()
            return
        self._due = {holder.ref.name: (holder.stream, holder.seq) for holder in self._holders.values()}
        self._done = done
        self._settle()
        if self._done is not None:
            self.waited += 1
            self._watch()

    def _settle(self) -> None:
        """Is the commit that waits done?"""
        if self._done is None:
            return
        synced = [holder for holder in self._holders.values() if holder.in_sync]
        for holder in synced:
            stream, seq = self._due.get(holder.ref.name, (0, 0))
            if stream == holder.stream and holder.acked < seq:
                return
        if not synced and (self._holders or self.refuse):
            return
        done, self._done = self._done, None
        done()

    # ---- the holders

    @property
    def holders(self) -> list[BrokerRef]:
        """Who follows the log."""
        return [holder.ref for holder in self._holders.values()]

    @property
    def in_sync(self) -> list[BrokerRef]:
        """Those of them that have all of it."""
        return [holder.ref for holder in self._holders.values() if holder.in_sync]

    def awaited(self) -> dict[str, BrokerRef]:
        """Brokers whose failure must be noticed."""
        return {holder.ref.name: holder.ref for holder in self._holders.values()}

    def review(self) -> None:
        """Choose holders for those that are lost."""
        if not self._used:
            return
        for holder in [each for each in self._holders.values() if self._port.lost(each.ref)]:
            self._drop(holder)
        if len(self._holders) >= self._wanted:
            return
        now = self._port.now
        found: dict[str, BrokerRef] = {}
        for ref in self._candidates():
            recent = now - self._refused.get(ref.name, -FENCED) < FENCED
            known = ref.name == self._port.me.name or ref.name in self._holders
            if not (known or recent) and self._port.reachable(ref):
                found[ref.name] = ref
        before, begun = [*self._holders.values()], list[_Holder]()
        while found and len(self._holders) < self._wanted:
            best = min(found.values(), key=self._rank)
            del found[best.name]
            self._streams += 1
            begun.append(_Holder(best, self._streams))
            self._holders[best.name] = begun[-1]
        for holder in begun:
            self._begin(holder)
        for holder in before if begun else ():  # they learn who else has copies
            self._enqueue(holder, Changes(), True)

    def _rank(self, ref: BrokerRef) -> tuple[bool, bool, bytes]:
        """The order in which brokers are chosen: the same site, other zones than those that have a copy, by chance."""
        me = self._port.me
        zones = {me.zone, *(holder.ref.zone for holder in self._holders.values())}
        turn = blake2b(f"{me.name}\0{ref.name}".encode(), digest_size=8).digest()
        return ref.cluster != me.cluster, ref.zone in zones, turn

    def _begin(self, holder: _Holder) -> None:
        """Have a broker follow the log: it gets everything first."""
        holder.progress = self._port.now
        self.shown()
        parts = list(snapshot(self.rows(), self._stamp))
        for number, part in enumerate(parts, 1):
            self._enqueue(holder, part, number == len(parts))
        holder.whole_at = holder.seq

    def _enqueue(self, holder: _Holder, changes: Changes, whole: bool) -> None:
        holder.seq += 1
        holder.queue.append(Append(self._log, holder.stream, holder.seq, self._commit, whole, [], changes))
        self._send(holder)

    def _send(self, holder: _Holder) -> None:
        if not holder.queue:
            return
        if not holder.unacked:
            holder.progress = self._port.now
        while holder.queue and len(holder.unacked) < WINDOW:
            frame = holder.queue.popleft()
            frame.holders = self.holders
            holder.unacked.append(frame)
            self.frames += 1
            self._port.send(holder.ref, frame)
        self._watch()

    def _watch(self) -> None:
        """Look again soon whether those who owe an answer have given it, or there is somebody who can."""
        if self._ticking:
            return
        if (self._done is not None and not self._holders) or any(each.unacked for each in self._holders.values()):
            self._ticking = True
            self._port.after(REPEAT, self._tick)

    def _tick(self) -> None:
        """Repeat what is not answered."""
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
        """A holder has answered."""
        holder = self._holders.get(sender.name)
        if holder is None or holder.ref != sender or holder.stream != frame.stream:
            return
        if frame.fenced:
            logger.warning("%s has adopted the sessions of this broker, which it took for dead", sender.name)
            hit("log fenced")
            self._refused[sender.name] = self._port.now
            self._log += 1
            for each in [*self._holders.values()]:
                self._drop(each)
            self.review()
            self._port.after(FENCED, self.review)
            self.on_fenced()
            return
        if not frame.seq and holder.acked:  # it took this broker for dead, and has forgotten the log
            self._drop(holder)
            self.review()
            return
        holder.acked = max(holder.acked, min(frame.seq, holder.seq))
        while holder.unacked and holder.unacked[0].seq <= holder.acked:
            holder.unacked.popleft()
            holder.progress = self._port.now
        self._send(holder)
        self._settle()

    def _drop(self, holder: _Holder) -> None:
        del self._holders[holder.ref.name]
        self._due.pop(holder.ref.name, None)
        self._settle()

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left."""
        holder = self._holders.get(broker.name)
        if holder is not None and holder.ref == broker:
            self._drop(holder)
            self.review()
            self._settle()


def _nothing() -> None:
    pass
