"""Maintains the connection to the upstream, and carries messages between it and the hub as the bridge decides.

QoS 1 messages are delivered at least once both ways. A message of the upstream is acknowledged when the mesh has
confirmed it; a message of the mesh leaves the outbox when the upstream has acknowledged it. Messages that are still
unacknowledged when a connection breaks are sent again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiomqtt

from saps.agents.user import PublisherAgent
from saps.config import SettingError
from saps.frontend.upstream.address import Endpoint
from saps.frontend.upstream.bridge import Bridge, Refusal
from saps.frontend.upstream.exporter import Exporter
from saps.frontend.upstream.link_io import Access, Link
from saps.frontend.upstream.outbox import Item, Outbox
from saps.messages import Message, Subscription
from saps.routing.batch import Batch
from saps.routing.hub import Hub

if TYPE_CHECKING:
    from saps.config.settings import UpstreamSettings

logger = logging.getLogger(__name__)

DRAIN = 5.0
"""Seconds that `Upstream.stop` waits for the upstream to acknowledge the rest of the outbox."""
FIRST_RETRY = 0.5
"""Seconds before the first attempt to reconnect; the delay doubles with each attempt, up to ``upstream.retry_limit``.
"""
HIGH, LOW = 0.5, 0.25
"""Fill levels of the outbox above which this broker's publishers are held back, and at which they are released."""
WINDOW_3_1_1 = 2.0
"""Echo window in seconds with MQTT 3.1.1, unless one is set."""


def delays(limit: float, rng: random.Random) -> Iterator[float]:
    """Yield the delay in seconds before each attempt to reconnect: doubled each time up to `limit`, then reduced by a
    random part of up to half."""
    delay = FIRST_RETRY
    while True:
        delay = min(delay, limit)
        yield delay * rng.uniform(0.5, 1.0)
        delay *= 2


class Pressure:
    """Holds this broker's publishers back while a connected upstream is too slow for them."""

    def __init__(self, hold: Callable[[bool], None]) -> None:
        self._hold = hold
        self._held = False

    def look(self, fill: float) -> None:
        """Hold or release the publishers according to the `fill` of the outbox (0 to 1). Between `LOW` and `HIGH`
        nothing changes."""
        held = fill > (LOW if self._held else HIGH)
        if held != self._held:
            self._held = held
            self._hold(held)


