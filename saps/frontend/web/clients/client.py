"""A Web client: an MQTT 5 client inside the broker, on the same connection machine as MQTT over TCP.

Sessions, queues, limits, access control, storage and the answers of the mesh are therefore those of MQTT, in the same
code. HTTP requests and WebSocket messages become packets; the packets that come back become answers, acknowledgements,
and messages for `WebClient.batch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.publish_handler import TELL, TELL_BROKERS
from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.driver.traffic import Bytes, taken
from saps.frontend.web.http.credentials import ANONYMOUS, Credentials
from saps.frontend.web.http.problems import ProblemError, refused
from saps.topics import subscription_fault

Answer = TypeVar("Answer", bound=Packet)

MESSAGE_COST = 128
"""Memory for a message in bytes, besides its payload."""


class EndedError(Exception):
    """Raised when the client's connection has ended."""

    def __init__(self, reason: int) -> None:
        """`reason`: MQTT reason code."""
        super().__init__(reason)
        self.reason = reason


class Arrived:
    """Messages from the broker that have not been sent to the client yet."""

    def __init__(self, high_water: int) -> None:
        """`high_water`: bytes above which the broker must pause."""
        self._high_water = high_water
        self._messages: list[Publish] = []
        self._news = asyncio.Event()
        self._kept = self._taken = 0
        """Bytes of all messages kept, and of those in the last batch taken."""
        self._full = False

    def add(self, packet: Publish) -> None:
        """Keep a message, and wake the waiter of `news`."""
        self._messages.append(packet)
        self._kept += len(packet.payload) + MESSAGE_COST
        self._news.set()

    def take(self) -> list[Publish]:
        """Return and remove all messages, oldest first. They count until `sent`."""
        found, self._messages = self._messages, []
        self._taken = self._kept
        return found

    def take_pending(self) -> list[Publish]:
        """Return and remove all messages, oldest first, in addition to the last batch. They no longer count."""
        found, self._messages = self._messages, []
        self._kept = self._taken
        return found

    def sent(self) -> None:
        """Note that the last batch has been sent to the client."""
        self._kept -= self._taken
        self._taken = 0

    def filled(self) -> bool:
        """Return True once when the messages exceed the high-water mark; the broker must then pause."""
        if self._full or self._kept <= self._high_water:
            return False
        self._full = True
        return True

    def emptied(self) -> bool:
        """Return True once when the messages are down to a quarter of the high-water mark; the broker may continue."""
        if not self._full or self._kept > self._high_water // 4:
            return False
        self._full = False
        return True

    async def news(self) -> None:
        """Wait for the next message, or for `end`."""
        self._news.clear()
        await self._news.wait()

    def end(self) -> None:
        """Wake the waiter of `news`: no more messages will come."""
        self._news.set()

    def __bool__(self) -> bool:
        return bool(self._messages)


class Requests:
    """The requests to the broker that are not answered yet, by packet identifier."""

    def __init__(self) -> None:
        self._awaited: dict[int, asyncio.Future[Packet]] = {}
        self._last_id = 0

    def new_id(self) -> int:
        """Return a packet identifier that no waiting request has."""
        while True:
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._awaited:
                return self._last_id

    async def ask(self, packet_id: int, send: Callable[[], None]) -> Packet:
        """Send a packet and return the broker's answer. `send` sends the packet with this identifier. Raises the error
        of `fail`."""
        future: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._awaited[packet_id] = future
        try:
            send()
            return await future
        finally:
            self._awaited.pop(packet_id, None)

    def answered(self, packet_id: int, packet: Packet) -> None:
        """Give the broker's answer to the request that waits for it. Unknown identifiers are ignored."""
        future = self._awaited.get(packet_id)
        if future is not None and not future.done():
            future.set_result(packet)

    def fail(self, error: EndedError) -> None:
        """Raise `error` in all waiting requests: no more answers will come."""
        for future in self._awaited.values():
            if not future.done():
                future.set_exception(error)


