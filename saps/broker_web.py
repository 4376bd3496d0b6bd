"""A broker's Web port: its parts, joined with the running broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from saps import __version__, process
from saps.compiled import modules
from saps.config import SettingError
from saps.frontend.mqtt.counts import totals
from saps.frontend.web.drain import DrainDoor
from saps.frontend.web.frontend import Console, add_console, add_document, add_topics, web_server
from saps.frontend.web.mesh import Mesh
from saps.frontend.web.metrics import Health, Metrics, Sample
from saps.frontend.web.network import DecisionView, NetworkView
from saps.frontend.web.problems import ProblemError
from saps.frontend.web.visitors import Visitors
from saps.ofm.northbound.client import Client

if TYPE_CHECKING:
    from saps.broker import Broker


class BrokerWeb:
    """From `listen` to `close`."""

    def __init__(self, broker: Broker) -> None:
        """Raises `SettingError` if a token cannot be read."""
        settings = broker.settings.web
        self._broker = broker
        token = _token("web.controller_token_file", settings.controller_token_file)
        secret = _token("web.ofgate_token_file", settings.ofgate_token_file)
        network = NetworkView(Client(settings.controller, token=token or None) if settings.controller else None)
        decisions = DecisionView(settings.ofgate, secret)
        mesh = Mesh(broker.ref.name, broker.agents, self._act, network.trees)
        about = {"broker": broker.ref.name, "cluster": broker.ref.cluster, "version": __version__, "modules": modules}
        self._site = web_server(broker.server, settings.origins)
        self._clients = add_topics(self._site, broker.server, settings.origins)
        self._console: Console = add_console(
            self._site,
            mesh,
            network,
            decisions,
            Metrics(partial(samples, broker), about),
            Health(partial(obstacles, broker)),
            Visitors(broker.access),
            DrainDoor(lambda: broker.drain),
        )
        add_document(self._site)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens."""
        return self._site.addresses

    @property
    def routes(self) -> set[tuple[str, str]]:
        """Method and path of all that is answered."""
        return self._site.routes

    async def listen(self) -> None:
        """Raises `SettingError` if an address cannot be had."""
        broker, settings = self._broker, self._broker.settings
        context = broker.server.tls_context if settings.web.tls else None
        if context is not None:
            broker.server.on_renewed.append(self._site.renew_tls)
        for address in settings.web.listen:
            try:
                await self._site.listen(*address, context)
            except OSError as error:
                raise SettingError("web.listen", process.refused(address, error)) from None

    def _act(self, action: Callable[[], None]) -> None:
        """Run a call at the overlay's node. Raises `ProblemError` while the broker is not in the mesh."""
        if not self._broker.mesh.node.joined:
            raise ProblemError(503, "Not in the mesh", "the broker has not joined yet, or is leaving")
        self._broker.mesh.act(action)

    def stop_listening(self) -> None:
        """Take no new connections."""
        self._site.stop_listening()

    async def close(self) -> None:
        """End all connections; after the MQTT server has stopped."""
        self._clients.close()
        await self._console.close()
        await self._site.close()


def obstacles(broker: Broker) -> list[str]:
    """What keeps the broker from serving clients now."""
    found = [] if broker.mesh.node.joined else ["it has not joined the mesh yet, or is leaving"]
    if not found and not broker.mesh.ready.is_set():
        found.append("the mesh does not know its sessions yet")
    if broker.server.frontend.leaving:
        found.append("it is stopping")
    if broker.drain is not None and broker.drain.drain.draining:
        found.append("it is drained")
    if broker.server.frontend.broken:
        found.append("nothing can be stored")
    return found


def samples(broker: Broker) -> Iterator[Sample]:
    """What a broker counts, for `Metrics`."""
    frontend, hub = broker.server.frontend, broker.hub
    found, counts, node = totals(frontend), frontend.counts, broker.mesh.node
    sockets = {name: value for source in broker.server.sources for name, value in source().items()}

    def total(name: str, text: str, value: float) -> Sample:
        return Sample(name, text, value, counter=True)

    yield total("messages_published", "Messages published by clients here.", hub.published)
    yield total("messages_received", "Messages that came from other brokers.", hub.received)
    yield total("messages_delivered", "Copies of messages handed to clients here.", hub.delivered)
    yield total("messages_dropped", "Messages given up for clients that were away or too slow.", found.dropped)
    yield total("bytes_received", "Bytes from clients, on the wire.", float(sockets["broker/bytes/received"]))
    yield total("bytes_sent", "Bytes to clients, on the wire.", float(sockets["broker/bytes/sent"]))
    yield total("connects", "CONNECT packets.", counts.connects)
    yield total("clients_refused", "Clients turned away by a limit.", counts.refused)
    yield total("clients_too_slow", "Clients disconnected as their queues were full.", counts.too_slow)
    yield total("sessions_expired", "Sessions whose clients did not come back.", counts.expired)
    yield Sample("clients_connected", "Clients connected.", found.connected)
    yield Sample("sessions", "Sessions of clients here or away.", found.connected + found.away)
    yield Sample("subscriptions", "Subscriptions of clients here.", found.subscriptions)
    yield Sample("messages_inflight", "Messages sent to clients and not acknowledged.", found.inflight)
    yield Sample("messages_queued", "Messages that wait for clients.", found.queued)
    yield Sample("queued_bytes", "Bytes kept for slow clients.", frontend.budget.used)
    yield Sample("retained_messages", "Retained messages known here.", len(hub.retained))
    yield Sample("agents", "User agents: publishers and subscribers.", len(hub.agents))
    holders = dict.fromkeys(("links", "storage", "upstream"), 0.0) | dict.fromkeys(broker.holders, 1.0)
    yield Sample("publishers_held", "1 while publishers are not read because of this.", holders, "by")
    streams = node.presence.streams.values()
    by_tree = sum(stream.tree is not None for stream in streams)
    modes = {"alm": float(len(streams) - by_tree), "ofm": float(by_tree)}
    yield Sample("topics_published", "Topics this broker publishes to, by how their messages leave.", modes, "mode")
    yield Sample(
        "filters", "Topic filters this broker has registered in the mesh.", len(node.subscriptions.registrations)
    )
    yield Sample("overlay_links", "Brokers it has overlay links to.", len(broker.watch.linked))
    yield total("alm_messages", "Publications sent to other brokers by ALM, own and passed on.", node.multicast.sent)
    missed = node.multicast.missed
    yield Sample("missed_messages", "Publications kept for brokers that are taken for dead.", missed.messages)
    yield Sample("missed_bytes", "Bytes that these take.", missed.bytes)
    yield total(
        "missed_dropped", "Publications given up, for brokers taken for dead, for want of room.", missed.dropped
    )
    if broker.ofm is not None:
        datagrams = {kind: float(number) for kind, number in broker.ofm.datapath.counts.items()}
        yield Sample("ofm_datagrams", "What happened to OFM datagrams.", datagrams, "what", counter=True)


def _token(setting: str, path: str) -> str:
    """The first line of a file. Raises `SettingError`."""
    if not path:
        return ""
    try:
        return Path(path).read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise SettingError(setting, f"cannot read {path}: {error}") from None
