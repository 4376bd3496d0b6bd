"""Generates the OpenAPI document (3.1) of the Web port from the types that the port decodes and encodes.

Each operation has ``x-examples``: requests with the status of their answers. Tests send all of them.
"""

from __future__ import annotations

from typing import Any

from saps import openapi
from saps.drain.values import Drained, Order
from saps.frontend.web.clients import messages
from saps.frontend.web.clients.messages import Message, Published
from saps.frontend.web.http.openapi_parts import FLAG, SEEN, example, operation, state
from saps.frontend.web.http.problems import Problem
from saps.frontend.web.http.visitors import Ticket
from saps.frontend.web.mesh.network import Decisions, Network
from saps.frontend.web.mesh.report import MODES, SORTS, AddressTrace, Brokers, Forgotten, TopicList, Trace
from saps.frontend.web.operations import openapi as operations
from saps.openapi import TEXT, in_header, in_path, in_query, json_answer, problem_answer

TYPES: dict[str, Any] = {
    "Published": Published,
    "Message": Message,
    "SocketRequest": messages.Op,
    "SocketAnswer": messages.Told,
    "Brokers": Brokers,
    "Forgotten": Forgotten,
    "Ticket": Ticket,
    "TopicList": TopicList,
    "Network": Network,
    "Trace": Trace,
    "AddressTrace": AddressTrace,
    "Decisions": Decisions,
    "Drained": Drained,
    "Order": Order,
    "Problem": Problem,
    **operations.TYPES,
}
"""Types of requests and answers, by the name of their schema."""
_SECONDS = {"type": "integer", "minimum": 0, "maximum": 0xFFFFFFFF}
_SOCKET = "Opens a WebSocket. "


def document(version: str) -> dict[str, Any]:
    """Return the document. `version`: the program's version."""
    return openapi.document(
        "SAPS broker, Web port",
        version,
        "Publish and subscribe with the topics, rights, limits and guarantees of MQTT, and see the state of the mesh. "
        "Every answer of 400 and above is a problem (RFC 9457).",
        TYPES,
        lambda named: {
            **_topics(named),
            **_subscribing(named),
            **_mesh(named),
            **_orders(named),
            **operations.paths(named),
            **_monitoring(),
        },
        {
            "basic": {"type": "http", "scheme": "basic", "description": "A user of the password file."},
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "The same pair as a token: base64 of user:password.",
            },
            "certificate": {"type": "mutualTLS"},
        },
    )


def _topics(named: dict[str, Any]) -> dict[str, Any]:
    topic = in_path("topic", "The topic. Its levels may be levels of the path; #, ?, % and + are percent-encoded.")
    body = {"content": {"*/*": {"schema": {}}}, "description": "The payload, as it is."}
    publish = operation(
        "Publish",
        "With QoS 0 the answer is 202 and says nothing. With QoS 1 and 2 it comes when all brokers with subscribers "
        "have the message, and says how many subscribers and other brokers it has reached: none, if it has no matching "
        "subscribers. Each parameter but property may be a header, too: Saps-Qos. A request that got no answer may "
        "have published.",
        {
            200: json_answer("QoS 1 and 2: all have it.", named["Published"]),
            202: json_answer("QoS 0: it is on its way.", named["Published"]),
        },
        (400, 401, 403, 413, 429, 503),
        [
            topic,
            in_query("qos", {"type": "integer", "enum": [0, 1, 2], "default": 0}, "Quality of service."),
            in_query("retain", FLAG, "Keep it for later subscribers. An empty payload deletes what is kept."),
            in_query("expiry", _SECONDS, "Seconds after which it is not delivered any more."),
            in_query("response-topic", TEXT, "Where to answer."),
            in_query("correlation", {**TEXT, "contentEncoding": "base64"}, "What the answer is to carry."),
            in_query("property", {"type": "array", "items": TEXT}, "A user property, name=value; any number."),
            in_header("Saps-Properties", "User properties as form fields: unit=ug%2Fm3&place=roof."),
            in_header("Content-Type", "The content type of the message, but application/x-www-form-urlencoded."),
        ],
        [
            example("/v1/topics/air/ward1?qos=1&retain=true", 200, body="21.5"),
            example("/v1/topics/air/ward1", 202, body="21.6"),
            example("/v1/topics/air/ward1?qos=2&property=unit=ug&expiry=60", 200, body="21.7"),
            example("/v1/topics/air/%2B", 400, body="no wildcards"),
            example("/v1/topics/air/ward1?qos=3", 400),
            example("/v1/topics/$SYS/broker/version?qos=1", 403),
            example("/v1/topics/air/ward1", 401, headers={"Authorization": "Basic bm9ib2R5OmI="}),
        ],
    )
    publish["requestBody"] = body
    retained = operation(
        "Retained message",
        "The retained message of a topic, wherever in the mesh it is kept. User properties are in Saps-Properties.",
        {200: {"description": "The payload, with its content type.", "content": {"*/*": {"schema": {}}}}},
        (400, 401, 403, 404, 429, 503),
        [topic],
        [
            example("/v1/topics/air/ward1", 200, after="/v1/topics/air/ward1?qos=1&retain=true"),
            example("/v1/topics/nothing/here", 404),
            example("/v1/topics/$SYS/broker/version", 200),
        ],
    )
    return {"/v1/topics/{topic}": {"post": publish, "get": retained}}


