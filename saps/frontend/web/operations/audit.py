"""Serves ``/v1/audit``: the latest entries of all brokers' audit logs."""

from __future__ import annotations

from aiohttp import web

from saps.frontend.web.clients.topics import answer
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.operations.clients import Call
from saps.operations.audit import AUDIT, KEPT, AuditList, Entry, merged


class AuditRoutes:
    """Handles requests for the audit log of the whole mesh at one broker."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def latest(self, request: web.Request) -> web.Response:
        """Answer with the latest entries, latest first."""
        asked = Parameters(request, ("search", "logins", "limit"))
        limit = asked.number("limit", KEPT)
        most = 100 if limit is None else limit
        answers = await self._call(f"!{AUDIT}", "latest", asked.text("search"), most, asked.flag("logins"))
        entries = merged([each for _, some in answers.of(list[Entry]) for each in some], most)
        return answer(AuditList(complete=answers.whole, entries=entries))
