"""Decides for each CONNECT whether the client may connect, and as which user.

The module does no I/O. A `PasswordChecker` checks passwords elsewhere and answers later.
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
from saps.frontend.mqtt.access.logins.asked import AskedRights
from saps.frontend.mqtt.access.logins.grants import Narrowed
from saps.frontend.mqtt.access.logins.service import Client, Service, Verdict
from saps.frontend.mqtt.access.options import Anonymous
from saps.frontend.mqtt.access.patterns import name_fault
from saps.frontend.mqtt.access.users import NOBODY, ScramKeys, Stored, Users
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.routing.token_bucket import Buckets

if TYPE_CHECKING:
    from saps.frontend.mqtt.access.logins.scram import Exchange
    from saps.frontend.mqtt.access.logins.tokens import Token, Tokens
    from saps.frontend.mqtt.codec.packets import Connect


FAILURES, FAILURES_AT_ONCE = 0.2, 10.0
"""Rate (failures a second) and size of each address's token bucket for failed logins.

While the bucket is empty, the address gets in only by certificates, tokens, and passwords that were right before."""


class Origin(NamedTuple):
    """The origin of a connection, from its transport."""

    host: str = "?"
    """The peer's IP address."""
    loopback: bool = False
    """Whether the peer is on the same machine."""
    certificate_user: str | None = None
    """The user of the client's certificate, which the TLS handshake has verified; None without one."""
    certificate_ends: float = inf
    """Expiry of that certificate, in seconds since the epoch."""


class Admission(NamedTuple):
    """The result of a successful login."""

    user: str | None
    """The user; None for an anonymous client."""
    stored: Stored | None = None
    """The stored password that the client's password has matched; None for other logins."""
    ends: float = inf
    """When the broker must disconnect the client, in seconds since the epoch."""
    granted: Policy | None = None
    """Rights that the login brings. The ACL file must allow them, too. None: the login sets no limits."""


Decided = Callable[[Admission | ProtocolError], None]
"""Callback of a login: gets the admission, or the reason for refusing the client."""


class Login(NamedTuple):
    """One attempt of a client to log in."""

    packet: Connect
    origin: Origin
    wanted: Callable[[], bool]
    """Returns whether the client is still connected."""
    decided: Decided


class PasswordChecker(Protocol):
    """Checks passwords away from the event loop, a bounded number at a time."""

    def check(
        self, stored: Stored, password: bytes, host: str, wanted: Callable[[], bool], done: Callable[[bool], None]
    ) -> bool:
        """Check the password in the background, then call `done` with whether it matches.

        `done` is never called before this returns. It gets False without a check if `wanted` returns False by then.
        Returns False and does nothing if too many checks wait, in all or from the same host.
        """


@dataclass(frozen=True, slots=True)
class Access:
    """The contents of the access files. A reload replaces the whole object."""

    users: Users | None = None
    """The users of the password file; None without a file."""
    policy: Policy | None = None
    """The policy of the ACL file; None without a file."""


@dataclass(slots=True)
class Counts:
    """Counts of refused logins and publications."""

    logins: int = 0
    """Logins with wrong or missing credentials."""
    backed_off: int = 0
    """Logins refused unchecked because too many logins from the same address had failed."""
    busy: int = 0
    """Logins refused unchecked because too many logins were waiting."""
    unavailable: int = 0
    """Logins that could not be checked: the token's key is unknown, or the service has not answered."""
    publications: int = 0
    """Publications to topics that the client may not publish to."""


class Keys(Protocol):
    """The source of keys for tokens."""

    def newer(self, done: Callable[[], None], /) -> bool:
        """Fetch newer keys, then call `done`.

        Returns False and does nothing if no newer keys can exist yet, or too many clients wait for keys.
        """


