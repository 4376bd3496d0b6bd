"""Assembles the Web frontend: the routes and their handlers."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import msgspec
from aiohttp import web

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.web.clients.clients import WebClients
from saps.frontend.web.clients.events import Events
from saps.frontend.web.clients.mqtt_socket import MqttSockets
from saps.frontend.web.clients.socket import TopicSockets
from saps.frontend.web.clients.topics import Topics
from saps.frontend.web.http.application import Handler, WebServer
from saps.frontend.web.http.metrics import Health, Metrics
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import Visitors
from saps.frontend.web.mesh.drain import DrainRoutes
from saps.frontend.web.mesh.live import Live
from saps.frontend.web.mesh.mesh import Snapshots
from saps.frontend.web.mesh.network import DecisionView, NetworkView
from saps.frontend.web.mesh.operator import Operator
from saps.version import __version__

TOPIC = "/v1/topics/{topic:.+}"
STATIC = (Path(__file__).parent / "static").resolve()
HEADROOM = 1 << 16
"""Bytes by which a request's body may exceed the largest packet. The connection machine refuses such a body as a
packet.
"""
PAGE = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of pages: they load nothing from elsewhere. Inline styles are allowed, as graphs set styles of elements."""


def web_server(server: MqttServer, origins: tuple[str, ...] = ()) -> WebServer:
    """Return an HTTP server with the limits of this MQTT server, not listening yet."""
    limits = server.limits
    return WebServer(limits.connect_timeout, limits.maximum_connections, limits.maximum_packet_size + HEADROOM, origins)


def add_topics(site: WebServer, server: MqttServer) -> WebClients:
    """Add the routes to publish and subscribe: HTTP, server-sent events, WebSocket, and MQTT over WebSocket."""
    clients = WebClients(server)
    topics = Topics(clients)
    site.add("/mqtt", MqttSockets(server, site.origins).handle)
    site.add(TOPIC, topics.publish, "POST")
    site.add(TOPIC, topics.retained)
    site.add("/v1/events", Events(clients).handle)
    site.add("/v1/socket", TopicSockets(clients).handle)
    return clients


class Console:
    """The operator's part of the Web frontend. `close` must be awaited at the end."""

    def __init__(self, live: Live, network: NetworkView, decisions: DecisionView) -> None:
        self._live = live
        self._network = network
        self._decisions = decisions

    async def close(self) -> None:
        """Disconnect the watchers, and end the requests to the controller and OFGate."""
        await self._live.close()
        await self._network.close()
        await self._decisions.close()


def add_console(
    site: WebServer,
    mesh: Snapshots,
    network: NetworkView,
    decisions: DecisionView,
    metrics: Metrics,
    health: Health,
    visitors: Visitors,
    drain: DrainRoutes | None = None,
) -> Console:
    """Add the operator's page, the JSON behind it, and the routes of monitoring."""
    operator, live = Operator(mesh, network, decisions), Live(mesh, network, decisions)
    site.add("/v1/brokers", visitors.only(operator.brokers))
    site.add("/v1/brokers/{broker}", visitors.changes("forget broker", operator.forget), "DELETE")
    site.add("/v1/topics", visitors.only(operator.topics))
    site.add("/v1/trees", visitors.only(operator.trees))
    site.add("/v1/trace/{topic:.+}", visitors.only(operator.trace))
    site.add("/v1/addresses/{address}", visitors.only(operator.address))
    site.add("/v1/decisions", visitors.only(operator.decisions))
    site.add("/v1/live", visitors.only(live.handle))
    site.add("/v1/login", visitors.login, "POST")
    if drain is not None:
        site.add("/v1/drain", visitors.only(drain.show))
        site.add("/v1/drain", visitors.changes("drain", drain.act), "POST")
    site.add("/metrics", visitors.only(metrics.handle))
    site.add("/healthz", health.alive)
    site.add("/readyz", health.ready)
    site.add("/", _file("index.html"))
    site.add("/example", _file("example.html"))
    site.add("/static/{file:.+}", _static)
    return Console(live, network, decisions)


def add_document(site: WebServer) -> None:
    """Add the route ``/openapi.json``."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=_document(), content_type="application/json")

    site.add("/openapi.json", answer)


@cache
def _document() -> bytes:
    from saps.frontend.web.http.openapi import document  # imported late: it takes 1.4 MiB, and few brokers need it

    return msgspec.json.encode(document(__version__))


def _file(name: str) -> Handler:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / name, headers=PAGE)

    return answer


async def _static(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(_page(request.match_info["file"]), headers=PAGE)


def _page(file: str) -> Path:
    """Return the path of a file of the pages. Raises `ProblemError` (404) if there is none."""
    path = Path(os.path.normpath(STATIC / file))  # not resolved: some installers link each file
    if not path.is_relative_to(STATIC) or not path.is_file():
        raise ProblemError(404, "Not Found")
    return path
