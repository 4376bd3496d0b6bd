"""Defines the JSON messages between OFGate and the OFC; `openapi` describes exactly these types.

Decoding checks everything. Afterwards each `BrokerAddress` is in canonical form, so that equal lists compare equal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from saps.ofm.network.topology import BrokerAddress

Priority = Annotated[int, msgspec.Meta(ge=0, le=7, description="0 is the lowest; 7 passes everything else.")]
"""Priority of a topic's packets: the class selector of their DSCP (RFC 2474, 4.2.2) and their egress queue."""
Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=65535)]
"""A topic's name; the controller only compares it for equality."""


OVERHEAD = 110
"""Approximate bytes around a payload on the wire: Ethernet, IPv6 and UDP headers, and what `datagram` adds."""
MOST_RATE = 1e15
"""Largest demand in bit/s, more than any link carries. Sums of many of them are exact enough, too."""


class Status(StrEnum):
    """The state of an OFM. A publisher may use the address only while it is `CONSTRUCTED` (SAPS 2016, 3.1.2)."""

    NONE = "none"
    """No OFM is wanted, and none is left."""
    CONSTRUCTING = "constructing"
    """The OFM is not yet complete for the first time; `reason` names what it waits for, if anything."""
    CONSTRUCTED = "constructed"
    """All wanted brokers are connected, and every switch has confirmed its part."""
    UPDATING = "updating"
    """The OFM was constructed; then its brokers or the network have changed. `brokers` are connected meanwhile."""
    DELETING = "deleting"
    """The OFM is not wanted any more; switches still hold parts of it."""
    REFUSED = "refused"
    """The intent cannot be fulfilled, for the `reason`. A former tree that still works stays: see `address` and
    `brokers`."""


class Demand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The demand of a topic on each link of its tree: `rate`, or `messages` of `size`. Raises `ValueError` for neither
    or both, for a negative value, and for more than 1e15 bit/s."""

    rate: float | None = None
    """Rate in bit/s."""
    messages: float | None = None
    """Messages a second."""
    size: float = 256.0
    """Mean size of a message's payload in bytes."""

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.messages is None):
            raise ValueError("a demand is a rate, or messages and their size")
        if not self.size >= 0 or not 0 <= self.bits <= MOST_RATE:
            raise ValueError(f"a demand must be from 0 to {MOST_RATE:g} bit/s")

    @property
    def bits(self) -> float:
        """The demand in bit/s on each link."""
        return self.rate if self.rate is not None else (self.messages or 0.0) * (self.size + OVERHEAD) * 8


class OfmIntent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The wanted form of an OFM: the body of a PUT. Order and repetition in the lists mean nothing."""

    brokers: list[BrokerAddress]
    """The broker list: all of them send and receive."""
    senders: list[BrokerAddress] = []
    """Brokers that only send: they receive their loopback packets and nothing else."""
    priority: Priority | None = None
    """Priority of the packets; None: neither marks nor queue."""
    demand: Demand | None = None
    """Expected demand; None: unknown."""


class OfmRequest(msgspec.Struct, frozen=True):
    """An intent and the topic it is for."""

    topic: Topic
    brokers: list[BrokerAddress]
    priority: Priority | None = None
    senders: list[BrokerAddress] = []
    demand: Demand | None = None

    @property
    def intent(self) -> OfmIntent:
        """The intent without the topic."""
        return OfmIntent(brokers=self.brokers, senders=self.senders, priority=self.priority, demand=self.demand)


class OfmState(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of an OFM."""

    topic: Topic
    status: Status
    address: str | None = None
    """The destination of the topic's packets: `239.77.0.1:5000`, `[ff05::1]:5000`; None if there is no tree."""
    brokers: list[BrokerAddress] = []
    """The brokers connected now, senders included, ascending: they are in the tree, and their switches have confirmed
    it."""
    version: int = 0
    """Version of the state: of two states of one OFM, the later one has the greater version."""
    reason: str | None = None
    """Why the OFM is refused, or what it waits for: `waiting for 02:00:00:00:00:01`."""
    former: str | None = None
    """The address before the tree moved to other links. It still works for a while, for the brokers it had."""
    sets: list[list[BrokerAddress | None]] = []
    """For stateless delivery (`saps.ofm.stateless.address.EVERY_TOPIC`): the broker at each bit of each set."""
    planes: list[int] = []
    """For stateless delivery: the numbers of the planes that may be used."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The changes since a revision."""

    run: str
    """Name of this run of the controller. Revisions of two runs are not comparable."""
    revision: int
    """The revision to ask from next time."""
    ofms: list[OfmState]
    """The present states of the OFMs that have changed; a deleted OFM has the status `none`."""
    complete: bool
    """Whether `ofms` are all OFMs, because the revision asked for is of another run or too old. Then every other OFM is
    `none`."""


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Use and limit of one resource of a switch."""

    used: int
    budget: int


class SwitchBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one switch by OFMs."""

    dpid: str
    """Switch id, 16 hexadecimal digits."""
    connected: bool
    entries: Quota
    """Flow entries, used and allowed."""
    buckets: Quota
    """Group buckets, used and allowed."""
    alone: int = 0
    """Flow entries that would be used if no entry served several OFMs. With coded addresses, some do."""


class SwitchCount(msgspec.Struct, frozen=True, kw_only=True):
    """The count of one switch of a tree: packets that entered the OFM's group there."""

    dpid: str
    packets: int
    bytes: int


class BrokerCount(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker has sent to the OFM, counted at its switch."""

    broker: BrokerAddress
    packets: int
    bytes: int


class PortTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one port since its switch has known the port. They cover all traffic, not only OFMs. A counter
    that the switch does not keep is 0."""

    dpid: str
    port: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    dropped: int
    """Packets dropped in either direction."""


class OfmStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of an OFM since its entries were installed. Bytes count whole Ethernet frames."""

    topic: Topic
    switches: list[SwitchCount]
    senders: list[BrokerCount]


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """A bit that is set in an address of stateless delivery."""

    position: int
    """The bit; 0 is the address's last."""
    broker: BrokerAddress | None
    """The broker at this position of the set; None: nobody."""
    dpid: str | None
    """The switch at which the plane reaches the broker; None: the plane does not reach it."""
    port: int | None


class WayLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two switches, with the datapath ids and ports of its ends."""

    a: str
    a_port: int
    b: str
    b_port: int


class DecodedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """What an address of stateless delivery means now (`saps.ofm.stateless.address`)."""

    address: str
    set: int
    plane: int
    working: bool
    """Whether the plane may be used."""
    receivers: list[Receiver]
    """By position."""
    links: list[WayLink]
    """The links of the plane that a packet takes from the sender, or, without one, that join the receivers."""


STANDBY = "urn:saps:problem:standby"
"""Problem type of a standby: ask the controller that is master instead."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457, `application/problem+json`)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    ofm: OfmState | None = None
    """The state of the OFM that the request was about, if any."""