class Upstream:
    """One broker's bridge to its upstream. `start` begins it, `stop` or `close` ends it."""

    def __init__(
        self, hub: Hub, settings: UpstreamSettings, name: str, hold: Callable[[bool], None] = lambda held: None
    ) -> None:
        """`name`: name of the broker. `hold` is called with True when the broker's publishers must wait, and with
        False when they may continue.

        Raises `SettingError` for a file that cannot be read.
        """
        self.access = access(settings, name)
        self.bridge = Bridge(
            self.access.client_id,
            settings.mappings(),
            settings.echo_window or (0.0 if self.access.mqtt5 else WINDOW_3_1_1),
        )
        self.outbox = Outbox(settings.maximum_queued, settings.maximum_queued_bytes)
        self.congested = False
        """Whether links to other brokers are congested; the broker sets it. Meanwhile QoS 0 messages of the upstream
        are dropped, and QoS 1 messages wait at the upstream for our PUBACK."""
        self.dropped_in = 0
        """QoS 0 messages of the upstream dropped because of congestion."""
        self._hub = hub
        self._pressure = Pressure(hold)
        self._retry_limit = settings.retry_limit
        self._exporter = Exporter(hub, self.access.client_id, self._export)
        self._publisher = PublisherAgent(hub, self.access.client_id, self._exporter)
        self._link: Link | None = None
        self._idle: deque[asyncio.Future[None]] = deque()
        """Futures of the senders that wait for a message."""
        self._drained = asyncio.Event()
        """Set when the outbox is empty, or nothing more can be sent of it."""
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Subscribe in the mesh, and begin to connect. To be called once, after the broker has joined the mesh."""
        for mapping in self.bridge.mappings:
            if mapping.outwards:
                self._exporter.subscribe(Subscription(mapping.local, mapping.qos, True, True))
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take no more messages, send the rest of the outbox for at most `DRAIN` seconds, and disconnect."""
        if self._task is None or self._stopping:
            return
        self._stopping = True  # cancelling alone is not enough: a task group that fails swallows the cancellation
        self._exporter.close()
        self._publisher.close()
        self._drained.clear()
        try:
            if self._link is not None and len(self.outbox):
                with suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN):
                        await self._drained.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Disconnect at once; messages in the outbox are lost. A second call does nothing."""
        self._stopping = True
        task, self._task = self._task, None
        if task is not None:
            if len(self.outbox):
                logger.warning("%d messages for the upstream %s are lost", len(self.outbox), self.access.endpoint)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def connected(self) -> bool:
        """Whether the bridge is connected and subscribed."""
        return self._link is not None

    def describe(self) -> dict[str, Any]:
        """Return the state and counters of the bridge by name, for status pages and logs."""
        return {
            "upstream": str(self.access.endpoint),
            "connected": self.connected,
            "forwarded_in": self.bridge.forwarded_in,
            "forwarded_out": self.bridge.forwarded_out,
            "queued": len(self.outbox),
            "dropped": self.outbox.dropped,
            "dropped_in": self.dropped_in,
            **{f"refused_{why.name.lower()}": count for why, count in self.bridge.refused.items()},
        }

    # ---- the connection

    async def _run(self) -> None:
        waits, first = delays(self._retry_limit, random.Random()), True
        told = False
        while not self._stopping:
            error: BaseException | None = None
            began = self._now()
            try:
                async with Link(self.access, self._import) as link:
                    await self._serve(link, first)
            except* aiomqtt.MqttError as group:
                error = _cause(group)
            except* Exception as group:  # an error in a library or caused by one packet must not end the bridge
                error = _cause(group)
                logger.error("the bridge to the upstream %s failed", self.access.endpoint, exc_info=error)
            if self._stopping:
                self._drained.set()
                return
            if self._link is not None:
                first = told = False
                self._disconnected()
                if self._now() - began > self._retry_limit:
                    waits = delays(self._retry_limit, random.Random())
            if not told:
                logger.warning("the upstream %s is away, trying until it is back: %s", self.access.endpoint, error)
                told = True
            await asyncio.sleep(next(waits))

    async def _serve(self, link: Link, first: bool) -> None:
        """Subscribe and send until the connection breaks, then raise `aiomqtt.MqttError`, alone or in a group. `first`:
        no connection has succeeded before; retained messages are requested and exported."""
        for mapping in self.bridge.mappings:
            if mapping.inwards and (refusal := await link.subscribe(mapping, anew=first)) is not None:
                logger.error("the upstream %s refuses %r: %s", self.access.endpoint, mapping.remote, refusal)
        self._link = link
        self.outbox.connected = True
        logger.info("connected to the upstream %s as %s", self.access.endpoint, self.access.client_id)
        if first:
            self._export_retained()
        async with asyncio.TaskGroup() as group:
            group.create_task(link.broken())
            for _ in range(self.access.in_flight):
                group.create_task(self._send(link))

    def _disconnected(self) -> None:
        self._link = None
        self.outbox.disconnected()
        self._regulate()

    # ---- from the mesh to the upstream

    def _export_retained(self) -> None:
        for mapping in self.bridge.mappings:
            if mapping.outwards:
                for publication in self._hub.retained_for(mapping.local):
                    self._export(publication)

    def _export(self, single: Batch) -> None:
        decided = self.bridge.outward(single.message, self._now())
        if isinstance(decided, Refusal):
            return
        self.outbox.put(Item(decided, single.deadline))
        self._regulate()
        while self._idle:
            sender = self._idle.popleft()
            if not sender.done():
                sender.set_result(None)
                return

    async def _send(self, link: Link) -> None:
        """Send messages from the outbox, each with its acknowledgement. One such sender runs for each message that may
        be in flight. A sender takes and writes a message without waiting in between, which keeps the order."""
        while True:
            taken = self.outbox.take(self._now())
            self._regulate()
            if not len(self.outbox):
                self._drained.set()
            if taken is None:
                sender: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(sender)
                await sender
                continue
            ticket, item = taken
            lifetime = None if item.expires is None else max(1, ceil(item.expires - self._now()))
            try:
                await link.publish(item.message, lifetime)
            except aiomqtt.MqttError:
                raise
            except Exception as error:  # a message that cannot be encoded must not block the next ones
                logger.error("a message to %r cannot be forwarded: %s", item.message.topic, error)
            self.outbox.settled(ticket)

    def _regulate(self) -> None:
        self._pressure.look(self.outbox.fill if self._link is not None else 0.0)

    # ---- from the upstream to the mesh

    def _import(self, message: Message, confirm: Callable[[], None]) -> None:
        if self.congested and not message.qos:
            self.dropped_in += 1
            return
        decided = self.bridge.inward(message, self._now())
        if isinstance(decided, Refusal):
            confirm()
        else:
            self._publisher.publish(decided, lambda reached: confirm())

    def _now(self) -> float:
        return self._hub.clock()


def access(settings: UpstreamSettings, name: str) -> Access:
    """Return the parameters with which the broker `name` connects. Raises `SettingError` for a file that cannot be
    read."""
    endpoint = Endpoint.parse(settings.url)
    password = endpoint.password
    if settings.password_file:
        try:
            password = Path(settings.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError("upstream.password_file", _unreadable(settings.password_file, error)) from None
    return Access(
        endpoint,
        settings.client_id or f"saps-{name}",
        settings.username or endpoint.username,
        password,
        _tls(settings) if endpoint.tls else None,
        settings.protocol == "5",
        settings.keepalive,
        settings.session_expiry,
        settings.in_flight,
    )


def _tls(settings: UpstreamSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except OSError as error:
        raise SettingError("upstream.ca_file", _unreadable(settings.ca_file, error)) from None
    if settings.certificate_file:
        try:
            context.load_cert_chain(settings.certificate_file, settings.key_file or None)
        except OSError as error:
            raise SettingError("upstream.certificate_file", _unreadable(settings.certificate_file, error)) from None
    return context


def _unreadable(path: str, error: Exception) -> str:
    return f"cannot use {path}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"


def _cause(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first error of a group, or its cause if it has one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.__cause__ or error
