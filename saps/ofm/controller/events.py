"""Defines the events that the controller machine takes in and the effects that it returns, as values: its whole
interface."""

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
    """The wanted form of an OFM."""

    brokers: frozenset[BrokerAddress]
    senders: frozenset[BrokerAddress] = frozenset()
    """Brokers that only send. A broker that is in `brokers` as well receives, too."""
    priority: int | None = None
    rate: float | None = None
    """Bandwidth in bit/s on each link of the tree; None: unknown."""

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
    """This policy holds from now on. Trees that it forbids are changed or removed."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class Tick:
    """The time is `now`, in seconds of a clock that does not step back. Send it every few seconds."""

    now: float


@dataclass(frozen=True, slots=True)
class GoneOn:
    """Other tasks of the loop have run: continue with what is left (`Controller.behind`)."""


@dataclass(frozen=True, slots=True)
class SwitchUp:
    """A switch is connected, with these ports up or down. Its tables may hold anything."""

    dpid: int
    ports: Mapping[int, bool]
    speeds: Mapping[int, int] = field(default_factory=dict)
    """Speeds of ports in kbit/s, as far as the switch reports them."""
    tables: int = 254
    """Number of its flow tables."""


@dataclass(frozen=True, slots=True)
class SwitchDown:
    """A switch's connection has ended; the switch may continue to forward, and reconnect soon."""

    dpid: int


@dataclass(frozen=True, slots=True)
class SwitchGone:
    """A switch did not reconnect in time."""

    dpid: int


@dataclass(frozen=True, slots=True)
class PortChanged:
    """A port has gone up or down; None: it does not exist any more."""

    at: Port
    up: bool | None
    speed: int | None = None
    """Speed in kbit/s, if the switch reports it."""


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link was found or lost."""

    link: Link
    up: bool


@dataclass(frozen=True, slots=True)
class LoopFound:
    """A cable joins two ports of one switch, until one of them is down or does not exist any more."""

    a: Port
    b: Port


@dataclass(frozen=True, slots=True)
class HostMoved:
    """A host, named by its MAC address, is at a port now; None: its place is unknown."""

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
    """An `Apply` or a `Read` failed, or its outcome is unknown. `change` is the change that the switch refused, if any;
    `short` is the resource it lacked, if that was the reason."""

    dpid: int
    why: str
    change: object = None
    short: Room | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The network has had its time to show itself since the start: only these links and switches exist."""

    switches: Collection[int]
    links: Collection[Link]


News: TypeAlias = SwitchUp | SwitchDown | SwitchGone | PortChanged | LinkChanged | LoopFound | HostMoved | Settled
"""News of the network."""

Event: TypeAlias = Intended | PolicyChanged | Tick | GoneOn | TablesRead | Applied | Failed | News

# -- effects


@dataclass(frozen=True, slots=True)
class Read:
    """Read a switch's tables, after a pause if this is a repetition. Answer by `TablesRead` or `Failed`."""

    dpid: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """Make changes at a switch. Answer by `Applied` or `Failed`. Nothing else is asked of that switch meanwhile."""

    dpid: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """The state of an OFM has changed to `state`."""

    state: OfmState


@dataclass(frozen=True, slots=True)
class Announce:
    """Have a host's place announced to all switches, so that they learn it anew."""

    mac: str
    at: Port


Effect: TypeAlias = Read | Apply | Announce | Told
