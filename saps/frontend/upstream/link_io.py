"""One connection to the upstream: aiomqtt with manual acknowledgements, and a translation of properties."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Self, cast

import aiomqtt
from paho.mqtt import client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from saps.frontend.upstream.address import Endpoint
from saps.frontend.upstream.mapping import Mapping
from saps.frontend.upstream.outbox import Receipts
from saps.messages import Message, Properties

PACKET_CONNECT, PACKET_PUBLISH = 1, 3
"""Packet types (MQTT 5.0, 2.1.2); paho checks by them which properties are allowed."""
ANSWER = 10.0
"""Timeout in seconds for the upstream's answer to a CONNECT, a SUBSCRIBE or a DISCONNECT."""
_quiet = logging.getLogger("saps.frontend.upstream.aiomqtt")
_quiet.setLevel(logging.CRITICAL)  # aiomqtt also raises what it logs, and the driver logs that once


class Access(NamedTuple):
    """The parameters of a connection to the upstream. `repr` leaves out the credentials."""

    endpoint: Endpoint
    client_id: str
    username: str | None
    password: str | None
    tls: ssl.SSLContext | None
    mqtt5: bool
    """Whether to use MQTT 5.0; otherwise MQTT 3.1.1."""
    keepalive: int
    """Keep Alive in seconds."""
    session_expiry: int
    """Session Expiry Interval in seconds (MQTT 5.0 only)."""
    in_flight: int
    """Most QoS 1 messages in flight in each direction."""

    def __repr__(self) -> str:
        return f"Access({self.endpoint}, {self.client_id})"


class _GroupDelivery(asyncio.Queue[aiomqtt.Message]):
    """Replaces aiomqtt's queue, which is unbounded or drops QoS 1: passes each message on at once."""

    def __init__(self, receive: Callable[[Message, int], None], maxsize: int = 0) -> None:
        super().__init__(maxsize)
        self._receive = receive

    def put_nowait(self, item: aiomqtt.Message) -> None:
        message = Message(
            item.topic.value, bytes(item.payload), item.qos, bool(item.retain), _properties(item.properties)
        )
        self._receive(message, item.mid)


