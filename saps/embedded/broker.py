"""A broker that a program runs in its own event loop: that of `saps broker`, with an interface for the program.

It leaves the process alone: signal handlers, limits, logging and garbage collector stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from saps.agents.user import PublisherAgent
from saps.broker.broker import Broker as Core
from saps.config import Address, BrokerSettings, SettingError
from saps.config.sources_io import load, read_file
from saps.embedded.inbox import Inbox
from saps.embedded.messages import ClosedError, Messages
from saps.frontend.mqtt.driver.login_function import Authenticate
from saps.messages import Message, Properties, Reached, Subscription
from saps.routing.reserved import is_reserved
from saps.topics import subscription_fault, topic_fault

ANY_PORT = "127.0.0.1:0"
"""Default address of an embedded broker: a free port of this machine."""
ROOM = 1000
"""Default limit of the messages that wait for the program in one subscription."""
BURST = 64
"""Publications after which `publish` yields to other tasks: they leave together, and no task starves."""

_serial = count(1)


class Broker:
    """One broker of the mesh in this process. Use it once: as an asynchronous context manager, or by `start`, `stop`.

        async with saps.Broker("b1", cluster="tokyo/ward1") as broker:
            await broker.publish("air/ward1", b"21.5", qos=1)

    Access rules are for clients.
    """

    def __init__(
        self,
        name: str,
        *,
        cluster: str | None = None,
        mqtt: str | None = None,
        overlay: str | None = None,
        web: str | Sequence[str] = (),
        join: str | Sequence[str] = (),
        config: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        authenticate: Authenticate | None = None,
    ) -> None:
        """Arguments are as those of `saps broker`: `mqtt` and `overlay` are free ports of this machine unless they are
        given; `join` has addresses of other brokers; `config` is a TOML file; `settings` has any others by dotted name.

        `authenticate`, a coroutine function (user, password), returns whether a client may log in, instead of
        `auth.http.login` (with its `cache`; an exception refuses). Clients without a user: `auth.anonymous`.

        Raises `SettingError` for one that cannot be used.
        """
        given = {"cluster": cluster, "mqtt": mqtt, "overlay.listen": overlay}
        given |= {"web.listen": _listed(web), "join": _listed(join)}
        self._core = _Core(_settings(name, given, config, settings or {}), authenticate)
        self._hub = self._core.hub
        self._subscribed: set[Messages] = set()
        self._awaited: set[asyncio.Future[Reached]] = set()
        self._window = asyncio.Semaphore(self._core.settings.limits.receive_maximum)
        self._publisher: PublisherAgent | None = None
        self._begun = self._ended = False
        self._in_burst = 0

    @property
    def name(self) -> str:
        """The broker's name in the mesh."""
        return self._core.settings.name

    @property
    def mqtt(self) -> str:
        """The address for MQTT clients, such as ``127.0.0.1:1883``. Known after the start, like `overlay` and `web`."""
        return str(Address(*self._core.server.address))

    @property
    def overlay(self) -> str:
        """The address for other brokers, for their `join`."""
        return self._core.ref.address

    @property
    def web(self) -> tuple[str, ...]:
        """The addresses for Web clients; none unless `web` was given."""
        return tuple(str(Address(*at)) for at in (self._core.web.addresses if self._core.web is not None else ()))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, join the mesh and serve clients. Raises `SettingError` if that fails, after undoing all of it."""
        if self._begun:
            raise RuntimeError("a broker is started once")
        self._begun = True
        try:
            await self._core.start()
        except BaseException:
            self._ended = True
            await self._core.give_up()
            raise
        self._publisher = PublisherAgent(self._hub, f"$app/{self.name}")

    async def stop(self) -> None:
        """End the subscriptions, disconnect the clients and leave the mesh in order. A second call does nothing.

        If cancelled, it stops at once without waiting for clients or other brokers."""
        if self._publisher is None or self._ended:
            return
        self._ended = True
        for messages in list(self._subscribed):
            messages.close()
        self._core.flowing.set()
        self._publisher.close()
        try:
            await self._core.stop()
        finally:
            for future in self._awaited:
                if not future.done():
                    future.set_exception(ClosedError("the broker has stopped"))

    async def publish(
        self,
        topic: str,
        payload: bytes | str,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> Reached:
        """Publish a message; text is sent as UTF-8. Waits while the broker cannot take more.

        With QoS 1 and 2 it returns when every broker with a matching subscriber has the message or is dead: the number
        of other brokers, and of subscribers in the whole mesh. With QoS 0 it returns the number of subscribers at this
        broker. Raises `ValueError` for what cannot be published, and `ClosedError`. After `ClosedError` or a
        cancellation the message may still have been published.
        """
        message = Message(topic, _bytes(payload), qos, retain, properties)
        self._check(message)
        await self._turn()
        if not qos:
            return Reached(0, (await self._ready()).publish(message))
        async with self._window:
            publisher = await self._ready()
            future: asyncio.Future[Reached] = asyncio.get_running_loop().create_future()
            self._awaited.add(future)

            def done(reached: Reached) -> None:
                if not future.done():
                    future.set_result(reached)

            try:
                publisher.publish(message, done)
                return await future
            finally:
                self._awaited.discard(future)

    def subscribe(self, topic_filter: str, *, qos: int = 0, room: int = ROOM, retained: bool = True) -> Messages:
        """Subscribe to a topic filter; this program's own messages are included. `qos` is the highest for delivery.

        Use the result as `Messages` describes. At most `room` messages wait for the program. Beyond that, messages of
        QoS 0 are dropped (`Messages.dropped`), and one of QoS 1 or 2 ends the subscription with `TooSlowError`, so that
        nothing is lost silently. `retained`: begin with the retained messages. ``$share/group/filter`` takes turns with
        the other members of the group. Raises `ValueError` for an invalid filter.
        """
        fault = subscription_fault(topic_filter)
        if fault is not None:
            raise ValueError(f"{topic_filter!r}: {fault}")
        if qos not in (0, 1, 2) or room < 1:
            raise ValueError("qos is 0, 1 or 2, and room at least 1")
        subscription = Subscription(topic_filter, qos, retain_handling=0 if retained else 2)
        inbox = partial(Inbox, self._hub, f"$app/{self.name}/{next(_serial)}", room)
        return Messages(inbox, subscription, self._admit, self._subscribed.discard)

    # ---- inside

    def _admit(self, messages: Messages) -> None:
        self._running()
        self._subscribed.add(messages)

    def _running(self) -> PublisherAgent:
        if self._publisher is None or self._ended:
            raise ClosedError("the broker has stopped" if self._ended else "the broker has not started")
        return self._publisher

    async def _turn(self) -> None:
        """Yield to other tasks after each `BURST` publications, as `publish` itself often has nothing to wait for."""
        self._in_burst += 1
        if self._in_burst >= BURST:
            self._in_burst = 0
            await asyncio.sleep(0)

    async def _ready(self) -> PublisherAgent:
        """Return the publisher agent as soon as publishers are not held back."""
        publisher = self._running()
        while not self._core.flowing.is_set():
            await self._core.flowing.wait()
            publisher = self._running()
        return publisher

    def _check(self, message: Message) -> None:
        fault = topic_fault(message.topic)
        if fault is None and is_reserved(message.topic):
            fault = "only the broker itself publishes there"
        if fault is not None:
            raise ValueError(f"{message.topic!r}: {fault}")
        if message.qos not in (0, 1, 2):
            raise ValueError("qos is 0, 1 or 2")
        most = self._core.settings.limits.maximum_packet_size
        if len(message.payload) + len(message.topic.encode()) > most:
            raise ValueError(f"the message is larger than limits.maximum_packet_size, {most} bytes")


class _Core(Core):
    """The broker, with an event that tells whether publishers are held back."""

    def __init__(self, settings: BrokerSettings, authenticate: Authenticate | None) -> None:
        if authenticate is not None and settings.auth.http.login:
            raise SettingError("auth.http.login", "the program decides logins by `authenticate`")
        super().__init__(settings, authenticate)
        self.flowing = asyncio.Event()
        """Set while publishers are not held back."""
        self.flowing.set()

    def hold(self, holder: str, held: bool) -> None:
        super().hold(holder, held)
        if self.holders:
            self.flowing.clear()
        else:
            self.flowing.set()

    async def give_up(self) -> None:
        """Undo a failed start at any stage."""
        if hasattr(self, "mesh"):
            await self.stop()
            return
        if hasattr(self, "links"):
            await self.links.close()
        if self.options.tracing is not None:
            await self.options.tracing.close()


def _bytes(payload: bytes | str) -> bytes:
    """Return what is sent. A number is refused: ``bytes(5)`` would be five zeros."""
    if isinstance(payload, str):
        return payload.encode()
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise TypeError(f"a payload is bytes or text, not {type(payload).__name__}")
    return bytes(payload)


def _listed(addresses: str | Sequence[str]) -> str | None:
    return (addresses if isinstance(addresses, str) else ",".join(addresses)) or None


def _settings(name: str, given: dict[str, Any], config: Path | None, others: Mapping[str, Any]) -> BrokerSettings:
    """Load the settings. Raises `SettingError`, which names a setting and not a flag."""
    flags = {"name": name} | {key: value for key, value in given.items() if value is not None} | dict(others)
    try:
        named = read_file(config) if config is not None else {}
        for setting in ("mqtt", "overlay.listen"):
            if setting not in named:
                flags.setdefault(setting, ANY_PORT)
        return load(flags, {}, config).settings
    except SettingError as error:
        source = None if error.source is None or error.source.startswith("flag ") else error.source
        raise SettingError(error.setting, error.message, source) from None
