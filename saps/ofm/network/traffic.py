"""Keeps what planners balance: the capacity of each link, and the bandwidth of each topic on the links of its tree.

Capacities come from the switches' port descriptions (OpenFlow 1.3.5, 7.2.1, `curr_speed`), demands from the intents. An
operator's files override both. All values are in bit/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from saps.ofm.controller.events import Event, PortChanged, SwitchGone, SwitchUp
from saps.ofm.network.topology import Link, Port
from saps.ofm.northbound.schema import Demand

CAPACITY = 1e9
"""Default capacity of a link in bit/s, if neither the switches nor the operator give one."""
RATE = 1e6
"""Default bandwidth of a topic in bit/s."""
Kbits: TypeAlias = int


class Traffic:
    """The known capacities and demands. `version` counts the changes of capacities."""

    def __init__(self, links: Mapping[Link, float] | None = None, rates: Mapping[str, float] | None = None) -> None:
        """`links` are the operator's capacities and `rates` the operator's demands, both in bit/s. They override all
        other sources."""
        self.version = 0
        self._links = dict(links or {})
        self._fixed = dict(rates or {})
        self._speeds: dict[int, dict[int, Kbits]] = {}
        """The known speeds of ports by switch."""
        self._rates: dict[str, float] = {}

    def hear(self, news: Event) -> None:
        """Take in the port speeds in news of a switch."""
        match news:
            case SwitchUp(dpid=dpid, speeds=speeds):
                self._ports(dpid, speeds)
            case SwitchGone(dpid):
                self._ports(dpid, {})
            case PortChanged(at=at, up=None):
                self._ports(at.dpid, {**self._speeds.get(at.dpid, {}), at.port: 0})
            case PortChanged(at=at, speed=int(speed)):
                self._ports(at.dpid, {**self._speeds.get(at.dpid, {}), at.port: speed})

    def _ports(self, dpid: int, speeds: Mapping[int, Kbits]) -> None:
        """Note the speeds of a switch's ports in kbit/s; 0: the switch does not know it."""
        known = {port: speed for port, speed in speeds.items() if speed}
        if known != self._speeds.pop(dpid, {}):
            self.version += 1
        if known:
            self._speeds[dpid] = known

    def capacity(self, link: Link) -> float:
        """Return the capacity in each direction in bit/s: the operator's value, or the speed of the slower end, or
        `CAPACITY`."""
        if (given := self._links.get(link)) is not None:
            return given
        known = [speed for end in link if (speed := self._speeds.get(end.dpid, {}).get(end.port))]
        return 1000.0 * min(known) if known else CAPACITY

    def intended(self, topic: str, rate: float | None) -> bool:
        """Set the bandwidth of a topic from its intent in bit/s; None: the intent gives none. Return whether `rate` has
        changed."""
        before = self.rate(topic)
        if rate is None:
            self._rates.pop(topic, None)
        else:
            self._rates[topic] = rate
        return self.rate(topic) != before

    def rate(self, topic: str) -> float:
        """Return the bandwidth of a topic in bit/s."""
        return self._fixed.get(topic, self._rates.get(topic, RATE))


class _End(msgspec.Struct):
    dpid: str
    port: int


class _Capacity(msgspec.Struct):
    a: _End
    b: _End
    capacity: float | None = None


class _Network(msgspec.Struct):
    links: list[_Capacity]


def capacities_of(data: object) -> dict[Link, float]:
    """Return the capacities in a file, in bit/s. The file is a topology as `GET /v1/topology` writes it, with
    `capacity` at the links that shall differ from what the switches say. Raises `ValueError` that says where the data
    is wrong."""
    try:
        rows = msgspec.convert(data, _Network).links
        found = {
            Link.of(*(Port(int(end.dpid, 16), end.port) for end in (row.a, row.b))): row.capacity
            for row in rows
            if row.capacity is not None
        }
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"not a topology: {error}") from None
    if any(not 0 < capacity < float("inf") for capacity in found.values()):
        raise ValueError("not a topology: a capacity must be greater than 0")
    return found


class _Row(msgspec.Struct):
    topic: str
    rate: float | None = None
    messages: float | None = None
    size: float = 256.0


def rates_of(data: object) -> dict[str, float]:
    """Return the demands in a file by topic, in bit/s. The file is a list of `{"topic": ..., "rate": bit/s}` or
    `{"topic": ..., "messages": 1/s, "size": bytes}`, or an object from topic to rate. Raises `ValueError` that says
    where the data is wrong."""
    try:
        if isinstance(data, dict):
            return {topic: Demand(rate=rate).bits for topic, rate in msgspec.convert(data, dict[str, float]).items()}
        return {
            row.topic: Demand(rate=row.rate, messages=row.messages, size=row.size).bits
            for row in msgspec.convert(data, list[_Row])
        }
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"not demands: {error}") from None


def clusters_of(data: object) -> dict[int, str]:
    """Return the clusters in a file: an object from switch (16 hexadecimal digits) to cluster name. Raises `ValueError`
    that says where the data is wrong."""
    try:
        return {int(dpid, 16): name for dpid, name in msgspec.convert(data, dict[str, str]).items()}
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"not clusters: {error}") from None


def with_capacities(picture: dict[str, Any], traffic: Traffic) -> dict[str, Any]:
    """Return a network as `Topology.to_json` writes it, with the capacity of each link. `picture` is changed in
    place."""
    for link in picture["links"]:
        ends = (Port(int(link[end]["dpid"], 16), link[end]["port"]) for end in "ab")
        link["capacity"] = traffic.capacity(Link.of(*ends))
    return picture