class Link:
    """A connection to the upstream, with a session that survives the connection. Use it as an async context manager.

    Entering, and each method, raises `aiomqtt.MqttError` if the connection fails or has broken.
    """

    def __init__(self, access: Access, receive: Callable[[Message, Callable[[], None]], None]) -> None:
        """`receive` is called with each message in order, and with a function to call when the mesh has the message."""
        self._receive = receive
        self._receipts = Receipts()
        self._open = True
        connect = PahoProperties(PACKET_CONNECT)  # type: ignore[no-untyped-call]
        connect.SessionExpiryInterval = access.session_expiry
        connect.ReceiveMaximum = access.in_flight
        self._mqtt5 = access.mqtt5
        session: dict[str, Any] = {"clean_session": False}
        if access.mqtt5:
            session = {"clean_start": False, "properties": connect}
        self._client = aiomqtt.Client(
            access.endpoint.host,
            access.endpoint.port,
            username=access.username,
            password=access.password,
            identifier=access.client_id,
            protocol=aiomqtt.ProtocolVersion.V5 if access.mqtt5 else aiomqtt.ProtocolVersion.V311,
            queue_type=cast("type[asyncio.Queue[aiomqtt.Message]]", partial(_GroupDelivery, self._received)),
            keepalive=access.keepalive,
            max_inflight_messages=access.in_flight,
            tls_context=access.tls,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            logger=_quiet,
            timeout=math.inf,  # `_answered` replaces aiomqtt's timeout, which may lose a cancellation with the answer
            **session,
        )
        self._client.pending_calls_threshold = access.in_flight
        # aiomqtt acknowledges a message before its user has seen it; paho beneath it leaves that to us on request.
        self._paho = self._client._client
        self._paho.manual_ack_set(True)
        self._loop = asyncio.get_running_loop()
        self._failed = False
        self._read_some = self._paho.loop_read
        self._paho.loop_read = self._read  # type: ignore[method-assign]
        self._paho.on_socket_register_write = self._want_write

    async def __aenter__(self) -> Self:
        try:
            async with _answered():
                await self._client.__aenter__()
        except BaseException:
            self._paho.disconnect()  # aiomqtt leaves the connection open after a timeout
            raise
        if not self._paho.is_connected():  # aiomqtt loses a disconnect that directly follows the answer
            raise aiomqtt.MqttError("disconnected at once")
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._open = False
        async with _answered():
            await self._client.__aexit__(*error)

    async def subscribe(self, mapping: Mapping, anew: bool) -> str | None:
        """Subscribe to the mapping's filter at the upstream. Returns the upstream's refusal, or None.

        `anew`: request retained messages even if the session already has the subscription (MQTT 5.0 only).
        """
        if self._mqtt5:
            handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE if anew else SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            options = SubscribeOptions(mapping.qos, noLocal=True, retainAsPublished=True, retainHandling=handling)
            subscribing = self._client.subscribe(mapping.remote, options=options)
        else:
            subscribing = self._client.subscribe(mapping.remote, qos=mapping.qos)
        async with _answered():
            granted = await subscribing
        code = granted[0]
        if isinstance(code, ReasonCode):
            return str(code) if code.is_failure else None
        return "refused" if code >= 0x80 else None

    async def publish(self, message: Message, lifetime: int | None) -> None:
        """Publish a message; return when the upstream has acknowledged it (QoS 1), or when it is written (QoS 0).
        `lifetime`: Message Expiry Interval in seconds, None for no expiry."""
        properties = _paho_properties(message.properties, lifetime) if self._mqtt5 else None
        await self._client.publish(message.topic, message.payload, message.qos, message.retain, properties)

    async def broken(self) -> None:
        """Wait until the connection breaks, then raise `aiomqtt.MqttError`."""
        async for _ in self._client.messages:
            raise AssertionError("messages are handed on, not queued")

    def _read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read packets when the socket is readable; replaces paho's `loop_read`, which reads one or a few at a time.

        Once the socket has an error, uvloop calls its reader only one last time. From then on this method schedules
        itself, to read the remaining data up to the error; otherwise the break would stay unnoticed.
        """
        outcome = self._read_some(max_packets)
        connection = self._paho.socket()
        if isinstance(connection, socket.socket):
            self._failed = self._failed or connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
            if self._failed:
                self._loop.call_soon(self._read)
        return outcome

    def _want_write(self, client: paho.Client, userdata: Any, connection: Any) -> None:
        """Handle paho's request to write. Paho calls this in another thread while it connects."""
        self._loop.call_soon_threadsafe(self._write_when_possible, connection)

    def _write_when_possible(self, connection: Any) -> None:
        if connection.fileno() >= 0 and not self._failed:  # aiomqtt itself does not check, and watches a closed socket
            self._loop.add_writer(connection.fileno(), self._paho.loop_write)

    def _received(self, message: Message, packet_id: int) -> None:
        ticket = self._receipts.received(packet_id) if message.qos else 0
        self._receive(message, partial(self._confirmed, ticket))

    def _confirmed(self, ticket: int) -> None:
        """Acknowledge confirmed messages in order. Ignores confirmations after this connection has ended: on the next
        one the packet identifiers mean other messages."""
        if ticket and self._open:
            for packet_id in self._receipts.confirmed(ticket):
                self._paho.ack(packet_id, 1)


@asynccontextmanager
async def _answered() -> AsyncIterator[None]:
    """Limit the time of the block to `ANSWER` seconds. Raises `aiomqtt.MqttError` at the timeout."""
    try:
        async with asyncio.timeout(ANSWER):
            yield
    except TimeoutError:
        raise aiomqtt.MqttError(f"no answer within {ANSWER:g} s") from None


def _properties(found: PahoProperties | None) -> Properties | None:
    """Translate the properties of an upstream's publication."""
    if found is None or found.isEmpty():  # type: ignore[no-untyped-call]
        return None
    given: dict[str, Any] = found.__dict__
    return Properties(
        given.get("PayloadFormatIndicator"),
        given.get("MessageExpiryInterval"),
        given.get("ContentType"),
        given.get("ResponseTopic"),
        given.get("CorrelationData"),
        tuple(tuple(pair) for pair in given.get("UserProperty", ())),
    )


def _paho_properties(properties: Properties | None, lifetime: int | None) -> PahoProperties | None:
    if properties is None:
        return None
    made = PahoProperties(PACKET_PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in (
        ("PayloadFormatIndicator", properties.payload_format),
        ("MessageExpiryInterval", lifetime),
        ("ContentType", properties.content_type),
        ("ResponseTopic", properties.response_topic),
        ("CorrelationData", properties.correlation_data),
        ("UserProperty", list(properties.user) or None),
    ):
        if value is not None:
            setattr(made, name, value)
    return made
