"""A broker's Web port: joins its parts with the running broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from saps.broker.metrics import samples
from saps.config import SettingError
from saps.config.sources_io import token
from saps.frontend.web.frontend import Console, add_console, add_document, add_topics, web_server
from saps.frontend.web.http.metrics import Health, Metrics, Sample
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import Visitors
from saps.frontend.web.mesh.drain import DrainRoutes
from saps.frontend.web.mesh.mesh import Mesh
from saps.frontend.web.mesh.network import DecisionView, NetworkView
from saps.frontend.web.operations.bans import BanRoutes
from saps.frontend.web.operations.routes import add_operations
from saps.ofm.northbound.driver.client import Client
from saps.runtime import process
from saps.runtime.compiled import modules
from saps.version import __version__

if TYPE_CHECKING:
    from saps.broker.operations import Operations
    from saps.broker.parts import Parts


class BrokerWeb:
    """The Web port of one broker. Call `listen` to open it, and later `stop_listening` and `close`."""

    def __init__(self, broker: Parts, operations: Operations) -> None:
        """Raises `SettingError` if a token cannot be read."""
        settings = broker.settings.web
        self._broker = broker
        controller = token("web.controller_token_file", settings.controller_token_file)
        secret = token("web.ofgate_token_file", settings.ofgate_token_file)
        network = NetworkView(Client(settings.controller, token=controller or None) if settings.controller else None)
        decisions = DecisionView(settings.ofgate, secret)
        mesh = Mesh(broker.ref.name, broker.agents, self._act, network.trees)
        about = {"broker": broker.ref.name, "cluster": broker.ref.cluster, "version": __version__, "modules": modules}
        self._site = web_server(broker.server, settings.origins)
        self._clients = add_topics(self._site, broker.server)
        visitors = Visitors(broker.access, operations.audit)
        self._console: Console = add_console(
            self._site,
            mesh,
            network,
            decisions,
            Metrics(self._samples, about),
            Health(partial(obstacles, broker)),
            visitors,
            DrainRoutes(lambda: broker.drain, mesh.call),
        )
        bans = BanRoutes(broker.ref.name, operations.bans)
        add_operations(self._site, visitors, mesh.call, bans, operations.retain)
        add_document(self._site)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The hosts and ports on which it listens."""
        return self._site.addresses

    @property
    def routes(self) -> set[tuple[str, str]]:
        """The method and path of every route."""
        return self._site.routes

    async def listen(self) -> None:
        """Listen on all addresses of `web.listen`. Raises `SettingError` if one cannot be bound."""
        broker, settings = self._broker, self._broker.settings
        context = broker.server.tls_context if settings.web.tls else None
        if context is not None:
            broker.server.on_renewed.append(self._site.renew_tls)
        for address in settings.web.listen:
            try:
                await self._site.listen(*address, context)
            except OSError as error:
                raise SettingError("web.listen", process.refused(address, error)) from None

    def _samples(self) -> Iterator[Sample]:
        return samples(self._broker, ready=not obstacles(self._broker), origins_refused=self._site.origins.refused)

    def _act(self, action: Callable[[], None]) -> None:
        """Run an action on the overlay node. Raises `ProblemError` (503) while the broker is not in the mesh."""
        if not self._broker.mesh.node.joined:
            raise ProblemError(503, "Not in the mesh", "the broker has not joined yet, or is leaving")
        self._broker.mesh.act(action)

    def stop_listening(self) -> None:
        """Stop accepting connections."""
        self._site.stop_listening()

    async def close(self) -> None:
        """Close all connections. Call it after the MQTT server has stopped."""
        self._clients.close()
        await self._console.close()
        await self._site.close()


def obstacles(broker: Parts) -> list[str]:
    """Return the reasons why the broker cannot serve clients now; empty if it can."""
    found = [] if broker.mesh.node.joined else ["it has not joined the mesh yet, or is leaving"]
    if not found and not broker.mesh.ready.is_set():
        found.append("the mesh does not know its sessions yet")
    if broker.server.frontend.sessions.leaving:
        found.append("it is stopping")
    if broker.drain is not None and broker.drain.drain.draining:
        found.append("it is drained")
    if broker.server.frontend.storage.broken:
        found.append("nothing can be stored")
    return found
