"""A broker: joins the overlay node on real links and the real clock, the hub, and the MQTT frontend."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

import msgspec

from saps.agents.api import AgentRegistry
from saps.broker.drain import BrokerDrain
from saps.broker.node_driver import LiveMesh
from saps.broker.operations import Operations
from saps.broker.options import Options
from saps.broker.start import Entrance
from saps.broker.status import BrokerWatch
from saps.config import Address, BrokerSettings, SettingError
from saps.drain.values import Order
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.access_files import AccessError
from saps.frontend.mqtt.driver.server import MqttServer
from saps.identity.plain import sealed
from saps.links import Links
from saps.overlay.delivery.express import by_express
from saps.overlay.node import OverlayNode
from saps.overlay.node_port import Driver
from saps.overlay.rendezvous.domains import Domains
from saps.overlay.ring.keys import BrokerRef
from saps.policy.files_io import PolicyFiles
from saps.routing.hub import Hub
from saps.runtime import process
from saps.runtime.compiled import Modules, modules
from saps.runtime.drain_signals import DRAINING
from saps.runtime.http_server import without_client
from saps.runtime.logs import configure_logging
from saps.runtime.memory import keep_freed
from saps.runtime.systemd import announce
from saps.storage.driver.store import Store
from saps.storage.witness import WITNESS, Witness

if TYPE_CHECKING:
    from saps.agents.live_io import LiveOfm
    from saps.broker.web import BrokerWeb
    from saps.frontend.mqtt.driver.login_function import Authenticate
    from saps.frontend.upstream.bridge_io import Upstream
    from saps.identity.live import LinkIdentity

logger = logging.getLogger(__name__)


class Broker:
    """One broker of the mesh, made from its settings. Call `start` once, and later `stop`."""

    has_sessions: ClassVar[bool] = True
    """Whether sessions move here, and copies of others' are held here."""

    def __init__(self, settings: BrokerSettings, authenticate: Authenticate | None = None) -> None:
        """`authenticate` decides logins in the place of an HTTP service."""
        self.settings = settings
        self.options = Options(self)
        self.hub = Hub()
        self.access = _access(settings, authenticate)
        self.server = MqttServer(
            self.hub, settings.limits.limits(), access=self.access, sys_interval=settings.sys_interval
        )
        self.web: BrokerWeb | None = None
        self.watch = BrokerWatch(self)
        self.links = _links(settings, BrokerRef("", 0, "", ""), self._congestion)
        self.agents = AgentRegistry()
        self._holders: set[str] = set()
        """The causes that hold publishers back at present."""
        self.drain: BrokerDrain | None = None
        """The drain, which hands clients and sessions over before the broker leaves; None before the start."""
        self.operations: Operations | None = None
        """The operators' access to clients; None before the start."""
        self._leaving: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self, on_left: Callable[[], None] = lambda: None) -> None:
        """Listen, join the mesh or begin one, and serve clients. Return once the mesh knows the stored sessions.

        `on_left` runs when a drain has made the broker leave the mesh; the caller must then call `stop`. Raises
        `SettingError` if an address cannot be bound, or the mesh does not accept this broker."""
        self.options.connect()
        await self._listen_for_brokers()
        entrance = Entrance(self.settings, self.links)
        self.options.ends.append(entrance.close)
        try:
            contact = await entrance.decide()
        except BaseException:
            entrance.close()
            raise
        self.mesh = LiveMesh(self.links, self._node)
        node = self.mesh.node
        self.hub.mesh = node.mesh
        self.server.sessions = node.sessions if self.has_sessions else None
        self.server.sources.append(self.watch.values)
        self.agents.bind(node.agents, self.hub.agents)
        self.agents.host(WITNESS, Witness())
        self.options.add(node, begins=contact is None)
        await self._listen_for_clients()
        self.drain = BrokerDrain(self, on_left)
        await entrance.join(self.mesh, contact)
        if self.operations is not None:
            self.operations.begin()
        self.options.begin(node)
        await self.mesh.ready.wait()

    async def _listen_for_brokers(self) -> None:
        settings, listen = self.settings, self.settings.overlay.listen
        incarnation = time.time_ns() // 1_000_000
        self.links.side.me = BrokerRef(settings.name, incarnation, str(listen), settings.cluster, settings.zone)
        self.links.side.speaks = settings.links.highest_version
        if sealed(settings):
            from saps.identity.chosen import link_identity  # here: brokers with plain links need none of it

            self.links.side.identity = link_identity(settings)
        self.links.side.hidden = True
        try:
            port = await self.links.listen(*listen)
        except OSError as error:
            raise SettingError("overlay.listen", process.refused(listen, error)) from None
        self.links.side.me = msgspec.structs.replace(self.ref, address=str(Address(listen.host, port)))

    def _node(self, driver: Driver) -> OverlayNode:
        settings, overlay = self.settings, self.settings.overlay
        node = OverlayNode(
            self.ref,
            self.hub,
            monotonic,
            driver,
            order=overlay.key_order(),
            detector=overlay.detector(),
            call_agents=self.agents.answer,
            tell=_tell_of_brokers,
            leave_timeout=overlay.leave_timeout,
            design=overlay.design(),
            takeover_timeout=overlay.takeover_timeout,
            copies=settings.session.copies,
        )
        node.rendezvous.ways.domains = Domains(settings.ofm.domains)
        if self.options.tracing is not None:
            self.hub.tracer = node.delivery.multicast.tracer = self.options.tracing.tracer
        return node

    async def _listen_for_clients(self) -> None:
        settings = self.settings
        try:
            await self.server.start(*settings.mqtt)
        except OSError as error:
            raise SettingError("mqtt", process.refused(settings.mqtt, error)) from None
        self.operations = Operations(self)
        self.options.ends.append(self.operations.close)
        for address in settings.tls.listen:
            try:
                await self.server.start_tls(*address)
            except OSError as error:
                raise SettingError("tls.listen", process.refused(address, error)) from None
        for address in settings.proxy.listen:
            try:
                await self.server.start_proxy(*address, settings.proxy.options())
            except OSError as error:
                raise SettingError("proxy.listen", process.refused(address, error)) from None
        if settings.web.listen:
            self.web = _web(self, self.operations)
            await self.web.listen()

    @property
    def ref(self) -> BrokerRef:
        """The reference by which other brokers know this one."""
        return self.links.side.me

    @property
    def upstream(self) -> Upstream | None:
        return self.options.upstream

    @property
    def ofm(self) -> LiveOfm | None:
        return self.options.ofm

    @property
    def store(self) -> Store | None:
        return self.options.store

    @property
    def policy(self) -> PolicyFiles | None:
        return self.options.policy

    @property
    def identity(self) -> LinkIdentity | None:
        """The certificates that links present and require; None for plain links."""
        return self.links.side.identity

    def reload(self) -> None:
        """Reload the files of access control, policies and the links' identity (SIGHUP)."""
        reloading = self.server.reload()
        if self.operations is not None:
            self.operations.reload(reloading)
        if self.identity is not None:
            self.identity.reload()
            self.links.review()
        if self.policy is not None:
            self.policy.reload()

    def order(self, order: Order) -> None:
        """Obey an operator's order to drain or to cancel a drain (SIGUSR1, SIGUSR2), and record it in the audit log."""
        if self.drain is not None and self.operations is not None:
            self.operations.audit.record(
                "drain", source="signal", subject=self.ref.name, after=msgspec.to_builtins(order)
            )
            self.drain.obey(order)

    async def stop(self) -> None:
        """Disconnect the clients with DISCONNECT, leave the mesh in order, and close the links. A second call does
        nothing.

        If cancelled, it waits for no other broker: it cuts clients and links, and writes pending changes to the
        file."""
        if self._stopped:
            return
        self._stopped = True
        try:
            if self.web is not None:
                self.web.stop_listening()
            if self._leaving is None:
                await self.server.stop()
            if self.web is not None:
                await self.web.close()
            await self.leave()
        finally:
            await process.to_the_end(self._close())

    async def _close(self) -> None:
        """Close all parts that are still open, even after a cancelled `stop`."""
        if self._leaving is not None and not self._leaving.done():
            self._leaving.cancel()
            await asyncio.wait({self._leaving})
        if self.upstream is not None:
            await self.upstream.close()
        if self.web is not None:
            await self.web.close()
        if self.drain is not None:
            self.drain.close()
        if self.ofm is not None:
            self.ofm.close()
        self.options.end()
        self.mesh.close()
        await self.links.close()
        if self.options.tracing is not None:
            await self.options.tracing.close()
        if self.store is not None:
            await self.store.close()

    async def leave(self) -> None:
        """Disconnect the clients with DISCONNECT, and leave the mesh in order. The Web port stays open; the caller
        must call `stop` afterwards."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        await self.server.stop()
        if self.upstream is not None:
            await self.upstream.stop()
        if self.options.statistics is not None:
            await self.options.statistics.stop()
        if self.mesh.node.joined:
            await self.mesh.leave()

    def ready_line(self) -> str:
        """Return the line that reports the broker's name, cluster and addresses once it is ready."""
        host, port = self.server.address
        return (
            f"ready name={self.ref.name} cluster={self.ref.cluster} mqtt={Address(host, port)} "
            f"overlay={self.ref.address}"
            + "".join(f" mqtts={Address(*at)}" for at in self.server.tls_addresses)
            + "".join(f" proxy={Address(*at)}" for at in self.server.proxy_addresses)
            + "".join(f" web={Address(*at)}" for at in (self.web.addresses if self.web is not None else ()))
        )

    def _congestion(self, congested: bool) -> None:
        self.hold("links", congested)
        if self.upstream is not None:
            self.upstream.congested = congested

    @property
    def holders(self) -> frozenset[str]:
        """The causes that hold publishers back at present (flow control): links, storage, upstream."""
        return frozenset(self._holders)

    def hold(self, holder: str, held: bool) -> None:
        """Record that a cause holds publishers back, or no longer does. Publishers are read while there is no cause."""
        (self._holders.add if held else self._holders.discard)(holder)
        if self._holders:
            self.server.pause_publishers()
        else:
            self.server.resume_publishers()