def _subscribing(named: dict[str, Any]) -> dict[str, Any]:
    events = operation(
        "Subscribe by server-sent events",
        "Each event's data is a Message. Events of QoS 1 have identifiers: a client that comes back with the last one "
        "in Last-Event-ID, as browsers do, gets what came after it, as long as its session lives and its queue holds.",
        {200: {"description": "Events.", "content": {"text/event-stream": {"itemSchema": named["Message"]}}}},
        (400, 401, 403, 429, 503),
        [
            in_query("filter", {"type": "array", "items": TEXT, "minItems": 1}, "Topic filters.", required=True),
            in_query("qos", {"type": "integer", "enum": [0, 1], "default": 0}, "Quality of service, at most."),
            in_query("client", TEXT, "Client identifier; a new one if it is left out."),
            in_query("expiry", {**_SECONDS, "default": 60}, "Seconds the session waits for the client to come back."),
            in_query(
                "retained",
                {"enum": ["send", "new", "never"], "default": "new"},
                "Retained messages: always, if the subscription is new, never.",
            ),
            in_header("Last-Event-ID", "The identifier of the last event that came."),
        ],
        [
            example("/v1/events?filter=air/%23&qos=1", 200),
            example("/v1/events", 400),
            example("/v1/events?filter=air/%23/x", 400),
        ],
    )
    socket = operation(
        "Publish and subscribe by WebSocket",
        _SOCKET + "Subprotocols: saps-json (text, also without a subprotocol) and saps-msgpack (binary). The client "
        "sends SocketRequest, the broker SocketAnswer. Messages with QoS 1 are acknowledged by the client.",
        {101: {"description": "The WebSocket."}},
        (400, 401, 403, 426, 429, 503),
        [
            in_query("client", TEXT, "Client identifier; a new one if it is left out."),
            in_query("expiry", {**_SECONDS, "default": 0}, "Seconds the session waits for the client to come back."),
            in_query("clean", FLAG, "Begin a new session even if there is one."),
            in_query("window", {"type": "integer", "minimum": 1, "maximum": 65535}, "Messages of QoS 1 in flight."),
        ],
        [example("/v1/socket", 426)],
    )
    mqtt = operation(
        "MQTT over WebSocket",
        _SOCKET + "Subprotocol mqtt, binary frames (MQTT 5.0, chapter 6).",
        {101: {"description": "The WebSocket."}},
        (426,),
        [],
        [example("/mqtt", 426)],
    )
    mqtt["responses"]["426"] = {"description": "This is no page."}
    return {"/v1/events": {"get": events}, "/v1/socket": {"get": socket}, "/mqtt": {"get": mqtt}}


