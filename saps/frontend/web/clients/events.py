"""Serves ``/v1/events``: subscriptions by server-sent events, which continue after a break without a loss.

A QoS 1 event has an identifier made of the client's and the packet's. Its message stays in flight in the client's
session until `UNSURE` later ones have been sent. A client that reconnects and names its last event (Last-Event-ID, as
browsers do) receives all later messages from the session, including those that came while it was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from itertools import chain

import msgspec
from aiohttp import web

from saps.frontend.mqtt.codec.packets import Publish
from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.web.clients.client import EndedError, WebClient
from saps.frontend.web.clients.clients import WebClients
from saps.frontend.web.clients.messages import Wanted, message_of
from saps.frontend.web.clients.socket import entry_of
from saps.frontend.web.http.credentials import credentials
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.http.problems import ProblemError, refused, words

UNSURE = 256
"""Most QoS 1 messages that may be lost in a connection that breaks: sent, but perhaps not received."""
EXPIRY = 60
"""Default Session Expiry Interval in seconds, for a client that gives none."""
COMMENT = 15.0
"""Seconds of silence after which a comment is sent. It detects clients that have gone, and keeps proxies from closing.
"""
RETRY = 1000
"""Milliseconds after which a browser should reconnect."""


class Events:
    """Handles requests for events."""

    def __init__(self, clients: WebClients) -> None:
        self._clients = clients

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one client, from its request to the end of the connection. Raises `ProblemError` before the answer has
        begun."""
        asked = Parameters(request, ("filter", "qos", "client", "expiry", "retained"))
        filters, qos = asked.all("filter"), asked.number("qos", 1) or 0
        retained = asked.text("retained") or "new"
        expiry = asked.number("expiry", 0xFFFFFFFF)
        if not filters:
            raise ProblemError(400, "No filter", "name a topic filter: ?filter=air/%23", field="filter")
        if retained not in ("send", "new", "never"):
            raise ProblemError(400, "Bad parameter", "it is send, new or never", field="retained")
        last_client, _, last_packet = request.headers.get("Last-Event-ID", "").rpartition("/")
        client_id = asked.text("client") or last_client or f"web-{secrets.token_hex(8)}"
        if not client_id.isprintable():
            raise ProblemError(400, "Bad parameter", "control characters", field="client")
        had = _had(self._clients.server, client_id, last_packet if last_client == client_id else "")
        client = self._clients.new(request)
        try:
            await client.connect(
                credentials(request.headers.get("Authorization")),
                client_id,
                clean=False,
                expiry=EXPIRY if expiry is None else expiry,
                receive_maximum=2 * UNSURE,
            )
            entries = [entry_of(Wanted(filter=f, qos=qos, retained=retained)) for f in filters]  # type: ignore[arg-type]
            reasons = await client.subscribe(entries)
            for topic_filter, reason in zip(filters, reasons, strict=True):
                if reason >= 0x80:
                    client.leave()
                    raise refused(reason, f"filter {topic_filter!r}")
            return await _Stream(client, request, had).run()
        except EndedError as error:
            raise refused(error.reason) from None
        finally:
            client.close()


def _had(server: MqttServer, client_id: str, last: str) -> set[int]:
    """Return the packet identifiers in flight that the client already has: all up to the identifier `last`."""
    session = server.frontend.sessions.get(client_id)
    if session is None or not (last.isascii() and last.isdigit()) or int(last[:6]) not in session.window.inflight:
        return set()
    inflight = list(session.window.inflight)
    return set(inflight[: inflight.index(int(last[:6])) + 1])


class _Stream:
    """A connected client and its stream of events."""

    def __init__(self, client: WebClient, request: web.Request, had: set[int]) -> None:
        """`had`: packet identifiers of messages that the client already has."""
        self._client = client
        self._request = request
        self._had = had
        self._unsure: deque[int] = deque()

    async def run(self) -> web.StreamResponse:
        """Send events until the connection breaks or the client's session ends."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(self._request)
        with contextlib.suppress(ConnectionError):
            await response.write(f"retry: {RETRY}\n\n".encode())
            await self._pass_on(response)
        return response

    async def _pass_on(self, response: web.StreamResponse) -> None:
        batch = asyncio.ensure_future(self._client.batch())
        try:
            while True:
                done, _ = await asyncio.wait([batch], timeout=COMMENT)
                if not done:
                    await response.write(b":\n\n")
                    continue
                await response.write(b"".join(chain.from_iterable(map(self._event, batch.result()))))
                while len(self._unsure) > UNSURE:
                    self._client.acknowledge(self._unsure.popleft())
                batch = asyncio.ensure_future(self._client.batch())
        except EndedError as error:
            await response.write(f"event: end\ndata: {words(error.reason)}\n\n".encode())
        finally:
            batch.cancel()

    def _event(self, packet: Publish) -> list[bytes]:
        """Return the parts of a message's event; none if the client already has the message, which is acknowledged."""
        if packet.packet_id is None:
            return [b"data: ", msgspec.json.encode(message_of(packet)), b"\n\n"]
        if packet.packet_id in self._had:
            self._had.discard(packet.packet_id)
            self._client.acknowledge(packet.packet_id)
            return []
        self._unsure.append(packet.packet_id)
        name = f"id: {self._client.client_id}/{packet.packet_id}\ndata: ".encode()
        return [name, msgspec.json.encode(message_of(packet)), b"\n\n"]
