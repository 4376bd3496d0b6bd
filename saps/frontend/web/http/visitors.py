"""Who may see the state of the mesh, and change it: by the rules of MQTT, and by roles.

Whoever may receive the topic `TOPIC` is a viewer. Where the ACL file has roles, they say who is more than that; where
it has none, users and this machine are administrators. What is changed, and who was refused, is recorded.
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
"""Nothing is published to it; the right to receive it is the right to see the state of the mesh."""

TICKET = 30.0
"""Seconds for which a ticket is good, once."""
MOST_TICKETS = 1000


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Lets one request in, as ``?ticket=``."""

    ticket: str
    user: str | None
    role: str


class Visitor(NamedTuple):
    """Who asks."""

    user: str | None
    """None: an anonymous client."""
    role: Role
    address: str
    """From where."""
    ends: float = inf
    """When its login does, in seconds since the epoch."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHANGED = web.RequestKey("changed", dict[str, Any])
"""Key of a request: what its handler adds to the entry in the audit log."""


VISITOR = web.RequestKey("visitor", Visitor)
"""Key of a request: who asks."""


def changed(request: web.Request, **more: object) -> None:
    """Have the audit log say more about a request: `saps.operations.audit.Entry`."""
    request[CHANGED] = more


class Visitors:
    """Looks at each request. Without a guard everyone may see everything."""

    def __init__(self, access: AccessControl | None, audit: Audit | None = None) -> None:
        self._access = access
        self._audit = audit
        self._tickets: dict[str, tuple[float, Visitor]] = {}
        """Until when, and whose."""

    async def login(self, request: web.Request) -> web.Response:
        """A ticket for one WebSocket, to which a page cannot give a name and a password."""
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
        """The handler, for those who have this role: it changes nothing."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            request[VISITOR] = visitor = await self.admit(request)
            self._demand(visitor, role)
            if visitor.ends == inf or request.transport is None:
                return await handler(request)
            left = visitor.ends - time.time()  # a page that is kept up to date is cut off
            end = asyncio.get_running_loop().call_later(left, request.transport.abort)
            try:
                return await handler(request)
            finally:
                end.cancel()

        return guarded

    def changes(self, what: str, handler: Handler, role: Role = Role.OPERATOR) -> Handler:
        """The handler, for those who have this role: it changes something, which is recorded as `what`."""

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
        """Have the audit log know of a request that changes nothing, and is not for everybody to make."""
        self._record(what, request[VISITOR], **more)

    def _demand(self, visitor: Visitor, role: Role) -> None:
        """Raises `ProblemError` for those who do not have it."""
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
        """Who asks. Raises `ProblemError` if it may not see the state of the mesh."""
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
    """`sees`: it may receive `TOPIC`."""
    policy = guard.access.policy
    viewer = Role.VIEWER if sees else Role.NONE
    if policy is not None and policy.roles is not None:
        return max(policy.roles.of(user), viewer)
    return Role.ADMINISTRATOR if sees and (user is not None or loopback) else viewer


def _address(peer: Any) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else "?"


def _unauthorised(detail: str) -> ProblemError:
    return ProblemError(401, "Unauthorized", detail, field="Authorization")
