"""Who may see the state of the mesh: whoever may receive the topic `TOPIC`, by the same rules as for MQTT."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from saps.frontend.mqtt.access.guard import Admission
from saps.frontend.mqtt.access.origin import origin_of
from saps.frontend.mqtt.codec.packets import Connect
from saps.frontend.mqtt.codec.reasons import ProtocolError
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.credentials import ANONYMOUS, credentials
from saps.frontend.web.http.problems import ProblemError, refused

TOPIC = "$SYS/saps/mesh"
"""Nothing is published to it; the right to receive it is the right to see the state of the mesh."""

TICKET = 30.0
"""Seconds for which a ticket is good, once."""
MOST_TICKETS = 1000


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Lets one request in, as ``?ticket=``."""

    ticket: str
    user: str | None


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Visitors:
    """Looks at each request. Without a guard everyone may see everything."""

    def __init__(self, access: AccessControl | None) -> None:
        self._access = access
        self._tickets: dict[str, tuple[float, str | None]] = {}
        """Until when, and whose."""

    async def login(self, request: web.Request) -> web.Response:
        """A ticket for one WebSocket, to which a page cannot give a name and a password."""
        user = await self.admit(request)
        now = time.monotonic()
        self._tickets = {ticket: held for ticket, held in self._tickets.items() if held[0] > now}
        if len(self._tickets) >= MOST_TICKETS:
            raise ProblemError(429, "Too many logins", "try again in a moment")
        ticket = secrets.token_urlsafe(18)
        self._tickets[ticket] = now + TICKET, user
        return answer(Ticket(ticket=ticket, user=user))

    def only(self, handler: Handler) -> Handler:
        """The handler, for those who may see."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            await self.admit(request)
            return await handler(request)

        return guarded

    def known(self, handler: Handler) -> Handler:
        """The handler, for those who may see, and are users or on this machine: it changes something."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            user = await self.admit(request)
            if user is None and not origin_of(request.get_extra_info("peername"), None, None).loopback:
                raise _unauthorised("anonymous clients may not do this from another machine")
            return await handler(request)

        return guarded

    async def admit(self, request: web.Request) -> str | None:
        """The user who asks; None: an anonymous client. Raises `ProblemError` if it may not see the state of the
        mesh."""
        guard = self._access.guard if self._access is not None else None
        if guard is None or self._access is None:
            return None
        until, holder = self._tickets.pop(request.query.get("ticket", ""), (0.0, None))
        if until > time.monotonic():
            return holder
        who = credentials(request.headers.get("Authorization"))
        certificate = request.get_extra_info("peercert")
        origin = origin_of(request.get_extra_info("peername"), certificate, self._access.user_from)
        decided: asyncio.Future[Admission | None] = asyncio.get_running_loop().create_future()

        def done(admission: Admission | None) -> None:
            if not decided.done():
                decided.set_result(admission)

        try:
            packet = Connect("", username=who.user, password=who.password)
            admission = guard.admit(packet, origin, lambda: request.transport is not None, done) or await decided
            if admission is None:
                raise guard.refusal("wrong user name or password")
            rights = guard.rights(admission.user, None)
        except ProtocolError as error:
            raise _unauthorised(str(error)) if who == ANONYMOUS else refused(error.reason) from None
        if rights is not None and not rights.may_read(TOPIC):
            detail = f"it takes the right to receive {TOPIC}"
            raise _unauthorised(detail) if who == ANONYMOUS else ProblemError(403, "Not authorized", detail)
        return admission.user


def _unauthorised(detail: str) -> ProblemError:
    return ProblemError(401, "Unauthorized", detail, field="Authorization")
