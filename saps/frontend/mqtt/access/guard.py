"""Who may attach, and as whom: the decision about one CONNECT, and what it takes to make it quickly.

Pure: passwords are checked by a `PasswordChecker`, elsewhere and later.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saps.frontend.mqtt.access.acl import Policy, Rights
from saps.frontend.mqtt.access.options import Anonymous
from saps.frontend.mqtt.access.patterns import name_fault
from saps.frontend.mqtt.access.users import NOBODY, Stored, Users
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.local.token_bucket import Buckets

if TYPE_CHECKING:
    from saps.frontend.mqtt.codec.packets import Connect


FAILURES, FAILURES_AT_ONCE = 0.2, 10.0
"""Wrong passwords a second from one address, and at once after a pause. Beyond it only those are let in from there
whose password has been right since the broker's start, and clients with certificates."""


class Origin(NamedTuple):
    """Where a connection comes from, as far as its transport knows."""

    host: str = "?"
    """The peer's IP address."""
    loopback: bool = False
    certificate_user: str | None = None
    """The user of the client's certificate, verified in the TLS handshake."""


class Admission(NamedTuple):
    """A client that is let in."""

    user: str | None
    """None: anonymous."""
    stored: Stored | None = None
    """The stored password the client's was equal to, if it gave one."""


class PasswordChecker(Protocol):
    """Checks passwords away from the event loop, a bounded number at a time."""

    def check(
        self, stored: Stored, password: bytes, host: str, wanted: Callable[[], bool], done: Callable[[bool], None]
    ) -> bool:
        """Have the password checked and then, never before this returns, call `done`. If nobody is `wanted` any more
        when its turn comes, the answer is False.

        Returns False, and nothing happens, if too many wait already, or too many from the same host.
        """


@dataclass(frozen=True, slots=True)
class Access:
    """What the files say. Replaced as a whole."""

    users: Users | None = None
    """None: there is no password file."""
    policy: Policy | None = None
    """None: there is no ACL."""


@dataclass(slots=True)
class Counts:
    """What was turned away."""

    logins: int = 0
    """Wrong names or passwords, or none where one is needed."""
    backed_off: int = 0
    """Logins not looked at, because too many from the same address had failed."""
    busy: int = 0
    """Logins not looked at, because too many waited."""
    publications: int = 0
    """Publications to topics the client may not publish to."""


class Guard:
    """What the connections of one broker have in common: the files, and the passwords known to be right."""

    def __init__(
        self,
        access: Access,
        checker: PasswordChecker,
        secret: bytes,
        anonymous: Anonymous,
        clock: Callable[[], float],
    ) -> None:
        """`secret`: 16 to 64 random bytes, made for this process and never written anywhere. `clock`: seconds, never
        going back."""
        self._clock = clock
        self._failed = Buckets(FAILURES, FAILURES_AT_ONCE)
        """Failed logins by address."""
        self.access = access
        self.counts = Counts()
        self._checker = checker
        self._secret = secret
        self._anonymous = anonymous
        self._right: dict[str, tuple[Stored, bytes]] = {}
        """By user, a keyed digest of the password that was right: who comes back costs microseconds."""

    def admit(
        self, packet: Connect, origin: Origin, wanted: Callable[[], bool], done: Callable[[Admission | None], None]
    ) -> Admission | None:
        """Who the client is, if that is clear at once; else None, and `done` is told later: None for a wrong password.

        Raises `ProtocolError` if the client is refused at once. `wanted`: is the client still there?
        """
        user, password, users = packet.username, packet.password, self.access.users
        if origin.certificate_user is not None:
            if user is not None and user != origin.certificate_user:
                raise self.refusal(f"user {user!r} with the certificate of {origin.certificate_user!r}")
            return Admission(origin.certificate_user)
        if users is None or (user is None and password is None):
            if self._anonymous == "never" or (self._anonymous == "loopback" and not origin.loopback):
                self.counts.logins += 1
                raise ProtocolError("anonymous clients are not let in from there", Reason.NOT_AUTHORIZED)
            return Admission(None)
        if user is None or password is None:
            raise self.refusal("a user without a password" if password is None else "a password without a user")
        if self._known(user, password, users.get(user)):
            return Admission(user, users[user])
        if self._failed.of(origin.host, self._clock()).wait(self._clock()):
            self.counts.backed_off += 1
            raise ProtocolError("", Reason.CONNECTION_RATE_EXCEEDED)
        self._check(user, password, users.get(user), origin.host, wanted, done)
        return None

    def rights(self, user: str | None, client_id: str | None) -> Rights | None:
        """What the client may do; None: everything. `client_id` is None for an operator, who is no MQTT client. Raises
        `ProtocolError` if the ACL cannot take its names."""
        policy = self.access.policy
        if policy is None:
            return None
        if policy.uses_client and client_id is not None and (fault := name_fault(client_id)) is not None:
            reason = Reason.CLIENT_IDENTIFIER_NOT_VALID
            raise ProtocolError(f"the client identifier {client_id!r} {fault}, and the ACL has %c in topics", reason)
        if policy.uses_user and user is not None and (fault := name_fault(user)) is not None:
            raise ProtocolError(f"the user name {user!r} {fault}, and the ACL has %u in topics", Reason.NOT_AUTHORIZED)
        return policy.rights(user, client_id)

    def withdrawn(self, admission: Admission) -> bool:
        """True if the client would not be let in with the same password any more."""
        users = self.access.users
        user, stored = admission
        return stored is not None and (users is None or user is None or users.get(user) != stored)

    def refusal(self, text: str) -> ProtocolError:
        """A login that failed, counted."""
        self.counts.logins += 1
        return ProtocolError(text, Reason.BAD_USER_NAME_OR_PASSWORD)

    def _known(self, user: str, password: bytes, stored: Stored | None) -> bool:
        right = self._right.get(user)
        return right is not None and right[0] == stored and hmac.compare_digest(right[1], self._digest(password))

    def _digest(self, password: bytes) -> bytes:
        return blake2b(password, key=self._secret, digest_size=32).digest()

    def _check(
        self,
        user: str,
        password: bytes,
        stored: Stored | None,
        host: str,
        wanted: Callable[[], bool],
        done: Callable[[Admission | None], None],
    ) -> None:
        """Have the password checked; also for a user that does not exist, or the time it takes would tell."""

        def checked(matches: bool) -> None:
            admission = Admission(user, stored)
            if not matches or stored is None or self.withdrawn(admission):
                self._failed.of(host, self._clock()).spend(1, self._clock())
                done(None)
                return
            self._right[user] = stored, self._digest(password)
            done(admission)

        if not self._checker.check(stored or NOBODY, password, host, wanted, checked):
            self.counts.busy += 1
            raise ProtocolError("", Reason.SERVER_BUSY)
