"""Controls access to one broker by its access files, and reloads them on demand."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from saps.frontend.mqtt.access.acl import Rights
from saps.frontend.mqtt.access.guard import Admission, Guard, Origin
from saps.frontend.mqtt.access.guarded import GuardedAuthorizer
from saps.frontend.mqtt.access.logins.service import Service
from saps.frontend.mqtt.access.options import AuthOptions, TlsOptions
from saps.frontend.mqtt.access.origin import Naming, is_loopback, origin_of
from saps.frontend.mqtt.access.proxy_header import Proxied
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.frontend.mqtt.driver.access_files import AccessError, Files, read_files
from saps.frontend.mqtt.driver.hashing import ThreadedChecker
from saps.frontend.mqtt.driver.login_function import PROGRAM, Authenticate
from saps.frontend.mqtt.driver.tls import Revoked
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import Session

if TYPE_CHECKING:
    from saps.frontend.mqtt.driver.callout import Callout
    from saps.frontend.mqtt.driver.token_keys import KeySource

logger = logging.getLogger(__name__)

Renew = Callable[[ssl.SSLContext], Awaitable[None]]

_REFUSED = "reload refused: passwords, access rules and certificates stay as they were"
_NOTHING = Rights((), (), False)


class AccessControl:
    """Holds the guard and the TLS context. The constructor and `reload` read the files."""

    def __init__(
        self,
        auth: AuthOptions,
        tls: TlsOptions | None,
        *,
        exposed: bool,
        authenticate: Authenticate | None = None,
    ) -> None:
        """Read the access files.

        `tls` is None without TLS listeners. `exposed` tells whether other machines can reach a listener. `authenticate`
        decides logins in the place of an HTTP service. Raises `AccessError` with all faults of the files.
        """
        if authenticate is not None:
            auth = replace(auth, http=replace(auth.http, login=PROGRAM))
        self._auth = auth
        self._tls = tls
        files = read_files(auth, tls)
        self.context: ssl.SSLContext | None = files.context
        """The TLS context for new connections; None without TLS."""
        self._naming: Naming | None = None
        """Derives the user from a client's certificate; None if the listeners request no certificates."""
        if tls is not None and tls.client_certificates != "none":
            self._naming = Naming(tls.user_from, re.compile(tls.user_pattern) if tls.user_pattern else None)
        self.guard: Guard | None = None
        """Decides logins and rights; None if every client has all rights, so that checks cost nothing."""
        self.taken = True
        """Whether the current files are in force; False after a refused reload."""
        self.ends = files.ends
        """Expiry of the TLS listeners' certificate, in seconds since the epoch; None without TLS."""
        self._checker: ThreadedChecker | None = None
        self._beside: list[KeySource | Callout] = []
        """The parts that ask URLs or watch files while the broker runs."""
        self._reloading: asyncio.Task[bool] | None = None
        self._again = False
        anyone = auth.anonymous == "always" or (auth.anonymous == "loopback" and not exposed)
        users = auth.passwords or auth.jwt.keys or auth.http.login or self._naming
        asked = auth.http.login or auth.http.rights or auth.http.topics
        if users or auth.acl or asked or not anyone:
            self._checker = ThreadedChecker(auth.hash_threads, auth.hash_queue)
            self.guard = Guard(files.access, self._checker, os.urandom(32), auth.anonymous, time.monotonic, time.time)
            if auth.jwt.keys:
                self._beside.append(_key_source(auth, self.guard, files))
            if asked:
                self._beside.append(_callout(auth, self.guard, files, authenticate))
        if exposed and auth.anonymous == "loopback" and not users:
            logger.warning("clients are let in from this machine only: see auth.anonymous, auth.passwords")

    def start(self) -> None:
        """Start the parts that run beside the broker: the source of token keys and the HTTP service.

        Call this in the event loop, and `close` at the end.
        """
        for each in self._beside:
            each.start()

    def origin(self, said: Callable[[str], Any], proxied: Proxied | None = None) -> Origin:
        """Return the origin of a client's connection, with the user of its certificate.

        `said` is the `get_extra_info` of the client's transport; `proxied` is the header of its load balancer.
        """
        origin = origin_of(said("peername"))
        if proxied is not None:  # without an address the client is not loopback, though the load balancer may be
            origin = Origin(proxied.host or origin.host, is_loopback(proxied.host or ""), proxied.common_name)
        certificate = said("peercert")
        if certificate and self._naming is not None:
            whole = self._naming.part == "fingerprint"
            user = self._naming.user(certificate, said("ssl_object").getpeercert(True) if whole else None)
            ends = ssl.cert_time_to_seconds(certificate["notAfter"])
            origin = origin._replace(certificate_user=user, certificate_ends=ends)
        return origin

    def stop(self) -> None:
        """Cancel a running reload."""
        if self._reloading is not None:
            self._reloading.cancel()

    async def close(self) -> None:
        """End the threads and tasks. Call this after the last connection has ended."""
        self.stop()
        if self._reloading is not None:
            await asyncio.gather(self._reloading, return_exceptions=True)
        for each in self._beside:
            await each.close()
        if self._checker is not None:
            await self._checker.close()

    def reload(self, frontend: Frontend, renew: Renew) -> asyncio.Task[bool]:
        """Start a reload of the files, and return its task.

        Only one reload runs at a time. A call during a reload makes its task read the files once more. `renew` gets the
        TLS context for new connections. The task returns whether the files are now in force; otherwise the old ones
        stay in force, and the log has the faults.
        """
        if self._reloading is not None and not self._reloading.done():
            self._again = True
        else:
            self._reloading = asyncio.get_running_loop().create_task(self._reload(frontend, renew))
        return self._reloading

    async def _reload(self, frontend: Frontend, renew: Renew) -> bool:
        taken = True
        self._again = True
        while self._again:
            self._again = False
            try:
                files = await asyncio.to_thread(read_files, self._auth, self._tls)
            except AccessError as error:
                for fault in error.faults:
                    logger.error("%s: %s", fault.setting, fault.reason)
                logger.error(_REFUSED)
                taken = False
            else:
                taken = await self._apply(files, frontend, renew)
            self.taken = taken
        return taken

    async def _apply(self, files: Files, frontend: Frontend, renew: Renew) -> bool:
        if files.context is not None:
            try:
                await renew(files.context)
            except OSError as error:
                logger.error("tls.listen: %s", error)
                logger.error(_REFUSED)
                return False
            self.context, self.ends = files.context, files.ends
            close_revoked(files.revoked, frontend)
        if self.guard is not None:
            self.guard.access = files.access
            for each in self._beside:
                each.reload(files)
            obey(self.guard, frontend)
        users, policy = files.access.users, files.access.policy
        logger.info(
            "reload done: %s users, %s access rules, %s",
            "no file of" if users is None else len(users),
            "no file of" if policy is None else len(policy.rules),
            "no TLS" if files.context is None else "TLS certificate read again",
        )
        return True


