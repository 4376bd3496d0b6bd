"""Defines what a switch reports, as values: ports, packets, counters and errors (OpenFlow 1.3.5, chapter 7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from saps.ofm.flows.tables import Flow


@dataclass(frozen=True, slots=True)
class Features:
    """The identity of a switch (7.3.1)."""

    dpid: int
    """Datapath id, 64 bits: the permanent name of the switch."""
    tables: int
    auxiliary: int
    """Number of an auxiliary connection; 0 on the main connection."""


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port of a switch (7.2.1)."""

    number: int
    name: str
    mac: int
    up: bool
    """Whether the port is neither down by configuration nor without a carrier."""
    speed: int
    """Current bit rate in kbit/s; 0: unknown."""


class PortChange(Enum):
    """The change of a port (7.4.3)."""

    ADDED = 0
    REMOVED = 1
    MODIFIED = 2


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A port that was added, removed or changed."""

    change: PortChange
    port: PortInfo


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that the switch handed to the controller (7.4.1). Such packets may be lost on the way."""

    port: int
    cookie: int
    """Cookie of the flow that sent it."""
    frame: bytes
    """Frame from the Ethernet header on; it may be truncated."""


@dataclass(frozen=True, slots=True)
class FlowCount:
    """A flow entry and its counters (7.3.5.2)."""

    flow: Flow
    packets: int
    bytes: int
    seconds: float
    """Age of the entry in seconds."""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """A group's counters (7.3.5.9). `buckets` holds (packets, bytes) of each bucket."""

    id: int
    flows: int
    """Number of flows and groups that use it."""
    packets: int
    bytes: int
    buckets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PortCount:
    """A port's counters since its switch has known the port (7.3.5.6). None: the switch does not keep this counter."""

    port: int
    rx_packets: int | None
    tx_packets: int | None
    rx_bytes: int | None
    tx_bytes: int | None
    rx_dropped: int | None
    tx_dropped: int | None
    rx_errors: int | None
    tx_errors: int | None


@dataclass(frozen=True, slots=True)
class MeterCount:
    """A meter's counters (7.3.5.12)."""

    id: int
    flows: int
    """Number of flows that use it."""
    packets: int
    bytes: int
    dropped: int
    """Packets that its first band has dropped."""


class Role(IntEnum):
    """The rights of a controller at a switch that has several (6.3.6). Only one is MASTER; a SLAVE only reads."""

    UNCHANGED = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


@dataclass(frozen=True, slots=True)
class RoleState:
    """The role that a switch has granted."""

    role: Role
    generation: int
    """Generation of the latest election of a master that the switch knows."""


@dataclass(frozen=True, slots=True)
class SwitchError:
    """An error message of a switch (7.4.4)."""

    type: int
    code: int
    name: str
    """Name of the code, such as `OFPGMFC_UNKNOWN_GROUP`; its numbers if the specification has no name."""
    data: bytes
    """At least the first 64 bytes of the refused message, or a text."""

    def __str__(self) -> str:
        return self.name
