"""The vocabulary of the switch-over between ALM and OFM, shared by publishers, subscribers and OFGate (SAPS 2016, 3.2).

EITHER and BOTH (`saps.agents.either`, `saps.agents.both`) are two tables over this vocabulary. They answer the same
events at a broker in different ways. `saps.agents.ofm` holds both tables at each broker; `saps.agents.ofgate.ofgate` is
the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.rendezvous.domains import Domains
from saps.overlay.ring.keys import BrokerRef
from saps.topics import matches

OFGATE = "ofgate"
"""Attribute of the OFGate agents."""
OFM = "ofm"
"""Name of each broker's OFM agent, and so its attribute too."""


class Mode(StrEnum):
    """How the membership of a topic's tree is managed."""

    EITHER = "either"
    """OFGate knows all members. A publisher asks OFGate, and uses either ALM or OFM (3.2.1)."""
    BOTH = "both"
    """The overlay knows S(t) and S(t$OFM). A publisher uses ALM and OFM at once (3.2.2)."""


class Modes:
    """The mode of each topic. All brokers of a mesh and OFGate must use the same modes."""

    def __init__(self, usual: Mode, exceptions: Sequence[str] = (), domains: Sequence[str] = ()) -> None:
        """Give topics that match a filter in `exceptions` the other mode than `usual`. `domains`: see `Domains`."""
        self.domains = Domains(domains)
        self._usual = usual
        self._other = Mode.BOTH if usual is Mode.EITHER else Mode.EITHER
        self._exceptions = tuple(exceptions)

    def of(self, topic: str) -> Mode:
        """Return the mode of a topic."""
        return self._other if any(matches(exception, topic) for exception in self._exceptions) else self._usual

    def ofgate(self, broker: BrokerRef) -> str:
        """Return the attribute of the OFGates of a broker's domain."""
        domain = self.domains.of(broker)
        return f"{OFGATE}@{domain}" if domain else OFGATE

    def has(self, mode: Mode) -> bool:
        """Return whether topics can have this mode."""
        return mode is self._usual or bool(self._exceptions)


class Member(NamedTuple):
    """A broker and its element of the broker list."""

    ref: BrokerRef
    element: BrokerAddress

    def plain(self) -> list[Any]:
        """Return the member as MessagePack values, for a remote call."""
        ref, element = self.ref, self.element
        return [[ref.name, ref.incarnation, ref.address, ref.cluster], [element.ip, element.mac, element.port]]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Member:
        """Return the member that `plain` has encoded. Raises `ValueError` or `TypeError` if the values encode no
        member."""
        (name, incarnation, address, cluster), (ip, mac, port) = plain
        return cls(BrokerRef(name, incarnation, address, cluster), BrokerAddress(ip, mac, port))


Epoch = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""The epoch of a tree. OFGate issues the highest epoch it hears of plus one, so the bound leaves room for more."""


class TopicStatus(msgspec.Struct, frozen=True, array_like=True):
    """OFGate's answer to an order about a topic."""

    status: Status
    reason: str | None = None


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """OFGate's answer to a publisher that asks about a topic (EITHER)."""

    status: Status
    address: str
    """Multicast address of the tree; empty, like all that follows but the lease, if the publisher may not use it."""
    epoch: Epoch
    brokers: list[tuple[str, int]]
    """Name and incarnation of each broker that the tree serves."""
    lease: float
    """Time in seconds for which the answer holds."""
    label: bytes | None = None
    """Label of the key that seals the datagrams."""


class Party(msgspec.Struct, frozen=True, array_like=True):
    """A broker's part in a topic."""

    member: Any
    """The broker, as `Member.plain`."""
    subscribes: bool
    publishes: bool


class Report(msgspec.Struct, frozen=True, array_like=True):
    """A broker's report to OFGate about itself."""

    member: Any
    """The broker, as `Member.plain`."""
    filters: list[tuple[str, int]]
    """Filters with their versions."""
    joined: list[tuple[str, str, Epoch]]
    """Topic, address and epoch of each tree that the broker has joined."""
    epoch: Epoch
    """The highest epoch that the broker knows of."""
    outgrown: list[str] = []
    """Topics that the broker publishes and that have subscribers outside their tree (BOTH)."""
    enrolled: bool = False
    """Whether the broker takes part in stateless delivery."""


class Delivery(Protocol):
    """The reactions of a broker to the events of OFM: one table for each mode (`saps.agents.either`,
    `saps.agents.both`)."""

    def filter_ready(self, topic_filter: str) -> None:
        """Handle this broker's first subscriber for a filter. Every publisher knows of the filter by now."""

    def filter_gone(self, topic_filter: str) -> None:
        """Handle the loss of the last subscriber of a filter."""

    def stream_opened(self, topic: str) -> None:
        """Handle the start of this broker's publications to a topic."""

    def stream_closed(self, topic: str) -> None:
        """Handle the end of this broker's publications to a topic."""

    def heard(self, topic: str, tree: Tree) -> None:
        """Handle a datagram that came along a tree with a topic this broker wants."""

    def group_changed(self, topic: str) -> None:
        """Handle a change of S(t$OFM) of a topic that this broker publishes to."""

    def failed(self, topic: str, tree: Tree) -> None:
        """Handle the failure of a tree that this broker uses: the tree returns no loopback packets."""

    def constructed(self, topic: str, tree: Tree) -> None:
        """Handle OFGate's notice that a tree which includes this broker is constructed."""

    def admitted(self, topic: str, tree: Tree) -> None:
        """Handle OFGate's notice that this broker is in the tree again."""

    def revoke(self, topic: str, epoch: int) -> bool:
        """Stop using the topic's tree up to this epoch: OFGate is about to change or delete it. Return whether this
        broker has let go: then no later publication depends on its knowledge of the tree. OFGate repeats the call until
        the answer is True."""


class Controller(Protocol):
    """The northbound interface as OFGate uses it. Each call is answered once by `done`, or never if the call or its
    answer is lost. None as the answer means that the controller cannot be reached. All calls may be repeated. A refusal
    is a state (`Status.REFUSED`)."""

    def put(self, request: OfmRequest, done: Callable[[OfmState | None], None]) -> None:
        """Construct or change the OFM of a topic. The answer may come before the work is complete: then ask again."""

    def delete(self, topic: str, done: Callable[[OfmState | None], None]) -> None:
        """Delete the OFM of a topic, if there is one."""

    def list(self, done: Callable[[list[OfmState] | None], None]) -> None:
        """Pass the states of all OFMs to `done`."""

    def watch(self, changed: Callable[[OfmState], None]) -> Callable[[], None]:
        """Call `changed` soon with each state that changes, until the returned function is called. At first, and
        whenever the controller was out of reach, `changed` gets all states."""