def _mesh(named: dict[str, Any]) -> dict[str, Any]:
    known = "The topics that brokers know, added up."
    topics = state(named, "TopicList", "Topics", known, "/v1/topics?search=air&limit=10")
    topics["parameters"] = [
        in_query("search", TEXT, "What the topic must contain."),
        in_query("filter", TEXT, "The topic filter it must match."),
        in_query("mode", {"enum": list(MODES)}, "How it travels."),
        in_query("sort", {"enum": list(SORTS), "default": "rate"}, "The order."),
        in_query("limit", {"type": "integer", "minimum": 0, "maximum": 20000, "default": 1000}, "At most so many."),
    ]
    topics["x-examples"] += [
        example("/v1/topics?filter=air/%23&limit=10", 200),
        example("/v1/topics?sort=color", 400),
        example("/v1/topics?filter=a/%23/b", 400),
    ]
    way = "Where a message to the topic would go, and why."
    trace = state(named, "Trace", "The way of a message", way, "/v1/trace/air/ward1")
    trace["parameters"] = [in_path("topic", "The topic."), in_query("from", TEXT, "The broker it is published at.")]
    trace["responses"]["404"] = problem_answer("There is no such broker.")
    trace["x-examples"].append(example("/v1/trace/air/ward1?from=nobody", 404))
    address = operation(
        "What an address of stateless delivery means",
        "Needs web.controller. " + SEEN,
        {200: json_answer("The brokers that it names, and the links to them.", named["AddressTrace"])},
        (400, 401, 403, 404, 503, 504),
        [in_path("address", "ff15:, set, plane and bits."), in_query("from", TEXT, "The broker that sends.")],
        [example("/v1/addresses/ff15::1", 404), example("/v1/addresses/ff05::1", 400)],
    )
    live = operation(
        "The state of the mesh, pushed",
        _SOCKET + "First everything, then every 2 seconds what has changed. " + SEEN,
        {101: {"description": "The WebSocket."}},
        (401, 403, 426),
        [],
        [example("/v1/live", 426)],
    )
    wanted = "Topics that shall have trees, and why."
    network = "Switches, links, trees, budgets."
    return {
        "/v1/brokers": {"get": state(named, "Brokers", "Brokers", "All brokers of the mesh.", "/v1/brokers")},
        "/v1/topics": {"get": topics},
        "/v1/trees": {"get": state(named, "Network", "The OpenFlow network", network, "/v1/trees")},
        "/v1/trace/{topic}": {"get": trace},
        "/v1/addresses/{address}": {"get": address},
        "/v1/decisions": {"get": state(named, "Decisions", "Decisions", wanted, "/v1/decisions")},
        "/v1/live": {"get": live},
    }


def _orders(named: dict[str, Any]) -> dict[str, Any]:
    login = operation(
        "Log in",
        "A ticket that lets one request in within 30 s, as its parameter ticket: for a WebSocket, to which a page "
        "cannot give a name and a password. " + SEEN,
        {200: json_answer("The ticket.", named["Ticket"])},
        (401, 403, 429),
        [],
        [example("/v1/login", 200)],
    )
    forget = operation(
        "Forget a broker that is away",
        "It is not shown any more, at any broker. " + SEEN + " Anonymous clients of other machines may not.",
        {200: json_answer("It is forgotten.", named["Forgotten"])},
        (400, 401, 403, 404, 503, 504),
        [in_path("broker", "Its name.")],
        [example("/v1/brokers/nobody", 404)],
    )
    drain = operation(
        "Drain the broker",
        "Its clients are sent to other brokers, their sessions go with them or are given away, then it ends. The "
        "answer comes at once. " + SEEN + " Anonymous clients of other machines may not.",
        {200: json_answer("How far it is.", named["Drained"])},
        (400, 401, 403, 413, 503),
        [],
        [
            example("/v1/drain", 200, body='{"cancel": true}'),
            example("/v1/drain", 400, body='{"rate": 0}'),
            example("/v1/drain?broker=nobody", 404, body='{"cancel": true}'),
        ],
    )
    drain["parameters"] = [in_query("broker", TEXT, "Another broker.")]
    drain["responses"]["404"] = problem_answer("There is no such broker.")
    drain["requestBody"] = {"content": {"application/json": {"schema": named["Order"]}}}
    progress = state(named, "Drained", "A drain", "How far this broker is.", "/v1/drain")
    return {
        "/v1/drain": {"get": progress, "post": drain},
        "/v1/brokers/{broker}": {"delete": forget},
        "/v1/login": {"post": login},
    }


def _monitoring() -> dict[str, Any]:
    def plain(summary: str, media: str, path: str, *refusals: int) -> dict[str, Any]:
        answers = {200: {"description": summary, "content": {media: {"schema": TEXT}}}}
        return {"get": operation(summary, summary, answers, refusals, [], [example(path, 200)])}

    file = plain("A part of a page", "*/*", "/static/style.css", 404)
    file["get"]["parameters"] = [in_path("file", "Its name.")]
    return {
        "/metrics": plain("Metrics, in the format of Prometheus or OpenMetrics", "text/plain", "/metrics", 401, 403),
        "/healthz": plain("The process answers", "text/plain", "/healthz"),
        "/readyz": plain("The broker serves clients", "text/plain", "/readyz", 503),
        "/": plain("The operator's page", "text/html", "/"),
        "/example": plain("An example of a page that publishes and subscribes", "text/html", "/example"),
        "/static/{file}": file,
        "/openapi.json": plain("This document", "application/json", "/openapi.json"),
    }