def run(settings: BrokerSettings) -> int:
    """Run a broker until SIGTERM or SIGINT. Return the exit status. Raises `SettingError` if it cannot start."""
    configure_logging(settings.log_level)
    return process.run(lambda stop: _serve(settings, stop))


async def _serve(settings: BrokerSettings, stop: asyncio.Event) -> int:
    """Start a broker, wait for `stop`, and stop it. Return the exit status. Raises `SettingError` if it cannot
    start."""
    process.allow_many_files()
    keep_freed()
    if modules is Modules.STALE:
        logger.warning("compiled modules are older than their sources, so the slower sources run: run make setup")
    broker = Broker(settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, broker.reload)
    for number, order in DRAINING.items():
        asyncio.get_running_loop().add_signal_handler(number, broker.order, order)
    if not await process.started(broker.start(stop.set), stop):
        return 0
    process.calm_garbage_collector()
    announce(broker.ready_line(), stop)
    await stop.wait()
    logger.info("%s leaves", settings.name)
    await broker.stop()
    return 0


def _links(settings: BrokerSettings, me: BrokerRef, on_congestion: Callable[[bool], None]) -> Links:
    """Make the links to other brokers, with an express lane for priority topics."""
    express, dscp = None, 0
    if settings.priority.topics:
        priorities = settings.priority.priorities()
        express, dscp = partial(by_express, urgent=priorities.urgent), priorities.dscp
    order = settings.overlay.key_order().value
    return Links(me, order, on_congestion=on_congestion, express=express, dscp=dscp)


def _tell_of_brokers(line: str, warning: bool) -> None:
    logger.log(logging.WARNING if warning else logging.INFO, "%s", line)


def _web(broker: Broker, operations: Operations) -> BrokerWeb:
    """Make the Web port. Raises `SettingError` if a token cannot be read."""
    without_client()
    from saps.broker.web import BrokerWeb  # here: brokers without a Web port do not load aiohttp

    topics, node = broker.settings.web.topics, broker.mesh.node
    if topics and broker.hub.statistics is None:
        node.delivery.multicast.count(broker.hub.count(topics))
    return BrokerWeb(broker, operations)


def _access(settings: BrokerSettings, authenticate: Authenticate | None) -> AccessControl:
    """Make access control from the settings. Raises `SettingError` for the first of its files that has a fault."""
    try:
        options, exposed = settings.auth.options(), settings.exposed()
        return AccessControl(options, settings.tls_options(), exposed=exposed, authenticate=authenticate)
    except AccessError as error:
        setting = error.faults[0].setting
        reasons = [fault.reason for fault in error.faults if fault.setting == setting]
        raise SettingError(setting, "; ".join(reasons)) from None
