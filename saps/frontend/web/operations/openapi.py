"""Generates the part of the OpenAPI document for the operators' work on clients."""

from __future__ import annotations

from typing import Any

from saps.frontend.web.http.openapi_parts import FLAG, SEEN, example, operation, state
from saps.openapi import TEXT, in_path, in_query, json_answer, problem_answer
from saps.operations.audit import KEPT, AuditList
from saps.operations.bans import BanList, Banned, BanOrder
from saps.operations.following import LONGEST, Event
from saps.operations.retained import MOST, Deleted, RetainedList
from saps.operations.values import MOST_CLIENTS, SORTS, Client, ClientList, Disconnected

TYPES: dict[str, Any] = {
    "ClientList": ClientList,
    "Client": Client,
    "Disconnected": Disconnected,
    "AuditList": AuditList,
    "BanList": BanList,
    "BanOrder": BanOrder,
    "Banned": Banned,
    "RetainedList": RetainedList,
    "Deleted": Deleted,
    "FollowEvent": Event,
}
"""Types of requests and answers, by the name of their schema."""


def paths(named: dict[str, Any]) -> dict[str, Any]:
    """Return the paths. `named`: the schemas by name."""
    return {**_clients(named), **_audit(named), **_bans(named), **_retained(named), **_follow(named)}


def _clients(named: dict[str, Any]) -> dict[str, Any]:
    text = "The clients of all brokers that are wanted."
    found = state(named, "ClientList", "Clients", text, "/v1/clients?search=sensor&limit=10")
    star = "* stands for any characters."
    found["parameters"] = [
        in_query("search", TEXT, "A part of the client identifier, the user or the address."),
        in_query("client", TEXT, f"The client identifier; {star}"),
        in_query("user", TEXT, f"Whose; {star}"),
        in_query("address", TEXT, f"From where, without the port; {star}"),
        in_query("broker", TEXT, "At which broker."),
        in_query("filter", TEXT, "With a subscription that has a topic in common with this filter or topic."),
        in_query("state", {"enum": ["connected", "away"]}, "Only those."),
        in_query("sort", {"enum": list(SORTS), "default": "client"}, "The order; rate: who publishes most."),
        in_query(
            "limit", {"type": "integer", "minimum": 0, "maximum": MOST_CLIENTS, "default": 100}, "At most so many."
        ),
        in_query("after", TEXT, "The answer's next: the page that follows. Who moves in the order may miss both."),
    ]
    found["responses"]["404"] = problem_answer("There is no such broker.")
    found["x-examples"] += [
        example("/v1/clients?filter=air/%23&state=connected&sort=rate", 200),
        example("/v1/clients?sort=color", 400),
        example("/v1/clients?after=nothing", 400),
        example("/v1/clients?filter=a/%23/b", 400),
        example("/v1/clients?broker=nobody", 404),
    ]
    show = operation(
        "One client",
        "Its session, subscriptions, last will, what is in flight and what waits, wherever it is. " + SEEN,
        {200: json_answer("The client.", named["Client"])},
        (400, 401, 403, 404, 503, 504),
        [in_path("client", "The client identifier.")],
        [example("/v1/clients/nobody", 404)],
    )
    disconnect = operation(
        "Disconnect a client",
        "Its connection is closed (0x98, administrative action). It may come back. " + SEEN,
        {200: json_answer("It is disconnected.", named["Disconnected"])},
        (400, 401, 403, 404, 503, 504),
        [
            in_path("client", "The client identifier."),
            in_query("session", {"enum": ["keep", "end"], "default": "keep"}, "end: its session ends, too."),
        ],
        [example("/v1/clients/nobody", 404), example("/v1/clients/nobody?session=maybe", 400)],
    )
    return {"/v1/clients": {"get": found}, "/v1/clients/{client}": {"get": show, "delete": disconnect}}


