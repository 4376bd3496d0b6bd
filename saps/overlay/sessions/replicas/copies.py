"""The copy of one owner's sessions, built from the owner's log."""

from __future__ import annotations

import math
from collections.abc import Iterable

from saps.messages import Subscription
from saps.overlay.frames.base import ProtocolError
from saps.overlay.frames.copies import Changes, MessageCopy, QueuedCopy, SessionCopy
from saps.overlay.frames.sessions import Append
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.replicas.states import State
from saps.routing.batch import UNNUMBERED, Origin
from saps.storage.past import RECENT, RECENT_IN_CUT, Recent
from saps.storage.saved import SavedCopy, SavedForm, SavedMessage, SavedSession

MOST_SESSIONS = 1 << 20
"""Most sessions of one owner."""


Over = dict[int, list[Origin]]
"""By session number: publications that its client has, or will never get."""


class _Memory:
    """The publications that a session's client has, or will never get, when its copy came, and what its broker has used
    last."""

    __slots__ = ("before", "came", "last_id", "recent")

    def __init__(self) -> None:
        self.came: float | None = None
        """When the last `SessionCopy` came, in seconds of the port's clock; None: from this broker's file."""
        self.before = Recent()
        """Those that it had before the copy began."""
        self.recent = Recent()
        """The last ones since then."""
        self.last_id = 0
        """The packet identifier; 0 for none."""

    @property
    def over(self) -> list[bytes]:
        """All of them, the oldest first, as `saps.storage.past.pack` returns them."""
        return [*self.before.packed, *self.recent.packed]


