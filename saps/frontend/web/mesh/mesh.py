"""Gathers the state of the whole mesh at one broker: on request only, cached for `FRESH` seconds, and bounded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from saps.agents.api import AgentRegistry, Answers
from saps.frontend.web.http.answers import answers_to
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.mesh.report import Report, State, TopicRow, Trace, Tree, absent, add_up, happened
from saps.frontend.web.mesh.status import MOST_TOPICS, STATUS
from saps.frontend.web.mesh.trace import trace

FRESH = 1.0
"""Seconds for which a state is cached."""
ROWS = 20_000
"""Most rows of topics in one state, and the rows that all brokers together are asked for: some 2 MB."""
LEAST = 200
"""Rows that each broker may send at least, however many brokers there are."""

Act = Callable[[Callable[[], None]], None]


class Snapshots(Protocol):
    """The source of states and traces (`Mesh`)."""

    async def state(self) -> State: ...

    async def trace(self, topic: str, start: str | None) -> Trace: ...

    async def forget(self, name: str) -> None: ...


class Mesh:
    """Gathers the reports of all brokers, and calls their agents."""

    def __init__(
        self, name: str, registry: AgentRegistry, act: Act, trees: Callable[[], dict[str, Tree] | None]
    ) -> None:
        """`name`: name of this broker. `act` runs an action at the overlay's node. `trees` returns the controller's
        trees by topic, or None without a controller."""
        self._name = name
        self._registry = registry
        self._act = act
        self._trees = trees
        self._brokers = 1
        self._state: State | None = None
        self._until = 0.0
        self._asking: asyncio.Task[State] | None = None

    async def state(self) -> State:
        """Return the state of the mesh, at most `FRESH` seconds old. Raises `ProblemError` (504) if the overlay does
        not answer."""
        if self._state is not None and time.monotonic() < self._until:
            return self._state
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._gather())
        return await asyncio.shield(self._asking)

    async def call(self, name: str, method: str, *args: Any) -> Answers:
        """Call agents by name or attribute (`saps.agents.api.AgentRegistry.call`). Raises `ProblemError` (504) after
        `answers.TIMEOUT` seconds without an answer."""
        return await answers_to(lambda done: self._act(lambda: self._registry.call(name, method, args, done)))

    async def _gather(self) -> State:
        most = min(MOST_TOPICS, max(LEAST, ROWS // self._brokers))
        answers = await self.call(f"!{STATUS}", "report", most)
        reports, rows = await asyncio.to_thread(_added_up, answers, self._trees())  # keeps the event loop free
        self._brokers = max(1, len(reports))
        self._state = State(
            at=round(time.time(), 3),
            seen_from=self._name,
            complete=answers.whole,
            topics_total=max([len(rows), *[report.broker.topics for report in reports]]),
            brokers=[report.broker for report in reports],
            topics=rows[:ROWS],
            away=absent(reports),
            events=happened(reports),
        )
        self._until = time.monotonic() + FRESH
        return self._state

    async def trace(self, topic: str, start: str | None) -> Trace:
        """Return the way of a message to `topic` (`saps.frontend.web.mesh.trace.trace`)."""
        return await trace(self, topic, start)

    async def forget(self, name: str) -> None:
        """Make all brokers forget a broker that is away. Raises `ProblemError` (404) if no broker knew it as away."""
        answers = await self.call(f"!{STATUS}", "forget", name)
        self._state = None
        if not any(answer.value is True for answer in answers):
            raise ProblemError(404, "No such broker", f"no broker {name!r} is away")


def _added_up(answers: Answers, trees: dict[str, Tree] | None) -> tuple[list[Report], list[TopicRow]]:
    reports = reports_of(answers)
    return reports, add_up(reports, trees)


def reports_of(answers: Answers) -> list[Report]:
    """Return the valid reports by name of broker. Ignores others, which brokers of another version may send."""
    found = {report.broker.name: report for _, report in answers.of(Report)}
    return [found[name] for name in sorted(found)]
