"""Waits for the answers of agents to a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from saps.agents.api import Answers, Done
from saps.frontend.web.http.problems import ProblemError

TIMEOUT = 20.0
"""Timeout of a call in seconds. The overlay's own timeout is shorter."""


async def answers_to(call: Callable[[Done], None]) -> Answers:
    """Return what `call` gives to the callback it gets. Raises `ProblemError` (504) after `TIMEOUT` seconds without."""
    answered: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
    call(lambda answers: None if answered.done() else answered.set_result(answers))
    try:
        async with asyncio.timeout(TIMEOUT):
            return await answered
    except TimeoutError:
        raise ProblemError(504, "The mesh does not answer", f"nothing for {TIMEOUT:g} s") from None