def _key_source(auth: AuthOptions, guard: Guard, files: Files) -> KeySource:
    from saps.frontend.mqtt.access.logins.tokens import Tokens  # here: most brokers do not use it
    from saps.frontend.mqtt.driver.token_keys import KeySource

    guard.tokens = Tokens(auth.jwt, time.time)
    source = KeySource(auth.jwt, guard.tokens, auth.hash_queue)
    source.reload(files)
    guard.keys = source
    return source


def _callout(auth: AuthOptions, guard: Guard, files: Files, authenticate: Authenticate | None) -> Callout:
    from saps.frontend.mqtt.driver.callout import Callout  # here: most brokers do not use it

    guard.service = Service(auth.http, os.urandom(32), time.time)
    callout = Callout(auth.http, guard.service, authenticate)
    callout.reload(files)
    guard.service.ask = callout.ask
    return callout


def close_revoked(revoked: Revoked, frontend: Frontend) -> None:
    """Close the connections of clients whose certificates have been revoked."""
    if not revoked:
        return
    from saps.identity.certificates import presented  # here: most brokers do not use it

    serials = {serial.number for serial in revoked}
    for connection in list(frontend.connections):
        transport: asyncio.Transport | None = getattr(connection.port, "transport", None)
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if transport is None or not certificate or int(certificate["serialNumber"], 16) not in serials:
            continue
        if presented(transport.get_extra_info("ssl_object").getpeercert(True)).serial in revoked:
            connection.close(Reason.NOT_AUTHORIZED, "its certificate has been revoked")


def obey(guard: Guard, frontend: Frontend) -> None:
    """Apply the guard's current rules to all sessions.

    A session drops queued messages that its client may no longer read. A client whose password has been changed or
    removed is disconnected.
    """
    for session in list(frontend.sessions.values()):
        connection = session.connection
        if (refused := obey_for(guard, session)) is not None and connection is not None:
            connection.close(refused.reason, str(refused))
        authorizer = connection.authorizer if connection is not None else None
        if (
            connection is not None
            and isinstance(authorizer, GuardedAuthorizer)
            and guard.withdrawn(authorizer.admission)
        ):
            connection.close(Reason.NOT_AUTHORIZED, "its password has been changed or taken away")
    frontend.hub.routes.clear()


def obey_for(guard: Guard, session: Session) -> ProtocolError | None:
    """Apply the guard's current rules to one session; the caller must then clear its routes in the hub.

    Returns None, or the reason why the session has no rights at all.
    """
    authorizer = session.connection.authorizer if session.connection is not None else None
    admission = authorizer.admission if isinstance(authorizer, GuardedAuthorizer) else Admission(session.user)
    try:
        host = authorizer.host if isinstance(authorizer, GuardedAuthorizer) else ""
        session.obey(guard.rights(admission, session.client_id, host))
    except ProtocolError as error:
        session.obey(_NOTHING)
        return error
    return None
