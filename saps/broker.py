"""A broker: the overlay node on real links and the real clock, the hub, and the MQTT frontend."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from saps import process
from saps.agents.api import AgentRegistry
from saps.batch import Batch
from saps.broker_drain import BrokerDrain
from saps.broker_status import BrokerWatch
from saps.compiled import Modules, modules
from saps.config import Address, BrokerSettings, SettingError
from saps.drain.signals import DRAINING
from saps.drain.values import Order
from saps.frontend.mqtt.auth.control import AccessControl
from saps.frontend.mqtt.auth.files import AccessError
from saps.frontend.mqtt.server import MqttServer
from saps.frontend.web.status import STATUS, StatusAgent
from saps.hub import Hub
from saps.identity.plain import say_plain, sealed
from saps.links import LinkError, Links
from saps.logs import configure_logging
from saps.memory import keep_freed
from saps.mesh import Arrival, Done, Recalled, SessionHost, TopicRoute
from saps.messages import Message, Properties
from saps.overlay.domains import Domains
from saps.overlay.express import by_express
from saps.overlay.frames import Frame
from saps.overlay.keys import BrokerRef
from saps.overlay.node import OverlayNode
from saps.policy.files import PolicyFiles
from saps.policy.model import Policy
from saps.priority import Priorities
from saps.service_manager import announce
from saps.storage.database import StorageError
from saps.storage.mesh import HeldFrames, keep_retained, restore_retained
from saps.storage.store import Store

if TYPE_CHECKING:
    from saps.agents.live import LiveOfm
    from saps.broker_web import BrokerWeb
    from saps.frontend.upstream.driver import Upstream
    from saps.identity.live import LinkIdentity
    from saps.statistics.agent import MonitorAgent
    from saps.statistics.files import StatisticsFiles
    from saps.tracing.live import LiveTracing

logger = logging.getLogger(__name__)

RETRY_JOIN = 0.2
"""Seconds between two rounds over the addresses of `join`."""


class LiveMesh:
    """An `OverlayNode` driven by the event loop. A `saps.mesh.Mesh` for the hub."""

    def __init__(self, node: OverlayNode, links: Links) -> None:
        self.node = node
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self.ready = asyncio.Event()
        """It has been joined, and knows which sessions are here."""
        self.gate: HeldFrames | None = None
        """With storage: acknowledgements wait for it."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        node.now = self._loop.time()
        node.on_output = self._soon
        node.on_dead = links.drop
        links.on_frames = self._frames
        links.on_session = node.session_started
        links.on_express = node.express_started
        links.on_down = self._down
        links.on_whois = self._whois
        links.on_answer = self._answer

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        self.node.now = self._loop.time()
        self.node.subscribe(topic_filter, done)

    def unsubscribe(self, topic_filter: str) -> None:
        self.node.now = self._loop.time()
        self.node.unsubscribe(topic_filter)

    def route(self, topic: str) -> TopicRoute:
        return self.node.route(topic)

    def publish(self, batch: Batch, done: Done | None) -> None:
        self.node.now = self._loop.time()
        self.node.publish(batch, done)

    def stamp(self, properties: Properties | None) -> Properties | None:
        self.node.now = self._loop.time()
        return self.node.stamp(properties)

    def entrust(self, client: str, will: Message | None, delay: float) -> None:
        self.node.now = self._loop.time()
        self.node.entrust(client, will, delay)

    def share(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        self.node.now = self._loop.time()
        self.node.share(topic_filter, message, settled)

    def recall(self, topic_filter: str, done: Callable[[Sequence[Recalled]], None]) -> None:
        self.node.now = self._loop.time()
        self.node.recall(topic_filter, done)

    def act(self, action: Callable[[], None]) -> None:
        """Do something to the node, or have an agent do it, at the present time."""
        self.node.now = self._loop.time()
        action()
        self._soon()

    def datagrams(self, datagrams: list[bytes]) -> None:
        """Datagrams from OpenFlow trees."""
        self.node.now = self._loop.time()
        for datagram in datagrams:
            self.node.receive_datagram(datagram)

    async def join(self, contact: BrokerRef | None) -> None:
        """Join the mesh through a broker, or begin one. Returns when joined."""
        joined = asyncio.Event()
        self.node.now = self._loop.time()
        self.node.start(contact, joined.set, self.ready.set)
        self._soon()
        await joined.wait()

    async def leave(self) -> None:
        """Leave the mesh in order."""
        left = asyncio.Event()
        self.node.now = self._loop.time()
        self.node.leave(left.set)
        self._soon()
        await left.wait()
        self._flush()

    def close(self) -> None:
        """The links end: the node is not woken any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("-inf")

    def _soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        send, gate = self._links.send, self.gate
        for to, frame in self.node.take():
            if gate is None or not gate.holds(to, frame):
                send(to, frame)
        self._links.flush()
        self._arm()

    def send_now(self, frames: list[tuple[BrokerRef, Frame]]) -> None:
        """Send frames that have been held."""
        for to, frame in frames:
            self._links.send(to, frame)
        self._links.flush()

    def _arm(self) -> None:
        deadline = self.node.deadline
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self.node.now = self._loop.time()
        try:
            self.node.wake()
        finally:  # a fault in one timer does not stop the others
            self._flush()

    def _frames(self, sender: BrokerRef, frames: list[Frame]) -> None:
        self.node.now = self._loop.time()
        if not frames:
            self.node.met(sender)
        self.node.receive(sender, frames)

    def _whois(self, name: str, answer: Callable[[BrokerRef | None], None]) -> None:
        self.node.now = self._loop.time()
        heard = [ref for ref in self.node.roll_calls.acquaintances if ref.name == name]

        def found(broker: BrokerRef | None) -> None:
            known = heard if broker is None else [broker, *heard]
            answer(max(known, key=lambda ref: ref.incarnation, default=None))

        self.node.whois(name, found)

    def _answer(self, peer: BrokerRef, frame: Frame) -> None:
        self.node.now = self._loop.time()
        self.node.answered_for(peer, frame)
        self._soon()

    def _down(self, peer: BrokerRef) -> None:
        self.node.now = self._loop.time()
        self.node.link_down(peer)
        self._soon()


class LiveSessions:
    """The sessions of the mesh, at the present time. (A `saps.mesh.HostedSessions`.)"""

    def __init__(self, mesh: LiveMesh) -> None:
        self._mesh = mesh
        self._node = mesh.node

    @property
    def host(self) -> SessionHost | None:
        return self._node.sessions.host

    @host.setter
    def host(self, host: SessionHost | None) -> None:
        self._node.sessions.host = host

    def at_home(self, client: str) -> bool:
        return self._node.at_home(client)

    def claimed(self, client: str) -> bool:
        return self._node.claimed(client)

    def claim(self, client: str, user: str | None, keep: bool, arrived: Callable[[Arrival], None]) -> None:
        self._mesh.act(partial(self._node.claim, client, user, keep, arrived))

    def release(self, client: str) -> None:
        self._mesh.act(partial(self._node.release, client))

    def restored(self, clients: Iterable[str]) -> None:
        self._mesh.act(partial(self._node.restored, list(clients)))


class Broker:
    """One broker of the mesh, as set up by its settings."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.tracing = _tracing(settings)
        self.hub = Hub()
        self.access = _access(settings)
        self.server = MqttServer(
            self.hub, settings.limits.limits(), access=self.access, sys_interval=settings.sys_interval
        )
        self.web: BrokerWeb | None = None
        self.watch = BrokerWatch(self)
        self.ref = BrokerRef("", 0, "", "")
        self.agents = AgentRegistry()
        self.upstream: Upstream | None = None
        self.ofm: LiveOfm | None = None
        self.statistics: StatisticsFiles | None = None
        self.monitor: MonitorAgent | None = None
        self.store: Store | None = None
        self.policy: PolicyFiles | None = None
        self.identity: LinkIdentity | None = None
        """What the links show and demand; None: they are plain."""
        self._watching: asyncio.Task[None] | None = None
        self._holders: set[str] = set()
        """What holds publishers back: the links to other brokers, the upstream."""
        self.drain: BrokerDrain | None = None
        """Lets clients and sessions go before it leaves; once started."""
        self._leaving: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Listen, join the mesh, serve clients; returns when the mesh knows of the stored sessions, too. Raises
        `SettingError` if an address cannot be had or nobody answers."""
        settings, overlay = self.settings, self.settings.overlay
        if settings.upstream.url:
            from saps.frontend.upstream.driver import Upstream  # here: most brokers need none of its libraries

            self.upstream = Upstream(self.hub, settings.upstream, settings.name, partial(self._hold, "upstream"))
        order = overlay.key_order()
        self.ref = BrokerRef(settings.name, time.time_ns() // 1_000_000, str(overlay.listen), settings.cluster)
        self.links = Links(
            self.ref,
            order.value,
            on_frames=lambda sender, frames: None,
            on_session=lambda sender: None,
            on_down=lambda peer: None,
            on_congestion=self._congestion,
            on_whois=lambda name, answer: None,
        )
        self.links.speaks = settings.links.highest_version
        if sealed(settings):
            from saps.identity.chosen import link_identity  # here: brokers with plain links need none of it

            self.identity = self.links.identity = link_identity(settings)
        contact = await self._contact() if settings.join else None
        try:
            port = await self.links.listen(*overlay.listen)
        except OSError as error:
            raise SettingError("overlay.listen", process.refused(overlay.listen, error)) from None
        self.ref = self.links.me = BrokerRef(
            settings.name, self.ref.incarnation, str(Address(overlay.listen.host, port)), settings.cluster
        )
        node = OverlayNode(
            self.ref,
            self.hub,
            order=order,
            detector=overlay.detector(),
            call_agents=self.agents.answer,
            leave_timeout=overlay.leave_timeout,
            design=overlay.design(),
            takeover_timeout=overlay.takeover_timeout,
        )
        if self.tracing is not None:
            self.hub.tracer = node.multicast.tracer = self.tracing.tracer
        self.mesh = LiveMesh(node, self.links)
        self.hub.mesh = self.mesh
        self.server.sessions = LiveSessions(self.mesh)
        self.server.sources.append(self.watch.values)
        self.agents.bind(node, self.hub.agents)
        node.presence.domains = Domains(settings.ofm.domains)
        if settings.ofm.listen:
            from saps.agents.live import LiveOfm  # here: most brokers need none of it

            self.ofm = LiveOfm(settings.ofm, self.mesh.datagrams)
            self.ofm.listen()
            self.ofm.attach(node, self.agents)
        if settings.policy.file:
            self.policy = PolicyFiles("policy.file", settings.policy.file, partial(self._obey, node))
        if settings.priority.topics:
            self._prioritise(node, settings.priority.priorities())
        if settings.monitoring.directory:
            self.statistics = _statistics(self, node)
        if settings.storage.file:
            self.store = self.server.store = _store(self)
        try:
            await self.server.start(*settings.mqtt)
        except OSError as error:
            raise SettingError("mqtt", process.refused(settings.mqtt, error)) from None
        for address in settings.tls.listen:
            try:
                await self.server.start_tls(*address)
            except OSError as error:
                raise SettingError("tls.listen", process.refused(address, error)) from None
        if settings.web.listen:
            self.web = _web(self)
            await self.web.listen()
        self.drain = BrokerDrain(self)
        try:
            async with asyncio.timeout(overlay.join_timeout):
                await self.mesh.join(contact)
        except TimeoutError:
            raise SettingError("join", f"{contact.name if contact else ''} does not let this broker in") from None
        if self.store is not None:
            self.mesh.act(partial(restore_retained, self.store, node))
        if self.upstream is not None:
            self.upstream.start()
        if self.ofm is not None:
            self.mesh.act(self.ofm.agent.start)
        status = StatusAgent(settings.name, self.watch, time.monotonic, lambda: self.hub.statistics)
        self.agents.host(STATUS, status)
        if self.statistics is not None:
            self.statistics.start()
            self.mesh.act(lambda: self.agents.register("monitor", self.monitor))
        if self.identity is not None:
            self._watching = asyncio.create_task(self.identity.watch(self.links.review))
        else:
            say_plain(settings)
        await self.mesh.ready.wait()

    def _obey(self, node: OverlayNode, policy: Policy) -> None:
        """From now on this policy holds for what leaves this broker, and for its subscribers."""
        self.hub.obey(lambda topic: policy.verdict(topic).receives(self.ref))
        self.mesh.act(partial(node.obey, policy))

    def reload(self) -> None:
        """Read the files of access control, policies and the links' identity again (SIGHUP)."""
        self.server.reload()
        if self.identity is not None:
            self.identity.reload()
            self.links.review()
        if self.policy is not None:
            self.policy.reload()

    def order(self, order: Order) -> None:
        """What an operator wants of this process (SIGUSR1, SIGUSR2)."""
        if self.drain is not None:
            self.drain.obey(order)

    def _prioritise(self, node: OverlayNode, priorities: Priorities) -> None:
        """Priority topics go by lanes of their own, and whoever publishes to nothing else is never held back."""
        self.links.express = partial(by_express, urgent=priorities.urgent)
        self.links.dscp = priorities.dscp
        node.multicast.prioritise(priorities.urgent)
        self.hub.priorities = priorities
        if self.ofm is not None:
            self.ofm.datapath.mark = lambda topic: priorities.dscp if priorities.urgent(topic) else 0

    async def _contact(self) -> BrokerRef:
        """A broker of the mesh, from the addresses to join. Nobody in that mesh has this broker's name."""
        settings = self.settings
        faults: dict[Address, str] = {}
        give_up = time.monotonic() + settings.overlay.join_timeout
        while True:
            for address in settings.join:
                try:
                    contact = await self.links.meet(*address)
                    twin = await self._twin(address, contact)
                except LinkError as error:
                    faults[address] = str(error)
                    continue
                if twin is None:
                    return contact
                faults[address] = f"there is a broker with the same name, {twin.name!r}, at {twin.address}"
            if time.monotonic() >= give_up:
                listed = "; ".join(f"{address}: {fault}" for address, fault in faults.items())
                raise SettingError("join", f"no broker can be reached: {listed}")
            await asyncio.sleep(RETRY_JOIN)

    async def _twin(self, address: Address, contact: BrokerRef) -> BrokerRef | None:
        """Who has this broker's name in the contact's mesh, and is alive. Raises `LinkError`.

        It must be found out before the mesh hears of this broker, which would pass for a later life of the other one.
        If it has crashed, this is its next life, also by its incarnation, whatever the clocks said then and say now.
        """
        if contact.name == self.ref.name:
            return contact
        holder = await self.links.whois(*address, self.ref.name)
        if holder is None:
            return None
        try:
            found: BrokerRef | None = await self.links.meet(*Address.parse(holder.address))
        except LinkError:
            found = None
        if found == holder:
            return holder
        if holder.incarnation >= self.ref.incarnation:
            logger.warning("by the clock %s began before its last life: one of the two clocks was wrong", holder.name)
            self.ref = msgspec.structs.replace(self.ref, incarnation=holder.incarnation + 1)
        return None

    async def stop(self) -> None:
        """Close the clients with DISCONNECT, leave the mesh in order, close the links. A second call does nothing.

        Cancelled, it waits for nobody any more: clients and links are cut, and what is owed to the file is written."""
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
        """End what is left, in order or not."""
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
        if self._watching is not None:
            self._watching.cancel()
        self.mesh.close()
        await self.links.close()
        if self.tracing is not None:
            await self.tracing.close()
        if self.store is not None:
            await self.store.close()

    async def leave(self) -> None:
        """Close the clients with DISCONNECT, and leave the mesh in order. The Web port stays; `stop` is to follow."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        await self.server.stop()
        if self.upstream is not None:
            await self.upstream.stop()
        if self.statistics is not None:
            await self.statistics.stop()
        if self.mesh.node.joined:
            await self.mesh.leave()

    def ready_line(self) -> str:
        host, port = self.server.address
        return (
            f"ready name={self.ref.name} cluster={self.ref.cluster} mqtt={Address(host, port)} "
            f"overlay={self.ref.address}"
            + "".join(f" mqtts={Address(*at)}" for at in self.server.tls_addresses)
            + "".join(f" web={Address(*at)}" for at in (self.web.addresses if self.web is not None else ()))
        )

    def _congestion(self, congested: bool) -> None:
        self._hold("links", congested)
        if self.upstream is not None:
            self.upstream.congested = congested

    @property
    def holders(self) -> frozenset[str]:
        """What holds publishers back at present: links, storage, upstream."""
        return frozenset(self._holders)

    def _hold(self, holder: str, held: bool) -> None:
        (self._holders.add if held else self._holders.discard)(holder)
        if self._holders:
            self.server.pause_publishers()
        else:
            self.server.resume_publishers()


def run(settings: BrokerSettings) -> int:
    """Run a broker until SIGTERM or SIGINT. Returns the exit status; raises `SettingError` if it cannot start."""
    configure_logging(settings.log_level)
    return process.run(lambda stop: _serve(settings, stop))


async def _serve(settings: BrokerSettings, stop: asyncio.Event) -> int:
    """A broker's whole life, until `stop`. Returns the exit status; raises `SettingError` if it cannot start."""
    process.allow_many_files()
    keep_freed()
    if modules is Modules.STALE:
        logger.warning("what is compiled is older than its sources, which run instead, slower: run make setup")
    broker = Broker(settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, broker.reload)
    for number, order in DRAINING.items():
        asyncio.get_running_loop().add_signal_handler(number, broker.order, order)
    if not await process.started(broker.start(), stop):
        return 0
    assert broker.drain is not None
    broker.drain.on_left = stop.set
    _calm_garbage_collector()
    announce(broker.ready_line(), stop)
    await stop.wait()
    logger.info("%s leaves", settings.name)
    await broker.stop()
    return 0


def _calm_garbage_collector() -> None:
    """Fewer and shorter pauses for the collection of reference cycles.

    What has been loaded so far lives for ever, so it is not looked at again. Beyond that a young collection comes after
    50,000 more containers made than freed, instead of 700. The cost: up to that many dead ones linger if they form
    cycles (some MiB); messages in flight do not, they are freed by their reference counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _tracing(settings: BrokerSettings) -> LiveTracing | None:
    """What traces messages, if they are to be. Raises `SettingError` without its libraries."""
    if not settings.tracing.endpoint:
        return None
    from saps.tracing.live import LiveTracing  # here: without traces none of it is loaded

    return LiveTracing(settings)


def _statistics(broker: Broker, node: OverlayNode) -> StatisticsFiles:
    """Counting at a broker, and the agent that tells of it. Raises `SettingError` without pyarrow."""
    from saps.statistics.agent import MonitorAgent  # here: most brokers need none of it
    from saps.statistics.files import StatisticsFiles

    settings, streams = broker.settings.monitoring, node.presence.streams

    def reaches(topic: str) -> int:
        stream = streams.get(topic)
        return len(stream.members or ()) if stream is not None else 0

    def level(topic: str) -> int:
        return priorities.level(topic) or 0

    priorities = broker.settings.priority.priorities()
    counts = broker.hub.count(settings.topics)
    node.multicast.count(counts)
    me = (broker.ref.name, broker.ref.incarnation, broker.ref.cluster)
    try:
        files = StatisticsFiles(counts, Path(settings.directory), settings.interval, settings.keep, me, reaches, level)
    except ImportError:
        raise SettingError("monitoring.directory", "needs pyarrow: install saps[monitoring]") from None
    broker.monitor = MonitorAgent(lambda: files.latest)
    return files


def _store(broker: Broker) -> Store:
    """The storage, open, and what an earlier life left there. Raises `SettingError` if it cannot be used."""
    settings, mesh = broker.settings.storage, broker.mesh
    try:
        store = Store(
            Path(settings.file),
            settings.sync,
            settings.maximum_size,
            with_wills=not broker.settings.join,  # else their guardians have published them
            on_backlog=partial(broker._hold, "storage"),
        )
    except StorageError as error:
        raise SettingError("storage.file", str(error)) from None
    mesh.gate = HeldFrames(store.commits, mesh.send_now)
    keep_retained(store, mesh.node)
    return store


def _web(broker: Broker) -> BrokerWeb:
    """The Web port. Raises `SettingError` if a token cannot be read."""
    from saps.broker_web import BrokerWeb  # here: brokers without it do not carry aiohttp

    topics, node = broker.settings.web.topics, broker.mesh.node
    if topics and broker.hub.statistics is None:
        node.multicast.count(broker.hub.count(topics))
    return BrokerWeb(broker)


def _access(settings: BrokerSettings) -> AccessControl:
    """Access control as the settings ask for it. Raises `SettingError` for the first of its files that has a fault."""
    try:
        return AccessControl(settings.auth.options(), settings.tls_options(), exposed=settings.exposed())
    except AccessError as error:
        setting = error.faults[0].setting
        reasons = [fault.reason for fault in error.faults if fault.setting == setting]
        raise SettingError(setting, "; ".join(reasons)) from None
