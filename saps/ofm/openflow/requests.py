"""Defines what a controller asks of a switch, as values, beside the changes of `saps.ofm.flows.tables`. `encode` writes
them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from saps.ofm.flows.tables import DropFlow, DropGroup, DropMeter, Group, Meter, PutFlow, PutGroup
from saps.ofm.openflow.values import Role


@dataclass(frozen=True, slots=True)
class DropFlows:
    """Delete all flow entries, of every table, whose cookie equals `cookie` in the bits of `mask`."""

    cookie: int
    mask: int


@dataclass(frozen=True, slots=True)
class AddGroup:
    """Add a group. An existing group is an error."""

    group: Group


@dataclass(frozen=True, slots=True)
class ModifyGroup:
    """Replace a group's buckets at once. An unknown group is an error."""

    group: Group


@dataclass(frozen=True, slots=True)
class AddMeter:
    """Add a meter. An existing meter is an error."""

    meter: Meter


@dataclass(frozen=True, slots=True)
class ModifyMeter:
    """Change a meter. An unknown meter is an error."""

    meter: Meter


Mod: TypeAlias = (
    PutFlow | DropFlow | DropFlows | AddGroup | ModifyGroup | PutGroup | DropGroup | AddMeter | ModifyMeter | DropMeter
)
"""A change of a switch's tables. Only an error answers it; a barrier confirms that it has been done."""


@dataclass(frozen=True, slots=True)
class AskFeatures:
    """Ask for the switch's features. Answer: `Features`."""


@dataclass(frozen=True, slots=True)
class AskMaker:
    """Ask for the switch's description. Answer: a tuple of maker and model, two texts."""


@dataclass(frozen=True, slots=True)
class AskPorts:
    """Ask for all ports. Answer: a tuple of `PortInfo`."""


@dataclass(frozen=True, slots=True)
class AskFlows:
    """Ask for the flow entries whose cookie equals `cookie` in the bits of `mask`. Answer: a tuple of `FlowCount`, None
    in place of entries with unknown match fields."""

    cookie: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class AskFlowTotal:
    """Ask for the number of flow entries whose cookie equals `cookie` in the bits of `mask`. Answer: a tuple of one
    integer."""

    cookie: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class AskGroups:
    """Ask for all groups. Answer: a tuple of `Group`."""


@dataclass(frozen=True, slots=True)
class AskGroupCounts:
    """Ask for the counters of all groups. Answer: a tuple of `GroupCount`."""


@dataclass(frozen=True, slots=True)
class AskPortCounts:
    """Ask for the counters of all ports. Answer: a tuple of `PortCount`."""


@dataclass(frozen=True, slots=True)
class AskMeters:
    """Ask for all meters. Answer: a tuple of `Meter`."""


@dataclass(frozen=True, slots=True)
class AskMeterCounts:
    """Ask for the counters of all meters. Answer: a tuple of `MeterCount`."""


@dataclass(frozen=True, slots=True)
class AskRole:
    """Ask for a role. `generation` must not be less than the switch has seen. Answer: `RoleState`."""

    role: Role
    generation: int


@dataclass(frozen=True, slots=True)
class AskBarrier:
    """Ask for a confirmation that everything sent before has been done. Answer: None."""


Question: TypeAlias = (
    AskFeatures
    | AskMaker
    | AskPorts
    | AskFlows
    | AskFlowTotal
    | AskGroups
    | AskGroupCounts
    | AskPortCounts
    | AskMeters
    | AskMeterCounts
    | AskRole
    | AskBarrier
)
"""A request that is answered by a message, several messages (multipart), or an error."""


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Send a frame out of a port, as if it had come by the port `at`; None: as the controller's own."""

    port: int
    frame: bytes
    at: int | None = None


@dataclass(frozen=True, slots=True)
class SendWholePackets:
    """Ask for packet-ins with whole packets, without buffers of the switch."""


Request: TypeAlias = Mod | Question | SendPacket | SendWholePackets
