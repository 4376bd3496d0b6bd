"""A broker: the overlay node on real links and the real clock, the hub, and the MQTT frontend."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from saps import process
from saps.agents.api import AgentRegistry
from saps.config import Address, BrokerSettings, SettingError
from saps.frontend.mqtt.auth.control import AccessControl
from saps.frontend.mqtt.auth.files import AccessError
from saps.frontend.mqtt.server import MqttServer
from saps.hub import Hub
from saps.links import LinkError, Links
from saps.logs import configure_logging
from saps.mesh import TopicRoute
from saps.messages import Message, Reached
from saps.overlay.frames import Frame
from saps.overlay.keys import BrokerRef
from saps.overlay.node import OverlayNode

if TYPE_CHECKING:
    from saps.agents.live import LiveOfm
    from saps.frontend.upstream.driver import Upstream

logger = logging.getLogger(__name__)

RETRY_JOIN = 0.2
"""Seconds between two rounds over the addresses of `join`."""


class LiveMesh:
    """An `OverlayNode` driven by the event loop. A `saps.mesh.Mesh` for the hub."""

    def __init__(self, node: OverlayNode, links: Links, hub: Hub) -> None:
        self.node = node
        self._links = links
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        node.now = self._loop.time()
        node.on_output = self._soon
        node.on_dead = links.drop
        links.on_frames = self._frames
        links.on_session = node.session_started
        links.on_down = self._down
        links.on_whois = self._whois

    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None:
        self.node.now = self._loop.time()
        self.node.subscribe(topic_filter, done)

    def unsubscribe(self, topic_filter: str) -> None:
        self.node.now = self._loop.time()
        self.node.unsubscribe(topic_filter)

    def route(self, topic: str) -> TopicRoute:
        return self.node.route(topic)

    def publish(self, message: Message, done: Callable[[Reached], None] | None) -> None:
        self.node.now = self._loop.time()
        self.node.publish(message, done)

    def act(self, action: Callable[[], None]) -> None:
        """Do something to the node, or have an agent do it, at the present time."""
        self.node.now = self._loop.time()
        action()
        self._soon()

    def datagrams(self, datagrams: list[bytes]) -> None:
        """Datagrams from OpenFlow trees."""
        self.node.now = self._loop.time()
        receive = self.node.receive_datagram
        self._hub.gather()
        try:
            for datagram in datagrams:
                receive(datagram)
        finally:
            self._hub.gathered()

    async def join(self, contact: BrokerRef | None) -> None:
        """Join the mesh through a broker, or begin one. Returns when joined."""
        joined = asyncio.Event()
        self.node.now = self._loop.time()
        self.node.start(contact, joined.set)
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

    def _soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        send = self._links.send
        for to, frame in self.node.take():
            send(to, frame)
        self._links.flush()
        self._arm()

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
        self.node.wake()
        self._flush()

    def _frames(self, sender: BrokerRef, frames: list[Frame]) -> None:
        self.node.now = self._loop.time()
        if not frames:
            self.node.met(sender)
        receive = self.node.receive
        self._hub.gather()
        try:
            for frame in frames:
                receive(sender, frame)
        finally:
            self._hub.gathered()

    def _whois(self, name: str, answer: Callable[[BrokerRef | None], None]) -> None:
        self.node.now = self._loop.time()
        self.node.whois(name, answer)

    def _down(self, peer: BrokerRef) -> None:
        self.node.now = self._loop.time()
        self.node.link_down(peer)
        self._soon()


class Broker:
    """One broker of the mesh, as set up by its settings."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.hub = Hub()
        self.server = MqttServer(self.hub, settings.limits.limits(), access=_access(settings))
        self.ref = BrokerRef("", 0, "", "")
        self.agents = AgentRegistry()
        self.upstream: Upstream | None = None
        self.ofm: LiveOfm | None = None
        self._holders: set[str] = set()
        """What holds publishers back: the links to other brokers, the upstream."""
        self._stopped = False

    async def start(self) -> None:
        """Listen, join the mesh, serve clients. Raises `SettingError` if an address cannot be had or nobody answers."""
        settings, overlay = self.settings, self.settings.overlay
        if settings.upstream.url:
            from saps.frontend.upstream.driver import Upstream  # here: most brokers need none of its libraries

            self.upstream = Upstream(self.hub, settings.upstream, settings.name, partial(self._hold, "upstream"))
        order = overlay.key_order()
        ref = BrokerRef(settings.name, time.time_ns() // 1_000_000, str(overlay.listen), settings.cluster)
        self.links = Links(
            ref,
            order.value,
            on_frames=lambda sender, frames: None,
            on_session=lambda sender: None,
            on_down=lambda peer: None,
            on_congestion=self._congestion,
            on_whois=lambda name, answer: None,
        )
        try:
            port = await self.links.listen(*overlay.listen)
        except OSError as error:
            raise SettingError("overlay.listen", process.refused(overlay.listen, error)) from None
        self.ref = self.links.me = BrokerRef(
            ref.name, ref.incarnation, str(Address(overlay.listen.host, port)), ref.cluster
        )
        node = OverlayNode(
            self.ref,
            self.hub,
            order=order,
            detector=overlay.detector(),
            call_agents=self.agents.answer,
            leave_timeout=overlay.leave_timeout,
            design=overlay.design(),
        )
        self.mesh = LiveMesh(node, self.links, self.hub)
        self.hub.mesh = self.mesh
        self.agents.bind(node, self.hub.agents)
        if settings.ofm.listen:
            from saps.agents.live import LiveOfm  # here: most brokers need none of it

            self.ofm = LiveOfm(settings.ofm, self.mesh.datagrams)
            self.ofm.listen()
            self.ofm.attach(node, self.agents)
        try:
            await self.server.start(*settings.mqtt)
        except OSError as error:
            raise SettingError("mqtt", process.refused(settings.mqtt, error)) from None
        for address in settings.tls.listen:
            try:
                await self.server.start_tls(*address)
            except OSError as error:
                raise SettingError("tls.listen", process.refused(address, error)) from None
        contact = await self._contact() if settings.join else None
        try:
            async with asyncio.timeout(overlay.join_timeout):
                await self.mesh.join(contact)
        except TimeoutError:
            raise SettingError("join", f"{contact.name if contact else ''} does not let this broker in") from None
        if self.upstream is not None:
            self.upstream.start()
        if self.ofm is not None:
            self.mesh.act(self.ofm.agent.start)

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
        """
        if contact.name == self.ref.name:
            return contact
        holder = await self.links.whois(*address, self.ref.name)
        if holder is None:
            return None
        try:
            found = await self.links.meet(*Address.parse(holder.address))
        except LinkError:  # it has crashed: this is its next life
            return None
        return holder if found == holder else None

    async def stop(self) -> None:
        """Close the clients with DISCONNECT, leave the mesh in order, close the links. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        await self.server.stop()
        if self.upstream is not None:
            await self.upstream.stop()
        if self.mesh.node.joined:
            await self.mesh.leave()
        if self.ofm is not None:
            self.ofm.close()
        await self.links.close()

    def ready_line(self) -> str:
        host, port = self.server.address
        return (
            f"ready name={self.ref.name} cluster={self.ref.cluster} mqtt={Address(host, port)} "
            f"overlay={self.ref.address}" + "".join(f" mqtts={Address(*at)}" for at in self.server.tls_addresses)
        )

    def _congestion(self, congested: bool) -> None:
        self._hold("links", congested)
        if self.upstream is not None:
            self.upstream.congested = congested

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
    broker = Broker(settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, broker.server.reload)
    if not await process.started(broker.start(), stop):
        return 0
    _calm_garbage_collector()
    print(broker.ready_line(), flush=True)
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


def _access(settings: BrokerSettings) -> AccessControl:
    """Access control as the settings ask for it. Raises `SettingError` for the first of its files that has a fault."""
    try:
        return AccessControl(settings.auth.options(), settings.tls.options(), exposed=settings.exposed())
    except AccessError as error:
        setting = error.faults[0].setting
        reasons = [fault.reason for fault in error.faults if fault.setting == setting]
        raise SettingError(setting, "; ".join(reasons)) from None