class WebClient:
    """An MQTT client driven by a request handler. Implements `saps.frontend.mqtt.connection.output.Port` and
    `saps.frontend.mqtt.driver.sockets.Client`. The handler must await `connect` first, and call `close` or `leave` at
    the end."""

    def __init__(self, server: MqttServer, transport: asyncio.Transport) -> None:
        """`transport`: the HTTP connection's transport, which has the client's address and certificate."""
        self._server = server
        self.transport = transport
        self._reader = PacketReader(V5)
        self._may_publish = asyncio.Event()
        self._may_publish.set()
        self._arrived = Arrived(server.limits.write_high_water)
        self._exact: set[int] = set()
        """Packet identifiers of QoS 2 messages. They come from subscriptions that the client made over MQTT."""
        self._connected: asyncio.Future[Connack] | None = None
        self._requests = Requests()
        self._window = asyncio.Semaphore(1)
        self._received = self._sent = 0
        self._reason: int | None = None
        self.client_id = ""
        self.ended = False
        self._connection = server.connection_for(self, transport)
        self._connection.output.tell_reached = True
        server.connected(self)

    # ---- for the request handlers

    async def connect(
        self,
        credentials: Credentials,
        client_id: str = "",
        *,
        clean: bool = True,
        expiry: int = 0,
        receive_maximum: int | None = None,
    ) -> Connack:
        """Connect, and begin or continue a session. `clean`: end an earlier session first. `expiry`: Session Expiry
        Interval in seconds. `receive_maximum`: most QoS 1 and 2 messages in flight to the client. Raises `ProblemError`
        if the client is refused."""
        properties: PropertyMap = {Property.SESSION_EXPIRY: expiry} if expiry else {}
        if receive_maximum is not None:
            properties[Property.RECEIVE_MAXIMUM] = receive_maximum
        self._connected = asyncio.get_running_loop().create_future()
        packet = Connect(client_id, V5, clean, 0, None, *credentials, properties)
        self._send(packet)
        try:
            connack = await self._connected
        except EndedError as error:
            raise refused(error.reason) from None
        if connack.reason:
            self.close()
            if credentials == ANONYMOUS and connack.reason == Reason.NOT_AUTHORIZED:
                raise ProblemError(401, "Unauthorized", "credentials are needed", field="Authorization")
            raise refused(connack.reason)
        self.client_id = connack.properties.get(Property.ASSIGNED_CLIENT_IDENTIFIER, client_id)
        self._window = asyncio.Semaphore(connack.properties.get(Property.RECEIVE_MAXIMUM, 0xFFFF))
        self._ping(connack.properties.get(Property.SERVER_KEEP_ALIVE, 0))
        return connack

    async def publish(self, packet: Publish) -> Ack | None:
        """Publish a message, and set the packet's identifier. Returns the acknowledgement with QoS 1 and 2, or None
        with QoS 0. Waits while flow control holds the client back. Raises `EndedError`, or `ProblemError` for a packet
        that cannot be encoded."""
        while not self._may_publish.is_set():  # an earlier waiter sends first, and may exhaust the credit again
            await self._may_publish.wait()
        if not packet.qos:
            self._send(packet)
            return None
        async with self._window:
            packet.packet_id = self._requests.new_id()
            return await self._ask(packet, packet.packet_id, Ack)

    async def subscribe(self, entries: Sequence[SubscribeEntry]) -> list[int]:
        """Subscribe. Returns the reason for each entry: the QoS granted, or 0x80 and above. Invalid filters are not
        sent. Retained messages are available directly after. Raises `EndedError`."""
        sound = [entry for entry in entries if subscription_fault(entry.filter) is None]
        granted: Iterator[int] = iter(())
        if sound:
            packet = Subscribe(self._requests.new_id(), sound)
            granted = iter((await self._ask(packet, packet.packet_id, Suback)).reasons)
        return [
            next(granted) if subscription_fault(entry.filter) is None else int(Reason.TOPIC_FILTER_INVALID)
            for entry in entries
        ]

    async def unsubscribe(self, filters: Sequence[str]) -> list[int]:
        """Unsubscribe. Returns the reason for each filter. Raises `EndedError`."""
        packet = Unsubscribe(self._requests.new_id(), list(filters))
        return (await self._ask(packet, packet.packet_id, Unsuback)).reasons

    def acknowledge(self, packet_id: int) -> None:
        """Acknowledge a QoS 1 or 2 message that the client has."""
        self._send(Ack(PacketType.PUBREC if packet_id in self._exact else PacketType.PUBACK, packet_id))
        self._exact.discard(packet_id)

    async def batch(self) -> list[Publish]:
        """Wait for messages, and return all that have come, oldest first. The call confirms that the previous batch was
        sent to the client. Raises `EndedError` when the connection has ended and no message is left."""
        self._arrived.sent()
        if self._arrived.emptied() and not self.ended:
            self._connection.resume_writing()
        while not self._arrived:
            if self.ended:
                raise EndedError(self._reason or Reason.UNSPECIFIED_ERROR)
            await self._arrived.news()
        return self._arrived.take()

    def pending(self) -> list[Publish]:
        """Return the messages that have come and were not taken yet, without waiting."""
        return self._arrived.take_pending()

    def close(self) -> None:
        """End the connection without DISCONNECT. The session continues until its expiry."""
        self._connection.lost()
        self._end()

    def leave(self) -> None:
        """End the connection by DISCONNECT."""
        self._send(Disconnect())
        self.close()

    # ---- the port of the connection machine

    def traffic(self) -> Bytes:
        """Return the bytes of MQTT packets from and to the client."""
        return Bytes(self._received, self._sent)

    def pause_reading(self) -> None:
        """Make `publish` wait: flow control holds the client back."""
        self._may_publish.clear()

    def resume_reading(self) -> None:
        """Let `publish` continue."""
        self._may_publish.set()

    def taken(self) -> int:
        return taken(self.transport)

    def _read(self, data: bytes) -> None:
        """Handle bytes from the connection machine for this client."""
        self._sent += len(data)
        for packet in self._reader.feed(data):
            self._take(packet)
        if self._arrived.filled():
            self._connection.pause_writing()

    def flush(self) -> None:
        """Take the machine's output, and end the client if the machine closes the connection."""
        connection = self._connection
        if connection.output.out:
            self._read(connection.output.take())
        if connection.closing:
            self._end()

    # ---- internals

    def _send(self, packet: Packet) -> None:
        if self._connection.closing:
            return
        try:
            data = encode(packet, V5)
        except ValueError as error:
            raise refused(Reason.MALFORMED_PACKET, str(error)) from None
        self._received += len(data)
        self._connection.receive(data)
        self._server.frontend.turn.has_read()

    def _send_soon(self, packet: Packet) -> None:
        """Send a packet in the next turn of the loop, after the packets at hand have been handled."""
        asyncio.get_running_loop().call_soon(self._send, packet)

    async def _ask(self, packet: Packet, packet_id: int, kind: type[Answer]) -> Answer:
        """Send a packet and return its answer of this `kind`. Raises `EndedError`."""
        if self.ended:
            raise EndedError(self._reason or Reason.UNSPECIFIED_ERROR)
        answer = await self._requests.ask(packet_id, lambda: self._send(packet))
        assert isinstance(answer, kind)
        return answer

    def _take(self, packet: Packet) -> None:
        """Handle a packet from the broker."""
        if isinstance(packet, Publish):
            self._arrived.add(packet)
            if packet.qos == 2 and packet.packet_id is not None:
                self._exact.add(packet.packet_id)
        elif isinstance(packet, Connack):
            if self._connected is not None and not self._connected.done():
                self._connected.set_result(packet)
        elif isinstance(packet, Ack):
            if packet.type in (PacketType.PUBACK, PacketType.PUBREC):
                self._requests.answered(packet.packet_id, packet)
            if packet.type is PacketType.PUBREL:
                self._send_soon(Ack(PacketType.PUBCOMP, packet.packet_id))
            elif packet.type is PacketType.PUBREC and packet.reason < 0x80:
                self._send_soon(Ack(PacketType.PUBREL, packet.packet_id))
        elif isinstance(packet, Suback | Unsuback):
            self._requests.answered(packet.packet_id, packet)
        elif isinstance(packet, Disconnect):
            self._reason = packet.reason

    def _ping(self, interval: int) -> None:
        """Send PINGREQ now and every `interval` seconds, to satisfy the machine's Keep Alive. (The HTTP connection
        itself is monitored elsewhere.)"""
        if interval and not self.ended:
            self._send(Pingreq())
            asyncio.get_running_loop().call_later(interval, self._ping, interval)

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._connection.lost()
        error = EndedError(self._reason or Reason.UNSPECIFIED_ERROR)
        self._requests.fail(error)
        if self._connected is not None and not self._connected.done():
            self._connected.set_exception(error)
        self._may_publish.set()
        self._arrived.end()
        self._server.disconnected(self)


def reached(ack: Ack) -> tuple[int, int]:
    """Return the numbers of subscribers and of other brokers that a publication has reached, by its acknowledgement."""
    told = dict(ack.properties.get(Property.USER_PROPERTY, ()))
    return int(told.get(TELL, 0)), int(told.get(TELL_BROKERS, 0))