class Copy:
    """The copy of an owner's log at this broker, and its state."""

    def __init__(self, owner: BrokerRef, log: int, stream: int) -> None:
        """`stream` is as in `Append`, or 0 for a copy from this broker's file."""
        self._of = owner, log
        self.stream = stream
        self.seq = 0
        self.commit = 0
        self.whole = False
        """Whether the copy is complete up to `commit`."""
        self.holders: list[BrokerRef] = []
        self.state = State.FOLLOWING
        self.upto = -math.inf
        """The sessions have here what their owner had got by this time, in seconds of the port's clock, or, in a copy
        from this broker's file, since the epoch."""
        self.sessions: dict[int, SessionCopy] = {}
        self.subscriptions: dict[int, dict[str, Subscription]] = {}
        self.messages: dict[int, MessageCopy] = {}
        self.copies: dict[int, QueuedCopy] = {}
        self.releases: dict[int, tuple[int, int]] = {}
        self.incoming: dict[tuple[int, int], int] = {}
        self._memories: dict[int, _Memory] = {}

    @property
    def owner(self) -> BrokerRef:
        """The broker whose log it is."""
        return self._of[0]

    @property
    def log(self) -> int:
        """The number of the owner's log."""
        return self._of[1]

    @property
    def restored(self) -> bool:
        """Whether the copy was in this broker's file when it started."""
        return not self.stream

    def take(self, frame: Append, now: float, cut: bool = False) -> Over:
        """Apply the next frame of the log; `now` is the time in seconds of the port's clock, `cut`: whether some broker
        is lost, or was lately. Return what `apply` returns. Raises `ProtocolError` if the owner has more than
        `MOST_SESSIONS`, or for malformed publications of before."""
        self.seq, self.commit = frame.seq, frame.commit
        self.whole = frame.whole
        self.holders = frame.holders
        try:
            over = self.apply(frame.changes, RECENT_IN_CUT if cut else RECENT)
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        for session in frame.changes.sessions:
            self._memory(session.number).came = now
        if len(self.sessions) > MOST_SESSIONS:
            raise ProtocolError(f"{self.owner.name} has more than {MOST_SESSIONS} sessions")
        return over

    def apply(self, changes: Changes, most: int = RECENT, over: Over | None = None) -> Over:
        """Apply these changes: additions first, then removals. Of what clients have got since the copy began, the last
        `most` are kept. Return, by session number, the publications whose copies the changes remove for good. `over`:
        these, if they are known. Raises `ValueError` for malformed publications of before."""
        for session in changes.sessions:
            self.sessions[session.number] = session
        for each in changes.subscriptions:
            options = each.qos, each.no_local, each.retain_as_published, each.retain_handling, each.identifier
            self.subscriptions.setdefault(each.session, {})[each.filter] = Subscription(each.filter, *options)
        for message in changes.messages:
            self.messages[message.number] = message
        for copy in changes.copies:
            self.copies[copy.serial] = copy
            if copy.packet_id:
                self._memory(copy.session).last_id = copy.packet_id
        for serial, number, packet_id in changes.releases:
            self.releases[serial] = number, packet_id
        for number, packet_id, reached in changes.incoming:
            self.incoming[number, packet_id] = reached
        for number, had in changes.had:
            memory = self._memory(number)
            memory.before = Recent()
            memory.before.join(had, RECENT_IN_CUT)
        if over is None:
            over = self._over(changes)
        for number, origins in over.items():
            self._memory(number).recent.extend(origins, most)
        self._remove(changes)
        return over

    def came(self, number: int, wall: float, now: float) -> float:
        """Return when the copy of a session came, in seconds of the port's clock. `wall` and `now` are the time of day
        and that of the port; the former may have jumped, and counts for a copy from this broker's file only."""
        memory = self._memories.get(number)
        if memory is not None and memory.came is not None:
            return memory.came
        return now - max(0.0, wall - self.sessions[number].at)

    def reached(self, wall: float, now: float) -> float:
        """Return up to when the owner's sessions have here what it had got, in seconds of the port's clock. `wall` and
        `now` as for `came`."""
        return now - max(0.0, wall - self.upto) if self.restored else self.upto

    def shift(self, seconds: float) -> Changes:
        """Convert all times of a copy from this broker's file to a clock that is so much ahead. Return what that has
        changed."""
        self.upto += seconds
        timed = Changes(
            [*self.sessions.values()], messages=[each for each in self.messages.values() if each.expires is not None]
        )
        timed.shift(seconds)
        self.apply(timed)
        return timed

    def _remove(self, changes: Changes) -> None:
        for number in changes.no_sessions:
            self.sessions.pop(number, None)
            self.subscriptions.pop(number, None)
            self._memories.pop(number, None)
        for number, topic_filter in changes.no_subscriptions:
            self.subscriptions.get(number, {}).pop(topic_filter, None)
        for number in changes.no_messages:
            self.messages.pop(number, None)
        for serial in changes.no_copies:
            self.copies.pop(serial, None)
        for serial in changes.no_releases:
            self.releases.pop(serial, None)
        for key in changes.no_incoming:
            self.incoming.pop(key, None)

    def _over(self, changes: Changes) -> Over:
        """Return what is over by these changes. A message that has waited and is sent, or has got another place, has a
        new copy."""
        found: Over = {}
        if not changes.no_copies:
            return found
        kept = {(copy.session, copy.message) for copy in changes.copies}
        for serial in changes.no_copies:
            copy = self.copies.get(serial)
            message = None if copy is None else self.messages.get(copy.message)
            if copy is not None and message is not None and (copy.session, copy.message) not in kept:
                found.setdefault(copy.session, []).append(self._origin(message))
        return found

    def recall(self, number: int, packed: Iterable[bytes]) -> None:
        """Add what was over for an earlier incarnation of this broker. Raises `ValueError`."""
        self._memory(number).recent.join(packed, RECENT_IN_CUT)

    def _memory(self, number: int) -> _Memory:
        memory = self._memories.get(number)
        if memory is None:
            memory = self._memories[number] = _Memory()
        return memory

    def _origin(self, message: MessageCopy) -> Origin:
        return message.origin or Origin(self.owner.name, self.owner.incarnation, UNNUMBERED + message.number)

    def saved(self) -> tuple[list[SavedSession], dict[int, SavedMessage]]:
        """Return the sessions, and their messages by number, in the form in which a file has them."""
        found = {
            number: SavedSession(
                number, each.client, each.user, each.expiry, each.ends, None, 0, None, each.birth,
                [*self.subscriptions.get(number, {}).values()],
                had=self._memory(number).over, last_id=self._memory(number).last_id,
            )
            for number, each in self.sessions.items()
        }  # fmt: skip
        for serial, copy in sorted(self.copies.items()):
            if copy.session in found and copy.message in self.messages:
                form = SavedForm(copy.qos, copy.retain, copy.identifiers)
                found[copy.session].copies.append(SavedCopy(serial, copy.message, copy.packet_id, form))
        for serial, (number, packet_id) in sorted(self.releases.items()):
            if number in found:
                found[number].releases.append((serial, packet_id))
        for (number, packet_id), reached in self.incoming.items():
            if number in found:
                found[number].incoming[packet_id] = reached
        messages = {
            number: SavedMessage(number, each.message, each.expires, self._origin(each))
            for number, each in self.messages.items()
        }
        return list(found.values()), messages
