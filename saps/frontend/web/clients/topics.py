"""Serves ``/v1/topics/{topic}``: POST publishes a message, GET returns the retained message."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from urllib.parse import parse_qsl, urlencode

import msgspec
from aiohttp import web

from saps.frontend.mqtt.codec.packets import Publish, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.web.clients.client import EndedError, reached
from saps.frontend.web.clients.clients import WebClients
from saps.frontend.web.clients.messages import Content, Pairs, Published, publish_of, reason_text
from saps.frontend.web.http.credentials import credentials
from saps.frontend.web.http.parameters import Parameters
from saps.frontend.web.http.problems import ProblemError, refused
from saps.topics import topic_fault

PARAMETERS = ("qos", "retain", "expiry", "response-topic", "correlation", "property")
"""Parameters of a publication in the query. All except ``property`` may also be headers, such as ``Saps-Qos: 1``."""
PROPERTIES = "Saps-Properties"
"""Header of requests and answers with user properties as form fields, such as ``unit=ug%2Fm3&place=roof``."""
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *; *[A-Za-z0-9_.-]+=[A-Za-z0-9_.-]+)*")
_FORM = "application/x-www-form-urlencoded"
"""The default Content-Type of curl, which is ignored as unintended."""
HARMLESS = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of answers with a payload: a publisher's content must not run as a page of this broker."""


class Topics:
    """Handles requests for topics."""

    def __init__(self, clients: WebClients) -> None:
        self._clients = clients

    async def publish(self, request: web.Request) -> web.Response:
        """Publish the request's body. Answers 202 at once with QoS 0, or 200 when all brokers with subscribers have the
        message with QoS 1 and 2. Raises `ProblemError`."""
        topic = topic_of(request)
        qos, content = _asked(request, await request.read())
        client = await self._clients.of(request)
        try:
            ack = await client.publish(publish_of(topic, qos, content))
        except EndedError as error:
            raise refused(error.reason) from None
        if ack is None:
            return answer(Published(topic=topic, qos=0), 202)
        if ack.reason >= 0x80:
            raise refused(ack.reason, f"topic {topic!r}")
        subscribers, brokers = reached(ack)
        reason = reason_text(ack.reason)
        return answer(Published(topic=topic, qos=qos, reason=reason, subscribers=subscribers, brokers=brokers))

    async def retained(self, request: web.Request) -> web.Response:
        """Answer with the payload of the topic's retained message. Raises `ProblemError`, with 404 if there is none."""
        topic = topic_of(request)
        Parameters(request, ())
        client = self._clients.new(request)
        try:
            await client.connect(credentials(request.headers.get("Authorization")))
            (reason,) = await client.subscribe([SubscribeEntry(topic, 1)])
            if reason >= 0x80:
                raise refused(reason, f"topic {topic!r}")
            found = next((packet for packet in client.pending() if packet.retain), None)
        except EndedError as error:
            raise refused(error.reason) from None
        finally:
            client.leave()
        if found is None:
            raise ProblemError(404, "Nothing retained", f"there is no retained message for {topic!r}")
        return _payload(found)


def topic_of(request: web.Request) -> str:
    """Return the topic in a request's path. Raises `ProblemError` if it is invalid."""
    topic = request.match_info["topic"]
    fault = topic_fault(topic)
    if fault is not None:
        raise ProblemError(400, "Bad topic", f"{topic!r}: {fault}", field="topic")
    return topic


def answer(value: object, status: int = 200) -> web.Response:
    """Return an answer with a value as JSON."""
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json", headers=headers
    )


def _asked(request: web.Request, body: bytes) -> tuple[int, Content]:
    """Return the QoS and the content of a publication. Raises `ProblemError` that names an invalid parameter."""
    asked = Parameters(request, PARAMETERS, headers=PARAMETERS[:-1])
    pairs = [_pair(value) for value in asked.all("property")]
    pairs += parse_qsl(request.headers.get(PROPERTIES, ""), keep_blank_values=True)
    content_type = request.headers.get("Content-Type")
    return asked.number("qos", 2) or 0, Content(
        data=body,
        retain=asked.flag("retain"),
        expiry=asked.number("expiry", 0xFFFFFFFF),
        content_type=None if content_type == _FORM else content_type,
        response_topic=asked.get("response-topic"),
        correlation=_bytes("correlation", asked.get("correlation")),
        properties=tuple(pairs),
    )


def _pair(value: str) -> tuple[str, str]:
    name, equals, text = value.partition("=")
    if not equals:
        raise ProblemError(400, "Bad parameter", "a property is name=value", field="property")
    return name, text


def _bytes(name: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else b64decode(text, validate=True)
    except ValueError:
        raise ProblemError(400, "Bad parameter", f"{text!r} is not base64", field=name) from None


def _payload(packet: Publish) -> web.Response:
    properties = packet.properties
    said = properties.get(Property.CONTENT_TYPE, "")
    pairs: Pairs = properties.get(Property.USER_PROPERTY, ())
    headers = {
        **HARMLESS,
        "Content-Type": said if _MEDIA_TYPE.fullmatch(said) else "application/octet-stream",
        "Saps-Qos": str(packet.qos),
    }
    if pairs:
        headers[PROPERTIES] = urlencode(pairs)
    if (expiry := properties.get(Property.MESSAGE_EXPIRY)) is not None:
        headers["Saps-Expiry"] = str(expiry)
    if (response_topic := properties.get(Property.RESPONSE_TOPIC)) is not None:
        headers["Saps-Response-Topic"] = urlencode({"": response_topic})[1:]
    if (correlation := properties.get(Property.CORRELATION_DATA)) is not None:
        headers["Saps-Correlation"] = b64encode(correlation).decode()
    return web.Response(body=packet.payload, headers=headers)
