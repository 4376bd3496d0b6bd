"""Makes the OpenAPI document (3.1) of the northbound from the types that the server decodes and encodes."""

from __future__ import annotations

from typing import Any

from saps import openapi
from saps.ofm.controller.leader_election import ElectionState
from saps.ofm.controller.saved import Saved
from saps.ofm.network.topology import Picture
from saps.ofm.northbound.schema import (
    Changes,
    DecodedAddress,
    OfmIntent,
    OfmState,
    OfmStats,
    PortTraffic,
    Problem,
    SwitchBudget,
)
from saps.openapi import TEXT, in_path, in_query, json_answer, problem_answer

_TYPES: dict[str, type] = {
    "OfmIntent": OfmIntent,
    "OfmState": OfmState,
    "OfmStats": OfmStats,
    "Changes": Changes,
    "SwitchBudget": SwitchBudget,
    "PortTraffic": PortTraffic,
    "DecodedAddress": DecodedAddress,
    "Topology": Picture,
    "Problem": Problem,
    "ElectionState": ElectionState,
    "Saved": Saved,
}
_TOPIC = in_path("topic", "The topic's name, every reserved character and `/` percent-encoded.")
_ADDRESS = in_path("address", "ff15:, the set and the plane, and a bit for each receiver.")
_FROM = in_query("from", TEXT, "IP address of the sending broker.")
_WAIT = in_query(
    "wait",
    {"type": "number", "minimum": 0, "maximum": 60, "default": 0},
    "Seconds to wait, at most, until the state is settled: constructed, refused or none.",
)
_AFTER = [
    {"name": "run", "in": "query", "schema": {"type": "string"}},
    {"name": "after", "in": "query", "schema": {"type": "integer"}},
]


_UNAUTHORIZED = {"401": problem_answer("No token, or a wrong one.")}


def document(version: str, *, pair: bool = False) -> dict[str, Any]:
    """Return the document. `version` is the program's. `pair` adds the paths of a controller that is one of two."""
    return openapi.document(
        "SAPS controller, northbound",
        version,
        "OpenFlow multicast (OFM) for topics: one shared tree over a list of brokers each. Every request may be "
        "repeated: it changes nothing then.",
        _TYPES,
        lambda named: _paths(named, pair=pair),
        {"token": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}},
    )


def _paths(schemas: dict[str, Any], *, pair: bool) -> dict[str, Any]:
    state = schemas["OfmState"]
    standby = {"503": problem_answer("The other controller is the master; `type` is urn:saps:problem:standby.")}
    more = standby if pair else {}

    def get(what: str, schema: Any, *parameters: dict[str, Any]) -> dict[str, Any]:
        return {
            "summary": what,
            "parameters": list(parameters),
            "responses": {"200": json_answer(what, schema), **_UNAUTHORIZED, **more},
        }

    def some(name: str) -> dict[str, Any]:
        return {"type": "array", "items": schemas[name]}

    delete = {
        "summary": "The OFM is not wanted any more.",
        "parameters": [_TOPIC, _WAIT],
        "responses": {"200": json_answer("There is none.", state), "202": json_answer("Being deleted.", state), **more},
    }
    metrics = {
        "summary": "Metrics, in the format of Prometheus or OpenMetrics.",
        "responses": {"200": {"description": "Text"}, **_UNAUTHORIZED, **more},
    }
    found = get("The state of an OFM.", state, _TOPIC, _WAIT)
    decoded = get("What an address of stateless delivery means.", schemas["DecodedAddress"], _ADDRESS, _FROM)
    decoded["responses"] |= {"400": problem_answer("Not such an address."), "404": problem_answer("No such sender.")}
    paths = {
        "/healthz": {"get": {"summary": "The process answers.", "responses": {"200": {"description": "ok"}}}},
        "/metrics": {"get": metrics},
        "/v1/ofms": {"get": get("All OFMs, by topic.", some("OfmState"))},
        "/v1/ofms/{topic}": {"get": found, "put": _put(schemas, more), "delete": delete},
        "/v1/ofms/{topic}/stats": {"get": get("Counters of an OFM.", schemas["OfmStats"], _TOPIC)},
        "/v1/changes": {"get": get("What has changed since a revision.", schemas["Changes"], *_AFTER, _WAIT)},
        "/v1/topology": {"get": get("The network as the controller sees it.", schemas["Topology"])},
        "/v1/budgets": {"get": get("Use and limits.", some("SwitchBudget"))},
        "/v1/ports": {"get": get("Counters of all ports.", some("PortTraffic"))},
        "/v1/addresses/{address}": {"get": decoded},
    }
    if pair:
        election = get("What this controller is: master or standby.", schemas["ElectionState"], *_AFTER, _WAIT)
        paths["/v1/pair"] = {"get": election}
        paths["/v1/pair/state"] = {"get": get("What a standby needs to go on.", schemas["Saved"])}
    return paths


def _put(schemas: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    state = schemas["OfmState"]
    refused = "Refused, with the reason: a switch's budget, the address pool, a switch. `ofm` is the state."
    return {
        "summary": "Request an OFM, new or changed. The latest request wins.",
        "parameters": [_TOPIC, _WAIT],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schemas["OfmIntent"]}}},
        "responses": {
            "200": json_answer("Constructed.", state),
            "202": json_answer("Under way, or waiting for a broker.", state),
            "400": problem_answer("The request makes no sense; `detail` says why."),
            **_UNAUTHORIZED,
            "409": problem_answer(refused),
            **more,
        },
    }
