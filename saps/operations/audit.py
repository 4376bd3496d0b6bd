"""The audit log: changes, logins and refused logins. The latest are in memory; `audit_io` writes all to a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from saps.agents.api import repeatable
from saps.frontend.mqtt.codec.reasons import Reason
from saps.routing.token_bucket import Buckets

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.client_connection import ClientConnection

AUDIT = "audit"
"""Name of the agent at each broker; it needs no key in the overlay."""
KEPT = 1000
"""Most changes, and most logins, kept in memory."""
LINES, LINES_AT_ONCE = 0.2, 10.0
"""Rate (a second) and burst of the refused logins of one address that are written. The others are only counted."""
REFUSALS = frozenset(
    (
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.NOT_AUTHORIZED,
        Reason.BANNED,
        Reason.BAD_AUTHENTICATION_METHOD,
        Reason.CONNECTION_RATE_EXCEEDED,
    )
)
"""Reasons for which a refused connection is recorded as a refused login."""
LOGIN, REFUSED = "login", "login refused"
"""Values of `Entry.what` for logins; all other values name changes."""

SIGNAL = "signal"
"""Value of `Entry.source` for what an operator has ordered by a signal."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the audit log."""

    at: float
    """Time in seconds since 1970."""
    broker: str
    """The broker that took the request."""
    what: str
    """The action, such as ``drain`` or ``login refused``."""
    who: str | None = None
    """The user; None for an anonymous client or a signal."""
    role: str = ""
    """The user's role (`saps.operations.roles.Role.word`)."""
    source: str = ""
    """Address and port of the client, or ``signal``."""
    subject: str = ""
    """The client, broker or topic that the action concerns."""
    before: Any = None
    """The value before the action."""
    after: Any = None
    """The value after the action."""
    reason: str = ""
    """The reason for a refusal."""
    left_out: int = 0
    """Refused logins of the same address that were not written since its last entry."""
    change: float = 0.0
    """Time of a change that all brokers record, the same in each of their entries; 0 for other actions."""


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``/v1/audit``."""

    complete: bool
    """Whether all brokers have answered."""
    entries: list[Entry]
    """The entries, latest first."""


def merged(entries: Iterable[Entry], most: int) -> list[Entry]:
    """Return at most `most` entries of several brokers, latest first. A change that several record is shown once: by
    the broker that took the request, which alone knows its user's role, or else by one of the others."""
    shown: dict[object, Entry] = {}
    for number, entry in enumerate(entries):
        key = (entry.change, entry.subject) if entry.change else number
        if key not in shown or entry.role:
            shown[key] = entry
    return sorted(shown.values(), key=lambda entry: -entry.at)[:most]


class Audit:
    """The audit log of one broker: the `saps.frontend.mqtt.orders.Witness` of its logins, and the agent ``!audit``."""

    def __init__(
        self,
        broker: str,
        wall: Callable[[], float],
        clock: Callable[[], float],
        write: Callable[[Entry], None] = lambda entry: None,
    ) -> None:
        """`broker`: the broker's name. `wall` returns seconds since 1970; `clock`, seconds of a monotonic clock.
        `write` stores an entry durably."""
        self._broker = broker
        self._wall = wall
        self._clock = clock
        self._changes: deque[Entry] = deque(maxlen=KEPT)
        self._logins: deque[Entry] = deque(maxlen=KEPT)
        self._lines = Buckets(LINES, LINES_AT_ONCE)
        self._left_out: dict[str, int] = {}
        """Refused logins not written since an address's last entry, by address."""
        self._write = write

    def remember(self, entries: Iterable[Entry]) -> None:
        """Keep entries that were written before the start, oldest first."""
        for entry in entries:
            self._keep(entry)

    def record(self, what: str, **more: Any) -> None:
        """Record an action `what`; `more` are further fields of `Entry`."""
        entry = Entry(at=round(self._wall(), 3), broker=self._broker, what=what, **more)
        self._keep(entry)
        self._write(entry)

    def _keep(self, entry: Entry) -> None:
        (self._logins if entry.what in (LOGIN, REFUSED) else self._changes).append(entry)

    # ---- logins

    def entered(self, connection: ClientConnection) -> None:
        """Record the login of a client that has got its session."""
        session = connection.session
        if session is not None:
            self.record(LOGIN, who=session.user, source=connection.peer, subject=session.client_id)

    def refused(
        self, connection: ClientConnection, client_id: str, user: str | None, reason: Reason, text: str
    ) -> None:
        """Record a refused connection, if its reason is one of `REFUSALS`."""
        if reason in REFUSALS:
            words = text or reason.name.lower().replace("_", " ")
            self.refuse(connection.address, who=user, source=connection.peer, subject=client_id, reason=words)

    def refuse(self, address: str, **more: Any) -> None:
        """Record a refused login from an address, or only count it beyond the rate `LINES`. `more`: further fields of
        `Entry`."""
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
        """Return the latest entries that contain the text `search` (in any case) as plain values, latest first. At most
        `most` entries, and at most `KEPT`. `logins`: include logins and refused logins."""
        text, found = search.encode().lower(), list[Entry]()
        for kept in (self._changes, self._logins) if logins else (self._changes,):
            found += [entry for entry in reversed(kept) if not text or text in msgspec.json.encode(entry).lower()]
        found.sort(key=lambda entry: -entry.at)
        return msgspec.to_builtins(found[: max(0, min(most, KEPT))])