class Guard:
    """Decides the logins of all connections of one broker. It holds the access files and caches correct passwords."""

    def __init__(
        self,
        access: Access,
        checker: PasswordChecker,
        secret: bytes,
        anonymous: Anonymous,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Make the guard of one broker.

        `secret`: 16 to 64 random bytes of this process that are never stored. `anonymous`: the origins from which
        clients may connect without a name. `clock`: monotonic seconds. `wall`: seconds since the epoch.
        """
        self._clock = clock
        self._wall = wall
        self._failed = Buckets(FAILURES, FAILURES_AT_ONCE)
        """By address: the token bucket of failed logins."""
        self.access = access
        self.tokens: Tokens | None = None
        """Checks tokens; None if the broker accepts no tokens."""
        self.keys: Keys | None = None
        """The source of newer keys for tokens; None without one."""
        self.service: Service | None = None
        """The HTTP service for users and rights; None without one."""
        self.counts = Counts()
        self._checker = checker
        self._secret = secret
        self._anonymous = anonymous
        self._exchanges = 0
        self._right: dict[str, tuple[Stored, bytes]] = {}
        """By user: the stored password, and a keyed digest of the password that matched it. A user's next login takes
        microseconds instead of a hash."""

    @property
    def restricts(self) -> bool:
        """Whether rules, tokens or the service can restrict a client's rights."""
        brought = self.service is not None or (self.tokens is not None and self.tokens.bring_rights)
        return brought or self.access.policy is not None

    def admit(self, login: Login) -> Admission | None:
        """Decide a login.

        Returns the admission if the decision is immediate. Otherwise returns None, and `login.decided` is called later.
        Raises `ProtocolError` if the client is refused at once.
        """

        def decided(result: Admission | ProtocolError) -> None:
            if isinstance(result, Admission):
                try:
                    entitled = self.entitle(result, login)
                except ProtocolError as error:
                    login.decided(error)
                    return
                if entitled is None:
                    return
                result = entitled
            login.decided(result)

        admission = self._identify(login._replace(decided=decided))
        return None if admission is None else self.entitle(admission, login)

    def _identify(self, login: Login) -> Admission | None:
        packet, origin = login.packet, login.origin
        user, password, users = packet.username, packet.password, self.access.users
        if origin.certificate_user is not None:
            if user is not None and user != origin.certificate_user:
                raise self.refusal(f"user {user!r} with the certificate of {origin.certificate_user!r}")
            return Admission(origin.certificate_user, ends=origin.certificate_ends)
        if self.tokens is not None and password is not None and self.tokens.are(password):
            return self._by_token(self.tokens, user, password, login.decided)
        service = self.service if self.service is not None and self.service.options.login else None
        if (users is None and service is None) or (user is None and password is None):
            if self._anonymous == "never" or (self._anonymous == "loopback" and not origin.loopback):
                self.counts.logins += 1
                raise ProtocolError("anonymous clients are not let in from there", Reason.NOT_AUTHORIZED)
            return Admission(None)
        if user is None or password is None:
            raise self.refusal("a user without a password" if password is None else "a password without a user")
        stored = None if users is None else users.get(user)
        if service is not None and stored is None:
            return self._by_service(service, user, password, login)
        if stored is not None and self._known(user, password, stored):
            return Admission(user, stored)
        self._back_off(origin)
        self._check(user, password, stored, origin.host, login)
        return None

    def rights(self, admission: Admission, client_id: str | None, host: str = "") -> Rights | None:
        """Return the rights of the client at address `host`, or None for all rights.

        `client_id` is None for an operator, who is no MQTT client; the guard does not ask the service about an
        operator's topics. Raises `ProtocolError` if the client's names must not stand in the topics of the rules.
        """
        own = self._by(self.access.policy, admission.user, client_id)
        brought = self._by(admission.granted, admission.user, client_id)
        rights = own or brought if own is None or brought is None else Narrowed(own, brought)
        if self.service is None or not self.service.options.topics or client_id is None:
            return rights
        return AskedRights(rights, self.service, admission.user, client_id, host)

    def left(self, admission: Admission) -> float:
        """Return the seconds until the login ends."""
        return admission.ends - self._wall()

    def withdrawn(self, admission: Admission) -> bool:
        """Return whether the stored password of the login has changed or is gone."""
        users = self.access.users
        stored = admission.stored
        return stored is not None and (users is None or users.get(admission.user or "") != stored)

    def refusal(self, text: str) -> ProtocolError:
        """Count a failed login, and return the error to raise for it."""
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
        """Check a token at once: that costs less than the CONNECT itself. Only an unknown key makes the client wait."""
        found = tokens.check(text)
        if found is None:

            def renewed() -> None:
                decided(self._token_bearer(user, tokens.check(text)))

            if self.keys is not None and self.keys.newer(renewed):
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

    # ---- the service

    def _by_service(self, service: Service, user: str, password: bytes, login: Login) -> Admission | None:
        url, host = service.options.login, login.origin.host
        try:
            client = Client(user=user, password=password.decode(), client=login.packet.client_id, address=host)
        except UnicodeDecodeError:
            raise self.refusal(f"a password that is no text (user {user!r})") from None
        if (verdict := service.known(url, client)) is not None:
            if not verdict.allow:
                raise self.refusal(f"refused by the service (user {user!r})")
            return Admission(verdict.user or user, None, verdict.ends, verdict.granted)
        self._back_off(login.origin)

        def answered(verdict: Verdict | None) -> None:
            if verdict is None:
                login.decided(self._unavailable())
            elif verdict.allow:
                login.decided(Admission(verdict.user or user, None, verdict.ends, verdict.granted))
            else:
                self._failed.of(host, self._clock()).spend(1, self._clock())
                login.decided(self.refusal(f"refused by the service (user {user!r})"))

        if not service.inquire(url, client, answered):
            raise self._busy()
        return None

    def entitle(self, admission: Admission, login: Login) -> Admission | None:
        """Return the admission with the client's rights from the service, if the service is asked for rights.

        Returns None if the service has to be asked; `login.decided` is then called later. Raises `ProtocolError` if the
        client is refused at once.
        """
        service = self.service
        if service is None or not service.options.rights or admission.granted is not None:
            return admission
        client = Client(user=admission.user, client=login.packet.client_id, address=login.origin.host)
        if (verdict := service.known(service.options.rights, client)) is not None:
            found = self._entitled(admission, verdict)
            if isinstance(found, ProtocolError):
                raise found
            return found
        url = service.options.rights
        if not service.inquire(url, client, lambda verdict: login.decided(self._entitled(admission, verdict))):
            raise self._busy()
        return None

    def _entitled(self, admission: Admission, verdict: Verdict | None) -> Admission | ProtocolError:
        if verdict is None:
            return self._unavailable()
        if not verdict.allow:
            self.counts.logins += 1
            return ProtocolError(f"the service gives no rights to user {admission.user!r}", Reason.NOT_AUTHORIZED)
        return admission._replace(ends=min(admission.ends, verdict.ends), granted=verdict.granted)

    def _unavailable(self) -> ProtocolError:
        self.counts.unavailable += 1
        return ProtocolError("", Reason.SERVER_UNAVAILABLE)

    def _busy(self) -> ProtocolError:
        self.counts.busy += 1
        return ProtocolError("", Reason.SERVER_BUSY)

    # ---- SCRAM

    def exchange(self, method: str) -> Exchange:
        """Begin an enhanced authentication (4.12). Raises `ProtocolError` for an unknown method."""
        users = self.access.users or {}
        if method != "SCRAM-SHA-256" or not any(isinstance(stored, ScramKeys) for stored in users.values()):
            raise ProtocolError(f"there is no authentication method {method!r}", Reason.BAD_AUTHENTICATION_METHOD)
        from saps.frontend.mqtt.access.logins.scram import Exchange  # here: most brokers do not use it

        self._exchanges += 1
        nonce = blake2b(b"nonce %d" % self._exchanges, key=self._secret, digest_size=24).hexdigest()
        return Exchange(users, self._secret, nonce)

    def step(self, exchange: Exchange, data: bytes, origin: Origin, named: str | None) -> bytes:
        """Take the client's next message in an exchange, and return the broker's answer.

        `named` is the user that the client has named before, or None. Raises `ProtocolError` for a wrong proof, for
        another user than `named` or the certificate's, and while the address is backed off.
        """
        try:
            answer = exchange.step(data)
        except ValueError as error:
            self._failed.of(origin.host, self._clock()).spend(1, self._clock())
            raise self.refusal(f"{error} (user {exchange.user!r}, SCRAM)") from None
        user = exchange.user
        for known in (named, origin.certificate_user):
            if known is not None and known != user:
                raise self.refusal(f"user {known!r} with the proof of {user!r}")
        if exchange.done and exchange.stored is not None:
            self._right[user] = exchange.stored, b""
        elif self._right.get(user, (None,))[0] != exchange.stored or exchange.stored is None:
            self._back_off(origin)
        return answer

    # ---- passwords

    def _back_off(self, origin: Origin) -> None:
        """Check that not too many logins from the address have failed. Raises `ProtocolError` if they have."""
        if self._failed.of(origin.host, self._clock()).wait(self._clock()):
            self.counts.backed_off += 1
            raise ProtocolError("", Reason.CONNECTION_RATE_EXCEEDED)

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
        login: Login,
    ) -> None:
        """Start the check of a password.

        An unknown user's password is checked, too. Otherwise the time of the answer would tell which users exist.
        Raises `ProtocolError` if too many checks wait.
        """

        def checked(matches: bool) -> None:
            admission = Admission(user, stored)
            if not login.wanted():  # the checker has skipped it
                login.decided(ProtocolError("", Reason.SERVER_BUSY))
                return
            if not matches or stored is None or self.withdrawn(admission):
                self._failed.of(host, self._clock()).spend(1, self._clock())
                login.decided(self.refusal(f"wrong user name or password (user {user!r})"))
                return
            self._right[user] = stored, self._digest(password)
            login.decided(admission)

        if not self._checker.check(stored or NOBODY, password, host, login.wanted, checked):
            raise self._busy()
