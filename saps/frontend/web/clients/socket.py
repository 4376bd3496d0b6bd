"""Serves ``/v1/socket``: publishing and subscribing over a WebSocket, in JSON (text) or MessagePack (binary).

Each WebSocket message is one `saps.frontend.web.clients.messages.Op` or one `Told`. The client acknowledges QoS 1
messages. Unacknowledged ones are sent again when the client reconnects with the same ``client`` before its session
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError
from aiohttp.http import WSCloseCode, WSMsgType

from saps.frontend.mqtt.codec.packets import SubscribeEntry
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.web.clients.client import EndedError, WebClient, reached
from saps.frontend.web.clients.clients import WebClients
from saps.frontend.web.clients.messages import (
    RETAINED,
    AckOp,
    Fault,
    Grant,
    Op,
    Published,
    PublishOp,
    Subscribed,
    SubscribeOp,
    Told,
    Unsubscribed,
    UnsubscribeOp,
    Wanted,
    Welcome,
    message_of,
    publish_of,
    reason_text,
)
from saps.frontend.web.http.credentials import credentials
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.http.problems import Problem, ProblemError, refused, words
from saps.topics import subscription_fault, topic_fault

JSON, MSGPACK = "saps-json", "saps-msgpack"
"""The subprotocols. A client without a subprotocol uses JSON."""
HEARTBEAT = 30.0
"""Seconds between two pings; a client that does not answer is disconnected."""
HEADROOM = 1 << 16
"""Bytes by which a WebSocket message may exceed the payload it publishes, in addition to base64."""
POLICY_VIOLATION = WSCloseCode.POLICY_VIOLATION
AT_ONCE = 1024
"""Most requests of one client in progress; the broker then stops reading from it."""


class TopicSockets:
    """Handles requests for topic WebSockets."""

    def __init__(self, clients: WebClients) -> None:
        self._clients = clients

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one client, from its request to the end of the connection. Raises `ProblemError` to refuse it."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise ProblemError(426, "WebSocket only", "this address takes WebSockets only")
        asked = Parameters(request, ("client", "expiry", "window", "clean"))
        client_id, clean = asked.text("client"), asked.flag("clean")
        expiry, window = asked.number("expiry", 0xFFFFFFFF), asked.number("window", 0xFFFF, least=1)
        client = self._clients.new(request)
        limits = self._clients.server.limits
        try:
            connack = await client.connect(
                credentials(request.headers.get("Authorization")),
                client_id,
                clean=clean or not client_id,
                expiry=expiry or 0,
                receive_maximum=window,
            )
            socket = web.WebSocketResponse(
                protocols=(JSON, MSGPACK),
                timeout=limits.linger,
                heartbeat=HEARTBEAT,
                compress=False,
                max_msg_size=limits.maximum_packet_size * 3 // 2 + HEADROOM,
            )
            await socket.prepare(request)
            session = _Session(client, socket)
            await session.tell(
                Welcome(
                    client=client.client_id,
                    session=connack.session_present,
                    maximum_packet_size=limits.maximum_packet_size,
                )
            )
            await session.run()
        finally:
            client.close()
        return socket


class _Session:
    """A connected client and its WebSocket."""

    def __init__(self, client: WebClient, socket: web.WebSocketResponse) -> None:
        self._client = client
        self._socket = socket
        self._binary = socket.ws_protocol == MSGPACK
        kind = cast("type[Op]", Op)
        self._decode: Callable[[bytes], Op] = (
            msgspec.msgpack.Decoder(kind).decode if self._binary else msgspec.json.Decoder(kind).decode
        )
        self._under_way: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Serve the WebSocket until either side ends it."""
        sending = asyncio.create_task(self._send())
        try:
            await self._receive()
        finally:
            sending.cancel()
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(sending, *self._under_way, return_exceptions=True)

    async def tell(self, told: Told) -> None:
        """Send an answer or a message in the WebSocket's format. Raises `ConnectionError`."""
        if self._binary:
            await self._socket.send_bytes(msgspec.msgpack.encode(told))
        else:
            await self._socket.send_str(msgspec.json.encode(told).decode())

    async def _send(self) -> None:
        with contextlib.suppress(ClientConnectionResetError, ConnectionError):
            try:
                while True:
                    for packet in await self._client.batch():
                        await self.tell(message_of(packet))
            except EndedError as error:
                code = WSCloseCode.GOING_AWAY if error.reason == Reason.SERVER_SHUTTING_DOWN else POLICY_VIOLATION
                await self._socket.close(code=code, message=words(error.reason).encode())

    async def _receive(self) -> None:
        async for message in self._socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            if (message.type is WSMsgType.BINARY) != self._binary:
                await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"text for JSON, binary otherwise")
                return
            try:
                op = self._decode(message.data if self._binary else message.data.encode())
            except (msgspec.MsgspecError, UnicodeError) as error:
                await self.tell(Fault(title="Bad message", detail=str(error)))
                continue
            if isinstance(op, AckOp):
                self._client.acknowledge(op.message)
                continue
            await self._room.acquire()
            self._start(self._carry_out(op))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a request. Tasks begin in the order of their creation, which keeps the order of a client's
        publications."""
        task = asyncio.create_task(work)
        self._under_way.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._under_way.discard(task)
            self._room.release()

        task.add_done_callback(done)

    async def _carry_out(self, op: SubscribeOp | UnsubscribeOp | PublishOp) -> None:
        try:
            if isinstance(op, PublishOp):
                told: Told = await self._publish(op)
            elif isinstance(op, SubscribeOp):
                told = await self._subscribe(op)
            else:
                told = await self._unsubscribe(op)
        except ProblemError as error:
            told = _fault(op.id, error.problem)
        except EndedError:
            return
        with contextlib.suppress(ClientConnectionResetError, ConnectionError):
            await self.tell(told)

    async def _publish(self, op: PublishOp) -> Published:
        fault = topic_fault(op.topic)
        if fault is not None:
            raise ProblemError(400, "Bad topic", fault, field="topic")
        ack = await self._client.publish(publish_of(op.topic, op.qos, op))
        if ack is None:
            return Published(id=op.id, topic=op.topic, qos=0)
        if ack.reason >= 0x80:
            raise refused(ack.reason)
        subscribers, brokers = reached(ack)
        return Published(
            id=op.id,
            topic=op.topic,
            qos=op.qos,
            reason=reason_text(ack.reason),
            subscribers=subscribers,
            brokers=brokers,
        )

    async def _subscribe(self, op: SubscribeOp) -> Subscribed:
        reasons = await self._client.subscribe([entry_of(wanted) for wanted in op.filters])
        return Subscribed(id=op.id, granted=[grant(w.filter, r) for w, r in zip(op.filters, reasons, strict=True)])

    async def _unsubscribe(self, op: UnsubscribeOp) -> Unsubscribed:
        for wanted in op.filters:
            if (fault := subscription_fault(wanted)) is not None:
                raise ProblemError(400, "Bad filter", f"{wanted!r}: {fault}", field="filters")
        reasons = await self._client.unsubscribe(op.filters)
        return Unsubscribed(id=op.id, existed=[reason == Reason.SUCCESS for reason in reasons])


def entry_of(wanted: Wanted) -> SubscribeEntry:
    """Return a requested subscription as an entry of SUBSCRIBE."""
    handling = RETAINED[wanted.retained]
    return SubscribeEntry(wanted.filter, wanted.qos, wanted.no_local, wanted.retain_as_published, handling)


def grant(topic_filter: str, reason: int) -> Grant:
    """Return the answer for a filter by its reason in SUBACK."""
    if reason >= 0x80:
        return Grant(filter=topic_filter, refused=words(reason))
    return Grant(filter=topic_filter, qos=reason)


def _fault(op: int, problem: Problem) -> Fault:
    return Fault(id=op, title=problem.title, detail=problem.detail, field=problem.field, reason=problem.reason)
