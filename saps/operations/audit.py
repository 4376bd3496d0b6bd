"""The audit log: every change, login and refused login. The latest are in memory; `audit_io` writes all to a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from saps.agents.api import repeatable
from saps.frontend.mqtt.codec.reasons import Reason
from saps.local.token_bucket import Buckets

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection

AUDIT = "audit"
"""Name of each broker's agent; it costs the overlay no key."""
KEPT = 1000
"""Changes, and as many logins, that are at hand."""
LINES, LINES_AT_ONCE = 0.2, 10.0
"""Refused logins a second of one address that are written, and at once after a pause. The others are counted."""
REFUSALS = frozenset(
    (
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.NOT_AUTHORIZED,
        Reason.BANNED,
        Reason.BAD_AUTHENTICATION_METHOD,
        Reason.CONNECTION_RATE_EXCEEDED,
    )
)
"""Reasons that count as refused logins."""
LOGIN, REFUSED = "login", "login refused"


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line."""

    at: float
    """Seconds since 1970."""
    broker: str
    """Where it was asked."""
    what: str
    who: str | None = None
    """The user; None: anonymous, or a signal."""
    role: str = ""
    source: str = ""
    """Address and port; ``signal``."""
    subject: str = ""
    """What it is about: a client, a broker, a topic."""
    before: Any = None
    after: Any = None
    reason: str = ""
    """Of a refusal."""
    left_out: int = 0
    """Refused logins of the same address since its line before that were not written."""


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``/v1/audit``."""

    complete: bool
    """All brokers have answered."""
    entries: list[Entry]
    """The latest first."""


class Audit:
    """Of one broker. It is the `saps.frontend.mqtt.orders.Witness` of the logins there, and the agent ``!audit``."""

    def __init__(
        self,
        broker: str,
        wall: Callable[[], float],
        clock: Callable[[], float],
        write: Callable[[Entry], None] = lambda entry: None,
    ) -> None:
        """`wall`: seconds since 1970; `clock`: seconds, never going back; `write`: writes an entry where it stays."""
        self._broker = broker
        self._wall = wall
        self._clock = clock
        self._changes: deque[Entry] = deque(maxlen=KEPT)
        self._logins: deque[Entry] = deque(maxlen=KEPT)
        self._lines = Buckets(LINES, LINES_AT_ONCE)
        self._left_out: dict[str, int] = {}
        """By address; only those whose bucket is not full."""
        self._write = write

    def remember(self, entries: Iterable[Entry]) -> None:
        """These were written before the start."""
        for entry in entries:
            self._keep(entry)

    def record(self, what: str, **more: Any) -> None:
        """Something was changed, or a login came: `Entry`."""
        entry = Entry(at=round(self._wall(), 3), broker=self._broker, what=what, **more)
        self._keep(entry)
        self._write(entry)

    def _keep(self, entry: Entry) -> None:
        (self._logins if entry.what in (LOGIN, REFUSED) else self._changes).append(entry)

    # ---- logins

    def entered(self, connection: Connection) -> None:
        """A client has its session."""
        session = connection.session
        if session is not None:
            self.record(LOGIN, who=session.user, source=connection.peer, subject=session.client_id)

    def refused(self, connection: Connection, client_id: str, user: str | None, reason: Reason, text: str) -> None:
        """A client was not let in."""
        if reason in REFUSALS:
            words = text or reason.name.lower().replace("_", " ")
            self.refuse(connection.address, who=user, source=connection.peer, subject=client_id, reason=words)

    def refuse(self, address: str, **more: Any) -> None:
        """A login from the address was refused: a line, unless there were too many."""
        now = self._clock()
        if not self._lines.of(address, now).take(now):
            if len(self._left_out) >= KEPT:
                self._left_out.clear()
            self._left_out[address] = self._left_out.get(address, 0) + 1
            return
        self.record(REFUSED, left_out=self._left_out.pop(address, 0), **more)

    # ---- the agent

    @repeatable
    def latest(self, search: str, most: int, logins: bool) -> Any:
        """The latest entries with this text in them as plain values, the latest first; with `logins` those, too."""
        text, found = search.encode().lower(), list[Entry]()
        for kept in (self._changes, self._logins) if logins else (self._changes,):
            found += [entry for entry in reversed(kept) if not text or text in msgspec.json.encode(entry).lower()]
        found.sort(key=lambda entry: -entry.at)
        return msgspec.to_builtins(found[: max(0, min(most, KEPT))])
