"""Traces the way that a message to a topic would take from the publisher's broker to the subscribers, with the reasons.

Each broker on the way is asked how it would pass the message on, so the trace shows the present behaviour of these
brokers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.mesh.report import End, Hop, State, TopicRow, Trace
from saps.frontend.web.mesh.status import STATUS

if TYPE_CHECKING:
    from saps.frontend.web.mesh.mesh import Mesh

MOST_HOPS = 500
"""Hops of a trace after which no further level of the tree is followed."""


class Divided(NamedTuple):
    """A broker's answer to how it would pass a message on (`StatusAgent.divide`)."""

    how: str
    """How it knows the members."""
    branches: list[tuple[str, list[str]]]
    """Each broker that gets a copy, with those behind it."""
    served: list[str]
    """The brokers that an OpenFlow tree serves."""


async def trace(mesh: Mesh, topic: str, start: str | None) -> Trace:
    """Return the way of a message published at the broker `start`. With None, it starts at a broker that publishes to
    the topic, or else at this broker.

    Raises `ProblemError` (404) if there is no such broker, or (504) if the overlay or the starting broker does not
    answer.
    """
    state = await mesh.state()
    return await _Tracing(mesh, state, topic, start).run()


class _Tracing:
    def __init__(self, mesh: Mesh, state: State, topic: str, start: str | None) -> None:
        self._mesh = mesh
        self._topic = topic
        self._clusters = {broker.name: broker.cluster for broker in state.brokers}
        self._row: TopicRow | None = next((row for row in state.topics if row.topic == topic), None)
        self._seen_from = state.seen_from
        self._complete = state.complete
        self._start = start
        self._hops: list[Hop] = []
        self._reasons: list[str] = []

    async def run(self) -> Trace:
        source = self._source()
        row = self._row
        members = [name for name in await self._subscribed() if name != source]
        how, branches, served = await self._divide(source, None)
        if how == "unanswered":
            raise ProblemError(504, "No answer", f"{source} has not told how it would pass the message on")
        if how == "known":
            self._reasons.append(f"{source} publishes to the topic and knows its members exactly")
        else:
            self._reasons.append(f"{source} does not publish to the topic now; the members are those who subscribe")
            _, branches, served = await self._divide(source, members)
        for name in served:
            self._hop(source, name, "ofm", 1, [])
        if served:
            self._reasons.append(f"one datagram along the OpenFlow tree reaches {len(served)} brokers")
        elif row is not None and row.mode not in ("alm", "constructed"):
            why = f": {row.reason}" if row.reason else ""
            self._reasons.append(f"the OpenFlow tree is {row.mode}{why}; until it is constructed, by ALM")
        else:
            self._reasons.append("no OpenFlow tree: by ALM")
        await self._along(source, branches, 1)
        ends = await self._ends(source)
        if not self._hops:
            self._reasons.append("no other broker has a matching subscription: nothing leaves the broker")
        mode = "mixed" if served and branches else "ofm" if served else "alm"
        return Trace(
            topic=self._topic,
            source=source,
            mode=mode if self._hops else "local",
            complete=self._complete,
            hops=self._hops,
            ends=ends,
            reasons=self._reasons,
        )

    def _source(self) -> str:
        if self._start is not None:
            if self._start not in self._clusters:
                raise ProblemError(404, "No such broker", f"{self._start!r} is not in the mesh", field="from")
            return self._start
        publishers = self._row.publishers if self._row is not None else []
        return publishers[0] if publishers else self._seen_from

    async def _subscribed(self) -> list[str]:
        return [end.broker for end in await self._all_ends()]

    async def _ends(self, source: str) -> list[End]:
        reached = {source, *[hop.target for hop in self._hops]}
        return [end for end in await self._all_ends() if end.broker in reached]

    async def _all_ends(self) -> list[End]:
        """Return the subscribers at each broker. Asks every broker, as topic filters may have wildcards."""
        answers = await self._mesh.call(f"!{STATUS}", "matching", self._topic)
        self._complete &= answers.complete
        found = sorted(values for _, values in answers.of(tuple[str, int]))
        return [End(broker=name, clients=clients) for name, clients in found if clients]

    async def _along(self, source: str, branches: list[tuple[str, list[str]]], depth: int) -> None:
        """Follow the branches, one level of the tree at a time."""
        level = [(source, child, behind) for child, behind in branches]
        while level and len(self._hops) < MOST_HOPS:
            for sender, child, behind in level:
                self._hop(sender, child, "alm", depth, behind)
            onward = [(child, behind) for _, child, behind in level if behind]
            divided = await asyncio.gather(*[self._divide(child, behind) for child, behind in onward])
            level = [
                (child, grandchild, rest)
                for (child, _), (_, found, _) in zip(onward, divided, strict=True)
                for grandchild, rest in found
            ]
            depth += 1

    async def _divide(self, broker: str, members: list[str] | None) -> Divided:
        """Ask a broker how it would pass the message on (`StatusAgent.divide`). Returns "unanswered" and no branches
        if the broker does not answer."""
        wanted = None if members is None else [f"{name} {self._clusters.get(name, '')}" for name in members]
        answers = await self._mesh.call(f"{broker}!{STATUS}", "divide", self._topic, wanted)
        for _, told in answers.of(Divided):
            return told
        self._complete = False
        return Divided("unanswered", [], [])

    def _hop(self, source: str, target: str, by: str, depth: int, behind: list[str]) -> None:
        crosses = self._clusters.get(source) != self._clusters.get(target)
        hop = Hop(source=source, target=target, by=by, depth=depth, behind=len(behind), crosses=crosses)
        self._hops.append(hop)
