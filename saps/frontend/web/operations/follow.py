"""Serves ``/v1/follow``: a live trace of a client or topic from all brokers, as server-sent events."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from saps.agents.api import Answers
from saps.frontend.web.http.parameters import Parameters, check_filter
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.operations.clients import Call
from saps.operations.following import FOLLOW, LONGEST, Event

EVERY = 0.5
"""Seconds between two collections of the brokers' events."""
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Note = Callable[..., None]
"""Records a request in the audit log (`saps.frontend.web.http.visitors.Visitors.note`)."""


class FollowRoutes:
    """Handles requests for live traces of the whole mesh at one broker."""

    def __init__(self, call: Call, note: Note) -> None:
        self._call = call
        self._note = note

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Begin a live trace at all brokers, and send its events until its time is over or the client has gone."""
        client, topic_filter, seconds = _asked(request)
        name = secrets.token_hex(8)
        begun = await self._call(f"!{FOLLOW}", "begin", name, client, topic_filter, seconds)
        problem = _problem(begun, client if topic_filter else "")
        if problem is not None:
            await self._call(f"!{FOLLOW}", "end", name)
            raise problem
        self._note(request, "follow", subject=" ".join(part for part in (client, topic_filter) if part))
        response = web.StreamResponse(headers=HEADERS)
        try:
            await response.prepare(request)
            await self._stream(response, name, time.monotonic() + seconds)
        finally:
            await asyncio.shield(self._call(f"!{FOLLOW}", "end", name))
        return response

    async def _stream(self, response: web.StreamResponse, name: str, until: float) -> None:
        seen: dict[str, int] = {}
        left: dict[str, int] = {}
        while time.monotonic() < until:
            answers = await self._call(f"!{FOLLOW}", "take", name, seen)
            events = list[Event]()
            for _, (broker, last, missing, found) in answers.of(tuple[str, int, int, list[Event]]):
                seen[broker] = last
                events += found
                if missing > left.get(broker, 0):
                    text = f"{missing - left.get(broker, 0)} events were left out: too many"
                    events.append(Event(at=time.time(), broker=broker, what="left out", why=text))
                    left[broker] = missing
            events.sort(key=lambda event: event.at)
            lines = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]
            await response.write(b"".join(lines) or b":\n\n")
            await asyncio.sleep(EVERY)


def _problem(begun: Answers, client: str) -> ProblemError | None:
    """Return why a live trace cannot be of use. `client`: must have a session, so that messages can reach it."""
    for each in begun:
        if each.error is not None and "live traces" in each.error:
            return ProblemError(429, "Too many live traces", each.error)
    if client and begun.whole and not any(each.value for each in begun):
        return ProblemError(404, "No such client", f"no broker has a session of {client!r}")
    return None


def _asked(request: web.Request) -> tuple[str, str, float]:
    """Return the client, the topic filter and the seconds in a request. Raises `ProblemError`."""
    asked = Parameters(request, ("client", "filter", "seconds"))
    client, topic_filter = asked.text("client"), asked.text("filter")
    seconds = asked.number("seconds", int(LONGEST), least=1)
    if not client and not topic_filter:
        raise ProblemError(400, "Bad parameter", "client, filter or both are wanted", field="client")
    check_filter(topic_filter or None)
    return client, topic_filter, float(seconds or 60)
