"""The words of the switch-over between ALM and OFM, shared by publishers, subscribers and OFGate (SAPS 2016, 3.2).

EITHER and BOTH (`saps.agents.either`, `saps.agents.both`) are two tables over this vocabulary: the same events at a
broker, answered differently. `saps.agents.ofm` holds them at each broker, `saps.agents.ofgate.ofgate` is the other
side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmRequest, OfmState
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.rendezvous.domains import Domains
from saps.overlay.ring.keys import BrokerRef
from saps.topics import matches

OFGATE = "ofgate"
"""Attribute of the OFGate agents."""
OFM = "ofm"
"""Name, and so attribute, of each broker's OFM agent."""


class Mode(StrEnum):
    """How the membership of a topic's tree is managed."""

    EITHER = "either"
    """OFGate knows all members; a publisher asks it, and uses either ALM or OFM (3.2.1)."""
    BOTH = "both"
    """The overlay knows S(t) and S(t$OFM); a publisher uses both at once (3.2.2)."""


class Modes:
    """Which mode each topic has. The same at all brokers of a mesh and at OFGate."""

    def __init__(self, usual: Mode, exceptions: Sequence[str] = (), domains: Sequence[str] = ()) -> None:
        """Topics that match one of the filters in `exceptions` have the other mode. `domains`: see `Domains`."""
        self.domains = Domains(domains)
        self._usual = usual
        self._other = Mode.BOTH if usual is Mode.EITHER else Mode.EITHER
        self._exceptions = tuple(exceptions)

    def of(self, topic: str) -> Mode:
        """The mode of a topic."""
        return self._other if any(matches(exception, topic) for exception in self._exceptions) else self._usual

    def ofgate(self, broker: BrokerRef) -> str:
        """The attribute of the OFGates that a broker has to do with: those of its domain."""
        domain = self.domains.of(broker)
        return f"{OFGATE}@{domain}" if domain else OFGATE

    def has(self, mode: Mode) -> bool:
        """May there be topics with this mode?"""
        return mode is self._usual or bool(self._exceptions)


class Member(NamedTuple):
    """A broker, and its element of the broker list."""

    ref: BrokerRef
    element: BrokerAddress

    def plain(self) -> list[Any]:
        """As MessagePack values, for a remote call."""
        ref, element = self.ref, self.element
        return [[ref.name, ref.incarnation, ref.address, ref.cluster], [element.ip, element.mac, element.port]]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Member:
        """The inverse of `plain`. Raises ValueError or TypeError for what is none."""
        (name, incarnation, address, cluster), (ip, mac, port) = plain
        return cls(BrokerRef(name, incarnation, address, cluster), BrokerAddress(ip, mac, port))


class Delivery(Protocol):
    """What a broker does about OFM: a table of reactions (`saps.agents.either`, `saps.agents.both`)."""

    def filter_ready(self, topic_filter: str) -> None:
        """This broker has its first subscriber for a filter, and every publisher knows."""

    def filter_gone(self, topic_filter: str) -> None:
        """The last subscriber of a filter has gone."""

    def stream_opened(self, topic: str) -> None:
        """This broker begins to publish to a topic."""

    def stream_closed(self, topic: str) -> None:
        """It has ended to."""

    def heard(self, topic: str, tree: Tree) -> None:
        """A topic this broker wants has come by a tree."""

    def group_changed(self, topic: str) -> None:
        """S(t$OFM) of a topic that this broker publishes to has changed."""

    def failed(self, topic: str, tree: Tree) -> None:
        """A tree this broker used returns no loopback packets."""

    def constructed(self, topic: str, tree: Tree) -> None:
        """OFGate says that a tree which this broker is part of is there."""

    def admitted(self, topic: str, tree: Tree) -> None:
        """OFGate has put this broker into the tree again."""

    def revoke(self, topic: str, epoch: int) -> bool:
        """OFGate will change or delete the topic's tree: do not use it any more. True when no publication that leaves
        from now on depends on this broker's knowledge of it; else OFGate will ask again."""

    def drop_leases(self) -> None:
        """Another OFGate leads: nothing the former one has said holds any more."""


class Controller(Protocol):
    """The northbound interface as OFGate uses it. Each call is answered once by `done`, or never if it got lost; None
    says that the controller cannot be reached. All calls may be repeated. Refusals are states (`Status.REFUSED`)."""

    def put(self, request: OfmRequest, done: Callable[[OfmState | None], None]) -> None:
        """Construct or change the OFM of a topic. The answer may come before that is complete: then ask again."""

    def delete(self, topic: str, done: Callable[[OfmState | None], None]) -> None:
        """Take the OFM of a topic away, if there is one."""

    def list(self, done: Callable[[list[OfmState] | None], None]) -> None:
        """All OFMs."""

    def watch(self, changed: Callable[[OfmState], None]) -> Callable[[], None]:
        """From now on `changed` gets each state that has changed, soon; at first, and whenever the controller has been
        out of reach, all states. Gives what ends this."""
