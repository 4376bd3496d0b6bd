"""What a controller asks of a switch, as values, beside the changes of `saps.ofm.flows.tables`; `encode` writes
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
    """Add a group. One that is there is an error."""

    group: Group


@dataclass(frozen=True, slots=True)
class ModifyGroup:
    """Replace a group's buckets at once. One that is not there is an error."""

    group: Group


@dataclass(frozen=True, slots=True)
class AddMeter:
    """Add a meter. One that is there is an error."""

    meter: Meter


@dataclass(frozen=True, slots=True)
class ModifyMeter:
    """Change a meter. One that is not there is an error."""

    meter: Meter


Mod: TypeAlias = (
    PutFlow | DropFlow | DropFlows | AddGroup | ModifyGroup | PutGroup | DropGroup | AddMeter | ModifyMeter | DropMeter
)
"""A change of a switch's tables: answered by nothing but an error; a barrier tells that it has been done."""


@dataclass(frozen=True, slots=True)
class AskFeatures:
    """Answer: `Features`."""


@dataclass(frozen=True, slots=True)
class AskMaker:
    """Answer: a tuple with the maker and the model of the switch, as two texts."""


@dataclass(frozen=True, slots=True)
class AskPorts:
    """Answer: a tuple of `PortInfo`."""


@dataclass(frozen=True, slots=True)
class AskFlows:
    """Flow entries whose cookie equals `cookie` in the bits of `mask`. Answer: a tuple of `FlowCount`."""

    cookie: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class AskFlowTotal:
    """How many flow entries have a cookie that equals `cookie` in the bits of `mask`. Answer: an integer."""

    cookie: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class AskGroups:
    """Answer: a tuple of `Group`."""


@dataclass(frozen=True, slots=True)
class AskGroupCounts:
    """Answer: a tuple of `GroupCount`."""


@dataclass(frozen=True, slots=True)
class AskPortCounts:
    """Answer: a tuple of `PortCount`."""


@dataclass(frozen=True, slots=True)
class AskMeters:
    """Answer: a tuple of `Meter`."""


@dataclass(frozen=True, slots=True)
class AskMeterCounts:
    """Answer: a tuple of `MeterCount`."""


@dataclass(frozen=True, slots=True)
class AskRole:
    """Ask for a role; `generation` must not be less than the switch has seen. Answer: `RoleState`."""

    role: Role
    generation: int


@dataclass(frozen=True, slots=True)
class AskBarrier:
    """Answered by None when all that was sent before has been done."""


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
"""What is answered by a message, or several (multipart), or an error."""


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Send a frame out of a port."""

    port: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class SendWholePackets:
    """Packet-ins shall carry whole packets, kept in no buffer of the switch."""


Request: TypeAlias = Mod | Question | SendPacket | SendWholePackets
