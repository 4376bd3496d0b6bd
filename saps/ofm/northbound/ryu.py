"""Flows, groups and topology in the JSON of Ryu's `ofctl_rest` and `rest_topology` (ryu 4.34, lib/ofctl_v1_3). Pure.

What is written uses the field names of OpenFlow 1.3; what is read has Ryu's older ones (`nw_dst`, `tp_dst`), and
actions as texts (`SET_FIELD: {udp_dst:7000}`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from saps.ofm.openflow.values import FlowCount, PortCount
from saps.ofm.tables import (
    CONTROLLER,
    IN_PORT,
    LOCAL,
    NORMAL,
    WIDTHS,
    Action,
    Bucket,
    Field,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Output,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
    mac,
    mac_text,
)
from saps.ofm.topology import Link, Port

_PORTS = {"IN_PORT": IN_PORT, "NORMAL": NORMAL, "CONTROLLER": CONTROLLER, "LOCAL": LOCAL}
_PORT_NAMES = {number: name for name, number in _PORTS.items()}
_OLD_NAMES = {"dl_type": "eth_type", "dl_src": "eth_src", "dl_dst": "eth_dst", "nw_proto": "ip_proto",
              "nw_src": "ipv4_src", "nw_dst": "ipv4_dst", "tp_src": "udp_src", "tp_dst": "udp_dst"}  # fmt: skip
_SET_FIELD = re.compile(r"SET_FIELD: \{(\w+):(.*)\}")
_RESERVED = 0xFFFFFF00
"""Port numbers from here on are no ports of their own (OpenFlow 1.3.5, 7.2.1)."""
FOREIGN = Output(0)
"""Stands for an action that we have no word for; no plan contains it, since there is no port 0."""


def flow_entry(dpid: int, flow: Flow) -> dict[str, Any]:
    """The body of `/stats/flowentry/add` and `/stats/flowentry/delete_strict`."""
    return {
        "dpid": dpid,
        "table_id": flow.table,
        "priority": flow.priority,
        "cookie": flow.cookie,
        "cookie_mask": (1 << 64) - 1,
        "match": {name: _text(name, masked) for name, masked in sorted(flow.match.fields)},
        "actions": [_action(action) for action in flow.actions],
    }


def group_entry(dpid: int, group: Group) -> dict[str, Any]:
    """The body of `/stats/groupentry/add` and `/modify`."""
    buckets = [
        {"weight": bucket.weight, "actions": [_action(action) for action in bucket.actions]}
        | ({} if bucket.watch is None else {"watch_port": bucket.watch})
        for bucket in group.buckets
    ]
    return {"dpid": dpid, "type": group.kind.name, "group_id": group.id, "buckets": buckets}


def tables(flows: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]) -> Tables:
    """What the answers of `/stats/flow` and `/stats/groupdesc` say. Raises `ValueError`."""
    return Tables.of((count.flow for count in flow_counts(flows)), map(_group, groups))


def flow_counts(flows: Iterable[Mapping[str, Any]]) -> Iterator[FlowCount]:
    """What the answer of `/stats/flow` says, but for entries that match on what we have no words for."""
    for entry in flows:
        try:
            match = Match.of(**dict(_field(name, value) for name, value in entry["match"].items()))
        except ValueError:
            continue
        flow = Flow(
            entry["priority"], match, tuple(map(_read_action, entry["actions"])), entry["table_id"], entry["cookie"]
        )
        age = entry["duration_sec"] + entry["duration_nsec"] / 1e9
        yield FlowCount(flow, entry["packet_count"], entry["byte_count"], age)


def port_counts(ports: Iterable[Mapping[str, Any]]) -> Iterator[PortCount]:
    """What the answer of `/stats/port` says, but for the switch's own port."""
    names = ("packets", "bytes", "dropped", "errors")
    for entry in ports:
        if isinstance(entry["port_no"], int):
            yield PortCount(entry["port_no"], *(entry[f"{way}_{name}"] for name in names for way in ("rx", "tx")))


def links(answer: Iterable[Mapping[str, Any]]) -> set[Link]:
    """What `/v1.0/topology/links` says: Ryu tells of each direction; a link counts once both are there."""
    ways = {(_port(entry["src"]), _port(entry["dst"])) for entry in answer}
    return {Link.of(a, b) for a, b in ways if (b, a) in ways and a.dpid != b.dpid}


def hosts(answer: Iterable[Mapping[str, Any]]) -> dict[str, Port]:
    """What `/v1.0/topology/hosts` says: the place of each MAC address."""
    return {mac_text(mac(entry["mac"])): _port(entry["port"]) for entry in answer}


def _port(entry: Mapping[str, Any]) -> Port:
    return Port(int(entry["dpid"], 16), int(entry["port_no"], 16))


def _text(name: Field, masked: Masked) -> int | str:
    full = (1 << WIDTHS[name]) - 1
    value = _value(name, masked.value)
    return value if masked.mask == full else f"{value}/{_value(name, masked.mask)}"


def _value(name: Field, value: int) -> int | str:
    if name.startswith("ipv4"):
        return str(ipaddress.IPv4Address(value))
    if name.startswith("ipv6"):
        return str(ipaddress.IPv6Address(value))
    return mac_text(value) if name in ("eth_src", "eth_dst") else value


def _number(name: Field, text: str) -> int:
    if name.startswith("ip") and name[-4:] in ("_src", "_dst"):
        return int(ipaddress.ip_address(text))
    return mac(text) if name in ("eth_src", "eth_dst") else int(text, 0)


def _field(name: str, value: Any) -> tuple[Field, Masked | int]:
    """Raises `ValueError` for what is no field of ours."""
    name = _OLD_NAMES.get(name, name)
    if name not in WIDTHS:
        raise ValueError(f"unknown match field {name!r}")
    text, slash, mask = str(value).partition("/")
    number = _PORTS[text] if text in _PORTS else _number(name, text)
    return name, Masked(number, _number(name, mask)) if slash else number


def _action(action: Action) -> dict[str, Any]:
    match action:
        case Output(port):
            return {"type": "OUTPUT", "port": _PORT_NAMES.get(port, port)}
        case ToGroup(group):
            return {"type": "GROUP", "group_id": group}
        case SetQueue(queue):
            return {"type": "SET_QUEUE", "queue_id": queue}
        case SetField(name, value):
            return {"type": "SET_FIELD", "field": name, "value": _value(name, value)}


def _read_action(text: Any) -> Action:
    if isinstance(text, str):
        if found := _SET_FIELD.fullmatch(text):
            return SetField(found[1], _number(found[1], found[2]))
        kind, _, value = text.partition(":")
        if kind == "OUTPUT":
            return Output(_PORTS.get(value) or int(value)) if value in _PORTS or value.isdigit() else FOREIGN
        if kind == "GROUP" and value.isdigit():
            return ToGroup(int(value))
        if kind == "SET_QUEUE" and value.isdigit():
            return SetQueue(int(value))
    return FOREIGN


def _group(entry: Mapping[str, Any]) -> Group:
    kind = GroupKind.SELECT if entry["type"] == "SELECT" else GroupKind.ALL
    buckets = tuple(
        Bucket(tuple(map(_read_action, b["actions"])), b["weight"], _watch(b.get("watch_port")))
        for b in entry["buckets"]
    )
    return Group(int(entry["group_id"]), buckets, kind)


def _watch(port: Any) -> int | None:
    """The port that a bucket watches; reserved ones, by number or name, mean none."""
    return port if isinstance(port, int) and port < _RESERVED else None
