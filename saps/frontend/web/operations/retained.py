"""Serves ``/v1/retained``: the retained messages of the mesh (GET), and orders to delete one (DELETE)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from saps.frontend.web.clients.topics import answer, topic_of
from saps.frontend.web.http.parameters import Parameters, check_filter
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import changed
from saps.frontend.web.operations.clients import Call
from saps.operations.retained import MOST, RETAINED, Deleted, RetainedList, RetainedRow, latest

Publish = Callable[[str, bytes], None]
"""Publishes a retained message in the broker's own name; the arguments are topic and payload."""


class RetainedRoutes:
    """Handles requests for retained messages of the whole mesh at one broker."""

    def __init__(self, call: Call, publish: Publish) -> None:
        self._call = call
        self._publish = publish

    async def browse(self, request: web.Request) -> web.Response:
        """Answer with one page of the matching retained messages, by topic."""
        asked = Parameters(request, ("filter", "after", "limit"))
        topic_filter, limit = asked.text("filter") or "#", asked.number("limit", MOST, least=1)
        check_filter(topic_filter)
        return answer(await self._browse(topic_filter, asked.text("after"), limit or 100))

    async def _browse(self, topic_filter: str, after: str, most: int) -> RetainedList:
        answers = await self._call(f"!{RETAINED}", "browse", topic_filter, after, most)
        found = [values for _, values in answers.of(list[RetainedRow])]
        rows = latest([row for values in found for row in values], most + 1)
        full = len(rows) > most or any(len(values) == most for values in found)
        return RetainedList(complete=answers.whole, more=full and len(rows) >= most, messages=rows[:most])

    async def delete(self, request: web.Request) -> web.Response:
        """Delete the retained message of a topic, whoever published it. Raises `ProblemError` if there is none."""
        Parameters(request, ())
        topic = topic_of(request)
        found = (await self._browse(topic, "", 1)).messages
        if not found:
            raise ProblemError(404, "Nothing retained", f"there is no retained message for {topic!r}")
        self._publish(topic, b"")
        changed(request, subject=topic, before=msgspec.to_builtins(found[0]))
        return answer(Deleted(topic=topic))
