"""Who may attach, and as whom: the decision about one CONNECT, and what it takes to make it quickly.

Pure: passwords are checked by a `PasswordChecker`, elsewhere and later.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saps.agents.user import Rights
from saps.frontend.mqtt.access.acl import Policy
from saps.frontend.mqtt.access.logins.grants import Narrowed
from saps.frontend.mqtt.access.options import Anonymous
from saps.frontend.mqtt.access.patterns import name_fault
from saps.frontend.mqtt.access.users import NOBODY, Stored, Users
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.local.token_bucket import Buckets

if TYPE_CHECKING:
    from saps.frontend.mqtt.access.logins.tokens import Token, Tokens
    from saps.frontend.mqtt.codec.packets import Connect


FAILURES, FAILURES_AT_ONCE = 0.2, 10.0
"""Wrong passwords a second from one address, and at once after a pause. Beyond it only those are let in from there
whose password has been right since the broker's start, and clients with certificates or tokens."""


class Origin(NamedTuple):
    """Where a connection comes from, as far as its transport knows."""

    host: str = "?"
    """The peer's IP address."""
    loopback: bool = False
    certificate_user: str | None = None
    """The user of the client's certificate, verified in the TLS handshake."""
    certificate_ends: float = inf
    """When that certificate ends, in seconds since the epoch."""


class Admission(NamedTuple):
    """A client that is let in."""

    user: str | None
    """None: anonymous."""
    stored: Stored | None = None
    """The stored password the client's was equal to, if it gave one."""
    ends: float = inf
    """When the client is to be disconnected, in seconds since the epoch."""
    granted: Policy | None = None
    """What the login itself allows; the ACL file must allow it, too. None: it says nothing of that."""


Decided = Callable[[Admission | ProtocolError], None]
"""Told who a client is, or why it is refused."""


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
    """Wrong names, passwords or tokens, or none where one is needed."""
    backed_off: int = 0
    """Logins not looked at, because too many from the same address had failed."""
    busy: int = 0
    """Logins not looked at, because too many waited."""
    unavailable: int = 0
    """Logins that nobody could look at: no keys for tokens."""
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
        wall: Callable[[], float],
    ) -> None:
        """`secret`: 16 to 64 random bytes, made for this process and never written anywhere. `clock`: seconds, never
        going back; `wall`: seconds since the epoch."""
        self._clock = clock
        self._wall = wall
        self._failed = Buckets(FAILURES, FAILURES_AT_ONCE)
        """Failed logins by address."""
        self.access = access
        self.tokens: Tokens | None = None
        """Checks tokens; None: there are none."""
        self.newer_keys: Callable[[Callable[[], None]], bool] = lambda done: False
        """Have newer keys for tokens brought, and call then. False: not now, as there can be no newer ones, or too many
        wait."""
        self.counts = Counts()
        self._checker = checker
        self._secret = secret
        self._anonymous = anonymous
        self._right: dict[str, tuple[Stored, bytes]] = {}
        """By user, a keyed digest of the password that was right: who comes back costs microseconds."""

    @property
    def restricts(self) -> bool:
        """Some client may not do everything."""
        return self.access.policy is not None or (self.tokens is not None and self.tokens.bring_rights)

    def admit(self, packet: Connect, origin: Origin, wanted: Callable[[], bool], decided: Decided) -> Admission | None:
        """Who the client is, if that is clear at once; else None, and `decided` is told later.

        Raises `ProtocolError` if the client is refused at once. `wanted`: is the client still there?
        """
        user, password, users = packet.username, packet.password, self.access.users
        if origin.certificate_user is not None:
            if user is not None and user != origin.certificate_user:
                raise self.refusal(f"user {user!r} with the certificate of {origin.certificate_user!r}")
            return Admission(origin.certificate_user, ends=origin.certificate_ends)
        if self.tokens is not None and password is not None and self.tokens.are(password):
            return self._by_token(self.tokens, user, password, decided)
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
        self._check(user, password, users.get(user), origin.host, wanted, decided)
        return None

    def rights(self, admission: Admission, client_id: str | None) -> Rights | None:
        """What the client may do; None: everything. `client_id` is None for an operator, who is no MQTT client. Raises
        `ProtocolError` if the rules cannot take its names."""
        own = self._by(self.access.policy, admission.user, client_id)
        brought = self._by(admission.granted, admission.user, client_id)
        if own is None or brought is None:
            return own or brought
        return Narrowed(own, brought)

    def left(self, admission: Admission) -> float:
        """Seconds for which the login is good."""
        return admission.ends - self._wall()

    def withdrawn(self, admission: Admission) -> bool:
        """True if the client would not be let in with the same password any more."""
        users = self.access.users
        stored = admission.stored
        return stored is not None and (users is None or users.get(admission.user or "") != stored)

    def refusal(self, text: str) -> ProtocolError:
        """A login that failed, counted."""
        self.counts.logins += 1
        return ProtocolError(text, Reason.BAD_USER_NAME_OR_PASSWORD)

    def _by(self, policy: Policy | None, user: str | None, client_id: str | None) -> Rights | None:
        if policy is None:
            return None
        if policy.uses_client and client_id is not None and (fault := name_fault(client_id)) is not None:
            reason = Reason.CLIENT_IDENTIFIER_NOT_VALID
            raise ProtocolError(
                f"the client identifier {client_id!r} {fault}, and its rights have %c in topics", reason
            )
        if policy.uses_user and user is not None and (fault := name_fault(user)) is not None:
            text = f"the user name {user!r} {fault}, and its rights have %u in topics"
            raise ProtocolError(text, Reason.NOT_AUTHORIZED)
        return policy.rights(user, client_id)

    # ---- tokens

    def _by_token(self, tokens: Tokens, user: str | None, text: bytes, decided: Decided) -> Admission | None:
        """Checked at once: a guess costs less than CONNECT itself. Only a key that is not known is asked for."""
        found = tokens.check(text)
        if found is None:

            def renewed() -> None:
                decided(self._token_bearer(user, tokens.check(text)))

            if self.newer_keys(renewed):
                return None
        bearer = self._token_bearer(user, found)
        if isinstance(bearer, ProtocolError):
            raise bearer
        return bearer

    def _token_bearer(self, user: str | None, found: Token | str | None) -> Admission | ProtocolError:
        if found is None:
            self.counts.unavailable += 1
            return ProtocolError("its token is signed with a key that is not known", Reason.NOT_AUTHORIZED)
        if isinstance(found, str):
            return self.refusal(f"its token {found} (user {user!r})")
        if user is not None and user != found.user:
            return self.refusal(f"user {user!r} with the token of {found.user!r}")
        return Admission(found.user, ends=found.ends, granted=found.granted)

    # ---- passwords

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
        decided: Decided,
    ) -> None:
        """Have the password checked; also for a user that does not exist, or the time it takes would tell."""

        def checked(matches: bool) -> None:
            admission = Admission(user, stored)
            if not wanted():  # then it was not checked
                decided(ProtocolError("", Reason.SERVER_BUSY))
                return
            if not matches or stored is None or self.withdrawn(admission):
                self._failed.of(host, self._clock()).spend(1, self._clock())
                decided(self.refusal(f"wrong user name or password (user {user!r})"))
                return
            self._right[user] = stored, self._digest(password)
            decided(admission)

        if not self._checker.check(stored or NOBODY, password, host, wanted, checked):
            self.counts.busy += 1
            raise ProtocolError("", Reason.SERVER_BUSY)
