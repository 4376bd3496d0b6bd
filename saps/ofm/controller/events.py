"""What the controller machine hears, and what it wants done: its whole door to the world, as values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from saps.ofm.flows.tables import Change, Room, Tables
from saps.ofm.network.topology import BrokerAddress, Link, Port
from saps.ofm.northbound.schema import OfmState
from saps.policy.model import Policy


@dataclass(frozen=True, slots=True)
class Intent:
    """What an OFM shall be."""

    brokers: frozenset[BrokerAddress]
    senders: frozenset[BrokerAddress] = frozenset()
    """Brokers that only send. One that is among `brokers` too receives."""
    priority: int | None = None
    rate: float | None = None
    """bit/s on each link of the tree; None: not known."""

    @property
    def members(self) -> frozenset[BrokerAddress]:
        """All brokers of the tree."""
        return self.brokers | self.senders


# -- events


@dataclass(frozen=True, slots=True)
class Intended:
    """A topic shall have this OFM, or none. The latest intent wins."""

    topic: str
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """From now on this policy holds. Trees that it forbids are changed, or taken down."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: it is `now`, in seconds of a clock that does not go back. Every few seconds is enough."""

    now: float


@dataclass(frozen=True, slots=True)
class GoneOn:
    """The loop had its turn: go on with what is left (`Controller.behind`)."""


@dataclass(frozen=True, slots=True)
class SwitchUp:
    """A switch is connected, with these ports up or down. Its tables may be anything."""

    dpid: int
    ports: Mapping[int, bool]
    speeds: Mapping[int, int] = field(default_factory=dict)
    """kb/s of ports, as far as the switch says."""


@dataclass(frozen=True, slots=True)
class SwitchDown:
    """A switch's connection has ended; it may forward on, and be back soon."""

    dpid: int


@dataclass(frozen=True, slots=True)
class SwitchGone:
    """A switch did not come back."""

    dpid: int


@dataclass(frozen=True, slots=True)
class PortChanged:
    """A port went up or down."""

    at: Port
    up: bool
    speed: int | None = None
    """kb/s, if the switch says."""


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link was found, or is no more."""

    link: Link
    up: bool


@dataclass(frozen=True, slots=True)
class HostMoved:
    """A host, by its MAC address, is at a port now; None: nobody knows where."""

    mac: str
    at: Port | None


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The answer to `Read`."""

    dpid: int
    tables: Tables


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes of an `Apply` are in effect."""

    dpid: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An `Apply` or a `Read` was not carried out, or nobody knows; with the change that the switch refused, if so, and
    the room it lacked, if that was the reason."""

    dpid: int
    why: str
    change: object = None
    short: Room | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The network has had its time to show itself since the start: only these links exist, only these switches."""

    switches: Collection[int]
    links: Collection[Link]


News: TypeAlias = SwitchUp | SwitchDown | SwitchGone | PortChanged | LinkChanged | HostMoved | Settled
"""Of the network."""

Event: TypeAlias = Intended | PolicyChanged | Tick | GoneOn | TablesRead | Applied | Failed | News

# -- effects


@dataclass(frozen=True, slots=True)
class Read:
    """Read a switch's tables, after a moment if this is a repetition; answer by `TablesRead` or `Failed`."""

    dpid: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """Make changes at a switch; answer by `Applied` or `Failed`. Nothing else is asked of that switch meanwhile."""

    dpid: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """The state of an OFM has changed to this."""

    state: OfmState


Effect: TypeAlias = Read | Apply | Told
