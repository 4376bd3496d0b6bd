"""Decides who may see and change the state of the mesh, by the access rules of MQTT and by roles.

A client that may receive the topic `TOPIC` is a viewer. Higher roles come from the ACL file. If the file has no roles,
all users who are viewers, and anonymous viewers on this machine, are administrators. Changes and refusals are recorded
in the audit log.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from saps.frontend.mqtt.access.guard import Admission, Guard, Login
from saps.frontend.mqtt.access.origin import origin_of
from saps.frontend.mqtt.codec.packets import Connect
from saps.frontend.mqtt.codec.reasons import ProtocolError
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.credentials import ANONYMOUS, credentials
from saps.frontend.web.http.problems import ProblemError, refused
from saps.operations.audit import LOGIN, Audit
from saps.operations.roles import Role

TOPIC = "$SYS/saps/mesh"
"""The right to receive this topic is the right to see the state of the mesh. Nothing is published to the topic."""

TICKET = 30.0
"""Seconds for which a ticket is valid, for one request."""
MOST_TICKETS = 1000
"""Most unused tickets at a time."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket that admits one request, as ``?ticket=``."""

    ticket: str
    user: str | None
    role: str


class Visitor(NamedTuple):
    """The client that sends a request."""

    user: str | None
    """The user; None for an anonymous client."""
    role: Role
    address: str
    """The client's address and port."""
    ends: float = inf
    """End of the login in seconds since the epoch."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHANGED = web.RequestKey("changed", dict[str, Any])
"""Key of a request: fields that its handler adds to the audit log's entry."""


VISITOR = web.RequestKey("visitor", Visitor)
"""Key of a request: its visitor."""


def changed(request: web.Request, **more: object) -> None:
    """Add fields of `saps.operations.audit.Entry` to the audit log's entry for a request."""
    request[CHANGED] = more


class Visitors:
    """Authorizes each request. Without a guard, everyone may see everything, and clients on this machine may change
    everything."""

    def __init__(self, access: AccessControl | None, audit: Audit | None = None) -> None:
        self._access = access
        self._audit = audit
        self._tickets: dict[str, tuple[float, Visitor]] = {}
        """Expiry by the monotonic clock, and visitor, of each unused ticket."""

    async def login(self, request: web.Request) -> web.Response:
        """Answer with a ticket for one WebSocket, as a page cannot send a name and a password with a WebSocket. Raises
        `ProblemError`."""
        visitor = await self.admit(request)
        now = time.monotonic()
        self._tickets = {ticket: held for ticket, held in self._tickets.items() if held[0] > now}
        if len(self._tickets) >= MOST_TICKETS:
            raise ProblemError(429, "Too many logins", "try again in a moment")
        ticket = secrets.token_urlsafe(18)
        self._tickets[ticket] = now + TICKET, visitor
        if self._audit is not None and visitor.user is not None:
            self._audit.record(LOGIN, who=visitor.user, role=visitor.role.word, source=visitor.address)
        return answer(Ticket(ticket=ticket, user=visitor.user, role=visitor.role.word))

    def only(self, handler: Handler, role: Role = Role.VIEWER) -> Handler:
        """Return a handler that admits only visitors with this role. For requests that change nothing."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            request[VISITOR] = visitor = await self.admit(request)
            self._demand(visitor, role)
            if visitor.ends == inf or request.transport is None:
                return await handler(request)
            left = visitor.ends - time.time()  # a page with a live connection is cut off when the login ends
            end = asyncio.get_running_loop().call_later(left, request.transport.abort)
            try:
                return await handler(request)
            finally:
                end.cancel()

        return guarded

    def changes(self, what: str, handler: Handler, role: Role = Role.OPERATOR) -> Handler:
        """Return a handler that admits only visitors with this role. For requests that change something: the audit log
        records the change, or the refusal, as `what`."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            visitor = await self.admit(request)
            subject = " ".join(request.match_info.values())
            try:
                self._demand(visitor, role)
            except ProblemError as error:
                self._record(f"{what} refused", visitor, subject=subject, reason=error.problem.detail or "")
                raise
            request[VISITOR] = visitor
            found = await handler(request)
            self._record(what, visitor, **{"subject": subject, **request.get(CHANGED, {})})
            return found

        return guarded

    def note(self, request: web.Request, what: str, **more: Any) -> None:
        """Record in the audit log a request that changes nothing but needs a role. `more`: fields of the entry."""
        self._record(what, request[VISITOR], **more)

    def _demand(self, visitor: Visitor, role: Role) -> None:
        """Raise `ProblemError` unless the visitor has the role: 401 for an anonymous one, 403 for a user."""
        if visitor.role >= role:
            return
        if visitor.user is None:
            raise _unauthorised(
                f"anonymous clients may not do this from another machine; it takes the role {role.word}"
            )
        raise ProblemError(
            403, "Not authorized", f"it takes the role {role.word}; {visitor.user} is {visitor.role.word}"
        )

    def _record(self, what: str, visitor: Visitor, **more: Any) -> None:
        if self._audit is not None:
            self._audit.record(what, who=visitor.user, role=visitor.role.word, source=visitor.address, **more)

    async def admit(self, request: web.Request) -> Visitor:
        """Return the visitor that sends a request, by its ticket or its credentials. Raises `ProblemError` if the
        visitor may not see the state of the mesh."""
        guard = self._access.guard if self._access is not None else None
        peer = request.get_extra_info("peername")
        if guard is None or self._access is None:
            loopback = origin_of(peer).loopback
            return Visitor(None, Role.ADMINISTRATOR if loopback else Role.VIEWER, _address(peer))
        until, holder = self._tickets.pop(request.query.get("ticket", ""), (0.0, None))
        if until > time.monotonic() and holder is not None:
            return holder
        who = credentials(request.headers.get("Authorization"))
        origin = self._access.origin(request.get_extra_info)
        decided: asyncio.Future[Admission | ProtocolError] = asyncio.get_running_loop().create_future()

        def done(result: Admission | ProtocolError) -> None:
            if not decided.done():
                decided.set_result(result)

        try:
            packet = Connect("", username=who.user, password=who.password)
            login = Login(packet, origin, lambda: request.transport is not None, done)
            admission = guard.admit(login) or await decided
            if isinstance(admission, ProtocolError):
                raise admission
            rights = guard.rights(admission, None)
        except ProtocolError as error:
            if self._audit is not None and who != ANONYMOUS:
                words = str(error) or error.reason.name.lower().replace("_", " ")
                self._audit.refuse(origin.host, who=who.user, source=_address(peer), reason=words)
            raise _unauthorised(str(error)) if who == ANONYMOUS else refused(error.reason) from None
        role = _role(guard, admission.user, origin.loopback, rights is None or rights.may_read(TOPIC))
        if role is Role.NONE:
            detail = f"it takes the right to receive {TOPIC}, or a role"
            raise _unauthorised(detail) if who == ANONYMOUS else ProblemError(403, "Not authorized", detail)
        return Visitor(admission.user, role, _address(peer), admission.ends)


def _role(guard: Guard, user: str | None, loopback: bool, sees: bool) -> Role:
    """Return a visitor's role. `sees`: whether the visitor may receive `TOPIC`."""
    policy = guard.access.policy
    viewer = Role.VIEWER if sees else Role.NONE
    if policy is not None and policy.roles is not None:
        return max(policy.roles.of(user), viewer)
    return Role.ADMINISTRATOR if sees and (user is not None or loopback) else viewer


def _address(peer: Any) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else "?"


def _unauthorised(detail: str) -> ProblemError:
    return ProblemError(401, "Unauthorized", detail, field="Authorization")