def _audit(named: dict[str, Any]) -> dict[str, Any]:
    found = state(named, "AuditList", "Audit log", "The latest entries of all brokers.", "/v1/audit?search=drain")
    found["description"] = "Changes, logins and refused logins. Only for administrators."
    found["parameters"] = [
        in_query("search", TEXT, "What an entry must contain: a user, a client, an address."),
        in_query("logins", FLAG, "With logins and refused logins."),
        in_query("limit", {"type": "integer", "minimum": 0, "maximum": KEPT, "default": 100}, "At most so many."),
    ]
    found["x-examples"] += [example("/v1/audit?logins=true&limit=5", 200), example("/v1/audit?limit=many", 400)]
    return {"/v1/audit": {"get": found}}


def _bans(named: dict[str, Any]) -> dict[str, Any]:
    show = state(named, "BanList", "Bans", "Clients, users and addresses that no broker lets in.", "/v1/bans")
    ban = operation(
        "Ban",
        "At all brokers, for a time or until it is lifted. Who is connected is disconnected. Only for administrators.",
        {200: json_answer("It holds.", named["Banned"])},
        (400, 401, 403, 413, 503, 504),
        [],
        [
            example("/v1/bans", 200, body='{"kind": "client", "name": "c9", "seconds": 60, "reason": "floods"}'),
            example("/v1/bans", 400, body='{"kind": "address", "name": "10.0.0"}'),
            example("/v1/bans", 400, body='{"kind": "broker", "name": "b1"}'),
        ],
    )
    ban["requestBody"] = {"content": {"application/json": {"schema": named["BanOrder"]}}}
    lift = operation(
        "Lift a ban",
        "At all brokers. Only for administrators.",
        {200: json_answer("It is lifted.", named["Banned"])},
        (400, 401, 403, 404, 503, 504),
        [in_path("kind", "client, user or address."), in_path("name", "What is banned.")],
        [
            example("/v1/bans/client/c9", 200),
            example("/v1/bans/user/nobody", 404),
            example("/v1/bans/broker/b1", 400),
        ],
    )
    return {"/v1/bans": {"get": show, "post": ban}, "/v1/bans/{kind}/{name}": {"delete": lift}}


def _retained(named: dict[str, Any]) -> dict[str, Any]:
    found = state(named, "RetainedList", "Retained messages", "By topic.", "/v1/retained?filter=air/%23&limit=10")
    found["description"] = "The retained messages of the mesh, a page at a time. Only for operators."
    found["parameters"] = [
        in_query("filter", {**TEXT, "default": "#"}, "Topic filter."),
        in_query("after", TEXT, "The last topic of the page before."),
        in_query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": 100}, "At most so many."),
    ]
    found["x-examples"] += [example("/v1/retained?filter=a/%23/b", 400), example("/v1/retained?limit=0", 400)]
    delete = operation(
        "Delete a retained message",
        "Whoever has published it. Only for operators.",
        {200: json_answer("It is deleted.", named["Deleted"])},
        (400, 401, 403, 404, 503, 504),
        [in_path("topic", "The topic.")],
        [
            example("/v1/retained/air/old", 200, after="/v1/topics/air/old?qos=1&retain=true"),
            example("/v1/retained/nothing/here", 404),
        ],
    )
    return {"/v1/retained": {"get": found}, "/v1/retained/{topic}": {"delete": delete}}


def _follow(named: dict[str, Any]) -> dict[str, Any]:
    follow = operation(
        "Follow a client or a topic live",
        "Server-sent events from all brokers: a client's packets, decoded; or what becomes of each message of a "
        "filter, and why it is not delivered; or, with both, whether these reach that client. Only for operators.",
        {200: {"description": "Events.", "content": {"text/event-stream": {"itemSchema": named["FollowEvent"]}}}},
        (400, 401, 403, 404, 429, 503, 504),
        [
            in_query("client", TEXT, "A client identifier."),
            in_query("filter", TEXT, "A topic filter."),
            in_query("seconds", {"type": "integer", "minimum": 1, "maximum": int(LONGEST), "default": 60}, "How long."),
        ],
        [
            example("/v1/follow?client=c9&seconds=1", 200),
            example("/v1/follow?client=nobody&filter=air/%23", 404),
            example("/v1/follow", 400),
            example("/v1/follow?filter=%23/a", 400),
        ],
    )
    return {"/v1/follow": {"get": follow}}
