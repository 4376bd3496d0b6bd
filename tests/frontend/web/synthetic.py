"""The operator's side of a Web port for a mesh that is not there: the same routes and JSON, with a `snapshot`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from saps.frontend.web.frontend import add_console
from saps.frontend.web.http.application import WebServer
from saps.frontend.web.http.metrics import Health, Metrics
from saps.frontend.web.http.visitors import Visitors
from saps.frontend.web.mesh.live import Picture
from saps.frontend.web.mesh.network import Decisions, DecisionView, Network, NetworkView
from saps.frontend.web.mesh.report import End, Hop, State, Trace


class City:
    """A `saps.frontend.web.mesh.mesh.Snapshots` that gives pictures one after the other, the last again and again."""

    def __init__(self, *pictures: Picture) -> None:
        self._pictures = list(pictures)
        self.picture = pictures[0]

    async def state(self) -> State:
        self.picture = self._pictures.pop(0) if len(self._pictures) > 1 else self._pictures[0]
        return self.picture.state

    async def forget(self, name: str) -> None:
        self._pictures = [self.picture]
        self.picture.state.away[:] = [away for away in self.picture.state.away if away.name != name]

    async def trace(self, topic: str, start: str | None) -> Trace:
        row = self.picture.topics[topic]
        source = start or row.publishers[0]
        clusters = {name: broker.cluster for name, broker in self.picture.brokers.items()}
        others = [name for name in row.brokers if name != source]
        hops = []
        for i, name in enumerate(others):
            sender = source if i < 3 else others[i // 3 - 1]
            depth = 1 if i < 3 else 2 if i < 12 else 3 if i < 39 else 4
            crosses = clusters[sender] != clusters[name]
            if row.mode == "constructed":
                sender, depth = source, 1
            by = "ofm" if row.mode == "constructed" else "alm"
            hops.append(Hop(source=sender, target=name, by=by, depth=depth, behind=0, crosses=crosses))
        return Trace(
            topic=topic,
            source=source,
            mode=row.mode,
            complete=True,
            hops=hops,
            ends=[End(broker=name, clients=3) for name in row.brokers],
            reasons=[f"{source} publishes to the topic and knows its members exactly", f"its mode is {row.mode}"],
        )


class _Network(NetworkView):
    def __init__(self, city: City) -> None:
        super().__init__(None)
        self._city = city

    async def now(self) -> Network:
        found: Network = self._city.picture.network
        return found


class _Decisions(DecisionView):
    def __init__(self, city: City) -> None:
        super().__init__("")
        self._city = city

    async def now(self) -> Decisions:
        found: Decisions = self._city.picture.decisions
        return found


@asynccontextmanager
async def city_site(*pictures: Picture) -> AsyncIterator[str]:
    """The address of a Web port that shows these pictures."""
    site, city = WebServer(), City(*pictures)
    metrics, health = Metrics(list, {"broker": "none"}), Health(list)
    console = add_console(site, city, _Network(city), _Decisions(city), metrics, health, Visitors(None))
    await site.listen("127.0.0.1")
    host, port = site.addresses[0]
    try:
        yield f"http://{host}:{port}"
    finally:
        site.stop_listening()
        await console.close()
        await site.close()
